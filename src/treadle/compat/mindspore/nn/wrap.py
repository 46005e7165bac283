"""Cells around a network: with its loss, with its gradient, with a whole training step."""

from __future__ import annotations

from typing import Any

from treadle.base.errors import UserError
from treadle.compat.mindspore._grad import GradOperation, value_and_grad
from treadle.compat.mindspore._tensor import Tensor, tag
from treadle.compat.mindspore.nn.cell import Cell, fixed
from treadle.frontend import functions as fn


class WithLossCell(Cell):
    """loss_fn(backbone(data), label)."""

    def __init__(self, backbone: Any, loss_fn: Any) -> None:
        super().__init__(auto_prefix=False)
        self._backbone, self._loss_fn = backbone, loss_fn

    def construct(self, data: Any, label: Any) -> Any:
        return self._loss_fn(self._backbone(data), label)

    @property
    def backbone_network(self) -> Any:
        """The network without the loss."""
        return self._backbone


class WithEvalCell(Cell):
    """(loss, outputs, label) of a batch."""

    def __init__(self, network: Any, loss_fn: Any, add_cast_fp32: bool = False) -> None:
        super().__init__(auto_prefix=False)
        self._network, self._loss_fn = network, loss_fn

    def construct(self, data: Any, label: Any) -> Any:
        outputs = self._network(data)
        return self._loss_fn(outputs, label), outputs, label


class WithGradCell(Cell):
    """The gradients of the trainable parameters of a network with its loss (loss_fn None: it has one)."""

    def __init__(self, network: Any, loss_fn: Any = None, sens: Any = None) -> None:
        super().__init__(auto_prefix=False)
        self.network = network if loss_fn is None else WithLossCell(network, loss_fn)
        self.sens = sens
        self.grad = GradOperation(get_by_list=True, sens_param=sens is not None)
        self.weights = tuple(network.trainable_params())

    def construct(self, *inputs: Any) -> Any:
        more = () if self.sens is None else (self.sens,)
        return self.grad(self.network, self.weights)(*inputs, *more)


class ForwardValueAndGrad(Cell):
    """(value, gradients) of a network: by the first input, all inputs (get_all), weights (get_by_list), or both."""

    def __init__(
        self,
        network: Any,
        weights: Any = None,
        get_all: bool = False,
        get_by_list: bool = False,
        sens_param: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        if sens_param:
            raise UserError("E0592", "ForwardValueAndGrad with sens_param is not covered", fix="use ops.GradOperation")
        self.network, self.weights = network, weights if get_by_list else None
        self.get_all, self.get_by_list = get_all, get_by_list

    def construct(self, *inputs: Any) -> Any:
        place: Any = tuple(range(len(inputs))) if self.get_all else None if self.get_by_list else 0
        return value_and_grad(self.network, place, self.weights)(*inputs)


class TrainOneStepCell(Cell):
    """One step of training: the loss of a network (which gives one number) comes back, the optimiser has changed it.

    sens: the sensitivity of the loss, which gradients are times.
    """

    def __init__(self, network: Any, optimizer: Any, sens: float = 1.0, **_: Any) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.optimizer, self.sens = network, optimizer, float(sens)
        self.weights = optimizer.parameters
        self.grad = GradOperation(get_by_list=True, sens_param=True)

    def grad_reducer(self, grads: Any) -> Any:
        """The gradients: there is one device."""
        return grads

    def construct(self, *inputs: Any) -> Any:
        loss, grads = value_and_grad(self.network, None, self.weights)(*inputs)
        if self.sens != 1.0:
            grads = tuple([g * self.sens for g in grads])
        self.optimizer(self.grad_reducer(grads))
        return loss


class TrainOneStepWithLossScaleCell(TrainOneStepCell):
    """A step with scaled loss: (loss, whether a gradient was not finite, scale); then nothing changes.

    scale_sense: a number, tensor, or cell such as DynamicLossScaleUpdateCell that says how the scale goes on.
    """

    def __init__(self, network: Any, optimizer: Any, scale_sense: Any) -> None:
        super().__init__(network, optimizer)
        self.loss_scaling_manager = scale_sense if isinstance(scale_sense, Cell) else None
        start = scale_sense if self.loss_scaling_manager is None else scale_sense.get_loss_scale()
        self.scale_sense = fixed(float(start), ())
        self.scale_sense.name = "scale_sense"

    def construct(self, *inputs: Any) -> Any:
        scale = self.scale_sense.copy()

        def scaled(*args: Any) -> Any:
            loss = self.network(*args)
            return loss * scale.astype(loss.dtype), loss

        (_, loss), grads = value_and_grad(scaled, None, self.weights, has_aux=True)(*inputs)
        grads = tuple([g / scale.astype(g.dtype) for g in grads])
        finite = all_finite(grads)
        before = [t.copy() for t in self.optimizer.get_parameters()]
        self.optimizer(grads)
        for tensor, old in zip(self.optimizer.get_parameters(), before, strict=True):
            tensor.assign(fn.where(finite, tensor, old))
        if self.loss_scaling_manager is not None:
            self.loss_scaling_manager(self.scale_sense, fn.logical_not(finite))
        return loss, fn.logical_not(finite), scale


class DynamicLossScaleUpdateCell(Cell):
    """Divides a scale by `scale_factor` when gradients were not finite, multiplies it after scale_window good steps."""

    def __init__(self, loss_scale_value: float, scale_factor: int, scale_window: int) -> None:
        super().__init__()
        self.start, self.factor, self.window = float(loss_scale_value), float(scale_factor), scale_window
        self.good = Tensor(0)

    def get_loss_scale(self) -> float:
        """The scale to begin with."""
        return self.start

    def construct(self, loss_scale: Any, overflow: Any) -> Any:
        good = fn.where(overflow, 0, self.good + 1)
        grown = good >= self.window
        lower = fn.maximum(loss_scale / self.factor, 1.0)
        loss_scale.assign(fn.where(overflow, lower, fn.where(grown, loss_scale * self.factor, loss_scale)))
        self.good.assign(fn.where(grown, 0, good))
        return overflow


class FixedLossScaleUpdateCell(Cell):
    """A scale that stays."""

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__()
        self.start = float(loss_scale_value)

    def get_loss_scale(self) -> float:
        """The scale."""
        return self.start

    def construct(self, loss_scale: Any, overflow: Any) -> Any:
        return overflow


def all_finite(tensors: Any) -> Any:
    """Whether every element of every tensor is finite: bool[]."""
    flags = [fn.all(fn.isfinite(t)) for t in tensors]
    return tag(fn.all(fn.stack(flags)))


__all__ = [
    "DynamicLossScaleUpdateCell",
    "FixedLossScaleUpdateCell",
    "ForwardValueAndGrad",
    "TrainOneStepCell",
    "TrainOneStepWithLossScaleCell",
    "WithEvalCell",
    "WithGradCell",
    "WithLossCell",
]
