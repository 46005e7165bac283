"""DLPack, NumPy's array protocol, pickles and printing of tensors."""

import pickle

import ml_dtypes
import numpy as np
import pytest

import treadle as td
from treadle.base import dtypes
from treadle.base.errors import UserError


def example(dtype):
    return td.tensor(np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype.np))


def big(dtype=np.float32):
    """A tensor that lies on the device: too large for small operands on the host."""
    return td.from_numpy(np.arange(40_000).astype(dtype)) + 1


# ---------------------------------------------------------------------------------------------------------- DLPack
@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d is not dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("copy", [None, True, False])
def test_numpy_reads_a_tensor(dtype, copy):
    x = example(dtype)
    array = np.from_dlpack(x, copy=copy)
    assert array.dtype == dtype.np
    np.testing.assert_array_equal(array, x.numpy())


@pytest.mark.parametrize("x", [td.ones(3), td.ones(3) + 1, big()], ids=["host", "result", "device"])
def test_a_tensor_cannot_be_changed_through_dlpack(x):
    before = x.numpy()
    array = np.from_dlpack(x)
    array[:] = 7
    np.testing.assert_array_equal(x.numpy(), before)
    shared = np.from_dlpack(x, copy=False)
    with pytest.raises(ValueError, match="read-only"):
        shared[:] = 7


@pytest.mark.parametrize("make", [lambda: td.ones(3), big], ids=["host", "device"])
def test_memory_is_shared_when_asked_for(make):
    x = make()
    first, second = (np.from_dlpack(x, copy=False) for _ in range(2))
    assert first.ctypes.data == second.ctypes.data != np.from_dlpack(x).ctypes.data


def test_shared_memory_outlives_the_tensor_and_a_donation():
    state = [big()]
    shared, expected = np.from_dlpack(state[0], copy=False), state[0].numpy()

    def step():
        state[0].assign(state[0] * 0)

    td.jit(step)()  # the state's memory is given to the program
    assert state[0].numpy().max() == 0
    state.clear()
    np.testing.assert_array_equal(shared, expected)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d is not dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("layout", [lambda a: a, lambda a: a.T, lambda a: a[:, ::-2]], ids=["rows", "columns", "steps"])
def test_tensor_of_a_numpy_array(dtype, layout):
    array = layout(np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype.np))
    for copy in (None, True, False):
        x = td.from_dlpack(array, copy=copy)
        assert x.dtype is dtype
        np.testing.assert_array_equal((x == x).numpy(), array == array)
        np.testing.assert_array_equal(x.numpy(), array)


def test_what_is_imported_is_a_copy_unless_it_is_asked_for():
    array = np.zeros(3, np.float32)
    copied, shared = td.from_dlpack(array), td.from_dlpack(array, copy=False)
    array[0] = 5
    assert copied.tolist() == [0, 0, 0] and shared.tolist() == [5, 0, 0]


def test_jax_both_ways():
    jnp = pytest.importorskip("jax.numpy")
    for dtype in ("float32", "bfloat16", "int32", "bool", "complex64"):
        theirs = jnp.asarray([[0, 1], [2, 3]], dtype)
        ours = td.from_dlpack(theirs)
        assert ours.dtype.name == dtype and ours.shape == (2, 2)
        back = jnp.from_dlpack(ours)
        assert back.dtype == theirs.dtype and bool((back == theirs).all())


def test_bfloat16_both_ways_between_tensors():
    x = example(td.bfloat16)
    assert td.from_dlpack(x).dtype is td.bfloat16
    np.testing.assert_array_equal(td.from_dlpack(x).numpy(), x.numpy())
    np.testing.assert_array_equal(td.from_dlpack(x + 1).numpy(), x.numpy() + 1)


