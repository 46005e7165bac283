"""Random numbers: published vectors of the generator, an independent implementation, statistics, compile time."""

import math
import time

import jax
import numpy as np
import pytest
from tests.ops.support import execute

from treadle import ops
from treadle.base import dtypes
from treadle.ir import build, interp
from treadle.ir.node import Module
from treadle.ir.types import TensorType, u32

KEY = np.array([0x12345678, 0x9ABCDEF0], np.uint32)


def draw(op, *arrays, key=KEY, **attrs):
    """One draw by the reference."""
    arrays = [key, *map(np.asarray, arrays)]
    types = [interp.type_of(a) for a in arrays]
    (result,) = interp.run(build.trace(lambda *values: op(*values, **attrs), types), *arrays)
    return result


@pytest.mark.parametrize("counter, key, words", [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
])  # fmt: skip
def test_the_generator_gives_the_vectors_of_its_authors(counter, key, words):
    """The file kat_vectors of Random123, threefry2x32 with 20 rounds."""
    arrays = [np.array(n, np.uint32) for n in (*key, *counter)]
    fn = build.trace(ops.threefry, [u32[()]] * 4)
    assert tuple(map(int, interp.run(fn, *arrays))) == words
    assert tuple(map(int, execute(Module.of(fn), arrays, "threefry"))) == words


@pytest.mark.parametrize("name", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4, 5)])
def test_bits_are_those_of_another_implementation(name, shape):
    """JAX numbers the elements and joins the words in the same way when `jax_threefry_partitionable` is on."""
    with jax.threefry_partitionable(True), jax.enable_x64(True):
        theirs = jax.random.bits(jax.random.wrap_key_data(KEY, impl="threefry2x32"), shape, name)
    np.testing.assert_array_equal(draw(ops.random_bits, shape=shape, dtype=dtypes.of(name)), theirs)


def test_an_element_depends_on_its_index_alone():
    flat = draw(ops.random_bits, shape=(24,), dtype=dtypes.uint32)
    np.testing.assert_array_equal(draw(ops.random_bits, shape=(2, 3, 4), dtype=dtypes.uint32).ravel(), flat)
    np.testing.assert_array_equal(draw(ops.random_bits, shape=(7,), dtype=dtypes.uint32), flat[:7])
    normal = draw(ops.random_normal, shape=(24,), dtype=dtypes.float32)
    np.testing.assert_array_equal(draw(ops.random_normal, shape=(5,), dtype=dtypes.float32), normal[:5])


def test_counters_pass_32_bits():
    """A draw of more than 2**32 elements cannot be run here: its index arithmetic is read from the expansion."""
    shape = (2**17, 2**16)
    fn = interp.expansion(ops.random_bits, (u32[2],), {"shape": shape, "dtype": dtypes.uint32})
    indices = [n for n in fn.nodes if n.op is ops.iota]
    assert [n.attrs for n in indices] == [{"shape": (2**33,), "axis": 0, "dtype": dtypes.uint64}]
    (block,) = [n for n in fn.nodes if n.op is ops.threefry]
    high, low = block.inputs[2:]
    assert low.node.op is ops.cast and low.node.inputs == high.node.inputs[0].node.inputs[:1]
    assert high.node.inputs[0].node.op is ops.shift_right_logical


def test_keys_made_of_a_key_differ_from_each_other_and_from_its_draws():
    keys = np.concatenate([
        draw(ops.fold_in, np.arange(500, dtype=np.uint32)),
        draw(ops.random_split, count=500),
        draw(ops.random_bits, shape=(500, 2), dtype=dtypes.uint32),
    ])  # fmt: skip
    assert len({tuple(k) for k in keys}) == 1500
    again = draw(ops.fold_in, np.uint32(3))
    np.testing.assert_array_equal(again, keys[3])
    other = draw(ops.random_bits, key=again, shape=(1000,), dtype=dtypes.uint32)
    mine = draw(ops.random_bits, shape=(1000,), dtype=dtypes.uint32)
    assert abs(np.corrcoef(other.astype(float), mine.astype(float))[0, 1]) < 4 / math.sqrt(1000)


def test_fold_in_takes_python_ints_modulo_2_to_the_32():
    fn = build.trace(lambda key: (ops.fold_in(key, -1), ops.fold_in(key, 2**32 + 5)), [u32[2]])
    minus_one, five = interp.run(fn, KEY)
    np.testing.assert_array_equal(minus_one, draw(ops.fold_in, np.uint32(2**32 - 1)))
    np.testing.assert_array_equal(five, draw(ops.fold_in, np.uint32(5)))


def test_bits_are_even():
    """200 000 words: each bit is set half of the time, and bytes fill 256 cells evenly (chi-square, 5 deviations)."""
    n = 200_000
    words = draw(ops.random_bits, shape=(n,), dtype=dtypes.uint32)
    shares = np.unpackbits(words.view(np.uint8)).reshape(n, 32).mean(0)
    assert np.abs(shares - 0.5).max() < 4.5 * 0.5 / math.sqrt(n)
    counts = np.bincount(words.view(np.uint8), minlength=256)
    expected = 4 * n / 256
    chi = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi - 255) < 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("low, high", [(0.0, 1.0), (-3.0, 5.0), (1.0, 1.5)])
