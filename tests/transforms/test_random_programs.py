"""Random programs: every pass keeps the bits, the result is legal, the text reads back to the same module."""

import numpy as np
import pytest
from tests.support.random_programs import MAKERS, random_arguments, random_fn, random_module
from tests.transforms.support import assert_same_bits

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
    "cse,outline{min_nodes=2},dce,inline,cse",
)  # fmt: skip
COUNT, CHUNKS = 500, 10


def run(module: Module, seed: int):
    with np.errstate(all="ignore"):
        return interp.run(module, *random_arguments(module.main, seed))


def fails(seed: int, module: Module, after: Module, pipeline: str) -> str:
    return f"seed {seed}, pipeline {pipeline}\n{print_module(module)}\nafter\n{print_module(after)}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_passes_keep_the_bits(chunk):
    for seed in range(chunk, COUNT, CHUNKS):
        module = verify(random_module(seed))
        wanted = run(module, seed)
        for pipeline in (PIPELINES[seed % len(PIPELINES)], STRICT, DEFAULT):
            after = verify(Pipeline.parse(pipeline).run(module))
            try:
                assert_same_bits(wanted, run(after, seed), signed_zero=pipeline != DEFAULT)
            except AssertionError:
                pytest.fail(fails(seed, module, after, pipeline), pytrace=False)


@pytest.mark.parametrize("where", [False, True])
def test_text_reads_back_to_the_same_module(where):
    for seed in range(COUNT // 2):
        text = print_module(random_module(seed), where)
        assert print_module(parse_module(text), where) == text


def test_text_with_positions_reads_back_to_an_equal_module():
    for seed in range(100):
        module = random_module(seed)
        assert parse_module(print_module(module, where=True)) == module


@pytest.mark.parametrize("name", ["dce", "cse", "algebra", "inline"])
def test_a_second_run_changes_nothing(name):
    step = Pipeline.parse(name)
    for seed in range(100):
        once = step.run(random_module(seed))
        assert step.run(once) is once, f"seed {seed}: {name} fires again"


def test_the_programs_are_varied():
    modules = [random_module(seed) for seed in range(200)]
    used = {node.op.name for module in modules for node in all_nodes(module)}
    wanted = {"if", "while", "scan", "call", "matmul", "select", "cast", "logsumexp", "reduce_max", "concatenate"}
    assert wanted <= used and len(used) > 25
    assert len({str(m) for m in modules}) == 200
    assert any(t.size == 0 for m in modules for t in m.main.in_types)


def test_a_seed_gives_one_program_and_makers_can_be_chosen():
    assert str(random_fn(7)) == str(random_fn(7)) != str(random_fn(8))
    only = random_fn(3, ops=("binary",), size=20)
    assert {node.op.name for node in only.nodes} <= {"add", "sub", "mul"}
    assert "call" not in {n.op.name for s in range(50) for n in all_nodes(random_fn(s))}
    assert set(MAKERS) >= {"branch", "loop", "scan", "call"}
