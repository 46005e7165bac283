"""Layers and functions over space against PyTorch's numbers: results, all gradients, parameter names."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.nn import cases, spatial_cases
from tests.nn.test_layers import check

import treadle as td
from treadle import nn
from treadle.frontend import tree

F = nn.functional
GOLDEN = json.loads((Path(__file__).parent / "spatial_golden.json").read_text())["cases"]


@pytest.mark.parametrize("name", spatial_cases.CASES)
def test_values_and_gradients_are_pytorchs(name: str) -> None:
    make, inputs, call = spatial_cases.CASES[name]
    golden, net = GOLDEN[name], make(nn)
    for i, p in enumerate(net.parameters()):
        p.assign(cases.fill(p.shape, 0.3 + i))
    given = [td.Tensor(cases.fill(x, 5.0 + i) if isinstance(x, tuple) else x) for i, x in enumerate(inputs)]
    params = net.parameters()
    assert [n for n, _ in net.named_parameters()] == golden["names"]

    @td.jit
    def both(*xs: Any) -> Any:
        def objective() -> Any:
            outputs = tree.flatten(net(*xs) if call is None else call(net, *xs))[0]
            weighted = [(o * td.Tensor(cases.cotangent(o.shape))).sum() for o in outputs]
            return sum(weighted[1:], weighted[0]), outputs

        wanted = [x for x, like in zip(xs, inputs, strict=True) if isinstance(like, tuple)]
        return td.grad(objective, [*wanted, *params], has_aux=True)()

    grads, outputs = both(*given)
    count = len(golden["inputs"])
    for found, wanted in zip(outputs, golden["outputs"], strict=True):
        check(found, wanted, "output")
    for found, wanted in zip(grads[:count], golden["inputs"], strict=True):
        check(found, wanted, "gradient of an input")
    for found, wanted in zip(grads[count:], golden["params"], strict=True):
        np.testing.assert_allclose(cases.project(found), wanted, 3e-5, 3e-5)


def test_sizes_that_pytorch_reads_otherwise_backward() -> None:
    """A scale beside 1 that leaves the size: PyTorch's gradients there are not those of its own values."""
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    assert F.interpolate(x, scale_factor=1.1).numpy().ravel().tolist() == [0, 0, 1, 2, 3]
    wide = F.interpolate(x[:, :, None], scale_factor=(1, 1.1), mode="bicubic").numpy().ravel()
    np.testing.assert_allclose(wide, [-0.0311, 0.8088, 1.7248, 2.6424, 3.6761], atol=1e-4)


def test_infinity_stays_where_it_has_weight() -> None:
    x = np.array([[[1.0, np.inf, 3.0, 4.0]]], np.float32)
    y = F.interpolate(x, size=7, mode="linear", align_corners=True).numpy().ravel()
    np.testing.assert_array_equal(y, [1, np.inf, np.inf, np.inf, 3, 3.5, 4])
    image = np.array([[[[1.0, np.inf]]]], np.float32)
    seen = F.grid_sample(image, np.array([[[[-1.25, 0.0], [-0.75, 0.0]]]], np.float32)).numpy().ravel()
    assert seen.tolist() == [0.25, 0.75]


def test_places_of_16_bit_images_are_found_in_float32() -> None:
    x, grid = cases.fill((1, 2, 9, 70), 1.0), cases.fill((1, 2, 3, 2), 2.0) * 0.7
    narrow = [td.Tensor(a).astype(td.bfloat16) for a in (x, grid)]
    y = F.grid_sample(*narrow)
    assert y.dtype is td.bfloat16
    wide = F.grid_sample(*[a.astype(td.float32) for a in narrow]).numpy()
    np.testing.assert_allclose(y.astype(td.float32).numpy(), wide, 1e-2, 1e-2)


def test_fold_counts_how_often_an_element_was_taken() -> None:
    x = np.ones((1, 1, 4, 5), np.float32)
    columns = F.unfold(x, 3, padding=1)
    assert columns.shape == (1, 9, 20)
    counts = F.fold(columns, (4, 5), 3, padding=1).numpy()[0, 0]
    assert counts[0, 0] == 4 and counts[0, 1] == 6 and counts[1, 1] == 9


def test_places_of_ties_padding_and_nan() -> None:
    x = np.array([[[-np.inf, -np.inf, 2.0, 2.0, np.nan, 3.0]]], np.float32)
    values, places = F.max_pool1d(x, 2, 2, return_indices=True)
    np.testing.assert_array_equal(values.numpy(), [[[-np.inf, 2, np.nan]]])
    assert places.numpy().tolist() == [[[0, 2, 4]]]
    values, places = F.max_pool1d(np.full((1, 1, 3), -np.inf, np.float32), 2, 2, padding=1, return_indices=True)
    assert places.numpy().tolist() == [[[0, 1]]]
    values, places = F.max_pool1d(np.array([[[3, 5, 5, -7]]], np.int32), 3, 1, dilation=1, return_indices=True)
    assert (values.numpy().tolist(), places.numpy().tolist()) == ([[[5, 5]]], [[[1, 1]]])


def test_the_last_of_equal_places_counts() -> None:
    x, places = np.array([[[1.0, 2.0, 3.0]]], np.float32), np.array([[[1, 1, 0]]], np.int64)
    back = td.jit(lambda x: F.max_unpool1d(x, places, 2, output_size=(5,)))
    for y in (back(x), F.max_unpool1d(x, places, 2, output_size=(5,))):
        assert y.numpy().tolist() == [[[3, 2, 0, 0, 0]]]
    taken = td.grad(lambda x: (F.max_unpool1d(x, places, 2, output_size=(5,)) * 5).sum())(td.Tensor(x))
    assert taken.numpy().tolist() == [[[0, 5, 5]]]