def test_uniform_stays_below_high_and_is_even(name, low, high):
    n, dtype = 100_000, dtypes.of(name)
    x = draw(ops.random_uniform, shape=(n,), dtype=dtype, low=low, high=high).astype(np.float64)
    assert low <= x.min() and x.max() < high
    width = high - low
    rough = width * 2.0**-7 if name == "bfloat16" else 0  # the values are few, each stands for those above it
    assert abs(x.mean() - (low + high) / 2) < 4.5 * width / math.sqrt(12 * n) + rough
    assert abs(x.std() - width / math.sqrt(12)) < 0.005 * width + rough
    if name not in ("float16", "bfloat16"):
        counts, _ = np.histogram(x, 64, (low, high))
        assert ((counts - n / 64) ** 2 / (n / 64)).sum() < 63 + 5 * math.sqrt(2 * 63)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_the_largest_bits_stay_below_one(name, monkeypatch):
    dtype = dtypes.of(name)
    ones = np.full(3, 2**32 - 1, np.uint32)
    monkeypatch.setattr("treadle.ops.random.threefry_of", lambda *words: (ones, ones * 0))
    top = draw(ops.random_uniform, shape=(3,), dtype=dtype, low=0.0, high=1.0)
    assert (top < 1).all() and (top > 1 - 1e-6).all()
    high = draw(ops.random_uniform, shape=(3,), dtype=dtype, low=16.0, high=16.0 + 2.0**-19)
    assert (high < 16 + 2.0**-19).all()
    assert np.isfinite(draw(ops.random_normal, shape=(3,), dtype=dtype)).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_normal_numbers_have_the_moments_and_tails(name):
    n = 100_000
    x = draw(ops.random_normal, shape=(n,), dtype=dtypes.of(name)).astype(np.float64)
    assert abs(x.mean()) < 4.5 / math.sqrt(n)
    assert abs(x.var() - 1) < 4.5 * math.sqrt(2 / n)
    assert abs((x**3).mean()) < 4.5 * math.sqrt(15 / n)
    assert abs((x**4).mean() - 3) < 4.5 * math.sqrt(96 / n)
    for limit in (1, 2, 3):
        p = math.erfc(limit / math.sqrt(2))
        assert abs((np.abs(x) > limit * (1 + 2**-9)).mean() - p) < 4.5 * math.sqrt(p / n) + 0.01 * p


def test_bernoulli_has_its_probability_and_is_exact_at_the_ends():
    n = 100_000
    for p in (0.1, 0.5, 0.9):
        found = draw(ops.random_bernoulli, np.float32(p), shape=(n,)).mean()
        assert abs(found - p) < 4.5 * math.sqrt(p * (1 - p) / n)
    assert draw(ops.random_bernoulli, np.float32(1), shape=(n,)).all()
    assert not draw(ops.random_bernoulli, np.float32(0), shape=(n,)).any()
    fn = build.trace(lambda key: ops.random_bernoulli(key, 0.5, shape=(8,)), [u32[2]])
    np.testing.assert_array_equal(interp.run(fn, KEY)[0], draw(ops.random_bernoulli, np.float32(0.5), shape=(8,)))


def test_the_back_end_draws_the_same_numbers():
    """Bits, and floats made without rounding, bit for bit; normal ones within rounding, at size."""
    shape = (300, 7)

    def program(key):
        return (
            ops.random_bits(key, shape=shape, dtype=dtypes.uint32),
            ops.random_uniform(key, shape=shape, dtype=dtypes.float32, low=0.0, high=1.0),
            ops.random_uniform(key, shape=shape, dtype=dtypes.bfloat16, low=0.0, high=1.0),
            ops.random_bernoulli(key, 0.9, shape=shape),
            ops.random_normal(key, shape=shape, dtype=dtypes.float32),
            ops.random_normal(key, shape=shape, dtype=dtypes.float64),
        )

    module = Module.of(build.trace(program, [u32[2]]))
    ours, theirs = interp.run(module, KEY), execute(module, [KEY], "draws")
    for a, b in zip(ours[:4], theirs[:4]):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(theirs[4], ours[4], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(theirs[5], ours[5], rtol=1e-12, atol=1e-12)


def test_many_draws_compile_fast():
    """24 masks in one program: the unrolled rounds do not blow the compiler up (1.6 s measured on two busy cores)."""
    type = TensorType(dtypes.float32, (64, 64))

    def program(keys, x):
        for i in range(24):
            key = ops.reshape(ops.slice_(keys, starts=(i, 0), limits=(i + 1, 2), strides=(1, 1)), shape=(2,))
            mask = ops.random_bernoulli(key, 0.9, shape=(64, 64))
            x = ops.matmul(ops.select(mask, x * (1 / 0.9), 0.0), x)
        return x

    module = Module.of(build.trace(program, [u32[24, 2], type]))
    start = time.perf_counter()
    execute(module, [np.arange(48, dtype=np.uint32).reshape(24, 2), np.eye(64, dtype=np.float32)], "masks")
    assert time.perf_counter() - start < 30
