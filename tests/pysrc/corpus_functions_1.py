"""Functions of the corpus: functions and calls, part 1."""

import contextlib
import functools
import itertools
import math
import operator

from tests.pysrc import helpers
from tests.pysrc.helpers import clip, halve_until
from tests.pysrc.parts_functions import (
    apply,
    bracket,
    cached_number,
    decorated_outside_helper,
    double_if_positive,
    even,
    odd,
    power,
    twice,
)
from tests.pysrc.support import Corpus

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.5,))


@case(*PAIRS)
def calls_helper(x):
    return double_if_positive(x) + double_if_positive(-x)


@case(*PAIRS)
def calls_other_module(x):
    return clip(x) + helpers.clip(x, high=0.25) + halve_until(x)


@case(*PAIRS)
def passes_function(x):
    return apply(double_if_positive, x)


@case(*PAIRS)
def passes_lambda(x):
    return apply(lambda y: y * 3 if y > 0 else y, x)


@case(*PAIRS)
def returns_function(x):
    return twice(double_if_positive)(x)


@case(*PAIRS)
def nested_function(x):
    def f(y):
        if y > 0:
            return y * x
        return y - x

    return f(x) + f(x - 1)


@case(*PAIRS)
def nested_two_levels(x):
    def outer(y):
        def inner(z):
            if z > y: return z * x
            return z + y

        return inner(y + 1) + inner(y - 1)

    return outer(x)


@case(*PAIRS)
def nested_default(x):
    def f(y, k=x * 2):
        return y * k if y > 0 else k

    return f(x) + f(x, 1.0)


@case(*PAIRS)
def closure_reads_later_value(x):
    k = 1

    def f():
        return x * k

    k = 5
    return f()


@case(*PAIRS)
def nonlocal_assign(x):
    total = x * 0

    def add(y):
        nonlocal total
        if y > 0:
            total = total + y
        else:
            total = total - 2 * y

    add(x)
    add(x - 1)
    return total


@case(*PAIRS)
def nonlocal_in_loop(x):
    n = 0

    def step(y):
        nonlocal n
        n += 1
        return y * 2

    while x < 20 and n < 5:
        x = step(x)
        if x < -20:
            break
    return x, n


@case(*PAIRS)
def nonlocal_two_levels(x):
    total = x

    def a():
        def b():
            nonlocal total
            if total > 0:
                total = total * 2

        b()
        b()

    a()
    return total


@case(*PAIRS)
def lambdas_on_a_line(x):
    f, g = lambda y: y * 2 if y > 0 else y, lambda y: y * 5 if y < 0 else y
    return f(x) + g(x)


@case(*PAIRS)
def lambda_in_list(x):
    fs = [lambda y: y + 1, lambda y: y * 2 if y > 0 else y * 3, lambda y: -y]
    for f in fs:
        x = f(x)
    return x


@case(*PAIRS)
def lambda_dict(x):
    table = {"neg": lambda y: -y, "abs": lambda y: y if y > 0 else -y}
    return table["abs"](x) + table["neg"](x)


@case(*PAIRS)
def lambda_default(x):
    fs = [lambda y, k=k: y * k for k in range(3)]
    return sum(f(x) for f in fs)


@case(*PAIRS)
def lambda_late_binding(x):
    fs = [lambda y: y * k for k in range(3)]
    return sum(f(x) for f in fs)


@case(*PAIRS)
def lambda_of_lambda(x):
    return (lambda f: lambda y: f(y) if y > 0 else y)(lambda z: z * z)(x)


@case(*PAIRS)
def lambda_multiline(x):
    f = lambda y: (
        y * 2
        if y > 0
        else y * 3
    )
    return f(x)


@case(*PAIRS)
def decorated(x):
    @helpers.traced
    def f(y):
        return y * 2 if y > 0 else y

    a = f(x) + f(-x)
    return a, f.count


@case(*PAIRS)
def decorated_outside(x):
    return decorated_outside_helper(x) * 2


@case(*PAIRS)
def decorated_twice(x):
    def plus(k):
        def wrap(f):
            return lambda *a: f(*a) + k
        return wrap

    @plus(1)
    @plus(x)
    def f(y):
        return y if y > 0 else -y

    return f(x)


@case(*PAIRS)
def cached(x):
    return x * cached_number(3) + cached_number(3)


@case(*PAIRS)
def star_args(x):
    def f(*ys):
        total = 0
        for y in ys:
            total = total + (y if y > 0 else -y * 2)
        return total

    return f() + f(x) + f(x, x - 1, 3.0) + f(*[x, 2.0])


@case(*PAIRS)
def star_kwargs(x):
    def f(**ys):
        return sum(v * (i + 1) for i, v in enumerate(ys.values())) if ys else 0

    return f() + f(a=x) + f(**{"b": x, "c": x * 2})


