"""Functions of the corpus: types that differ where a way leaves, and names for one thing or another."""

import random

from tests.pysrc.support import Corpus

CORPUS = Corpus()
case = CORPUS.case
INPUTS = ((0.5,), (-1.0,), (1.5,), (6.0,), (8.0,))


@case(*INPUTS)
def text_until_it_returns(x):
    y = x
    if x > 0:
        y = "s"
        if x > 1:
            return x * 2
        y = x * 3
    return y


@case(*INPUTS)
def none_until_it_returns(x):
    r = None
    if x > 5:
        r = x
        if x > 7:
            return r
        r = None
    return x * 5 if r is None else r


@case(*INPUTS)
def text_in_while(x):
    y = x
    while x < 10:
        if x > 5:
            y = "a"
            return x
        x = x * 2 + 5
        y = x
    return y


@case(*INPUTS)
def tuple_in_a_loop(x):
    for i in range(3):
        y = x
        if x > i:
            y = (x, "s")
            if x > 5:
                return y[0]
            y = x * 2
        x = x + y * 0.1
    return x * y


@case(*INPUTS)
def tuple_in_a_rolled_loop(x):
    for i in range(30):
        y = x
        if x > i:
            y = (x, "s")
            if x > 5:
                return y[0]
            y = x * 2
        x = x + y * 0.1
    return x * y


@case(*INPUTS)
def list_in_try(x):
    out = x
    try:
        if x > 0:
            out = [x]
            if x > 1:
                return x * 2
            out = x + 1
    finally:
        z = x
    return out * z


@case(*INPUTS)
def text_before_break(x):
    y = x
    while x < 10:
        if x > 5:
            y = "a"
            break
        x = x * 2 + 5
    return x


@case(*INPUTS)
def text_in_an_inner_loop(x):
    s = x
    for i in range(3):
        t = None
        while s < 10:
            if s > 5:
                t = "w"
                break
            s = s * 2 + 3
            t = s
        s = s - 3
    return s


@case(*INPUTS)
def text_in_an_endless_loop(x):
    n = 0
    while True:
        if x > 3:
            r = "big"
            if x > 5:
                return x, n
            r = x + 1
        else:
            r = x + 2
        x = r
        n += 1


@case(*INPUTS)
def return_from_a_loop(x):
    for i in range(3):
        if x > i:
            if x > 5:
                return x
            y = x * 2
        else:
            y = x * 3
        x = x + y
    if x > 100:
        return x
    return y


@case(*INPUTS)
def return_from_a_rolled_loop(x):
    for i in range(30):
        if x > i:
            if x > 5:
                return x
            y = x * 2
        else:
            y = x * 3
        x = x + y * 0.1
    if x > 100:
        return x
    return y


@case(*INPUTS, refused="E0244")
def refused_text_that_survives(x):
    y = x
    if x > 5:
        y = "s"
        if x > 7:
            return x
    return x * len(y) if isinstance(y, str) else y


@case(*INPUTS, refused="E0244")
def refused_text_after_break_read(x):
    y = x
    while x < 10:
        if x > 5:
            y = "a"
            break
        x = x + abs(y) * 0 + 6
    return x


@case(*INPUTS, refused="E0244")
def refused_text_after_break_returned(x):
    y = x
    for i in range(30):
        if x > 5:
            y = "a"
            break
        x = x * 2 + 5
    if x > 20:
        return x
    return y


@case(*INPUTS, refused="E0244")
def refused_list_before_continue(x):
    for i in range(4):
        y = x
        if x > i:
            y = [x]
            if x > 3:
                continue
            y = x * 2
        x = x + y
    return x


@case(*INPUTS, refused="E0244")
def refused_number_or_none(x):
    r = None
    for v in [1.0, 2.0, 3.0]:
        if x > v:
            r = v
            break
    if r is None:
        return x
    return x * r


@case(*INPUTS, refused="E0240")
def refused_assigned_unless_continued(x):
    for i in range(3):
        if x > i:
            if x > 5:
                continue
            y = x * 2
        else:
            y = x * 3
        x = x + y
    return y


