"""print, assert, raise, try, texts, side effects, alone and combined with control flow: for the differential test."""
# ruff: noqa: SIM, RET, F841, RUF, PLR, B, PERF, C4, E702, TRY

import contextlib
import sys

from tests.pysrc.support import Corpus, Raw

import treadle as td

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.5,))


class MyError(Exception):
    """An exception with more than a message."""

    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


def check_positive(x):
    if x < 0:
        raise ValueError("negative")
    return x


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


@case(*PAIRS)
def try_static(x):
    try:
        y = {}["k"]
    except KeyError:
        y = x * 2
    return y


@case(*PAIRS)
def try_else_finally(x):
    log = []
    try:
        y = x * 2
    except ValueError:
        log.append("except")
    else:
        log.append("else")
    finally:
        log.append("finally")
    return y, log


@case(*PAIRS)
def try_with_branch(x):
    try:
        if x > 0:
            y = x * 2
        else:
            y = x
    finally:
        z = 1
    return y + z


@case(*PAIRS)
def try_return(x):
    try:
        if x > 0:
            return x * 2
        return x * 3
    finally:
        x = x * 100


@case(*PAIRS)
def try_return_in_loop(x):
    for i in range(3):
        try:
            if x > 1:
                return x
            x = x + 1
        finally:
            x = x + 0.5
    return x


@case(*PAIRS)
def try_break_continue(x):
    for i in range(6):
        try:
            if i == 1:
                continue
            if i == 4:
                break
            x = x * 2 + i
        finally:
            x = x + 1
    return x


@case(*PAIRS)
def try_nested(x):
    try:
        try:
            raise ValueError("inner")
        except KeyError:
            y = 0
        finally:
            x = x * 2
    except ValueError as error:
        y = x * len(str(error))
    return y


@case(*PAIRS)
def try_type_error(x):
    try:
        y = x + "a"
    except TypeError:
        y = x
    return y


@case(*PAIRS)
def try_reraise(x):
    try:
        raise ValueError("again")
    except ValueError:
        raise


@case(*PAIRS)
def index_error(x):
    return [x][3]


@case(*PAIRS)
def key_error(x):
    return {"a": x}["b"]


@case(*PAIRS)
def attribute_error(x):
    class Empty:
        pass

    return Empty().missing


@case(*PAIRS)
def name_error(x):
    return x * not_there  # noqa: F821


@case(*PAIRS)
def unbound_local(x):
    if x.ndim == 3:
        y = x
    return y


@case(*PAIRS)
def zero_division(x):
    return x * (1 // 0)


@case(*PAIRS)
def wrong_arguments(x):
    def f(a, b):
        return a

    return f(x)


@case(*PAIRS)
def stop_iteration(x):
    return next(iter([]))


@case(*PAIRS)
def suppress_static(x):
    with contextlib.suppress(ValueError):
        raise ValueError("gone")
    return x if x > 0 else -x


@case(*PAIRS)
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, 1)
        if x > 0:
            x = x * 2
    return x, log


@case(*PAIRS)
def own_context_manager(x):
    log = []

    class Manager:
        def __enter__(self):
            log.append("in")
            return 2

        def __exit__(self, *error):
            log.append("out")
            return False

    with Manager() as k:
        if x > 0:
            x = x * k
        else:
            x = x - k
    return x, log


@case(*PAIRS)
def context_manager_raises(x):
    log = []

    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, kind, value, trace):
            log.append(kind.__name__)
            return True

    with Manager():
        raise ValueError("x")
    return x, log


@made(*PAIRS)
def debug_print_in_branch():
    def f(x):
        if x > 0:
            td.debug_print("x {:.2f}", x)
        return x

    return f


@made(*PAIRS, grad=False)
def callback_in_branch():
    seen = []

    def f(x):
        if x > 0:
            td.callback(lambda y: seen.append(float(y)), x)
        return x * 2

    return f, lambda: list(seen)


@made(*PAIRS, grad=False)
def callback_in_loop():
    seen = []

    def f(x):
        while x < 8:
            td.callback(lambda y: seen.append(float(y)), x)
            x = x + 3
        return x

    return f, lambda: list(seen)


@case((2.0, Raw("a")), (2.0, Raw("b")))
def print_argument(x, name):
    print(name, x)
    return x


@case(*PAIRS)
def print_sep_none(x):
    print("a", x, sep=None, end=None)
    return x


@case(*PAIRS)
def star_print(x):
    items = [x, 1, "b"]
    print(*items, sep=", ")
    return x


@case(*PAIRS)
def text_join(x):
    print(", ".join(f"{k}" for k in range(3)), x)
    return x


# ---------------------------------------------------------------------------------------------------------- refused
@case((2.0,), refused="E0243")
def refused_text_returned(x):
    return f"{x}"


@case((2.0,), refused="E0243")
def refused_text_compared(x):
    return x if f"{x}" == "2" else -x


@case((2.0,), refused="E0206")
def refused_percent(x):
    print("%.2f" % x)
    return x


@case((2.0,), refused="E0246")
def refused_catching_what_a_tensor_raises(x):
    try:
        if x < 0:
            raise ValueError("negative")
        y = x
    except ValueError:
        y = x * 2
    return y


@case((2.0,), refused="E0246")
def refused_both_raise_in_loop(x):
    while x < 10:
        if x > 0:
            raise ValueError("positive")
        else:
            raise KeyError("other")
    return x


@case((2.0,), refused="E0240")
def refused_not_caught_by_the_user(x):
    try:
        if x > 0:
            y = x
        return y
    except Exception:
        return x * 2


@case((2.0,), refused="E0246")
def refused_assert_in_suppress(x):
    with contextlib.suppress(AssertionError):
        assert x > 0
    return x
