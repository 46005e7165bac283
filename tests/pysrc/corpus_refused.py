"""Functions of the corpus that are refused: one for each reason there is, see docs/python.md."""

import itertools

from tests.pysrc.support import Corpus

import treadle as td

CORPUS = Corpus()
case = CORPUS.case
ONE = (2.0,)
SPACE = {}
exec("def unseen(x):\n    return x if x > 0 else -x", SPACE)


@case(ONE, refused="E0206")
def yield_in_a_branch(x):
    def parts():
        if x > 0:
            yield x

    return sum(parts())


@case(ONE, refused="E0206")
def return_in_a_generator(x):
    def parts():
        yield x
        if x > 3:
            return
        yield x

    return sum(parts())


@case(ONE, refused="E0206")
def code_without_source(x):
    return SPACE["unseen"](x)


@case(ONE, refused="E0206")
def walrus_in_an_expression(x):
    return [x > 0 and (y := x * 2) > 1, 1][0]


@case(ONE, refused="E0206")
def guards_beyond_four(x):
    match x * 1:
        case a if a > 5:
            return a
        case a if a > 4:
            return a * 2
        case a if a > 3:
            return a * 3
        case a if a > 2:
            return a * 4
        case a if a > 1:
            return a * 5
    return x


@case(ONE, refused="E0206")
def part_of_a_list(x):
    return [x, x, x][: int(x)]


class Money:
    """An object with an operator."""

    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        return Money(self.x + other.x) if self.x > 0 else other


@case(ONE, refused="E0206")
def decision_in_an_operator(x):
    return (Money(x) + Money(x)).x


@case(([1.0, 2.0],), refused="E0205")
def int_of_a_vector(x):
    return int(x)


@case(ONE, refused="E0215")
def calls_itself_always(x):
    def f(x):
        return f(x / 2) + 1 if x > 1 else f(x * 2)

    return f(x)


@case(ONE, refused="E0223")
def test_that_changes_a_tensor(x):
    y = x * 1

    def more():
        y.assign(y + 1)
        return y < 9

    while more():
        x = x + y
    return x


@case(ONE, refused="E0242")
def step_of_a_range(x):
    for i in range(0, 9, int(x)):
        x = x + i
    return x


@case(ONE, refused="E0242")
def list_of_a_range(x):
    return [x * i for i in range(int(x))]


@case(ONE, refused="E0242")
def iterator_with_another_name(x):
    numbers = iter([1, 2, 3, 4])
    for n in numbers:
        x = x + n
        if x > 3:
            break
    return x, [*numbers]


@case((2.0,), refused="E0242")
def endless_iterator(x):
    for n in itertools.count():
        x = x + n
        if x > 30:
            break
    return x


@case(ONE, refused="E0243")
def text_that_is_used(x):
    return f"{x}".upper()


@case(ONE, refused="E0243")
def text_made_by_percent(x):
    print("%s" % x)
    return x


total = td.tensor(0.0)


@case(ONE, refused="E0245")
def recursion_that_changes(x):
    def f(x):
        total.assign(total + 1)
        return x if x < 1 else f(x / 2)

    return f(x)


@case(ONE, refused="E0246")
def both_branches_raise(x):
    for i in range(2):
        if x > i:
            if x > 5:
                raise ValueError("large")
            else:
                raise TypeError("small")
    return x


@case(ONE, refused="E0248")
def gradient_of_itself(x):
    def f(x):
        return x if x < 1 else td.grad(f)(x / 2) * x

    return f(x)


@case(ONE, refused="E0248")
def gradient_of_a_call_of_itself(x):
    def f(x):
        return x if x < 1 else td.grad(lambda z: f(z / 2) * z)(x)

    return f(x)


@case(ONE, refused="E0248")
def batch_of_a_call_of_itself(x):
    def f(x):
        return x if x < 1 else td.vmap(lambda z: f(z) * z)(td.stack([x / 2, x / 3])).sum()

    return f(x)


@case(ONE, refused="E0248")
def tangent_of_a_call_of_itself(x):
    def f(x):
        return x if x < 1 else td.jvp(lambda z: f(z) * z, (x / 2,), (x,))[1]

    return f(x)
