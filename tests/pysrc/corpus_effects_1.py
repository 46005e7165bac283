"""Functions of the corpus: prints, exceptions and texts, part 1."""

import sys

from tests.pysrc.parts_effects import MyError, check_positive
from tests.pysrc.support import Corpus

import treadle as td

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.5,))


@case(*PAIRS)
def print_text(x):
    print("start")
    return x


@case(*PAIRS)
def print_tensor(x):
    print(x, "and", x * 2)
    return x


@case(*PAIRS)
def print_options(x):
    print("a", x, sep="-", end="!\n")
    print()
    print(1, None, [1, 2], sep="")
    return x


@case(*PAIRS)
def print_in_branch(x):
    if x > 0:
        print("positive", x)
    else:
        print("other")
    return x * 2


@case(*PAIRS)
def print_in_one_branch(x):
    if x > 1:
        print("large")
    print("end")
    return x


@case(*PAIRS)
def print_in_while(x):
    n = 0
    while x < 5:
        print("at", x, n)
        x = x + 3
        n += 1
    return x


@case(*PAIRS)
def print_in_for(x):
    for i in range(3):
        print(i, x)
        x = x * 2
    return x


@case(*PAIRS)
def print_in_long_for(x):
    for i in range(20):
        x = x * 0.5
        if i % 5 == 0:
            print(i)
    return x


@case(*PAIRS)
def print_in_long_for_tensor(x):
    for i in range(20):
        x = x * 0.5 + 1
        if x > 1.9:
            print("near", i, x)
    return x


@case(*PAIRS)
def print_in_called(x):
    def f(y):
        print("f", y)
        return y if y > 0 else -y

    return f(x) + f(x * 2)


@case(*PAIRS)
def print_f_string(x):
    print(f"x = {x}, twice {x * 2!r}")
    return x


@case(*PAIRS)
def print_f_string_format(x):
    print(f"{float(x):.3f} {3:03d} {'a':>4}")
    return x


@case(*PAIRS)
def print_item_format(x):
    print(f"{x.item():.2f}|{x.item():>10.3e}")
    return x


@case(*PAIRS)
def print_container(x):
    print([1, x], {"a": x}, (x,))
    return x


@case(*PAIRS)
def print_str(x):
    print("x: " + str(x), repr(x))
    return x


@case(*PAIRS)
def print_text_kept(x):
    text = f"x is {x}"
    if x > 0:
        x = x + 1
    print(text)
    return x


@case(*PAIRS)
def print_vector(x):
    print(td.stack([x, x * 2]))
    return x


@case(*PAIRS)
def print_number_of_branch(x):
    n = 1
    if x > 0:
        n = 2
    print("n", n)
    return x


@case(*PAIRS)
def print_shape_and_dtype(x):
    print(x.shape, x.dtype, x.ndim)
    return x


@case(*PAIRS)
def print_order(x):
    print("a")
    if x > 0:
        print("b", x)
        for i in range(2):
            print("c", i)
    print("d")
    while x < 1:
        print("e")
        x = x + 2
    print("f", x)
    return x


@case(*PAIRS)
def print_to_stream(x):
    print("out", x, file=sys.stdout, flush=True)
    return x


@case(*PAIRS)
def assert_holds(x):
    assert x > -100
    return x * 2


@case(*PAIRS)
def assert_fails(x):
    assert x > 0
    return x


@case(*PAIRS)
def assert_message(x):
    assert x > 0, "must be positive"
    return x


@case(*PAIRS)
def assert_message_with_value(x):
    assert x > 0, f"got {x}"
    return x


@case(*PAIRS)
def assert_tuple_message(x):
    assert x > 0, ("got", 3)
    return x


@case(*PAIRS)
def assert_in_branch(x):
    if x < 1:
        assert x > 0, "small"
    return x


@case(*PAIRS)
def assert_in_loop(x):
    for i in range(3):
        x = x - 1
        assert x > -2.5, f"trip {i}"
    return x


@case(*PAIRS)
def assert_in_while(x):
    while x < 10:
        x = x * 3
        assert x > 0
    return x


@case(*PAIRS)
def assert_in_called(x):
    def f(y):
        assert y > 0, "f"
        return y

    return f(x) + f(x + 1)


@case(*PAIRS)
def assert_static(x):
    assert x.ndim == 0
    assert x.shape == (), "shape"
    return x


@case(*PAIRS)
def assert_static_fails(x):
    assert x.ndim == 3, f"{x.ndim} dimensions"
    return x


@case(*PAIRS)
def assert_and(x):
    assert x > -1 and x < 1, "range"
    return x


@case(*PAIRS)
def raise_static(x):
    if x.ndim == 0:
        raise ValueError("no scalars")
    return x


@case(*PAIRS)
def raise_in_branch(x):
    if x < 0:
        raise ValueError("negative")
    return x * 2


@case(*PAIRS)
def raise_in_else(x):
    if x > 0:
        y = x
    else:
        raise ValueError(f"bad {x}")
    return y


@case(*PAIRS)
def raise_class(x):
    if x < 0:
        raise KeyError
    return x


@case(*PAIRS)
def raise_own(x):
    if x < 0:
        raise MyError("own", 7)
    return x


@case(*PAIRS)
def raise_in_loop(x):
    for i in range(4):
        x = x - 1
        if x < -1:
            raise ValueError(f"at {i}")
    return x


@case(*PAIRS)
def raise_in_while(x):
    while x < 10:
        if x < 0:
            raise ValueError("negative")
        x = x * 2
    return x


@case(*PAIRS)
def raise_in_called(x):
    return check_positive(x) + 1


@case(*PAIRS, grad=False)
def raise_in_both(x):
    if x > 0:
        raise ValueError("positive")
    else:
        raise KeyError("other")


@case(*PAIRS)
def raise_elif(x):
    if x > 1:
        y = x
    elif x < 0:
        raise ValueError("negative")
    else:
        y = x * 2
    return y


@case(*PAIRS)
def raise_after_print(x):
    print("before", x)
    if x < 0:
        raise ValueError("negative")
    print("after")
    return x


@case(*PAIRS)
def raise_first_of_two(x):
    if x < 1:
        raise ValueError("first")
    if x < 100:
        raise KeyError("second")
    return x


@case(*PAIRS)
def raise_from(x):
    try:
        {}["k"]
    except KeyError as error:
        if x.ndim == 0:
            raise ValueError("outer") from error
    return x
