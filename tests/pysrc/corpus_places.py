"""Functions of the corpus: elements at places that a tensor tells."""

from tests.pysrc.support import Corpus

CORPUS = Corpus()
case = CORPUS.case
INPUTS = ((0.5,), (-1.0,), (1.5,), (6.0,), (8.0,))


class Bag:
    """Looks at tensors when it is asked for an element."""

    def __init__(self, x):
        self.x = [x, x * 2]

    def __getitem__(self, i):
        return self.x[i] if self.x[0] > 1 else self.x[i] * 10

    def __setitem__(self, i, v):
        if v > 3:
            self.x[i] = v
        else:
            self.x[i] = v * 0

    def __contains__(self, v):
        return self.x[0] > v

    def __bool__(self):
        return bool(self.x[0] > 1)


@case(*INPUTS)
def list_at_a_number(x):
    d = [x, x * 2, x * 3]
    return d[int(x) % 3] + d[-1]


@case(*INPUTS)
def list_that_is_too_short(x):
    d = [x, x * 2, x * 3]
    return d[int(x)]


@case(*INPUTS)
def dict_at_a_number(x):
    d = {0: x, 1: x * 2, 6: 3.0, "a": 5}
    n = int(x)
    if n in d:
        return d[n] * 2
    return x


@case(*INPUTS)
def dict_get(x):
    d = {0: x, 1: x * 2}
    return d.get(int(x), x * 7)


@case(*INPUTS)
def dict_without_the_key(x):
    d = {0: x, 1: x * 2}
    return d[int(x)]


@case(*INPUTS)
def list_assigned_at_a_number(x):
    c = [0, 0, 0]
    c[int(x) % 3] += 1
    c[-1 if x > 1 else 0] = 5
    a, c[int(x) % 2] = x, 7
    return c, a


@case(*INPUTS)
def dict_augmented_at_a_number(x):
    d = {0: 0.0, 1: x}
    d[int(x) % 2] += x * 2
    d[int(x) % 2] *= x
    return d


@case(*INPUTS)
def tables_of_numbers(x):
    t = [0.5, 1.5, 2.5, 3.5]
    i = int(abs(x)) % 4
    return t[i] * x, t[i], (1, 2, 3, 4)[i], [True, False, True, True][i]


@case(*INPUTS)
def membership(x):
    return int(x) in range(0, 7, 2), int(x) in {1, 6}, x in [x, 1], int(x) not in (1, 6), int(x) in {"a": 1, 6: 2}


@case(*INPUTS)
def list_of_values_of_functions(x):
    fs = [lambda v: v * 2, lambda v: v + 1]
    i = 1 if x > 1 else 0
    return [fs[0](x), fs[1](x)][i]


@case(*INPUTS)
def list_at_a_counter(x):
    i, total, d = 0, x * 0, [x, x * 2, x * 3]
    while i < 3 and total < 10:
        total = total + d[i]
        i += 1
    return total


@case(*INPUTS)
def list_of_a_rolled_loop(x):
    d = [x, x, x]
    for i in range(20):
        d[i % 3] = d[i % 3] * 1.1 + i
    return d


@case(*INPUTS)
def swapped_places(x):
    d = [x, x * 2, x * 3]
    i, j = int(abs(x)) % 3, 1
    d[i], d[j] = d[j], d[i]
    return d


@case(*INPUTS)
def list_in_a_counted_loop(x):
    d = [x, x * 2]
    total = 0 * x
    for i in range(int(x) % 2 + 1):
        total += d[i]
    return total


@case(*INPUTS)
def object_with_bool(x):
    b = Bag(x)
    return x if b else x * 2, not b


@case(*INPUTS)
def list_at_a_float(x):
    return [x, x * 2][float(x)]


@case(*INPUTS, refused="E0247")
def refused_element_changed_in_place(x):
    b = Bag(x)
    b[0] = x + b[1]
    b[1] += x
    return b[0], b[1], (x if 2 in b else x * 2)


@case(*INPUTS, refused="E0247")
def refused_list_in_a_list_changed(x):
    m = [[x, 1.0], [2.0, x]]
    i = int(abs(x)) % 2
    m[i][1 - i] += x
    return m


@case(*INPUTS)
def object_with_elements(x):
    b = Bag(x)
    first = b[0]
    b[0] = x + b[1]
    return first, b[1], (x if 2 in b else x * 2)


@case((2.0,), refused="E0249")
def refused_set_of_numbers(x):
    return len({int(x), int(x * 2)})


@case((2.0,), refused="E0249")
def refused_dict_at_a_tensor(x):
    return {2: x}[x]


@case((2.0,), refused="E0241")
def refused_new_key(x):
    d = {}
    d[int(x)] = x
    return d


@case((2.0,), refused="E0249")
def refused_long_list(x):
    return [x * i for i in range(300)][int(x)]


@case(*INPUTS)
def tensor_as_a_key(x):
    y = x * 2
    seen = {x: 1, y: 2}
    return seen[y], x in seen, len(seen)


@case(*INPUTS)
def object_of_a_class_inside(x):
    class Sign:
        def __init__(self, v):
            self.v = v

        def __bool__(self):
            return bool(self.v > 1)

        def __getitem__(self, i):
            return self.v * i if self.v > 0 else self.v - i

    s = Sign(x)
    return (x if s else x * 2), s[3]
