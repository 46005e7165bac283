"""Functions of the corpus: loops, part 3."""

import itertools

import numpy as np
from tests.pysrc.support import Corpus, Raw

import treadle as td

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
STARTS = ((1.0,), (5.0,), (40.0,))
VECTORS = (([1.0, 2.0, 3.0],), ([-1.0, 0.5, 4.0],), ([9.0, -9.0, 0.25],))
ZERO, THREE, SEVEN = np.int64(0), np.int64(3), np.int64(7)


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


@case((1.5, THREE), refused="E0242")
def refused_tensor_step(x, n):
    for i in range(0, 9, n):
        x = x + i
    return x


@case((1.5, THREE), refused="E0242")
def refused_comprehension_over_tensor_range(x, n):
    return [x * i for i in range(n)]


@case((1.0,), refused="E0242")
def refused_iterator_used_after(x):
    it = iter([1, 2, 3, 4])
    for k in it:
        x = x + k
        if x > 3:
            break
    return x * next(it, 100)


@case((1.0,), refused="E0242")
def refused_endless_iterator(x):
    for i in itertools.count():
        x = x + i
        if x > 30:
            break
    return x


@case(*STARTS)
def for_break_over_zip(x):
    for a, b in zip([1, 2, 3], "abc"):
        x = x + a
        if x > 6:
            break
    return x


@case(*STARTS)
def for_break_over_generator(x):
    for a in (k * 2 for k in range(5)):
        x = x + a
        if x > 6:
            break
    return x
