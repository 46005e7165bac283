"""Layers and functions over space that are compared with PyTorch; `make_spatial_golden.py` writes their numbers.

As more_cases.py: name: (layer or function, inputs, call). A function stands as a layer without parameters.
"""

from typing import Any

import numpy as np


class Function:
    """A function with fixed arguments, called as a layer."""

    def __init__(self, function: Any, *args: Any, **kwargs: Any) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    def __call__(self, *xs: Any, **kwargs: Any) -> Any:
        return self.function(*xs, *self.args, **self.kwargs, **kwargs)

    def parameters(self) -> list[Any]:
        return []

    named_parameters = named_buffers = parameters


def of(make: Any, *inputs: Any, call: Any = None) -> Any:
    return make, inputs, call


def resized(*shape: int, **how: Any) -> Any:
    return of(lambda nn: Function(nn.functional.interpolate, **how), shape)


def sampled(*shapes: Any, **how: Any) -> Any:
    """Some places are outside."""
    return of(lambda nn: Function(nn.functional.grid_sample, **how), *shapes)


def with_places(net: Any, *xs: Any) -> Any:
    values, indices = net(*xs)
    return values, indices * 1.0


def pooled_and_back(net: Any, x: Any) -> Any:
    pool, back = net.function
    values, indices = pool(x, *net.args, return_indices=True)
    return back(values, indices, *net.args, **net.kwargs)


def at_samples(net: Any, x: Any, samples: Any) -> Any:
    return with_places(lambda x: net(x, _random_samples=samples), x)


U2 = np.linspace(0.05, 0.95, 12, dtype=np.float32).reshape(2, 3, 2)
U3 = np.linspace(0.9, 0.1, 6, dtype=np.float32).reshape(1, 2, 3)

