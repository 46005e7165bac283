"""The interpreter and files."""

import zlib

import numpy as np
import pytest
from tests.ir.programs import recursive, square_sum, with_call, with_regions

from treadle import ops
from treadle.base.errors import UserError
from treadle.ir import build, interp, serial
from treadle.ir.types import f64


def test_numbers():
    x = np.array([1.0, -2.0, 0.5])
    total, square = interp.run(with_call(), x)
    np.testing.assert_array_equal(square, x * x)
    np.testing.assert_allclose(total, np.sum(np.tanh(x * x) + x))


def test_regions():
    x = np.array([1.0, -2.0, 0.5])
    np.testing.assert_array_equal(interp.run(with_regions(), np.float64(-1), x)[0], x * x)
    np.testing.assert_array_equal(interp.run(with_regions(), np.float64(1), x)[0], -x)


def test_arguments_of_other_types():
    fn = build.trace(square_sum, [f64[3]])
    for wrong in (np.zeros(4), np.zeros(3, np.float32), np.zeros((3, 1))):
        with pytest.raises(UserError, match="E0104"):
            interp.run(fn, wrong)
    with pytest.raises(UserError, match="E0104"):
        interp.run(fn)


def test_endless_recursion_is_an_error():
    with pytest.raises(UserError, match="E0301"):
        interp.run(recursive(), np.zeros(2))


def test_the_interpreter_does_not_change_its_arguments():
    x = np.array([1.0, 2.0, 3.0])
    before = x.copy()
    interp.run(with_call(), x)
    np.testing.assert_array_equal(x, before)


def test_expansions_are_kept():
    name = next(o for o in ops.OPS.values() if o.rules.get("expand") and o.name == "square")
    assert interp.expansion(name, (f64[3],), {}) is interp.expansion(name, (f64[3],), {})


def test_files_come_back(tmp_path):
    module = with_call()
    serial.save(module, tmp_path / "m.ir")
    assert serial.load(tmp_path / "m.ir") == module
    assert [p.name for p in tmp_path.iterdir()] == ["m.ir"]


def test_saving_replaces_a_file(tmp_path):
    serial.save(with_regions(), tmp_path / "m.ir")
    serial.save(with_call(), tmp_path / "m.ir")
    assert serial.load(tmp_path / "m.ir") == with_call()


@pytest.mark.parametrize("flip", [0, 40, -3])
def test_damaged_files_are_refused(tmp_path, flip):
    path = tmp_path / "m.ir"
    serial.save(with_call(), path)
    data = bytearray(path.read_bytes())
    data[flip] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match="E0602"):
        serial.load(path)


def test_cut_files_are_refused(tmp_path):
    path = tmp_path / "m.ir"
    serial.save(with_call(), path)
    data = path.read_bytes()
    for length in (0, 10, len(data) // 2, len(data) - 2):
        path.write_bytes(data[:length])
        with pytest.raises(UserError, match="E0602"):
            serial.load(path)


def test_files_of_a_later_version_are_refused(tmp_path):
    path = tmp_path / "m.ir"
    body = "treadle-ir 2\n\nfn main() -> () {\n  return\n}\n"
    path.write_text(f"{body}# crc32 {zlib.crc32(body.encode()):08x}\n")
    with pytest.raises(UserError, match="E0192"):
        serial.load(path)
