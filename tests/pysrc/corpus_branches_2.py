"""Functions of the corpus: decisions, part 2."""

from tests.pysrc.support import Corpus, Raw

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.0,))
VECTORS = (([1.0, 2.0],), ([-1.0, 0.5],), ([-4.0, 1.0],))


@case(*PAIRS)
def and_short_circuit_static(x):
    v = None
    if v is not None and v.missing > 0:
        return x
    return x * 3


@case(*PAIRS)
def not_value(x):
    return not x


@case(*PAIRS)
def not_not(x):
    if not (not x > 0):
        return x * 2
    return x


@case(*PAIRS)
def chained(x):
    if -1 < x < 3:
        return x * 2
    return x


@case(*PAIRS)
def chained_three(x):
    if -5 < x <= 2 < 4:
        return x * 2
    return x


@case(*PAIRS)
def chained_value(x):
    return -1 < x < 3


@case(*PAIRS)
def chained_evaluates_once(x):
    seen = []

    def middle():
        seen.append(1)
        return x

    y = x * 2 if -1 < middle() < 3 else x
    return y, len(seen)


@case(*PAIRS)
def compare_equal(x):
    return x * 2 if x == 2 else x


@case(*PAIRS)
def compare_not_equal(x):
    return x * 2 if x != 2 else x


@case(*PAIRS)
def in_tuple(x):
    if x in (2, 5):
        return x * 2
    return x


@case(*PAIRS)
def not_in_list(x):
    if x not in [2.0, 0.0]:
        return x * 2
    return x


@case((1.0, "a"), (1.0, "z"))
def in_static(x, name):
    if name in ("a", "b"):
        return x * 2
    return x


@case((1.0, "a"), (1.0, "z"))
def in_dict(x, name):
    table = {"a": x * 2}
    return table[name] if name in table else x


@case(*PAIRS)
def is_none(x):
    y = None
    if x is not None and y is None:
        return x * 2
    return x


@case(*PAIRS)
def walrus_in_test(x):
    if (y := x * 2) > 1:
        return y
    return y - 1


@case(*PAIRS)
def walrus_in_and(x):
    if x > -10 and (y := x + 1) > 0:
        return y * 2
    return x


@case(*PAIRS)
def walrus_in_expression(x):
    return (y := x + 1) * y


@case((1.0, 1), (1.0, 2), (1.0, 3))
def match_static(x, k):
    match k:
        case 1:
            return x
        case 2:
            return x * 2
        case _:
            return x * 3


@case(*PAIRS)
def match_static_with_branch(x):
    match "go":
        case "go":
            if x > 0:
                return x
            return x * 2
    return x * 3


@case(*PAIRS)
def match_tensor(x):
    match x:
        case 2:
            y = x * 2
        case 0:
            y = x + 1
        case _:
            y = x
    return y


@case(*PAIRS)
def match_guard(x):
    match x:
        case y if y > 1:
            return y * 2
        case y if y < -1:
            return y * 3
        case _:
            return x


@case(*PAIRS)
def match_or(x):
    match x:
        case 2 | 3:
            return x * 5
        case _:
            return x


@case((1.0, Raw((1, 2))), (1.0, Raw((1,))), (1.0, Raw({"k": 5})), (1.0, Raw(None)))
def match_structure(x, what):
    match what:
        case (a, b):
            return x * a * b
        case (a,):
            return x + a
        case {"k": k, **rest}:
            return x - k
        case None:
            return x


@case(*PAIRS)
def match_pair_with_tensor(x):
    match (x, 3):
        case (y, 3) if y > 0:
            return y * 3
        case (y, k):
            return y - k


@case(*PAIRS)
def match_star(x):
    match [x, 1, 2]:
        case [y, *rest]:
            return y * sum(rest)


@case(*PAIRS)
def type_tests(x):
    if isinstance(x, int):
        return 0
    if hasattr(x, "shape") and x.ndim == 0:
        return x * 2
    return x


