"""Functions of the corpus: loops, part 1."""

import numpy as np
from tests.pysrc.support import Corpus

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
STARTS = ((1.0,), (5.0,), (40.0,))
VECTORS = (([1.0, 2.0, 3.0],), ([-1.0, 0.5, 4.0],), ([9.0, -9.0, 0.25],))
ZERO, THREE, SEVEN = np.int64(0), np.int64(3), np.int64(7)
COUNTS = ((1.5, 0), (1.5, 3), (0.5, 20))


@case(*STARTS)
def while_tensor(x):
    while x < 20:
        x = x * 2
    return x


@case(*STARTS)
def while_counts(x):
    n = 0
    while x < 20:
        x = x * 2
        n += 1
    return x, n


@case(*STARTS)
def while_two_states(x):
    a, b = x, x * 0
    while a < 20:
        a, b = a + b + 1, a
    return a - b


@case(*STARTS)
def while_static_count(x):
    i = 0
    while i < 5:
        x = x * 1.1 + i
        i += 1
    return x


@case(*STARTS)
def while_and(x):
    i = 0
    while i < 4 and x < 20:
        x = x * 2
        i += 1
    return x, i


@case(*STARTS)
def while_or(x):
    i = 0
    while i < 2 or x < 20:
        x = x + 7
        i += 1
    return x, i


@case(*STARTS)
def while_not(x):
    while not x > 20:
        x = x * 3
    return x


@case(*STARTS)
def while_if_inside(x):
    i = 0
    while x < 30:
        if x > 10:
            x = x + 9
        else:
            x = x * 3
        i = i + 1
    return x + i


@case(*STARTS)
def while_true_break(x):
    while True:
        x = x * 2
        if x > 30:
            break
    return x


@case(*STARTS)
def while_true_return(x):
    while True:
        if x > 30:
            return x
        x = x * 2


@case(*STARTS)
def while_break_in_middle(x):
    n = x * 0
    while x < 100:
        x = x + 10
        if x > 35:
            break
        n = n + x
    return x - n


@case(*STARTS)
def while_continue(x):
    total = x * 0
    while x < 20:
        x = x + 3
        if x > 10:
            continue
        total = total + x
    return total + x


@case(*STARTS)
def while_break_and_continue(x):
    total = x * 0
    n = 0
    while True:
        n += 1
        x = x + 3
        if x > 30:
            break
        if x > 15:
            continue
        total += x
    return total, x, n


@case(*STARTS)
def while_else(x):
    while x < 20:
        x = x * 2
    else:
        x = x + 100
    return x


@case(*STARTS)
def while_else_break(x):
    while x < 100:
        x = x * 3
        if x > 50:
            break
    else:
        x = x - 1000
    return x


@case(*STARTS)
def while_nested(x):
    y = x * 0
    while x < 20:
        z = x
        while z > 1:
            z = z / 2
            y = y + z
        x = x * 2
    return x + y


@case(*STARTS)
def while_nested_break(x):
    y = x * 0
    while x < 50:
        z = x
        while True:
            z = z / 3
            if z < 1:
                break
            y = y + z
        if y > 30:
            break
        x = x + 10
    return x - y


@case(*STARTS)
def while_returns_in_inner(x):
    y = x
    while x < 100:
        y = x
        while y > 0.5:
            y = y / 2
            if y > 15:
                return y
        x = x * 2 + 1
    return x + y


@case(*STARTS)
def while_walrus(x):
    while (y := x * 2) < 30:
        x = y + 1
    return x, y


@case(*STARTS)
def while_call_in_test(x):
    def small(a):
        return abs(a) < 25

    while small(x):
        x = x * 2
    return x


@case(*STARTS)
def while_zero_trips(x):
    while x < 0:
        x = x + 1
    return x * 2


@case(*VECTORS)
def while_vector(v):
    while (v * v).sum() < 500:
        v = v * 1.5
    return v


