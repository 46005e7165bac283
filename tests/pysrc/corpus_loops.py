"""Functions with `while` and `for`, `break`, `continue`, `return` in loops, `else`: for the differential test."""
# ruff: noqa: SIM, RET, F841, RUF, PLR, B, PERF, C4

from tests.pysrc.support import Corpus, Raw

import treadle as td

CORPUS = Corpus()
case = CORPUS.case
STARTS = ((1.0,), (5.0,), (40.0,))
VECTORS = (([1.0, 2.0, 3.0],), ([-1.0, 0.5, 4.0],), ([9.0, -9.0, 0.25],))
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


@case((1.5, np_int := __import__("numpy").int64(3)), (1.5, __import__("numpy").int64(0)))
def for_range_of_tensor(x, n):
    for i in range(n):
        x = x * 2 + i
    return x


@case((1.5, np_int), (1.5, __import__("numpy").int64(7)))
def for_range_of_tensor_break(x, n):
    for i in range(n):
        x = x * 2 + i
        if x > 20:
            break
    return x


@case((1.5, np_int), (1.5, __import__("numpy").int64(7)))
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


@case(*STARTS)
def for_worklist(x):
    work, total = [(x, 2)], 0
    while work:
        y, depth = work.pop()
        total = total + y
        if depth:
            work.append((y / 2, depth - 1))
            work.append((y * 2, depth - 1))
    return total


@case(*STARTS)
def comprehension(x):
    return [x * i for i in range(4)]


@case(*STARTS)
def comprehension_if_static(x):
    return [x * i for i in range(6) if i % 2]


@case(*STARTS)
def comprehension_ternary(x):
    return [x * i if x > 3 else x - i for i in range(3)]


@case(*STARTS)
def comprehension_nested(x):
    return [[x * i + j for j in range(2)] for i in range(2)]


@case(*STARTS)
def comprehension_two_for(x):
    return [x * i + j for i in range(2) for j in range(i + 1)]


@case(*STARTS)
def comprehension_dict(x):
    return {f"k{i}": x * i for i in range(3)}


@case(*STARTS)
def comprehension_set(x):
    return {i % 2 for i in range(5)}, x


@case(*STARTS)
def comprehension_generator(x):
    return sum(x * i for i in range(4))


@case(*VECTORS)
def comprehension_over_tensor(v):
    return [x * 2 for x in v], [i * x for i, x in enumerate(v)]


@case(*VECTORS)
def comprehension_zip(v):
    return td.stack([a * b for a, b in zip(v, v[::-1])])


@case(*STARTS)
def comprehension_calls(x):
    def f(y):
        if y > 6: return y
        return y * y

    return [f(x * i) for i in range(1, 4)]


@case(*STARTS)
def comprehension_walrus(x):
    last = 0
    out = [last := last + x for _ in range(3)]
    return out, last


@case(*STARTS)
def loop_variable_after(x):
    for i in range(4):
        x = x + i
    return x * i


@case(*STARTS)
def loop_variable_after_long(x):
    for i in range(20):
        x = x * 0.5 + i
    return x * i


@case(*STARTS)
def loop_variable_tensor_after(x):
    for y in [x, x * 2]:
        x = x + y
    return y


@case(*STARTS)
def loop_shadows(x):
    for x in [x * 2, x * 3]:
        pass
    return x


@case(*STARTS)
def empty_range(x):
    for i in range(0):
        x = x * 100
    return x


@case(*STARTS)
def empty_list(x):
    for y in []:
        x = x * y
    else:
        x = x + 1
    return x


@case(*STARTS)
def fibonacci(x):
    a, b = x, x
    for _ in range(10):
        a, b = b, a + b
    return b


@case(*STARTS)
def newton(x):
    y = x
    while abs(y * y - x) > 1e-9:
        y = (y + x / y) / 2
    return y


@case(*STARTS)
def newton_for(x):
    y = x
    for _ in range(60):
        new = (y + x / y) / 2
        if abs(new - y) < 1e-12:
            break
        y = new
    return y


@case(*STARTS)
def collatz_like(x):
    n = 0
    while x > 1.5 and n < 40:
        if x % 2 < 1:
            x = x / 2
        else:
            x = 3 * x + 1
        n += 1
        if x > 500:
            break
    return x, n