@case(*PAIRS)
def all_kinds(x):
    return bracket(x) + bracket(x, 2.0) + bracket(x, 1.0, x, 3, step=2, a=x, b=1)


@case(*PAIRS)
def keyword_only(x):
    def f(a, /, b, *, c, d=2):
        if a > b: return c
        return d * a

    return f(x, 1.0, c=x * 2) + f(x, b=x + 1, c=0.0, d=x)


@case((1.0, 2.0), (-1.0, 2.0))
def unpacking(x, y):
    a, *b = [x, y, x + y]
    (c, d), e = (a, b[0]), b[1]
    first, *_, last = (c, d, e)
    return first - last * d


@case(*PAIRS)
def partial(x):
    f = functools.partial(clip, low=-2.0)
    return f(x) + functools.partial(f, high=0.1)(x)


@case(*PAIRS)
def partial_of_method(x):
    limit = helpers.Limiter(1.0)
    return functools.partial(limit.__call__, x)() + limit(x - 5)


@case(*PAIRS)
def reduce(x):
    return functools.reduce(lambda a, b: a + b if a > b else a * b, [x, 1.0, x * 2, 0.5])


@case(*PAIRS)
def map_and_filter(x):
    ys = list(map(lambda y: y * 2 if y > 0 else y, [x, -x, x + 1]))
    ks = list(filter(lambda k: k > 1, [1, 2, 3]))
    return ys, sum(map(operator.mul, ys, ks))


@case(*PAIRS)
def sorted_static(x):
    pairs = sorted([(3, x), (1, x * 2), (2, x * 3)], key=lambda p: p[0], reverse=True)
    return [p[1] for p in pairs]


@case(*PAIRS)
def max_with_key(x):
    return max([1, -5, 3], key=lambda k: abs(k)) * x


@case(*PAIRS)
def operator_functions(x):
    return operator.add(x, 2) * operator.itemgetter(1)([1, x]) + operator.methodcaller("exp")(x)


@case(*PAIRS)
def itertools_functions(x):
    total = x * 0
    for a, b in itertools.product([1, 2], [3, 4]):
        total = total + a * b * x
    for y in itertools.chain([x], [x * 2]):
        total = total + (y if y > 0 else -1.0)
    for i, y in itertools.islice(enumerate(itertools.accumulate([1, 2, 3, 4])), 3):
        total = total + i * y
    return total


@case(*PAIRS)
def math_functions(x):
    return x * math.sqrt(2) + math.pi


@case((1.0, 5), (0.5, 0), (2.0, 1))
def recursion_static(x, n):
    def f(k):
        return x * f(k - 1) + 1 if k else x

    return f(n)


@case((1.5, 5), (0.5, 0), (2.0, 8))
def recursion_global(x, n):
    return power(x, n)


@case(*PAIRS)
def recursion_on_tree(x):
    tree = {"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]}

    def walk(node):
        total = x * node["v"]
        for kid in node["kids"]:
            part = walk(kid)
            if part > 1:
                total = total + part
            else:
                total = total - part
        return total

    return walk(tree)


@case((1.0, 4), (1.0, 5))
def recursion_mutual(x, n):
    if x > 0:
        return even(x, n)
    return odd(x, n)


@case(*PAIRS)
def generator(x):
    def numbers(n):
        y = x
        for i in range(n):
            yield y
            y = y * 2 + i

    return [y for y in numbers(3)], sum(numbers(4))


@case(*PAIRS)
def generator_with_helper(x):
    def g():
        for k in (1, 2, 3):
            yield double_if_positive(x - k)

    total = x
    for y in g():
        if y > 0:
            total = total + y
        else:
            total = total * 0.5
    return total


@case(*PAIRS)
def generator_from(x):
    def a():
        yield x
        yield x * 2

    def b():
        yield from a()
        yield x * 3

    return list(b())


@case(*PAIRS)
def generator_send(x):
    def g():
        got = yield x
        while got is not None:
            got = yield got * 2

    it = g()
    a = next(it)
    b = it.send(x + 1)
    return a, b


@case(*PAIRS)
def generator_expression_branch(x):
    return sum((y if y > 0 else -y) for y in (x, x - 1, x - 2))


@case(*PAIRS)
def generator_break_inside(x):
    def g():
        i = 0
        while True:
            if i > 3:
                break
            i += 1
            if i == 2:
                continue
            yield x * i

    return list(g())


@case(*PAIRS)
def context_manager(x):
    @contextlib.contextmanager
    def scaled(k):
        yield x * k

    with scaled(2) as y, scaled(3) as z:
        if y > z:
            return y
        return z


@case(*PAIRS)
def with_null(x):
    with contextlib.nullcontext(x * 2) as y:
        if y > 0:
            y = y + 1
    return y
