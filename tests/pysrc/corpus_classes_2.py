"""Functions of the corpus: classes, objects and containers, part 2."""

import collections

from tests.pysrc.parts_classes import Counter, Gate, Point, Steps
from tests.pysrc.support import Corpus

import treadle as td
from treadle import nn

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.5,))
VECTORS = (([1.0, 2.0],), ([-1.0, 0.5],), ([4.0, 4.0],))


@case(*PAIRS)
def deque_rotates_in_loop(x):
    q = collections.deque([x, x * 2, x * 3])
    for i in range(20):
        q.append(q.popleft() * 0.5 + i)
    return list(q)


@case(*PAIRS)
def list_methods(x):
    items = [x]
    items.append(x * 2)
    items.extend([x * 3])
    items.insert(0, x * 4)
    last = items.pop()
    items.reverse()
    return items + [last] * 2, items[::-1]


@case(*PAIRS)
def dict_methods(x):
    d = {"a": x}
    d.update(b=x * 2)
    d.setdefault("c", x * 3)
    e = d.pop("a")
    return d, e, d.get("zz", x), list(d.items())


@case(*PAIRS)
def set_static(x):
    s = {1, 2}
    s.add(3)
    s |= {4}
    return x * len(s), 3 in s


@case(*PAIRS)
def tuple_concatenated(x):
    t = (x,) + (x * 2,)
    t += (x * 3,)
    return t


@case(*PAIRS)
def list_slices(x):
    items = [x * i for i in range(5)]
    items[1:3] = [x * 10, x * 20, x * 30]
    return items[::2], items[-1]


@case(*PAIRS)
def list_element_in_branch(x):
    items = [x, x * 2]
    if x > 0:
        items[0] = x * 9
    else:
        items[1] = x * 8
    return items


@case(*PAIRS)
def dict_element_in_branch(x):
    d = {"a": x, "n": 1}
    if x > 0:
        d["a"] = x * 9
        d["n"] = 2
    return d


@case(*PAIRS)
def nested_container_in_branch(x):
    d = {"a": [x, {"b": x}]}
    if x > 0:
        d["a"][1]["b"] = x * 9
    d["a"][0] = d["a"][0] + 1
    return d


@case(*PAIRS)
def list_aliases(x):
    a = [x]
    b = a
    if x > 0:
        b[0] = x * 2
    return a[0], b is a


@case(*PAIRS)
def list_in_called_function(x):
    out = [x * 0]

    def put(y):
        out[0] = out[0] + y

    if x > 0:
        put(x)
    else:
        put(x * 3)
    return out


@case(*PAIRS)
def list_in_called_function_loop(x):
    out = [x * 0]

    def put(y):
        out[0] = out[0] * 0.5 + y

    for i in range(20):
        put(x * i)
    return out


@case(*PAIRS)
def list_argument_of_helper(x):
    def put(items, y):
        items[0] = y

    items = [x]
    if x > 0:
        put(items, x * 5)
    return items


@case(*PAIRS)
def list_replaced_in_branch(x):
    items = [x, x]
    if x > 0:
        items = [x * 2, x * 3]
    return items


@case(*PAIRS)
def list_of_lists_in_loop(x):
    grid = [[x, x * 2], [x * 3, x * 4]]
    for _ in range(18):
        for r in grid:
            r[0], r[1] = r[1] * 0.5, r[0]
    return grid


@case(*PAIRS)
def stack_of_objects(x):
    todo, total = [Point(x, x * 2)], 0
    while todo:
        p = todo.pop()
        total = total + p.larger()
        if len(todo) < 1 and isinstance(p, Point) and not hasattr(p, "seen"):
            q = Point(p.y, p.x); q.seen = True
            todo.append(q)
    return total


@made(*VECTORS)
def cell_with_branch():
    return Gate()


@made(*VECTORS)
def cell_state():
    net = Steps()
    return net, lambda: (net.count, net.gate.w)


@made(*VECTORS, grad=False)
def cell_parameter_gradient():
    net = Gate()

    def step(x):
        loss, grads = td.value_and_grad(lambda: (net(x) ** 2).sum(), [net.w])()
        if loss > 10:
            net.w.assign(net.w - grads[0] * 0.01)
        return loss

    return step, lambda: net.w


@made(*VECTORS, grad=False)
def cell_training_loop():
    net = Gate()

    def train(x):
        loss = x.sum()
        for _ in range(20):
            loss, grads = td.value_and_grad(lambda: (net(x) ** 2).sum(), [net.w])()
            net.w.assign(net.w - grads[0] * 0.01)
        return loss

    return train, lambda: net.w


@made(*VECTORS)
def cell_sequence():
    net = nn.Sequential(Gate(), Gate())
    return lambda x: net(x) if x.sum() > 0 else net[0](x)


@made(*VECTORS, grad=False)
def tensor_state_in_branch():
    total = td.tensor(0.0, dtype=td.float64)

    def f(x):
        if x.sum() > 0:
            total.assign(total + x.sum())
        return total * 2

    return f, lambda: total


@made(*VECTORS, grad=False)
def tensor_state_in_while():
    total = td.tensor(0.0, dtype=td.float64)

    def f(x):
        while (x * x).sum() < 60:
            x = x * 2
            total.assign(total + 1)
        return x

    return f, lambda: total


@made(*VECTORS, grad=False)
def tensor_state_in_long_for():
    total = td.tensor([0.0, 0.0], dtype=td.float64)

    def f(x):
        for i in range(20):
            total[i % 2] = total[i % 2] * 0.5 + x.sum()
        return total[0] * 1

    return f, lambda: total


@made(*VECTORS, grad=False)
def object_with_tensor_state():
    c = Counter(td.tensor(0.0, dtype=td.float64))

    def f(x):
        if x.sum() > 0:
            c.value.assign(c.value + x.sum())
        return c.value + 1

    return f, lambda: c.value


@made(*VECTORS)
def method_compiled():
    class Model:
        def __init__(self):
            self.k = 3

        def step(me, x):
            if x.sum() > 0:
                return x * me.k
            return x

    return Model().step


@made(*PAIRS)
def python_value_read_from_object():
    c = Counter(2)
    return lambda x: x * c.value if x > 0 else x


@made((1.0,), refused="E0217")
def refused_tensor_left_in_object():
    c = Counter(0)

    def f(x):
        c.value = x * 2
        return x

    return f


@made((1.0,), refused="E0217")
def refused_tensor_left_in_list():
    out = []

    def f(x):
        out.append(x * 2)
        return x

    return f


@case(*PAIRS)
def object_replaced(x):
    p = Point(x, x)
    if x > 0:
        p = Point(x * 2, x)
    return p.x


@case((1.0,), refused="E0241")
def refused_dict_key_in_branch(x):
    d = {}
    if x > 0:
        d["a"] = x
    return d