CASES: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "transposed 1d": of(lambda nn: nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1, output_padding=1), (2, 2, 4)),
    "transposed 2d groups": of(
        lambda nn: nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 3), padding=(0, 1), groups=2), (2, 4, 3, 4)
    ),
    "transposed 2d dilation": of(
        lambda nn: nn.ConvTranspose2d(2, 3, 3, padding=2, output_padding=(1, 0), dilation=2, bias=False), (2, 2, 4, 3)
    ),
    "transposed 2d kernel 1": of(lambda nn: nn.ConvTranspose2d(2, 3, 1), (1, 2, 3, 3)),
    "transposed 2d size": of(
        lambda nn: nn.ConvTranspose2d(2, 3, 3, stride=2), (1, 2, 3, 3), call=lambda net, x: net(x, output_size=(7, 8))
    ),
    "transposed 2d without batch": of(lambda nn: nn.ConvTranspose2d(2, 1, 2, stride=2), (2, 3, 3)),
    "transposed 3d": of(lambda nn: nn.ConvTranspose3d(2, 2, 2, stride=(1, 2, 1), padding=(1, 0, 0)), (1, 2, 3, 2, 3)),
    "nearest 1d": resized(1, 2, 5, scale_factor=2.3),
    "nearest 2d": resized(1, 2, 4, 5, size=(7, 3)),
    "nearest 3d": resized(1, 2, 2, 3, 2, scale_factor=2),
    "nearest exact": resized(1, 2, 4, 5, size=(7, 3), mode="nearest-exact"),
    "linear": resized(2, 2, 4, size=7, mode="linear"),
    "linear, same size": resized(1, 1, 5, scale_factor=1.1, mode="linear"),
    "bilinear": resized(1, 2, 4, 5, size=(7, 3), mode="bilinear"),
    "bilinear corners": resized(1, 2, 4, 5, size=(7, 1), mode="bilinear", align_corners=True),
    "bilinear scale": resized(1, 2, 4, 5, scale_factor=(1.7, 0.6), mode="bilinear"),
    "bilinear scale anew": resized(1, 2, 4, 5, scale_factor=(1.7, 0.6), mode="bilinear", recompute_scale_factor=True),
    "bilinear antialias": resized(1, 2, 9, 5, size=(3, 8), mode="bilinear", antialias=True),
    "bilinear antialias corners": resized(1, 1, 9, 5, size=(4, 5), mode="bilinear", antialias=True, align_corners=True),
    "trilinear": resized(1, 1, 2, 3, 3, size=(3, 2, 5), mode="trilinear"),
    "bicubic": resized(1, 2, 4, 5, size=(7, 3), mode="bicubic"),
    "bicubic corners": resized(1, 2, 4, 5, size=(7, 3), mode="bicubic", align_corners=True),
    "bicubic antialias": resized(1, 2, 9, 5, size=(4, 7), mode="bicubic", antialias=True),
    "area": resized(1, 2, 5, 6, size=(2, 4), mode="area"),
    "upsample": of(lambda nn: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 3)),
    "upsampling nearest": of(lambda nn: nn.UpsamplingNearest2d(scale_factor=3), (1, 2, 2, 3)),
    "upsampling bilinear": of(lambda nn: nn.UpsamplingBilinear2d(size=(5, 4)), (1, 2, 2, 3)),
    "grid": sampled((2, 2, 4, 5), (2, 3, 4, 2), align_corners=False),
    "grid corners": sampled((2, 2, 4, 5), (2, 3, 4, 2), align_corners=True),
    "grid reflection": sampled((2, 2, 4, 5), (2, 3, 4, 2), padding_mode="reflection", align_corners=False),
    "grid reflection corners": sampled((1, 2, 4, 1), (1, 3, 4, 2), padding_mode="reflection", align_corners=True),
    "grid nearest": sampled((2, 2, 4, 5), (2, 3, 4, 2), mode="nearest", align_corners=False),
    "grid nearest border": sampled(
        (1, 2, 4, 5), (1, 3, 4, 2), mode="nearest", padding_mode="border", align_corners=True
    ),
    "grid bicubic": sampled((2, 2, 4, 5), (2, 3, 4, 2), mode="bicubic", align_corners=False),
    "grid bicubic reflection": sampled(
        (1, 2, 4, 5), (1, 3, 4, 2), mode="bicubic", padding_mode="reflection", align_corners=False
    ),
    "grid 3d": sampled((1, 2, 3, 4, 2), (1, 2, 3, 2, 3), padding_mode="border", align_corners=False),
    "grid 3d nearest": sampled(
        (1, 2, 3, 4, 2), (1, 2, 3, 2, 3), mode="nearest", padding_mode="reflection", align_corners=False
    ),
    "affine": of(lambda nn: Function(nn.functional.affine_grid, (2, 3, 3, 4), align_corners=False), (2, 2, 3)),
    "affine corners": of(lambda nn: Function(nn.functional.affine_grid, (1, 1, 1, 4), align_corners=True), (1, 2, 3)),
    "affine 3d": of(lambda nn: Function(nn.functional.affine_grid, (1, 1, 2, 3, 2), align_corners=False), (1, 3, 4)),
    "unfold": of(lambda nn: nn.Unfold((2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2)), (2, 3, 5, 6)),
    "unfold side by side": of(lambda nn: nn.Unfold(2, stride=2), (3, 4, 5)),
    "fold": of(lambda nn: nn.Fold((4, 5), (2, 3), padding=1, stride=(2, 1)), (2, 12, 15)),
    "fold side by side": of(lambda nn: nn.Fold((4, 6), 2, stride=2), (8, 6)),
    "max pool places 1d": of(lambda nn: nn.MaxPool1d(3, 2, 1, return_indices=True), (2, 3, 8), call=with_places),
    "max pool places 2d": of(
        lambda nn: nn.MaxPool2d((3, 2), (2, 1), (1, 0), return_indices=True), (2, 2, 5, 6), call=with_places
    ),
    "max pool places 3d": of(lambda nn: nn.MaxPool3d(2, 1, return_indices=True), (2, 3, 3, 4), call=with_places),
    "max pool ceil": of(lambda nn: nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 2, 6, 7)),
    "max pool ceil, short": of(lambda nn: nn.MaxPool1d(2, 3, 1, ceil_mode=True), (1, 2, 5)),
    "max pool dilation": of(lambda nn: nn.MaxPool2d(2, 1, 1, dilation=(2, 3)), (1, 2, 6, 7)),
    "max pool all": of(
        lambda nn: nn.MaxPool2d(3, 2, 1, dilation=2, return_indices=True, ceil_mode=True), (1, 2, 8, 9),
        call=with_places,
    ),
    "adaptive max places 1d": of(lambda nn: nn.AdaptiveMaxPool1d(3, return_indices=True), (2, 7), call=with_places),
    "adaptive max places 2d": of(
        lambda nn: nn.AdaptiveMaxPool2d((3, 2), return_indices=True), (2, 2, 5, 7), call=with_places
    ),
    "adaptive max places 3d": of(
        lambda nn: nn.AdaptiveMaxPool3d((2, 1, 3), return_indices=True), (1, 2, 3, 2, 4), call=with_places
    ),
    "average ceil 1d": of(lambda nn: nn.AvgPool1d(3, 2, 1, True), (2, 2, 6)),
    "average ceil 2d": of(lambda nn: nn.AvgPool2d((3, 2), 2, 1, True, False), (1, 2, 6, 5)),
    "average ceil, short": of(lambda nn: nn.AvgPool2d(2, 3, 1, ceil_mode=True), (1, 2, 5, 6)),
    "average divisor": of(lambda nn: nn.AvgPool2d(3, 2, 1, True, False, divisor_override=4), (1, 2, 6, 5)),
    "average 3d": of(lambda nn: nn.AvgPool3d(2, 1, 1, divisor_override=3), (1, 1, 2, 3, 2)),
    "max unpool 1d": of(
        lambda nn: Function((nn.functional.max_pool1d, nn.functional.max_unpool1d), 2, 2, output_size=(9,)),
        (1, 2, 9), call=pooled_and_back,
    ),
    "max unpool 2d": of(
        lambda nn: Function((nn.functional.max_pool2d, nn.functional.max_unpool2d), (2, 3), (2, 3), (1, 0)),
        (2, 2, 4, 6), call=pooled_and_back,
    ),
    "max unpool 3d": of(
        lambda nn: Function((nn.functional.max_pool3d, nn.functional.max_unpool3d), 2), (1, 2, 2, 4, 2),
        call=pooled_and_back,
    ),
    "lp pool 1d": of(lambda nn: nn.LPPool1d(2, 3, stride=2), (2, 2, 7)),
    "lp pool 2d": of(lambda nn: nn.LPPool2d(3.0, (2, 3)), (1, 2, 4, 6), call=lambda net, x: net(x * x)),
    "lp pool ceil": of(lambda nn: nn.LPPool2d(4, 3, stride=2, ceil_mode=True), (1, 2, 6, 4)),
    "lp pool 3d": of(lambda nn: nn.LPPool3d(2, 2), (1, 1, 2, 4, 2)),
    "fractional 2d": of(
        lambda nn: Function(nn.functional.fractional_max_pool2d, (2, 3), (4, 3), return_indices=True),
        (2, 3, 9, 8), U2, call=at_samples,
    ),
    "fractional 2d ratio": of(
        lambda nn: Function(nn.functional.fractional_max_pool2d, 2, output_ratio=(0.6, 0.15), return_indices=True),
        (2, 3, 9, 8), U2, call=at_samples,
    ),
    "fractional 3d": of(
        lambda nn: Function(nn.functional.fractional_max_pool3d, 2, (2, 3, 3), return_indices=True),
        (1, 2, 5, 6, 7), U3, call=at_samples,
    ),
}  # fmt: skip

