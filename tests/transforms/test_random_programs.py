"""Random programs: every pass keeps the bits, the result is legal, the text reads back to the same module, and the
compiled program gives the interpreter's numbers. Gradients are in test_random_gradients.py. More of each: `-m slow`.
"""

import numpy as np
import pytest
from tests.support.random_programs import MAKERS, random_arguments, random_fn, random_module, together
from tests.transforms.support import assert_same_bits

from treadle import driver
from treadle.base import dtypes, flags
from treadle.ir import interp
from treadle.ir.node import Module
from treadle.ir.parser import parse_module
from treadle.ir.printer import print_module
from treadle.ir.verify import verify
from treadle.ir.walk import all_nodes
from treadle.transforms.pipeline import DEFAULT, Pipeline

STRICT = DEFAULT.replace("algebra", "algebra{strict=True}")
PIPELINES = (
    "dce", "cse", "algebra{strict=True}", "fold", "inline", "outline{min_nodes=2}",
    "cse,outline{min_nodes=2},dce,inline,cse", "fuse{level=3}", "fuse{level=3,views=False}",
    "outline{min_nodes=2},fuse{level=3,alone=True}",
)  # fmt: skip
COUNT, CHUNKS, MORE = 520, 13, 3000  # MORE: seeds up to there are run by the slow tests


def seeds(chunk: int, count: int = COUNT, first: int = 0) -> range:
    return range(first + chunk, first + count, CHUNKS)


def run(module: Module, seed: int):
    with np.errstate(all="ignore"):
        return interp.run(module, *random_arguments(module.main, seed))


def fails(seed: int, module: Module, after: Module, pipeline: str) -> str:
    return f"seed {seed}, pipeline {pipeline}\n{print_module(module)}\nafter\n{print_module(after)}"


def check_bits(seed: int, pipelines: tuple[str, ...]) -> None:
    module = verify(random_module(seed))
    wanted = run(module, seed)
    for pipeline in pipelines:
        after = verify(Pipeline.parse(pipeline).run(module))
        try:
            assert_same_bits(wanted, run(after, seed), signed_zero=pipeline != DEFAULT)
        except AssertionError:
            pytest.fail(fails(seed, module, after, pipeline), pytrace=False)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_passes_keep_the_bits(chunk):
    for seed in seeds(chunk):
        check_bits(seed, (PIPELINES[seed % len(PIPELINES)], STRICT, DEFAULT))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_passes_keep_the_bits_of_more_programs(chunk):
    for seed in seeds(chunk, MORE, COUNT):
        check_bits(seed, (*PIPELINES, STRICT, DEFAULT))


def check_text(seed: int) -> None:
    module = random_module(seed)
    for where in (False, True):
        text = print_module(module, where)
        back = parse_module(text)
        assert print_module(back, where) == text, f"seed {seed}"
    assert back == module, f"seed {seed}"  # positions included
    assert all(node.where.line for node in all_nodes(back)), f"seed {seed}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_text_reads_back_to_the_same_module(chunk):
    for seed in seeds(chunk):
        check_text(seed)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_text_of_more_programs_reads_back(chunk):
    for seed in seeds(chunk, MORE, COUNT):
        check_text(seed)


def check_executable(programs: range, size: int, optimise: bool) -> None:
    """All programs as functions of one module, so that it is compiled once. Doubles, so that no branch hangs on a
    bit."""
    modules = [random_module(seed, size=size, dtype=dtypes.float64) for seed in programs]
    arguments = [random_arguments(module.main, seed) for module, seed in zip(modules, programs)]
    whole = verify(together(modules))
    with flags.override(cache=False):
        executable = driver.compile_module(driver.optimise(whole) if optimise else whole)
    found = iter(executable([array for arrays in arguments for array in arrays]))
    for seed, module, arrays in zip(programs, modules, arguments):
        with np.errstate(all="ignore"):
            wanted = interp.run(module, *arrays)
        for each in wanted:
            result = np.asarray(next(found))
            assert result.dtype == each.dtype
            np.testing.assert_allclose(result, each, rtol=1e-9, atol=1e-11, err_msg=f"seed {seed}\n{module}")
    assert next(found, None) is None


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_executable_gives_the_interpreters_numbers(chunk):
    check_executable(seeds(chunk), size=6, optimise=chunk % 2 == 1)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("optimise", [False, True])
def test_the_executable_gives_the_numbers_of_larger_programs(chunk, optimise):
    check_executable(seeds(chunk, COUNT, MORE), size=12, optimise=optimise)


@pytest.mark.parametrize("name", ["dce", "cse", "algebra", "inline"])
def test_a_second_run_changes_nothing(name):
    step = Pipeline.parse(name)
    for seed in range(100):
        once = step.run(random_module(seed))
        assert step.run(once) is once, f"seed {seed}: {name} fires again"


def test_the_programs_are_varied():
    modules = [random_module(seed) for seed in range(200)]
    used = {node.op.name for module in modules for node in all_nodes(module)}
    wanted = {"if", "while", "scan", "call", "remat", "custom_vjp", "matmul", "select", "cast", "logsumexp"}
    assert {"reduce_max", "concatenate", *wanted} <= used and len(used) > 25
    assert len({str(m) for m in modules}) == 200
    assert any(t.size == 0 for m in modules for t in m.main.in_types)


def test_a_seed_gives_one_program_and_makers_can_be_chosen():
    assert str(random_fn(7)) == str(random_fn(7)) != str(random_fn(8))
    only = random_fn(3, ops=("binary",), size=20)
    assert {node.op.name for node in only.nodes} <= {"add", "sub", "mul"}
    assert "call" not in {n.op.name for s in range(50) for n in all_nodes(random_fn(s))}
    assert set(MAKERS) >= {"branch", "loop", "scan", "call", "remat", "custom"}
