"""The digits that come with the package: what they are, how they are split, what a damaged file leads to."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from treadle.base.errors import UserError
from treadle.data import digits, load_digits

FILE = Path(digits.__file__).with_name("digits.npz")


def rows(x, y):
    return sorted(bytes(a.tobytes()) + bytes([b]) for a, b in zip(x, y, strict=True))


def test_shapes_types_and_range():
    (x, y), (x_test, y_test) = load_digits()
    assert len(x) + len(x_test) == 1797
    assert x.shape[1:] == x_test.shape[1:] == (1, 8, 8)
    assert x.dtype == x_test.dtype == np.float32
    assert y.dtype == y_test.dtype == np.int32
    assert (x.min(), x.max()) == (0, 1)
    assert set(y) == set(y_test) == set(range(10))


def test_numbers_are_the_data_sets_own():
    # Counts of the digits 0 to 9 in optdigits.tes, and its first row, as UCI publishes them.
    images, labels = digits._read(FILE.read_bytes())
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert images[0, :2].tolist() == [[0, 0, 5, 13, 9, 1, 0, 0], [0, 0, 13, 15, 10, 15, 5, 0]]
    assert (images.dtype, images.shape, labels.dtype) == (np.uint8, (1797, 8, 8), np.uint8)


def test_parts_do_not_overlap_and_miss_nothing():
    (x, y), (x_test, y_test) = load_digits(held_out=0.3, seed=5)
    images, labels = digits._read(FILE.read_bytes())
    whole = rows(images.astype(np.float32)[:, None] / 16, labels)
    assert rows(np.concatenate([x, x_test]), np.concatenate([y, y_test])) == whole


@pytest.mark.parametrize("held_out", [0.001, 0.2, 0.5, 0.999])
def test_every_digit_gives_its_share(held_out):
    (_, y), (_, y_test) = load_digits(held_out)
    train, test = np.bincount(y, minlength=10), np.bincount(y_test, minlength=10)
    assert (train > 0).all()
    assert (test > 0).all()
    assert (abs(test - held_out * (train + test)) <= 1).all()


def test_the_split_depends_on_the_seed_alone():
    (a, _), _ = load_digits()
    (b, _), _ = load_digits()
    (c, _), _ = load_digits(seed=1)
    assert (a == b).all()
    assert not (a == c).all()


def test_classes_are_mixed():
    (_, y), (_, y_test) = load_digits()
    assert len(set(y[:50])) == 10
    assert len(set(y_test[:50])) == 10


@pytest.mark.parametrize(("held_out", "seed"), [(0, 0), (1, 0), (-0.5, 0), (float("nan"), 0), (0.2, -1)])
def test_bad_share_or_seed(held_out, seed):
    with pytest.raises(UserError, match="E0513"):
        load_digits(held_out, seed)


@pytest.mark.parametrize("position", [0, 1000, -1])
def test_a_damaged_file_is_refused(position):
    content = bytearray(FILE.read_bytes())
    content[position] ^= 1
    with pytest.raises(UserError, match="E0601") as caught:
        digits._read(bytes(content))
    assert hashlib.sha256(content).hexdigest() in str(caught.value)


def test_the_licence_lies_beside_the_file():
    text = FILE.with_name("digits.LICENSE.md").read_text()
    assert "CC BY 4.0" in text
    assert "10.24432/C50P49" in text
