"""Faults of the source front end: in how decisions, loops, jumps, places and patterns on tensors are rewritten and
staged."""

from __future__ import annotations

from tests.faults.kinds import Fault

_CORPUS = "tests/pysrc/test_corpus.py::test_"
_SOURCE = "frontend/pysrc/"


def _same(*names: str) -> tuple[str, ...]:
    """The tests that these functions of the corpus give the same eager and compiled."""
    return tuple([f"{_CORPUS}same[{name}]" for name in names])


def _refused(*names: str) -> tuple[str, ...]:
    return tuple([f"{_CORPUS}refused[{name}]" for name in names])


PYTHON: list[Fault] = [
    Fault(
        "jumps: both branches of a guard go on",
        f"{_SOURCE}runtime.py",
        "left = [h if (h := hidden(v)) is not None and h.flags & {DONE, *flags} else None for v in before]",
        "left = [hidden(v) for v in before]",
        _refused("names-refused_assigned_unless_continued_beside_a_return_in_the_loop"),
    ),
    Fault(
        "guard: what it has revealed stays so",
        f"{_SOURCE}runtime.py",
        "state.setter([v if h is None or not is_bound(v) else h.holding(v) for h, v in after])",
        "state.setter([v for h, v in after])",
        _refused("names-refused_assigned_unless_continued"),
    ),
    Fault(
        "loops: what a jump hides before a loop has its old value",
        "api/staging.py",
        "after if before is None else before for before, after in zip(self.hidden, stepped.hidden)]",
        "None for before, after in zip(self.hidden, stepped.hidden)]",
        _refused("names-refused_assigned_unless_continued_in_a_long_range"),
    ),
    Fault(
        "aliases: copies may be changed",
        f"{_SOURCE}aliases.py",
        "_watched.found += [(x, _content(x), name, here()) for x in (*new, *originals)]",
        "pass",
        _refused("names-refused_list_of_two", "names-refused_object_of_two"),
    ),
    Fault(
        "aliases: what a name may be is not watched",
        f"{_SOURCE}aliases.py",
        "for x in (tensor, *seen)]",
        "for x in (tensor,)]",
        _refused("names-refused_what_it_may_be_changes"),
    ),
    Fault(
        "places: a negative one counts from the start",
        f"{_SOURCE}lookup.py",
        "return runtime.if_expression(number < 0, lambda: number + count, lambda: number)",
        "return number",
        _same("places-list_assigned_at_a_number"),
    ),
    Fault(
        "places: one outside of the list is not noticed",
        f"{_SOURCE}lookup.py",
        "runtime.and_(number >= -count, lambda: number < count)",
        "runtime.and_(number >= -count, lambda: number >= -count)",
        _same("places-list_that_is_too_short"),
    ),
    Fault(
        "places: a key is found among all keys as one too many",
        f"{_SOURCE}lookup.py",
        "found = found + (key == each) * i",
        "found = found + (key == each) * (i + 1)",
        _same("places-dict_at_a_number"),
    ),
    Fault(
        "places: numbers of the program are keys",
        "frontend/numbers.py",
        "        if not tracing.is_symbolic(self):\n",
        "        if self is not None:\n",
        _refused("places-refused_set_of_numbers"),
    ),
    Fault(
        "match: a star takes one too many",
        f"{_SOURCE}fitting.py",
        "names[name] = values[before : len(values) - after]",
        "names[name] = values[before:]",
        _same("matches-sequence_with_a_star"),
    ),
    Fault(
        "match: an alternative has the names of the first",
        f"{_SOURCE}fitting.py",
        "lambda v=value: v, lambda n=name: others[n])",
        "lambda v=value: v, lambda v=value, n=name: v)",
        _same("matches-alternatives_with_names"),
    ),
    Fault(
        "walrus: the else branch is left out",
        f"{_SOURCE}walrus.py",
        "[_split(ast.If(after, node.body, node.orelse))], copy.deepcopy(node.orelse))",
        "[_split(ast.If(after, node.body, node.orelse))], [])",
        _same("matches-walrus_in_elif", "matches-walrus_in_while"),
    ),
    Fault(
        "numbers of the program are no ints",
        f"{_SOURCE}builtin.py",
        "return isinstance(x, kinds) if kind is None else issubclass(kind, kinds)",
        "return isinstance(x, kinds)",
        _same("matches-classes_of_numbers", "matches-isinstance_and_type"),
    ),
]
