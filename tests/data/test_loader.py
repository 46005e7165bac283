"""Batches: all rows once per epoch, an order that can be repeated, resuming, and clear refusals."""

import json

import numpy as np
import pytest

from treadle.base.errors import UserError
from treadle.data import ArrayDataset, DataLoader


def make(samples=10, batch_size=4, **options):
    x = np.arange(samples * 3, dtype=np.float32).reshape(samples, 3)
    return DataLoader((x, np.arange(samples)), batch_size, **options)


def labels(loader):
    return [y.tolist() for _, y in loader]


def test_an_epoch_has_every_row_once_and_rows_stay_together():
    loader = make()
    batches = list(loader)
    assert [len(y) for _, y in batches] == [4, 4, 2]
    assert len(loader) == 3
    x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert sorted(y) == list(range(10))
    assert (x[:, 0] == 3 * y).all()
    assert x.dtype == np.float32


def test_drop_last_and_exact_division():
    assert [len(y) for _, y in make(drop_last=True)] == [4, 4]
    assert len(make(drop_last=True)) == 2
    assert [len(y) for _, y in make(8)] == [4, 4]
    assert len(make(8)) == 2
    assert [len(y) for _, y in make(3)] == [3]


def test_without_shuffle_the_order_is_the_arrays():
    loader = make(shuffle=False)
    assert labels(loader) == labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_order_is_a_function_of_seed_and_epoch():
    a, b, other = make(100), make(100), make(100, seed=1)
    first, second = labels(a), labels(a)
    assert a.epoch == 2
    assert first != second
    assert [labels(b), labels(b)] == [first, second]
    assert labels(other) != first
    b.epoch = 1
    assert labels(b) == second


def test_order_does_not_touch_numpys_global_state():
    np.random.seed(3)
    before = np.random.get_state()[1].tolist()
    list(make())
    assert np.random.get_state()[1].tolist() == before


def test_leaving_a_loop_starts_the_epoch_again():
    loader = make(100)
    for _ in loader:
        break
    assert loader.epoch == 0
    assert labels(loader) == labels(make(100))


def test_leaving_a_loop_at_its_last_batch_ends_the_epoch():
    loader, whole = make(), make()
    for _, batch in zip(range(len(loader)), loader, strict=False):
        assert batch
    labels(whole)
    assert labels(loader) == labels(whole)


@pytest.mark.parametrize("taken", range(1, 7))
def test_a_state_resumes_after_the_batch_in_hand(taken):
    whole = make()
    expected = labels(whole) + labels(whole)
    loader, seen, state = make(), [], None
    while state is None:
        for _, y in loader:
            seen.append(y.tolist())
            if len(seen) == taken:
                state = loader.state_dict()
                break
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert resumed.state_dict() == state
    while resumed.epoch < 2:
        seen += labels(resumed)
    assert seen == expected


def test_a_state_is_used_once():
    loader = make()
    state = {**loader.state_dict(), "batch": 2}
    loader.load_state_dict(state)
    assert [len(y) for _, y in loader] == [2]
    assert [len(y) for _, y in loader] == [4, 4, 2]


@pytest.mark.parametrize("key", ["seed", "batch_size", "samples"])
@pytest.mark.parametrize("value", [5, 6])
def test_a_state_of_other_settings_is_refused(key, value):
    with pytest.raises(UserError, match=f"E0514.*{key} is .*the state says {value}"):
        make().load_state_dict(make().state_dict() | {key: value})


@pytest.mark.parametrize("change", [{"shuffle": 0}, {"drop_last": 1}, {"batch": 3}, {"batch": -1}, {"epoch": -1}])
def test_a_state_of_another_loader_is_refused(change):
    with pytest.raises(UserError, match="E0514"):
        make().load_state_dict(make().state_dict() | change)


def test_an_incomplete_state_is_refused():
    with pytest.raises(UserError, match="E0514 the loader's state lacks batch, samples"):
        make().load_state_dict({k: v for k, v in make().state_dict().items() if k not in ("batch", "samples")})


def test_one_array_and_a_dataset():
    assert [len(x) for (x,) in DataLoader(np.zeros([5, 2]), 2)] == [2, 2, 1]
    data = ArrayDataset([1, 2, 3], np.eye(3))
    assert len(data) == 3
    assert data[1][0] == 2
    assert [x.tolist() for x, _ in DataLoader(data, 2, shuffle=False)] == [[1, 2], [3]]


def test_batches_are_copies():
    x = np.zeros(4)
    for (batch,) in DataLoader(x, 4, shuffle=False):
        batch += 1
    assert (x == 0).all()


@pytest.mark.parametrize(
    ("arguments", "code", "values"),
    [
        (((np.zeros([4, 2]), np.zeros(3)), 2), "E0510", r"\[4, 2\], \[3\]"),
        ((np.zeros(4), 0), "E0511", "0"),
        ((np.zeros([0, 2]), 1), "E0512", r"\[0, 2\]"),
        (((), 1), "E0512", "none"),
        ((np.float32(1), 1), "E0512", r"\[\]"),
        ((np.zeros(3), 4, True, 0, True), "E0512", "3 samples give no full batch of 4"),
        ((np.zeros(3), 4, True, -1), "E0513", "-1"),
    ],
)
def test_bad_arguments(arguments, code, values):
    with pytest.raises(UserError, match=f"{code}.*{values}") as caught:
        DataLoader(*arguments)
    assert caught.value.fix
    assert caught.value.where.file == __file__
