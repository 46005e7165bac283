"""Functions of the corpus: functions and calls, part 2."""

import contextlib
import operator

from tests.pysrc import helpers
from tests.pysrc.parts_functions import double_if_positive
from tests.pysrc.support import Corpus, Raw

import treadle as td

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.5,))
SCALE = 3.0
SOURCE = """
def from_exec(x):
    if x.ndim == 0:
        return x * 2
    return x
"""


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
