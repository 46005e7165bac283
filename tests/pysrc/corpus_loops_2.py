"""Functions of the corpus: loops, part 2."""

from tests.pysrc.support import Corpus

import treadle as td

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
STARTS = ((1.0,), (5.0,), (40.0,))


@case((1.5,))
def for_reversed_range(x):
    for i in reversed(range(20)):
        x = x * 0.5 + i
    return x


@case(*STARTS)
def for_list(x):
    for k in [1, 2.5, 3]:
        x = x * k - 1
    return x


@case(*STARTS)
def for_tuple_of_tensors(x):
    total = 0
    for y in (x, x * 2, x * 3):
        if y > 10:
            total = total + y
        else:
            total = total - y
    return total


@case(*STARTS)
def for_dict(x):
    weights = {"a": 2, "b": 3}
    for name in weights:
        x = x + weights[name]
    for name, w in weights.items():
        x = x * w
    for w in weights.values():
        x = x - w
    return x


@case(*STARTS)
def for_string(x):
    for c in "abc":
        x = x + ord(c)
    return x


@case(*STARTS)
def for_unpacking(x):
    for a, (b, c) in [(1, (2, 3)), (4, (5, 6))]:
        x = x * a + b - c
    return x


@case(*STARTS)
def for_star_unpacking(x):
    for a, *rest in [(1, 2, 3), (4, 5)]:
        x = x * a + sum(rest)
    return x


@case(*STARTS)
def for_break_tensor(x):
    for i in range(5):
        x = x * 2
        if x > 20:
            break
    return x, i


@case(*STARTS)
def for_break_long(x):
    for i in range(50):
        x = x * 1.2
        if x > 30:
            break
    return x


@case(*STARTS)
def for_break_first(x):
    for i in range(50):
        if x > 30:
            break
        x = x * 1.2
    return x, i


@case(*STARTS)
def for_break_static(x):
    for i in range(50):
        if i == 3:
            break
        x = x * 2
    return x, i


@case(*STARTS)
def for_continue_tensor(x):
    total = 0
    for i in range(5):
        x = x + 2
        if x > 10:
            continue
        total = total + x
    return total, x


@case(*STARTS)
def for_continue_static(x):
    for i in range(30):
        if i % 3 == 0:
            continue
        x = x * 0.9 + i
    return x


@case(*STARTS)
def for_continue_long(x):
    total = x * 0
    for i in range(30):
        x = x + 1
        if x > 20:
            continue
        total = total + x
    return total


@case(*STARTS)
def for_return(x):
    for i in range(5):
        x = x * 2
        if x > 20:
            return x
    return -x


@case(*STARTS)
def for_return_long(x):
    for i in range(40):
        x = x * 1.2
        if x > 30:
            return x, i
    return -x, 0


@case(*STARTS)
def for_return_static(x):
    for i in range(40):
        if i == 4:
            return x + i
        x = x * 2
    return x


@case(*STARTS)
def for_else(x):
    for i in range(3):
        x = x * 2
        if x > 20:
            break
    else:
        x = x - 100
    return x


@case(*STARTS)
def for_else_static(x):
    for i in range(3):
        if i == 7:
            break
        x = x + i
    else:
        x = x * 5
    return x


@case(*STARTS)
def for_else_return(x):
    for i in range(3):
        x = x * 2
        if x > 20:
            return x
    else:
        return x * 10


@case(*STARTS)
def for_nested(x):
    total = x * 0
    for i in range(3):
        for j in range(4):
            total = total + x * (i - j)
            if total > 30:
                total = total / 2
    return total


@case(*STARTS)
def for_nested_long(x):
    total = x * 0
    for i in range(20):
        for j in range(20):
            total = total * 0.5 + x * (i - j)
    return total


@case(*STARTS)
def for_nested_break(x):
    total = x * 0
    for i in range(3):
        for j in range(4):
            total = total + x
            if total > 30:
                break
        else:
            total = total + 1
    return total


@case(*STARTS)
def for_nested_break_outer(x):
    total = x * 0
    for i in range(4):
        found = False
        for j in range(3):
            total = total + x
            if total > 50:
                found = True
                break
        if found:
            break
    return total, i


@case(*STARTS)
def for_nested_return(x):
    for i in range(3):
        for j in range(4):
            x = x + i * j
            if x > 45:
                return x, i, j
    return x, -1, -1


@case(*STARTS)
def for_in_while(x):
    while x < 30:
        for i in range(3):
            x = x + i + 1
    return x


@case(*STARTS)
def while_in_for(x):
    for limit in (5, 20, 30):
        while x < limit:
            x = x * 1.5
    return x


@case(*STARTS)
def while_in_long_for(x):
    for i in range(20):
        while x > i + 2:
            x = x / 2
        x = x + 1
    return x


@case(*STARTS)
def for_if_in_for(x):
    for i in range(20):
        if x > 10:
            x = x / 2
        else:
            x = x + i
    return x


@case(*STARTS)
def for_if_static_in_for(x):
    for i in range(20):
        if i % 2 == 0:
            x = x / 2
        else:
            x = x + i
    return x


@case(*STARTS)
def for_index_power(x):
    for i in range(20):
        x = x * 0.5 + 0.1 ** i
    return x


@case(*STARTS)
def for_index_in_list(x):
    table = [1.0, 2.0, 3.0]
    for i in range(20):
        x = x * 0.5 + table[i % 3]
    return x


@case(([float(i) for i in range(20)],))
def for_index_in_tensor(v):
    total = v[0] * 0
    for i in range(20):
        total = total + v[i] * v[19 - i]
    return total


@case(([float(i) for i in range(20)],))
def for_set_in_tensor(v):
    out = td.zeros(20, dtype=td.float64)
    for i in range(20):
        out = out.at[i].set(v[i] * 2)
    return out


@case(([float(i) for i in range(20)],))
def for_setitem(v):
    out = td.zeros(20, dtype=td.float64)
    for i in range(20):
        out[i] = v[i] * 2
    return out


@case(*STARTS)
def for_append(x):
    out = []
    for i in range(4):
        x = x * 2
        out.append(x)
    return out


@case(*STARTS)
def for_append_long(x):
    out = []
    for i in range(20):
        x = x * 0.5 + i
        out.append(x)
    return td.stack(out)


@case(*STARTS)
def for_append_long_list(x):
    out = []
    for i in range(20):
        x = x * 0.5 + i
        out.append(x * 2)
    return out


@case(*STARTS)
def for_append_long_then_more(x):
    out = [x]
    for i in range(20):
        x = x * 0.5 + i
        out.append(x)
    out.append(x * 100)
    return td.stack(out), out[3], out[-2], len(out)


@case(*STARTS)
def for_list_elements(x):
    state = [x, x * 2]
    for i in range(20):
        state[0], state[1] = state[1] * 0.5, state[0] + i
    return state


@case(*STARTS)
def for_dict_elements(x):
    state = {"a": x, "b": 0}
    for i in range(20):
        state["a"] = state["a"] * 0.5 + i
        state["b"] += 1
    return state


@case(*STARTS)
def for_dict_grows(x):
    out = {}
    for i in range(4):
        x = x * 2
        out[f"k{i}"] = x
    return out


@case(*STARTS)
def for_dict_grows_long(x):
    out = {}
    for i in range(20):
        x = x * 0.5
        out[i] = x
    return out


@case(*STARTS)
def for_pop(x):
    stack = [x, x * 2, x * 3]
    total = 0
    while stack:
        y = stack.pop()
        if y > 10:
            total = total + y
        else:
            total = total - 1
    return total