@case(*STARTS)
def polynomial(x):
    y = 0.0
    for c in (1.0, -2.0, 0.5):
        y = y * x + c
    return y


@case(([3.0, 1.0, 2.0],), ([1.0, 2.0, 3.0],), ([2.0, 3.0, 1.0],))
def bubble_sort(v):
    items = [v[0], v[1], v[2]]
    for i in range(3):
        for j in range(2 - i):
            if items[j] > items[j + 1]:
                items[j], items[j + 1] = items[j + 1], items[j]
    return td.stack(items)


@case(([1.0, 3.0, 6.0, 9.0], 5.0), ([1.0, 3.0, 6.0, 9.0], 0.0), ([1.0, 3.0, 6.0, 9.0], 100.0))
def search_first(v, limit):
    for i in range(4):
        if v[i] > limit:
            return v[i] * 1, i
    return v[0] * 0, -1


@case(*STARTS)
def chunked(x):
    total, chunk = x * 0, x * 0
    for i in range(24):
        chunk = chunk + x
        if chunk > 50:
            total = total + chunk
            chunk = x * 0
    return total + chunk


@case(*STARTS)
def two_loops(x):
    for i in range(20):
        x = x * 0.5 + i
    while x > 3:
        x = x / 2
    for i in range(3):
        x = x + i
    return x


@case((1.0, Raw([1, 2, 3])), (2.0, Raw([4, 5, 6])))
def for_argument_list(x, ks):
    for k in ks:
        if x > k:
            x = x - k
        else:
            x = x * k
    return x


@case(*STARTS)
def for_iterator(x):
    it = iter([1, 2, 3, 4])
    x = x * next(it)
    for k in it:
        x = x + k
    return x


@case(*STARTS)
def for_break_iterator(x):
    it = iter([1, 2, 3, 4])
    for k in it:
        x = x + k
        if k == 2:
            break
    return x * next(it)


@case(*STARTS)
def while_else_return(x):
    while x < 20:
        x = x * 2
        if x > 15:
            return x * 100
    else:
        x = x + 1
    return x


@case(*STARTS)
def pass_in_loop(x):
    for _ in range(30):
        pass
    while x < 0:
        pass
    return x


@case(*STARTS)
def count_in_rolled(x):
    n = 0
    for i in range(30):
        x = x * 1.1
        if x > 30:
            n += 1
    return n


@case(*STARTS)
def complex_control(x):
    total = x * 0
    for i in range(6):
        if i == 1:
            continue
        y = x * i
        while y > 3:
            y = y / 2
            if y > 20:
                total = total + 1
                continue
            total = total + y
        if total > 60:
            return total * 2
        elif total > 40:
            break
    else:
        return total - 1
    return total


# ---------------------------------------------------------------------------------------------------------- refused
@case((1.0,), refused="E0221")
def refused_dtype_changes(x):
    y = td.tensor(1, dtype=td.int32)
    while x < 20:
        y = y + 0.5
        x = x * 2
    return y


@case(([1.0, 2.0],), refused="E0221")
def refused_shape_changes(v):
    w = v
    while w.sum() < 20:
        w = td.concatenate([w, v])
    return w


@case((1.0,), refused="E0241")
def refused_list_grows_in_while(x):
    out = []
    while x < 20:
        x = x * 2
        out.append(x)
    return out


@case((1.0,), refused="E0241")
def refused_append_in_branch(x):
    out = []
    if x > 0:
        out.append(x)
    return out


@case((1.0,), refused="E0221")
def refused_string_changes(x):
    s = ""
    while x < 20:
        x = x * 2
        s = s + "a"
    return s


@case((1.0,), refused="E0240")
def refused_only_in_body(x):
    while x < 20:
        y = x * 2
        x = y
    return y


@case((1.5, np_int), refused="E0242")
def refused_tensor_step(x, n):
    for i in range(0, 9, n):
        x = x + i
    return x


@case((1.5, np_int), refused="E0242")
def refused_comprehension_over_tensor_range(x, n):
    return [x * i for i in range(n)]