def test_devices_and_refusals_of_dlpack():
    x = td.ones(2)
    assert x.__dlpack_device__() == (1, 0)
    assert x.__dlpack__(dl_device=(1, 0), max_version=(1, 0)) is not None
    with pytest.raises(BufferError, match="device"):
        x.__dlpack__(dl_device=(2, 0))
    for wrong, code in ((lambda: td.from_dlpack([1, 2]), "E0102"), (lambda: td.jit(np.from_dlpack)(x), "E0204")):
        with pytest.raises(UserError) as caught:
            wrong()
        assert caught.value.code == code


def test_from_dlpack_in_a_traced_function_is_a_constant():
    array = np.arange(3.0)
    assert td.jit(lambda x: x + td.from_dlpack(array))(td.ones(3, dtype=td.float64)).tolist() == [1, 2, 3]
    assert td.jit(lambda x: x + td.from_dlpack(array, copy=False))(td.ones(3, dtype=td.float64)).tolist() == [1, 2, 3]


# ----------------------------------------------------------------------------------------------------- array protocol
def test_asarray_copies_unless_told_not_to():
    for x in (td.ones(3), big()):
        before = x.numpy()
        np.asarray(x)[:] = 9
        np.array(x)[:] = 9
        np.testing.assert_array_equal(x.numpy(), before)
        view = np.asarray(x, copy=False)
        np.testing.assert_array_equal(view, before)
        assert not view.flags.writeable


def test_asarray_with_another_type():
    x = td.tensor([1.5, 2.5])
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.asarray(x, np.int8).tolist() == [1, 2]
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x, np.float64, copy=False)


# ---------------------------------------------------------------------------------------------------------- pickles
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_pickles_of_every_type(dtype, protocol):
    for x in (example(dtype), example(dtype)[0, 0], example(dtype)[:0]):
        y = pickle.loads(pickle.dumps(x, protocol))
        assert type(y) is td.Tensor and y.dtype is dtype and y.shape == x.shape
        np.testing.assert_array_equal(y.numpy(), x.numpy())


# --------------------------------------------------------------------------------------------------------- printing
def test_what_tensors_look_like():
    assert repr(td.tensor([1.0, 2.5])) == "Tensor([1. , 2.5], dtype=float32)"
    assert repr(td.tensor(3)) == "Tensor(3, dtype=int64)"
    assert repr(td.tensor([0.1], td.bfloat16)) == "Tensor([0.100098], dtype=bfloat16)"
    assert repr(td.tensor([0.1], td.float16)) == "Tensor([0.1], dtype=float16)"
    assert repr(td.zeros(0, 2)) == "Tensor([], shape=(0, 2), dtype=float32)"
    assert repr(td.zeros(2000)) == "Tensor([0., 0., 0., ..., 0., 0., 0.], shape=(2000,), dtype=float32)"


def test_rows_stand_below_each_other():
    first, second = repr(td.tensor([[1, 2], [3, 4]])).split("\n")
    assert first.index("[1") == second.index("[3")


def test_options_of_printing():
    x = td.tensor([1.23456789, 1e-9], td.float64)
    with td.printoptions(precision=2, suppress=True):
        assert repr(x) == "Tensor([1.23, 0.  ], dtype=float64)"
        with td.printoptions(threshold=1, edgeitems=1):
            assert repr(td.arange(9)) == "Tensor([0, ..., 8], shape=(9,), dtype=int64)"
            assert repr(td.tensor([1.239])) == "Tensor([1.24], dtype=float32)"
        assert "..." not in repr(td.arange(9))
    assert repr(x) == "Tensor([1.23456789e+00, 1.00000000e-09], dtype=float64)"
    assert np.get_printoptions()["precision"] == 8


def test_options_that_are_none():
    with pytest.raises(UserError, match="E0103"):
        td.set_printoptions(precision=-1)
    with pytest.raises(UserError, match="E0103"):
        td.set_printoptions(edgeitems="many")


def test_the_bits_of_bfloat16_survive_numpy():
    x = td.tensor([1.0, 2.0], td.bfloat16)
    assert np.asarray(x).dtype == ml_dtypes.bfloat16
