"""Closures, nested functions, lambdas, decorators, arguments, recursion, generators: for the differential test."""
# ruff: noqa: SIM, RET, F841, RUF, PLR, B, PERF, C4, E402, E702

import contextlib
import functools
import itertools
import math
import operator

from tests.pysrc import helpers
from tests.pysrc.helpers import clip, halve_until
from tests.pysrc.support import Corpus, Raw

import treadle as td

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.5,))
SCALE = 3.0
COUNTER = 0


def double_if_positive(x):
    if x > 0:
        return x * 2
    return x


def apply(f, x):
    return f(x) + 1


def twice(f):
    return lambda x: f(f(x))


def bracket(low, high=10.0, *more, step=1, **options):
    total = low + high * step
    for m in more:
        total = total + m
    return total + sum(options.values())


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


@helpers.traced
def decorated_outside_helper(x):
    if x > 0:
        return x * 2
    return x - 1


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


@functools.lru_cache(maxsize=4)
def cached_number(k):
    return k * 2 if k > 1 else k


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


def power(x, n):
    if n == 0:
        return x * 0 + 1
    half = power(x, n // 2)
    if n % 2:
        return half * half * x
    return half * half


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


def even(x, n):
    return x if n == 0 else odd(x * 2, n - 1)


def odd(x, n):
    return -x if n == 0 else even(x + 1, n - 1)


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


@case(*PAIRS)
def with_suppress(x):
    with contextlib.suppress(KeyError):
        x = x * 2
        {}["missing"]
        x = x * 100
    return x


@case(*PAIRS)
def with_in_branch(x):
    if x > 0:
        with contextlib.nullcontext():
            x = x * 2
    return x


@case(*PAIRS)
def with_return_inside_loop(x):
    for i in range(3):
        with contextlib.nullcontext():
            x = x + 1
            if x > 3:
                return x * 10
    return x


@case(*PAIRS)
def global_read(x):
    return x * SCALE if x > 0 else x


@case(*PAIRS)
def import_inside(x):
    import math as m
    from operator import mul

    return mul(x, m.e) if x > 0 else x


@case(*PAIRS)
def delete_name(x):
    y = x * 2
    z = y
    del y
    if z > 0:
        z = z + 1
    return z


@case(*PAIRS)
def delete_element(x):
    items = [x, x * 2, x * 3]
    del items[1]
    if x > 0:
        items[0] = items[0] * 2
    return items


@case(*PAIRS)
def doc_and_annotations(x: "a tensor", k: int = 2) -> "a tensor":
    """A text."""
    y: int = k
    if x > 0:
        return x * y
    return x


@case(*PAIRS)
def f_string_static(x):
    names = [f"w{i:02d}" for i in range(2)]
    table = dict.fromkeys(names, x)
    return table[f"w{1:02d}"] * 2, names


@case(*PAIRS)
def string_methods(x):
    parts = "a,b,c".split(",")
    return {p.upper(): x * i for i, p in enumerate(parts)}


@case(*PAIRS)
def starred_call_of_tensors(x):
    pair = (x, x * 2)
    return double_if_positive(*pair[:1]) + max(*pair)


@case(*PAIRS)
def conditional_function(x):
    f = td.exp if x.ndim == 0 else td.sin
    return f(x)


@case(*PAIRS)
def function_chosen_by_python(x):
    table = {0: td.sin, 1: double_if_positive}
    for k in (0, 1):
        x = table[k](x)
    return x


@case(*PAIRS)
def inner_function_in_loop(x):
    for k in (1, 2, 3):
        def f(y):
            return y * k if y > k else y + k
        x = f(x)
    return x


@case(*PAIRS)
def inner_function_in_branch(x):
    if x.ndim == 0:
        def f(y): return y * 2
    else:
        def f(y): return y * 3
    return f(x)


@case(*PAIRS)
def inner_function_in_tensor_branch(x):
    if x > 0:
        def f(y): return y * 2
        r = f(x)
    else:
        def g(y): return y * 3 if y < -1 else y
        r = g(x)
    return r


@case(*PAIRS)
def star_in_literals(x):
    a = [x, *[x * 2, x * 3]]
    b = {**{"k": x}, "j": a[1]}
    return a, b


@case(*PAIRS)
def closure_over_argument_changed(x):
    def show():
        return x

    x = x * 2
    if show() > 1:
        x = x + 1
    return show()


@case(*PAIRS)
def early_return_in_nested(x):
    def f(ys):
        for y in ys:
            if y > 1:
                return y
        return ys[0]

    return f([x, x * 2]) + f([x - 5, x + 3])


@case(*PAIRS)
def td_grad_inside(x):
    def loss(y):
        if y > 0:
            return y * y * y
        return y * y

    return td.grad(loss)(x)


@case(*PAIRS)
def td_grad_of_loop_inside(x):
    def loss(y):
        total = y
        for i in range(20):
            total = (total * y).sin()
        return total

    return td.grad(loss)(x)


@case(([1.0, -2.0, 3.0],))
def td_vmap_inside(v):
    def f(y):
        if y > 0:
            return y * 2
        return y * y

    return td.vmap(f)(v)


@case(([1.0, -2.0, 3.0],), grad=False)
def td_vmap_of_while_inside(v):
    def f(y):
        while y < 10:
            y = y * 2 + 30
        return y

    return td.vmap(f)(v)


@case(([1.0, -2.0, 3.0],))
def td_scan_inside(v):
    def step(carry, y):
        if y > 0:
            carry = carry + y
        else:
            carry = carry * 2
        return carry, carry * y

    return td.scan(step, v[0] * 0, v)


@case(*PAIRS)
def td_cond_inside(x):
    return td.cond(x > 0, lambda y: y if y > 1 else y * 2, lambda y: y * 3, x)


@case(*PAIRS, grad=False)
def td_while_inside(x):
    return td.while_loop(lambda y: y < 20, lambda y: y * 2 if y > 0 else y + 5, x)


@case(*PAIRS)
def td_jit_inside(x):
    f = td.jit(double_if_positive)
    return f(x) + f(x - 3)


@case(*PAIRS)
def td_checkpoint_inside(x):
    f = td.checkpoint(lambda y: y.sin() if y > 0 else y.cos())
    return f(x) * f(x * 2)


@case(*PAIRS)
def td_stop_gradient(x):
    y = td.stop_gradient(x)
    if y > 0:
        return x * y
    return x


@case(*PAIRS)
def td_custom_gradient(x):
    @td.custom_gradient
    def f(y):
        if y > 0:
            out = y * 2
        else:
            out = y
        return out, lambda g: g * 10

    return f(x) * 2


@case(*PAIRS)
def jvp_inside(x):
    return td.jvp(lambda y: y * y if y > 0 else y, (x,), (x * 0 + 1,))


@case(*PAIRS)
def vjp_inside(x):
    out, back = td.vjp(lambda y: y * y if y > 0 else y, x)
    return out, back(x * 0 + 2)


@case(([1.0, 2.0],), ([-5.0, 2.0],))
def hessian_like(v):
    def f(w):
        return (w ** 3).sum() if w.sum() > 0 else (w ** 2).sum()

    return td.grad(lambda w: td.grad(f)(w).sum())(v)


SOURCE = """
def from_exec(x):
    if x.ndim == 0:
        return x * 2
    return x
"""


@case(*PAIRS)
def function_by_exec(x):
    space = {}
    exec(SOURCE, space)
    return space["from_exec"](x)


@case(*PAIRS)
def eval_inside(x):
    return x * eval("2 + 3")


@case(*PAIRS)
def locals_inside(x):
    y = x * 2
    return sorted(k for k in locals() if not k.startswith("_td"))


@case(*PAIRS)
def callable_object(x):
    limit = helpers.Limiter(1.0)
    return limit(x) * 2


@case(*PAIRS)
def itemgetter_of_dict(x):
    data = {"w": x, "b": x * 2}
    w, b = operator.itemgetter("w", "b")(data)
    return w - b


@case(*PAIRS)
def ellipsis_and_slices(x):
    v = td.stack([x, x * 2, x * 3])
    a, b = v[..., 1:], v[slice(0, 2)]
    return a if a[0] > 0 else b


@case(*PAIRS)
def assignment_targets(x):
    box = {"a": [x, x]}
    box["a"][1] = x * 5
    box["b"], (c, box["c"]) = x, (x * 2, x * 3)
    if c > 0:
        box["a"][0] = c
    return box


@case(*PAIRS)
def chained_assignment(x):
    a = b = x * 2
    if a > 1:
        a = a + 1
    return a - b


@case(*PAIRS)
def augmented_targets(x):
    box = {"a": x}
    items = [x, x]
    box["a"] += 1
    items[0] *= box["a"]
    if x > 0:
        items[1] -= 5
        box["a"] **= 2
    return box, items


@case(*PAIRS)
def tensor_setitem(x):
    v = td.zeros(3, dtype=td.float64)
    v[0] = x
    if x > 0:
        v[1] = x * 2
    else:
        v[2] = x * 3
    return v


@case(([1.0, 2.0, 3.0],), ([-1.0, 2.0, 3.0],))
def tensor_augmented_setitem(v):
    w = v * 1
    w[1:] += 10
    if w[0] > 0:
        w[0] *= 5
    return w


@case(*PAIRS)
def complicated_arguments(x):
    def f(a, b=2, *c, d, e=5, **g):
        return a + b + sum(c) + d + e + sum(g.values())

    return f(x, *[1, 2, x], d=x, **{"z": x if x > 0 else 1.0})


@case((1.0, Raw(2.5)), (-1.0, Raw(2.5)), (1.0, Raw(0.5)))
def python_float_argument(x, k):
    if k > 1:
        return x * k
    return x - k


@case((1.0, Raw({"w": 2, "names": ["a", "b"]})), (-1.0, Raw({"w": 3, "names": ["a"]})))
def container_argument(x, config):
    for name in config["names"]:
        if x > 0:
            x = x + len(name)
        else:
            x = x * config["w"]
    return x


# ---------------------------------------------------------------------------------------------------------- refused
@case((1.0,), refused="E0206")
def refused_exec_with_branch(x):
    space = {}
    exec("def f(x):\n    if x > 0:\n        return x\n    return -x\n", space)
    return space["f"](x)


@case((1.0,), refused="E0206")
def refused_generator_with_branch(x):
    def g():
        if x > 0:
            yield x
        yield x * 2

    return list(g())


@case((1.0,), refused="E0206")
def refused_sorted_tensors(x):
    return sorted([x, x * 2])


@case((1.0,), refused="E0243")
def refused_text_used(x):
    return {f"{x}": 1}
