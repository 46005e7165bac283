"""Methods, properties, dataclasses, `super()`, private names, cells, objects whose state changes: differential test."""
# ruff: noqa: SIM, RET, F841, RUF, PLR, B, PERF, C4, N805, N804, E702

import collections
import dataclasses
import enum
import types
import typing

from tests.pysrc.support import Corpus

import treadle as td
from treadle import nn

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.5,))


class Point:
    """Two tensors."""

    def __init__(self, x, y):
        self.x = x
        self.y = y if y is not None else x

    def scaled(self, k):
        if self.x > 0:
            return Point(self.x * k, self.y)
        return Point(self.x, self.y * k)

    def larger(this):
        return this.x if this.x > this.y else this.y

    @property
    def size(self):
        return self.x if self.x > 0 else -self.x

    @staticmethod
    def clip(x):
        return x if x < 1 else x * 0 + 1

    @classmethod
    def twice(cls, x):
        if x > 0:
            return cls(x * 2, x)
        return cls(x, x * 2)

    def __add__(self, other):
        return Point(self.x + other.x, self.y - other.y)

    def __getitem__(self, i):
        return self.x if i == 0 else self.y

    def __len__(self):
        return 2

    def __iter__(self):
        yield self.x
        yield self.y

    def __contains__(self, k):
        return k == 1

    def __call__(self, x):
        if x > self.x:
            return self.x
        return x


class Private:
    """Private names."""

    def __init__(self, x):
        self.__x = x

    def __double(self):
        return self.__x * 2 if self.__x > 0 else self.__x

    def get(self):
        __local = self.__double()
        if __local > 1:
            return __local
        return self.__x

    def set(self, x):
        if x > 0:
            self.__x = x * 3
        return self.get()


class Base:
    """A base class."""

    def f(self, x):
        return x * 2 if x > 0 else x

    def g(self, x):
        return self.f(x) + 1


class Derived(Base):
    """A class that calls its base."""

    def f(self, x):
        if x > 1:
            return super().f(x) * 10
        return super().f(x - 1)

    def g(this, x):
        y = super().g(x)
        return y if y > 0 else -y


class Counter:
    """State that changes."""

    def __init__(self, value):
        self.value = value
        self.steps = 0
        self.items = []

    def add(self, x):
        self.steps += 1
        if x > 0:
            self.value = self.value + x
        else:
            self.value = self.value - 2 * x
        return self

    @property
    def half(self):
        return self.value / 2

    @half.setter
    def half(self, x):
        self.value = x * 2


