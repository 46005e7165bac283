"""Functions of the corpus: patterns, `:=`, and generators."""

import dataclasses

from tests.pysrc.support import Corpus

CORPUS = Corpus()
case = CORPUS.case
INPUTS = ((0.5,), (-1.0,), (1.5,), (6.0,), (8.0,))


@dataclasses.dataclass
class P:
    """Two values."""

    a: object
    b: object


@case(*INPUTS)
def pair_with_a_guard(x):
    match (x, 1):
        case (a, 1) if a > 0:
            return a * 2
        case (a, b):
            return a - b


@case(*INPUTS)
def mapping_with_a_guard(x):
    match {"k": x, "z": 2}:
        case {"k": v, **rest} if v > 1:
            return v * rest["z"]
        case {"k": v}:
            return v


@case(*INPUTS)
def class_with_a_guard(x):
    match P(x, x * 2):
        case P(a, b) if a > 1:
            return a * b
        case P(a=c):
            return c


@case(*INPUTS)
def sequence_with_a_star(x):
    match [x, 1, 2, 3]:
        case [y, *rest, 3] if y < 1:
            return y * len(rest)
        case [y, *_]:
            return y


@case(*INPUTS)
def values_inside(x):
    match (x, "s"):
        case (1.5, t):
            return x * len(t)
        case (0.5, "s") | (6.0, "s"):
            return x * 7
        case _:
            return x


@case(*INPUTS)
def alternatives_with_names(x):
    match (x, x + 1):
        case (1.5, y) | (y, 7.0):
            return y * 3
        case (a, b) if a > 7 and b > 1:
            return a * b
    return x


@case(*INPUTS)
def classes_of_numbers(x):
    match int(x):
        case int(n) if n > 1:
            return x * n
        case float():
            return x * 100
        case int():
            return x


@case(*INPUTS)
def isinstance_and_type(x):
    r = isinstance(int(x), int) and not isinstance(float(x), int)
    return x * (2 if r else 3), type(float(x)) is float, type(x) is float


@case(*INPUTS)
def match_in_a_loop(x):
    for i in range(3):
        match (i, x):
            case (0, v) if v > 1:
                x = v + 1
                continue
            case (1, v):
                if v > 5:
                    break
            case _:
                pass
        x = x * 2
    return x


@case(*INPUTS)
def nested_patterns(x):
    match P([x, 2], {"u": (x, 3)}):
        case P([a, 2] as l, {"u": (b, int(n))}) if a > 0:
            return l[0] * n + b
        case P():
            return x


@case(*INPUTS)
def walrus_behind_and(x):
    if x > 0 and (y := x * 2) > 1:
        return y
    return x


@case(*INPUTS)
def walrus_behind_or(x):
    if x > 5 or ((y := x * 2) > 1 and (z := y + 1) > 2):
        return x
    else:
        return y


@case(*INPUTS)
def walrus_in_while(x):
    n = 0
    while x > 0 and (y := x / 2) > 0.6:
        x = y
        n += 1
        if n > 10:
            break
    return x, n


@case(*INPUTS)
def walrus_in_elif(x):
    if x > 1 and x < 7 and (y := x * 2) > 1:
        x = y
    elif x > 7 and (z := x + 1) > 8:
        x = z * x
    return x


@case(*INPUTS)
def walrus_in_a_loop(x):
    n = 0
    for i in range(3):
        if i > 0 and (y := x * i) > 1:
            if y > 3:
                continue
            n = n + y
    return n


@case(*INPUTS)
def loops_of_a_generator(x):
    def g():
        y = x
        for i in range(20):
            y = y * 2
            if y > 4:
                break
        yield y
        while y > 1:
            y = y / 2
            if y < 3:
                break
        else:
            y = y + 1
        yield y

    return sum(g())


@case(*INPUTS)
def jumps_of_a_generator(x):
    def g():
        y = x
        for i in range(3):
            if i == 1:
                continue
            for j in range(4):
                if y > j + 5:
                    break
                y = y + j * 0.1
            yield y
            if i == 2:
                return

    return [*g()]


@case(*INPUTS)
def match_in_a_generator(x):
    def g(seq):
        for v in seq:
            match v:
                case 1:
                    v = v * 2
                case (a, b) if b > 1:
                    v = a * b
                case (a, _):
                    v = a
            yield v

    return sum(g([1, (x, x + 1), (x, x - 1)]))