def test_random_windows_follow_the_generator() -> None:
    x = np.arange(12 * 12 * 12, dtype=np.float32).reshape(1, 12, 12, 12)
    net = nn.FractionalMaxPool2d((2, 3), output_size=(5, 6), return_indices=True)
    td.manual_seed(4)
    eager = net(x)[1].numpy()
    td.manual_seed(4)
    run = td.jit(net)
    np.testing.assert_array_equal(eager, run(x)[1].numpy())
    rows = eager // 12 - 1  # of rising numbers the last element of a window wins: this is where it began
    assert (np.diff(rows, axis=2) >= 1).all() and (rows[:, :, -1] == 10).all() and (rows[:, :, 0] == 0).all()
    assert len(np.unique(rows[:, :, 1, 0])) > 1  # not all channels alike
    assert (run(x)[1].numpy() != eager).any()


def test_lazy_layers_become_what_they_stand_for() -> None:
    net = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(momentum=0.3), nn.Flatten(), nn.LazyLinear(4))
    assert not net.parameters() and "LazyConv2d(3, 2)" in repr(net)
    x = np.ones((2, 5, 3, 3), np.float32)
    y = net(x)
    assert y.shape == (2, 4) and [type(c) for c in net.children()] == [nn.Conv2d, nn.BatchNorm2d, nn.Flatten, nn.Linear]
    assert net.state_dict()["0.weight"].shape == (3, 5, 2, 2) and net.state_dict()["3.weight"].shape == (4, 12)
    np.testing.assert_allclose(td.jit(net.eval())(x).numpy(), net(x).numpy(), 1e-5, 1e-5)
    for lazy, of, shape, weight in (
        (nn.LazyConvTranspose1d(2, 3), nn.ConvTranspose1d, (1, 4, 5), (4, 2, 3)),
        (nn.LazyConv3d(2, 1), nn.Conv3d, (4, 2, 2, 2), (2, 4, 1, 1, 1)),
        (nn.LazyInstanceNorm1d(affine=True), nn.InstanceNorm1d, (4, 6), (4,)),
    ):
        lazy.eval()(np.ones(shape, np.float32))
        assert type(lazy) is of and not lazy.training and lazy.weight.shape == weight


def test_texts() -> None:
    assert repr(nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1, groups=2, bias=False)) == (
        "ConvTranspose2d(4, 2, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1), groups=2, bias=False)"
    )
    assert repr(nn.Upsample(scale_factor=2)) == "Upsample(scale_factor=2, mode='nearest')"


X1, X2 = np.ones((2, 4, 6), np.float32), np.ones((1, 4, 5, 6), np.float32)
W2 = np.ones((4, 2, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("E0541", lambda: F.conv_transpose2d(X2, W2, output_padding=1)),
        ("E0541", lambda: F.conv_transpose2d(X2, W2, padding=9)),
        ("E0541", lambda: nn.ConvTranspose2d(4, 2, 3, stride=2)(X2, output_size=(20, 13))),
        ("E0542", lambda: F.conv_transpose2d(X2[None], W2)),
        ("E0146", lambda: F.conv_transpose2d(X2[:, :3], W2)),
        ("E0552", lambda: nn.ConvTranspose1d(3, 2, 3, groups=2)),
        ("E0566", lambda: F.interpolate(X1, 3, mode="bilinear")),
        ("E0566", lambda: F.interpolate(X1)),
        ("E0566", lambda: F.interpolate(X1, 3, 2.0)),
        ("E0566", lambda: F.interpolate(X2, (3, 4, 5))),
        ("E0566", lambda: F.interpolate(X2, 0)),
        ("E0566", lambda: F.interpolate(X2, 3, align_corners=True)),
        ("E0566", lambda: F.interpolate(X2, 3, antialias=True)),
        ("E0566", lambda: F.grid_sample(X2, X2)),
        ("E0566", lambda: F.grid_sample(X2, np.ones((1, 2, 2, 2), np.float32), "linear")),
        ("E0566", lambda: F.affine_grid(np.ones((1, 2, 3), np.float32), (2, 1, 3, 3))),
        ("E0148", lambda: F.unfold(X2, 7)),
        ("E0566", lambda: F.fold(X1, (4, 4), 2)),
        ("E0566", lambda: F.max_unpool1d(X1, X1, 2)),
        ("E0566", lambda: F.max_unpool1d(X1, np.full((2, 4, 6), 12), 2)),
        ("E0566", lambda: F.max_unpool1d(X1, np.zeros((2, 4, 6), np.int32), 2, output_size=(15,))),
        ("E0541", lambda: F.max_pool1d(X1, 2, padding=2, return_indices=True)),
        ("E0566", lambda: F.lp_pool1d(X1, 0, 2)),
        ("E0541", lambda: F.avg_pool2d(X2, 2, divisor_override=0)),
        ("E0151", lambda: F.avg_pool2d(X2, 2, 2, 2, True)),
        ("E0543", lambda: F.adaptive_max_pool1d(X1, 0, True)),
        ("E0566", lambda: nn.FractionalMaxPool2d(2)),
        ("E0566", lambda: F.fractional_max_pool2d(X2, 2, 5)),
        ("E0566", lambda: F.fractional_max_pool2d(X2, 2, output_ratio=1.5)),
        ("E0566", lambda: F.fractional_max_pool2d(X2, 2, 2, _random_samples=np.ones((1, 4, 3), np.float32))),
        ("E0561", lambda: td.jit(nn.LazyLinear(2))(X1)),
        ("E0553", lambda: nn.LazyConv2d(2, 2)(X1[0])),
    ],
)
def test_wrong_arguments(code: str, call: Any) -> None:
    with pytest.raises(td.UserError, match=code):
        call()