@dataclasses.dataclass
class Pair:
    """A dataclass."""

    a: object
    b: object = 1.0

    def total(self):
        return self.a + self.b if self.a > self.b else self.b


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A frozen dataclass."""

    a: object
    k: int = 2

    def more(self):
        if self.a > 0:
            return dataclasses.replace(self, a=self.a * self.k)
        return self


class Named(typing.NamedTuple):
    """A named tuple."""

    x: object
    y: object

    def larger(self):
        return self.x if self.x > self.y else self.y


class Color(enum.Enum):
    """An enum."""

    RED = 1
    BLUE = 2


class Slots:
    """A class without a dict."""

    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


@case(*PAIRS)
def method(x):
    return Point(x, x * 2).larger()


@case(*PAIRS)
def method_returns_object(x):
    return Point(x, x * 2).scaled(3)


@case(*PAIRS)
def method_init_default(x):
    return Point(x, None).scaled(2).y


@case(*PAIRS)
def method_property(x):
    return Point(x, x).size * 2


@case(*PAIRS)
def method_static(x):
    return Point.clip(x) + Point(x, x).clip(x + 1)


@case(*PAIRS)
def method_class(x):
    return Point.twice(x)


@case(*PAIRS)
def method_bound_passed(x):
    f = Point(x * 0, x).__call__
    return f(x) + sum(map(f, [x, x + 5]))


@case(*PAIRS)
def object_called(x):
    p = Point(x * 0 + 1, x)
    return p(x) + p(x + 3)


@case(*PAIRS)
def object_operators(x):
    p = Point(x, x * 2) + Point(x * 3, x)
    a, b = p
    return p[0] - a + b, len(p), 1 in p, 2 in p


@case(*PAIRS)
def object_iterated(x):
    total = 0
    for y in Point(x, -x):
        if y > 0:
            total = total + y
        else:
            total = total - y * 2
    return total


@case(*PAIRS)
def private_names(x):
    p = Private(x)
    return p.get() + p.set(x + 1)


@case(*PAIRS)
def super_call(x):
    return Derived().f(x)


@case(*PAIRS)
def super_two_levels(x):
    return Derived().g(x)


@case(*PAIRS)
def object_changes(x):
    c = Counter(x)
    c.add(x).add(x - 1)
    return c.value, c.steps


@case(*PAIRS)
def object_changes_in_branch(x):
    c = Counter(x)
    if x > 1:
        c.value = c.value * 10
        c.steps += 1
    return c.value, c.steps


@case(*PAIRS)
def object_changes_by_method_in_branch(x):
    c = Counter(x)
    if x > 1:
        c.add(x)
    else:
        c.add(x * 5)
        c.add(x)
    return c.value, c.steps


@case(*PAIRS)
def object_changes_in_loop(x):
    c = Counter(x)
    while c.value < 20:
        c.add(x + 4)
    return c.value, c.steps


@case(*PAIRS)
def object_changes_in_long_loop(x):
    c = Counter(x)
    for i in range(20):
        c.add(x * i)
    return c.value, c.steps


@case(*PAIRS)
def object_property_set(x):
    c = Counter(x)
    if x > 0:
        c.half = x
    return c.half


@case(*PAIRS)
def object_new_attribute(x):
    c = Counter(x)
    if x > 0:
        c.extra = x
    else:
        c.extra = x * 2
    return c.extra


@case(*PAIRS)
def object_in_list(x):
    cs = [Counter(x), Counter(x * 2)]
    for c in cs:
        if c.value > 0:
            c.value = c.value + 1
    return [c.value for c in cs]


@case(*PAIRS)
def object_nested(x):
    c = Counter(Point(x, x))
    if x > 0:
        c.value.x = x * 7
    return c.value.x + c.value.y


@case(*PAIRS)
def object_chosen_same(x):
    c = Counter(x)
    d = c
    if x > 0:
        d = c
        d.value = x * 2
    return c.value, d is c


@case(*PAIRS)
def object_list_appended(x):
    c = Counter(x)
    c.items.append(x)
    for k in (1, 2):
        c.items.append(x * k)
    return c.items


@case(*PAIRS)
def object_namespace(x):
    n = types.SimpleNamespace(x=x, k=2)
    if n.x > 0:
        n.x = n.x * n.k
    return n.x


@case(*PAIRS)
def object_setattr(x):
    n = Counter(x)
    if x > 0:
        setattr(n, "value", x * 4)
    return getattr(n, "value")


@case(*PAIRS)
def dataclass_method(x):
    return Pair(x).total() + Pair(x, x * 2).total()


@case(*PAIRS)
def dataclass_returned(x):
    if x > 0:
        return Pair(x, x * 2)
    return Pair(x * 3, x)


@case(*PAIRS)
def dataclass_changed(x):
    p = Pair(x, x)
    if x > 0:
        p.a = x * 2
    for i in range(20):
        p.b = p.b * 0.5 + i
    return p


@case(*PAIRS)
def dataclass_frozen(x):
    return Frozen(x).more().more()


@case(*PAIRS)
def dataclass_in_while(x):
    p = Pair(x, 0)
    while p.a < 20:
        p = Pair(p.a + 5, p.b + 1)
    return p


@case(*PAIRS)
def named_tuple(x):
    n = Named(x, x * 2)
    if x > 0:
        n = n._replace(x=x * 5)
    return n, n.larger()


@case(*PAIRS)
def named_tuple_loop(x):
    n = Named(x, x)
    while n.x < 10:
        n = Named(n.x + 3, n.y * 2)
    return n


@case(*PAIRS)
def enum_static(x):
    color = Color.RED
    if color is Color.RED:
        return x * color.value if x > 0 else x
    return x


@case(*PAIRS)
def enum_match(x):
    match Color.BLUE:
        case Color.RED:
            return x
        case Color.BLUE:
            return x * 2 if x > 0 else x


@case(*PAIRS)
def class_inside(x):
    class Local:
        k = 3

        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v * self.k if self.v > 0 else self.v

    return Local(x).get()


@case(*PAIRS)
def class_inside_with_base(x):
    class Local(Base):
        def f(self, y):
            return super().f(y) + 1

    return Local().g(x)


@case(*PAIRS)
def class_with_closure(x):
    class Local:
        def get(self):
            return x * 2 if x > 0 else x

    return Local().get()


@case(*PAIRS)
def slots_object(x):
    s = Slots(x * 2)
    return s.x if s.x > 0 else x


@case(*PAIRS)
def default_dict(x):
    d = collections.defaultdict(list)
    for i in range(4):
        d[i % 2].append(x * i)
    return d[0], d[1]


@case(*PAIRS)
def ordered_dict(x):
    d = collections.OrderedDict(a=x)
    d["b"] = x * 2
    d.move_to_end("a")
    return list(d), d["a"] if x > 0 else d["b"]


@case(*PAIRS)
def deque_queue(x):
    q = collections.deque([x, x * 2])
    total = 0
    while q:
        y = q.popleft()
        total = total + (y if y > 0 else y * y)
    return total


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


class Gate(nn.Cell):
    """A cell with branches."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(td.tensor([0.5, -2.0], dtype=td.float64))
        self.k = 2

    def forward(self, x):
        y = self.w * x
        if y.sum() > 0:
            return y * self.k
        for i in range(3):
            y = y - i
            if y.sum() < -8:
                break
        return y


class Steps(nn.Cell):
    """A cell with a loop and a buffer."""

    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.count = td.tensor(0.0, dtype=td.float64)

    def forward(this, x):
        while (x * x).sum() < 50:
            x = x * 2 + this.gate(x).sum() * 0.1
        if x.sum() > 0:
            this.count.assign(this.count + 1)
        else:
            this.count.assign(this.count - 10)
        return x


VECTORS = (([1.0, 2.0],), ([-1.0, 0.5],), ([4.0, 4.0],))


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


# ---------------------------------------------------------------------------------------------------------- refused
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
