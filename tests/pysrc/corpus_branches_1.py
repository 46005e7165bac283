"""Functions of the corpus: decisions, part 1."""

from tests.pysrc.support import Corpus

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.0,))
VECTORS = (([1.0, 2.0],), ([-1.0, 0.5],), ([-4.0, 1.0],))


@case(*PAIRS)
def if_else(x):
    if x > 0:
        y = x * 2
    else:
        y = x - 1
    return y


@case(*PAIRS)
def if_alone(x):
    y = x
    if x > 0:
        y = y * y
    return y


@case(*PAIRS)
def if_early_return(x):
    if x > 0: return x * 2
    return -x


@case(*PAIRS, (7.0,))
def if_elif_else(x):
    if x > 5:
        y = x * x
    elif x > 0:
        y = x + 1
    elif x == 0:
        y = x - 10
    else:
        y = -x
    return y


@case(*PAIRS)
def if_nested(x):
    if x > 0:
        if x > 1:
            y = x * 3
        else:
            y = x * 5
    else:
        if x < -1:
            y = x * 7
        else:
            y = x * 11
    return y


@case(*VECTORS)
def if_on_sum(v):
    if v.sum() > 0:
        v = v * 2
    return v.exp()


@case(*VECTORS)
def if_on_any(v):
    if (v > 0).any():
        return v
    return v * v


@case(*VECTORS)
def if_on_all(v):
    if (v > 0).all():
        a, b = v, v * 2
    else:
        a, b = v * 3, v
    return a - b * b


@case(*PAIRS)
def if_two_names(x):
    a, b = x, x
    if x > 1:
        a = a * 2
    else:
        b = b * 3
    return a + b


@case(*PAIRS)
def if_number_in_branches(x):
    k = 1
    if x > 0:
        k = 3
    return x * k


@case(*PAIRS)
def if_floats_in_branches(x):
    if x > 0:
        k = 0.5
    else:
        k = 2
    return x * k + k


@case(*PAIRS)
def if_bool_in_branches(x):
    big = False
    if x > 1:
        big = True
    return big, x


@case(*PAIRS)
def if_returns_number(x):
    if x > 0:
        return 1
    return 0


@case(*PAIRS)
def if_pass(x):
    if x > 0:
        pass
    else:
        x = x * 4
    return x


@case(*PAIRS)
def if_same_object(x):
    y = x * 2
    if x > 0:
        z = y
    else:
        z = y
    return z


@case(*PAIRS)
def if_swap(x):
    a, b = x, x * 2
    if x > 0:
        a, b = b, a
    return a - 3 * b


@case(*PAIRS)
def if_augmented(x):
    y = x * 1
    if x > 0:
        y += x
        y *= 2
    else:
        y -= 1
        y /= 4
    return y


@case((1.0, 2.0), (2.0, 1.0), (-1.0, -1.0))
def if_two_arguments(x, y):
    if x > y:
        return x - y
    elif x == y:
        return x * y
    else:
        return y - x


@case((1.0, True), (-1.0, True), (1.0, False))
def if_mixed_static(x, flag):
    if flag:
        if x > 0:
            return x
        return x * 3
    return x * 5


@case((1.0, None), (1.0, 2), (-1.0, 2))
def if_none_default(x, k):
    if k is None:
        k = 10
    if x > 0:
        return x * k
    return x


@case(*PAIRS)
def if_test_with_call(x):
    if abs(x - 1) < 2:
        x = x.sin()
    return x


@case(*VECTORS)
def if_element(v):
    if v[0] > v[1]:
        v = v[::-1] * 1
    return v[0] - 2 * v[1]


@case(*PAIRS)
def if_truth_of_number(x):
    if x:
        return 1 / x
    return x


@case(*PAIRS)
def if_not(x):
    if not x > 0:
        return x
    return x * 9


