"""Random programs give the same eager and compiled: results, prints, gradients. None is refused."""

import pytest
from hypothesis import HealthCheck, given, settings
from tests.pysrc import programs, support

import treadle as td

INPUTS = ((0.6, -0.9, 2), (-1.4, 0.8, 0), (1.7, 1.1, 2))
QUIET = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


def check(source, folder, compiler):
    function = programs.load(source, folder)
    case = support.Case("program", lambda: (function, lambda: None), INPUTS)
    found = support.mismatches(case, compiler) or support.gradient_mismatches(case, compiler)
    if found:
        pytest.fail("\n".join([source, *found]), pytrace=False)


@settings(max_examples=150, derandomize=True, **QUIET)
@given(source=programs.programs())
def test_random_programs(source, tmp_path_factory):
    check(source, tmp_path_factory.mktemp("program"), support.interpreted)


@settings(max_examples=4, derandomize=True, **QUIET)
@given(source=programs.programs())
def test_compiled_random_programs(source, tmp_path_factory):
    check(source, tmp_path_factory.mktemp("program"), td.jit)


@pytest.mark.slow
@settings(max_examples=1900, **QUIET)
@given(source=programs.programs())
def test_many_random_programs(source, tmp_path_factory):
    check(source, tmp_path_factory.mktemp("program"), support.interpreted)


@pytest.mark.slow
@settings(max_examples=100, **QUIET)
@given(source=programs.programs())
def test_many_compiled_random_programs(source, tmp_path_factory):
    check(source, tmp_path_factory.mktemp("program"), td.jit)
