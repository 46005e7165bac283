"""Functions of the corpus: classes, objects and containers, part 1."""

import collections
import types

from tests.pysrc.parts_classes import Base, Color, Counter, Derived, Frozen, Named, Pair, Point, Private, Slots
from tests.pysrc.support import Corpus

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.5,))


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