@case(*PAIRS)
def if_chain_of_ifs(x):
    y = x
    if x > -5: y = y + 1
    if y > 0: y = y * 2
    if y > 3: y = y - 10
    if y < 0: y = y * y
    return y


@case(*PAIRS)
def if_deep(x):
    if x > -10:
        if x > -5:
            if x > -1:
                if x > 1:
                    return x
                return x + 1
            return x + 2
        return x + 3
    return x + 4


@case(*PAIRS)
def if_returns_everywhere(x):
    if x > 1:
        return x, 1
    elif x > -1:
        return x * 2, 2
    return x * 3, 3


@case(*PAIRS)
def if_return_dict(x):
    if x > 0:
        return {"a": x, "b": 1}
    return {"a": x * 2, "b": 2}


@case(*PAIRS)
def if_return_list(x):
    if x > 0:
        return [x, x]
    return [x * 2, x * 3]


@case(*PAIRS)
def if_nested_tuple(x):
    t = (x, (x * 2, 3))
    if x > 0:
        t = (x * 2, (x, 4))
    return t


@case(*PAIRS)
def if_local_unused_after(x):
    if x > 0:
        t = x * 2
        y = t + 1
    else:
        y = x
    return y


@case(*PAIRS)
def if_branch_defines_later_used_in_branch(x):
    y = x
    if x > 0:
        k = x * 3
    if x < 0:
        y = y - 1
    return y


@case(*PAIRS)
def if_string_same(x):
    name = "a"
    if x > 0:
        name = "a"
        x = x * 2
    return name, x


@case(*PAIRS)
def if_none_same(x):
    out = None
    if x > 0:
        x = x + 1
    return out, x


@case(*PAIRS)
def ternary(x):
    return x * 2 if x > 0 else x * 3


@case(*PAIRS)
def ternary_nested(x):
    return x if x > 1 else (x * 2 if x > -1 else x * 3)


@case(*PAIRS)
def ternary_number(x):
    return x + (1 if x > 0 else 2.5)


@case(*PAIRS)
def ternary_in_call(x):
    return max(x if x > 0 else -x, x + 1)


@case(*PAIRS)
def ternary_tuple(x):
    a, b = (x, 1.0) if x > 0 else (x * 2, 2.0)
    return a * b


@case(*VECTORS)
def ternary_in_list(v):
    return [v if v[0] > 0 else v * 2, v[1] if v[1] > 1 else v[0]]


@case(*PAIRS)
def ternary_lambda(x):
    f = lambda a: a * 2 if a > 0 else a - 2
    return f(x) + f(-x)


@case(*PAIRS)
def ternary_static(x):
    k = 3
    return x * 2 if k > 2 else x.missing


@case(*PAIRS)
def ternary_in_index(x):
    v = [x, x * 2, x * 3]
    return v[1 if x.ndim == 0 else 0]


@case(*PAIRS)
def and_(x):
    if x > -1 and x < 3:
        return x * 2
    return x


@case(*PAIRS)
def or_(x):
    if x > 1 or x < -1:
        return x * 2
    return x


@case(*PAIRS)
def and_or_not(x):
    if (x > 0 and not x > 5) or x < -2:
        return x * 2
    return x


@case(*PAIRS)
def and_returns_bool(x):
    ok = x > 0 and x < 5
    return ok


@case(*PAIRS)
def and_value(x):
    return (x and x * 2) + 1


@case(*PAIRS)
def or_value(x):
    return (x or x + 5) * 2


@case(*PAIRS)
def or_default_number(x):
    return x or 4.0


@case(*PAIRS)
def and_three(x):
    y = x + 1
    if x > -1 and y > 0 and x + y < 10:
        return y
    return x


@case(*PAIRS)
def and_with_static(x):
    flag = True
    if flag and x > 0:
        return x * 2
    return x


@case(*PAIRS)
def or_with_static(x):
    flag = False
    if flag or x > 0:
        return x * 2
    return x
