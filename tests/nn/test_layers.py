"""Every layer and loss against PyTorch's numbers (golden.json): results, all gradients, parameter names, buffers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.nn import cases

import treadle as td
from treadle import nn
from treadle.frontend import tree

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


def check(found: Any, wanted: dict[str, Any], what: str) -> None:
    array = np.asarray(found)
    assert list(array.shape) == wanted["shape"], what
    np.testing.assert_allclose(array.ravel()[: len(wanted["first"])], wanted["first"], 2e-5, 2e-5, err_msg=what)
    np.testing.assert_allclose(cases.project(array), wanted["sum"], 3e-5, 3e-5, err_msg=what)


def prepared(name: str) -> tuple[Any, list[Any]]:
    make, shapes, training, _ = cases.LAYERS[name]
    net = make(nn).train(training)
    for i, p in enumerate(net.parameters()):
        p.assign(cases.fill(p.shape, 0.3 + i))
    return net, [td.Tensor(cases.fill(s, 5.0 + i)) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("name", cases.LAYERS)
def test_layer(name: str) -> None:
    golden = GOLDEN["layers"][name]
    net, inputs = prepared(name)
    call = cases.LAYERS[name][3]
    names, params = zip(*net.named_parameters(), strict=True) if net.parameters() else ((), ())
    assert list(names) == golden["names"]

    @td.jit
    def both(*xs: Any) -> Any:
        def objective() -> Any:
            outputs = tree.flatten(net(*xs) if call is None else call(net, *xs))[0]
            weighted = [(o * td.Tensor(cases.cotangent(o.shape))).sum() for o in outputs]
            return sum(weighted[1:], weighted[0]), outputs

        return td.grad(objective, [*xs, *params], has_aux=True)()

    grads, outputs = both(*inputs)
    of_inputs, of_params = grads[: len(inputs)], grads[len(inputs) :]
    for found, wanted in zip(outputs, golden["outputs"], strict=True):
        check(found, wanted, "output")
    for found, wanted in zip(of_inputs, golden["inputs"], strict=True):
        check(found, wanted, "gradient of an input")
    for n, found, wanted in zip(names, of_params, golden["params"], strict=True):
        np.testing.assert_allclose(cases.project(found), wanted, 3e-5, 3e-5, err_msg=n)
    assert sorted(dict(net.named_buffers())) == sorted(golden["buffers"])
    for n, b in net.named_buffers():
        np.testing.assert_allclose(b.numpy(), golden["buffers"][n], 1e-5, 1e-5)


EAGER = ("conv2d same", "batch_norm2d", "lstm deep", "attention", "encoder layer")


@pytest.mark.parametrize("name", EAGER)
def test_layer_op_by_op(name: str) -> None:
    golden, call = GOLDEN["layers"][name], cases.LAYERS[name][3]
    net, inputs = prepared(name)
    outputs = tree.flatten(net(*inputs) if call is None else call(net, *inputs))[0]
    for found, wanted in zip(outputs, golden["outputs"], strict=True):
        check(found, wanted, "output")
    for n, b in net.named_buffers():
        np.testing.assert_allclose(b.numpy(), golden["buffers"][n], 1e-5, 1e-5)


@pytest.mark.parametrize("name", cases.LOSSES)
def test_loss(name: str) -> None:
    make, shape, target = cases.LOSSES[name]
    golden, loss = GOLDEN["losses"][name], make(nn, lambda a: td.Tensor(a))

    @td.jit
    def both(x: Any, t: Any) -> Any:
        def total(x: Any) -> Any:
            value = loss(x, t)
            return value.sum(), value

        return td.grad(total, has_aux=True)(x)

    grad, value = both(td.Tensor(cases.fill(shape, 5.0)), td.Tensor(target))
    check(value, golden["loss"], "loss")
    check(grad, golden["input"], "gradient")