@case(*VECTORS)
def while_element(v):
    i = 0
    while v[0] < 8:
        v = v.at[0].add(1.0)
        i += 1
    return v, i


@case(*STARTS)
def while_list_element(x):
    state = [x, 0]
    while state[0] < 20:
        state[0] = state[0] * 2
        state[1] += 1
    return state


@case(*STARTS)
def while_dict_element(x):
    state = {"x": x, "n": 0}
    while state["x"] < 20:
        state["x"] = state["x"] * 2
        state["n"] += 1
    return state


@case(*STARTS)
def while_local_in_body(x):
    while x < 20:
        t = x * 2
        x = t + 1
    return x


@case(*STARTS)
def while_int_to_float(x):
    s = 0
    while x < 20:
        s = s + 0.5
        x = x * 2
    return s, x


@case(*STARTS)
def while_starts_as_number(x):
    y = 0.0
    while y < x:
        y = y + x / 4
    return y


@case(*STARTS)
def while_bool_flag(x):
    going = True
    while going:
        x = x * 2
        going = x < 20
    return x


@case(*STARTS)
def while_flag_set_in_branch(x):
    done = False
    while not done:
        x = x + 7
        if x > 30:
            done = True
    return x


@case(*COUNTS)
def for_range(x, n):
    for i in range(n):
        x = x * 0.9 + i
    return x


@case(*COUNTS)
def for_range_rolled(x, n):
    y = x
    for i in range(n * 3):
        y = (y + i).sin() * x
    return y


@case((1.5,))
def for_range_step(x):
    for i in range(3, 50, 2):
        x = x * 0.5 + i
    return x


@case((1.5,))
def for_range_backwards(x):
    for i in range(40, 0, -1):
        x = x * 0.5 + i
    return x


@case((1.5, THREE), (1.5, ZERO))
def for_range_of_tensor(x, n):
    for i in range(n):
        x = x * 2 + i
    return x


@case((1.5, THREE), (1.5, SEVEN))
def for_range_of_tensor_break(x, n):
    for i in range(n):
        x = x * 2 + i
        if x > 20:
            break
    return x


@case((1.5, THREE), (1.5, SEVEN))
def for_range_tensor_start(x, n):
    for i in range(n, 10, 2):
        x = x + i
    return x


@case(*VECTORS)
def for_over_tensor(v):
    total = v[0] * 0
    for x in v:
        total = total * 2 + x
    return total


@case(([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],))
def for_over_rows(m):
    total = m[0] * 0
    for row in m:
        total = total + row * row.sum()
    return total


@case(([float(i) for i in range(30)],), ([float(30 - i) for i in range(30)],))
def for_over_long_tensor(v):
    best = v[0]
    for x in v:
        if x > best:
            best = x
    return best


@case(([float(i) for i in range(30)],), ([float(30 - i) for i in range(30)],))
def for_enumerate_long_tensor(v):
    best, place = v[0], 0
    for i, x in enumerate(v):
        if x > best:
            best, place = x, i
    return best, place


@case(*VECTORS)
def for_enumerate(v):
    total = v[0] * 0
    for i, x in enumerate(v, 1):
        total = total + i * x
    return total


@case((*VECTORS[0], *VECTORS[1]), (*VECTORS[1], *VECTORS[2]))
def for_zip(v, w):
    total = v[0] * 0
    for a, b in zip(v, w):
        if a > b:
            total = total + a
        else:
            total = total - b * b
    return total


@case(*VECTORS)
def for_zip_range(v):
    total = v[0] * 0
    for i, x in zip(range(10), v):
        total = total + i * x
    return total


@case(([float(i) / 9 for i in range(30)],))
def for_zip_long(v):
    total = v[0] * 0
    for a, b in zip(v, v[::-1]):
        total = total * 0.5 + a * b
    return total


@case(*VECTORS)
def for_reversed(v):
    total = v[0] * 0
    for x in reversed(v):
        total = total * 2 + x
    return total