@case(*INPUTS, refused="E0240")
def refused_assigned_unless_continued_before_a_return(x):
    for i in range(3):
        if x > i:
            if x > 5:
                continue
            y = x * 2
        else:
            y = x * 3
        x = x + y
    if x > 100:
        return x
    return y


@case(*INPUTS, refused="E0240")
def refused_assigned_unless_continued_beside_a_return_in_the_loop(x):
    for i in range(3):
        if x > i:
            continue
        y = x * 2
        if x < -5:
            return x
    return y


@case(*INPUTS, refused="E0240")
def refused_assigned_unless_continued_in_a_long_range(x):
    for i in range(50):
        if x > i:
            continue
        y = x * 2
        x = x + y
    return y


class Box:
    """One value."""

    def __init__(self, v):
        self.v = v


@case(*INPUTS, refused="E0247")
def refused_list_of_two(x):
    a = [x]
    b = [x * 2]
    c = a if x > 0 else b
    c[0] = x * 5
    return a, b, c


@case(*INPUTS, refused="E0247")
def refused_list_of_two_in_if(x):
    a = [x]
    b = [x * 2]
    if x > 0:
        c = a
    else:
        c = b
    c[0] = x * 5
    return a, b, c


@case(*INPUTS, refused="E0247")
def refused_object_of_two(x):
    a = Box(x)
    b = Box(x * 2)
    c = a if x > 0 else b
    c.v = x * 5
    return a.v, b.v, c.v


@case(*INPUTS, refused="E0247")
def refused_dict_of_two(x):
    a = {"k": x}
    b = {"k": x * 3}
    c = a if x > 0 else b
    c["k"] = c["k"] + 1
    return a, b, c


@case(*INPUTS, refused="E0247")
def refused_list_of_two_in_while(x):
    a = [x]
    b = [x * 2]
    c = a
    while x < 3:
        c = b if c is a else a
        x = x + 1
    c[0] = x * 5
    return a, b, c


@case(*INPUTS, refused="E0247")
def refused_list_of_two_grows(x):
    a = [x]
    b = [x * 2]
    c = a if x > 0 else b
    c.append(x)
    return a, b, c


@case(*INPUTS, refused="E0247")
def refused_tensor_of_two(x):
    a = x * 1
    b = x * 2
    c = a if x > 0 else b
    c += 1
    return a, b, c


@case(*INPUTS, refused="E0247")
def refused_tensor_of_two_in_if(x):
    c = x * 3
    a = x * 2
    if x > 1:
        c = a
    c += 1
    return a, c


@case(*INPUTS, refused="E0247")
def refused_what_it_may_be_changes(x):
    c = x * 3
    a = x * 2
    if x > 1:
        c = a
    a += 1
    return a, c


@case(*INPUTS)
def new_list_in_a_branch(x):
    h = [x, x]
    if x > 1:
        h = [x * 2, x]
    h[0] = h[0] + 1
    return h


@case(*INPUTS)
def tensor_changed_after_a_branch(x):
    y = x * 2
    if x > 1:
        y = y * 3
    y += 1
    return y


@case(*INPUTS)
def largest_so_far(x):
    best = x * 2
    for i in range(4):
        if x * i > best:
            best = x * i
        x = x - 1
    return best


@case(*INPUTS)
def new_dict_in_a_loop(x):
    s = {"a": x, "b": [x, 2.0]}
    for i in range(12):
        if s["a"] > 3:
            s = {"a": s["a"] / 2, "b": [s["b"][1], x]}
        else:
            s["a"] = s["a"] + 1
    return s


@case(*INPUTS)
def drawn_in_a_branch_of_a_loop(x):
    numbers = random.Random(3)
    for _ in range(20):
        if x > 0:
            x = x * numbers.random()
        else:
            x = x - 0.1
    return x


@case(*INPUTS)
def pair_of_a_loop(x):
    while x < 10:
        pair = (x, 1.5)
        x = pair[0] + pair[1] + abs(x)
    return x


@case(*INPUTS)
def match_in_while(x):
    n = x * 0
    while n < 3:
        n = n + 1
        match (x, n):
            case (u, 2) if u > 1:
                x = u * 0.9
            case (u, v):
                x = u + v
    return x
