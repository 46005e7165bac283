"""Functions of the corpus: prints, exceptions and texts, part 2."""

import contextlib

from tests.pysrc.support import Corpus, Raw

import treadle as td

CORPUS = Corpus()
case, made = CORPUS.case, CORPUS.made
PAIRS = ((2.0,), (-3.0,), (0.5,))


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


@case(*PAIRS)
def text_format_method(x):
    print("{} {k!r} {:>5}".format(x, "a", k=x * 2))
    return x


@case(*PAIRS)
def text_join_of_tensors(x):
    print(", ".join([str(x), "b", f"{x * 2}"]) + ".")
    print("; ".join(map(str, [x, 3])))
    return x


@case(*PAIRS)
def text_percent_static(x):
    print("%d of %s" % (3, "four"), 7 % 4)
    return x % 3


@case((2.0,), refused="E0243")
def refused_text_returned(x):
    return f"{x}"


@case((2.0,), refused="E0243")
def refused_text_compared(x):
    return x if f"{x}" == "2" else -x


@case((2.0,), refused="E0243")
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