@case(*VECTORS)
def shape_tests(v):
    if len(v) == 2 and v.shape[0] > 1:
        return v.sum()
    return v


@case((2.0, 1.0), (1.0, 2.0))
def max_of_two(x, y):
    return max(x, y) - 2 * min(x, y)


@case((2.0, 1.0, 5.0), (7.0, 2.0, 1.0))
def max_of_three(x, y, z):
    return max(x, y, z) * min([x, y, z])


@case(*PAIRS)
def clip_by_builtins(x):
    return min(max(x, -1.0), 1.0) * x


@case(*PAIRS)
def abs_builtin(x):
    return abs(x) if x < 1 else abs(x) + 1


@case(*PAIRS)
def any_all(x):
    tests = [x > 0, x > 1, x > -10]
    a = x if any(tests) else x * 2
    b = x if all(tests) else x * 3
    return a, b


@case(*PAIRS)
def any_generator(x):
    return x * 2 if any(x > k for k in (1, 5)) else x


@case(*PAIRS)
def int_of_tensor(x):
    return x * int(x)


@case(*PAIRS)
def float_of_tensor(x):
    k = float(x)
    return k * 2 + x


@case(*PAIRS)
def bool_of_tensor(x):
    if bool(x > 0):
        return x
    return x * 2


@case(*PAIRS)
def sum_builtin(x):
    return sum([x, x * 2, 1]) if x > 0 else sum((x, 1.0), x)


@case(*PAIRS)
def annotated(x):
    y: float = x * 2
    z: float
    if x > 0:
        y: float = x
    return y


@case(*PAIRS)
def unbound_behind_jump(x):
    if x > 0:
        k = x * 3
    else:
        return x
    return k + 1


@case(*PAIRS)
def unbound_behind_two_jumps(x):
    if x > 1:
        k = x * 3
    elif x > -1:
        return x
    else:
        k = x * 5
    if k > 0:
        return k
    return k - 1


@case(*PAIRS)
def return_none_in_both(x):
    y = x * 2
    if x > 0:
        return
    return None


@case(*PAIRS)
def constant_folding_types(x):
    if x > 0:
        y = x * 1
    else:
        y = 0.0
    return y


@case(*PAIRS)
def zero_dim_and_int(x):
    n = 0
    if x > 0: n += 1
    if x > 1: n += 1
    if x > 2: n += 1
    return n


@case(*PAIRS)
def xor_flags(x):
    a = x > 0
    b = x > 1
    if a != b:
        return x
    return x * 2


@case(*PAIRS)
def bitwise_tests(x):
    if (x > 0) & (x < 5) | (x == -3):
        return x * 2
    return x


@case((1.0, 0), (1.0, 1), (-1.0, 2))
def elif_static_and_tensor(x, k):
    if k == 0:
        return x
    elif x > 0:
        return x * 2
    elif k == 2:
        return x * 3
    return x * 4


@case(*PAIRS)
def unused_branch_raises(x):
    if x.ndim > 3:
        raise ValueError("never")
    return x


@case((1.0,), refused="E0240")
def refused_unbound_name(x):
    if x > 0:
        y = x * 2
    return y + 1


@case((1.0,), refused="E0244")
def refused_string(x):
    name = "small"
    if x > 1:
        name = "large"
    return name


@case((1.0,), refused="E0244")
def refused_none_or_tensor(x):
    y = None
    if x > 0:
        y = x
    return y


@case(([1.0, 2.0],), refused="E0244")
def refused_shapes(v):
    if v.sum() > 0:
        return v
    return v[0]


@case((1.0,), refused="E0244")
def refused_containers(x):
    if x > 0:
        return (x, x)
    return [x, x]


@case(([1.0, 2.0],), refused="E0206")
def refused_vector_decides(v):
    if v > 0:
        return v
    return v * 2
