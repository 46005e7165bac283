"""`Optimizer`: parameters and their state. Gradients go in through `step`; parameters and state change in place.

All state is tensors made in advance, the learning rate included: a step can be compiled, and a new rate needs no new
program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.base import arguments, dtypes, elsewhere
from treadle.base.errors import UserError, no_attribute
from treadle.frontend import trace as tracing
from treadle.frontend.lift import cast
from treadle.frontend.tensor import Tensor
from treadle.frontend.trace import clock
from treadle.nn.cell import Parameter

State = dict[str, list[Tensor]]


class Group:
    """Parameters that share a learning rate and the options of the optimiser, which are its attributes."""

    def __init__(self, params: Iterable[Parameter], lr: float, options: Mapping[str, Any]) -> None:
        self.params = list(params)
        for p in self.params:
            if not isinstance(p, Parameter):
                why = f"{arguments.brief(p)} is not a Parameter"
                raise UserError("E0530", why, fix="pass net.parameters()")
        self.rate = Tensor(np.float32(lr))
        self._lr: float | None = float(lr)
        self.base: float | None = None  # the rate that schedules start from
        self.options = dict(options)

    @property
    def lr(self) -> float:
        """The learning rate."""
        return float(self.rate.item()) if self._lr is None else self._lr

    @lr.setter
    def lr(self, value: Any) -> None:
        self.base = None
        traced = isinstance(value, Tensor)
        need(traced or (arguments.is_real(value) and value >= 0), f"lr is {value!r}", "a number of 0 or more")
        if traced or tracing.current() is not None:
            self.rate.assign(value)
            self._lr = None  # known to the program only
        else:
            self.rate._set(Tensor(np.float32(value)))
            self._lr = float(value)


class Optimizer:
    """Base of all optimisers. params: Parameters, or dicts {"params": [...], "lr": ..., option: ...} of groups.

    A subclass says which state tensors a parameter has (`slots`) and how one parameter changes (`update`). Raises E0530
    for what is no parameter, E0531 for an unknown option or a value out of range, E0532 inside a compiled function.
    """

    slots: tuple[str, ...] = ()
    counted = False  # whether `update` reads how often a parameter was changed

    def __init__(self, params: Iterable[Parameter] | Iterable[dict[str, Any]], lr: float, **options: Any) -> None:
        name = type(self).__name__
        if tracing.current() is not None:
            raise UserError("E0532", f"{name} is made inside a compiled function", fix="make it before, outside")
        if isinstance(params, Tensor | str) or not isinstance(params, Iterable):
            found = f"{name} got {arguments.brief(params)}, not the parameters"
            raise UserError("E0530", found, fix="pass a list: net.parameters()")
        given: list[Any] = list(params)
        if not given:
            raise UserError("E0530", f"{name} got no parameters", fix="pass net.parameters()")
        groups: list[dict[str, Any]] = given if isinstance(given[0], dict) else [{"params": given}]
        self.groups: list[Group] = []
        for group in groups:
            own: dict[str, Any] = {k: v for k, v in group.items() if k not in ("params", "lr")}
            if unknown := own.keys() - options.keys():
                why = f"{name} has no option {', '.join(sorted(unknown))}"
                raise UserError("E0531", why, fix=f"use {', '.join(options)}")
            merged = {k: tuple(v) if isinstance(v, list) else v for k, v in {**options, **own}.items()}
            if "params" not in group:
                raise UserError("E0530", f"a group of {name} has no 'params'", fix='{"params": [...], "lr": ...}')
            rate = group.get("lr", lr)
            need(arguments.is_real(rate), f"lr is {rate!r}", "a number of 0 or more")
            self._check(rate, merged)
            self.groups.append(Group(group["params"], rate, merged))
        self.params = [p for g in self.groups for p in g.params]
        if len({id(p) for p in self.params}) < len(self.params):
            raise UserError("E0530", f"{name} got one parameter twice", fix="pass each parameter once")
        self.count = Tensor(np.int32(0))
        self.steps = Tensor(np.zeros(len(self.params), np.int32))
        self.masters: dict[int, Parameter] = {}  # by the place of a 16-bit parameter: the same in float32
        self.state: State = {}
        self._add_state()

    def _check(self, lr: float, options: dict[str, Any]) -> None:
        """`check`, where an option of the wrong type is E0531 too."""
        try:
            self.check(lr=lr, **options)
        except TypeError:
            wrong = [f"{k} is {v!r}" for k, v in options.items() if v is None or isinstance(v, str | tuple | dict)]
            if not wrong:
                raise
            raise UserError("E0531", ", ".join(wrong), fix="give numbers") from None

    def check(self, lr: float, **options: Any) -> None:
        """Raise E0531 for a value out of range; subclasses check their own options, then call this."""
        need(lr >= 0, f"lr is {lr}", "0 or more")
        need(options.get("weight_decay", 0) >= 0, f"weight_decay is {options.get('weight_decay')}", "0 or more")

    def _add_state(self) -> None:
        for slot in self.slots:
            if slot not in self.state:
                self.state[slot] = [self.start(slot, p, g) for g in self.groups for p in g.params]

    def start(self, slot: str, param: Parameter, group: Group) -> Tensor:
        """The state `slot` of a parameter before the first step: zeros; float32 for parameters of 16-bit floats."""
        return Tensor(np.zeros(param.shape, (dtypes.float32 if param.dtype.bits == 16 else param.dtype).np))

    # ------------------------------------------------------------------------------------------------ a step
    def step(self, grads: Sequence[Any] | None = None) -> None:
        """Change the parameters. grads: one gradient per parameter in their order; None leaves a parameter as it is.

        Frozen parameters (`requires_grad=False`) stay as they are too. Raises E0533 for another number of gradients.
        """
        if not isinstance(grads, list | tuple):
            why = "step needs the gradients" if grads is None else f"the gradients are a {type(grads).__name__}"
            fix = "value, grads = td.value_and_grad(loss, net.parameters())(...), then step(grads)"
            raise UserError("E0533", why, fix=fix)
        if wrong := [g for g in grads if g is not None and not hasattr(g, "dtype")]:
            raise UserError("E0533", f"a gradient is {arguments.brief(wrong[0])}", fix="pass tensors, or None")
        if len(grads) != len(self.params):
            why = f"{len(grads)} gradients for {len(self.params)} parameters"
            raise UserError("E0533", why, fix="pass one per parameter, in the order of the optimiser's parameters")
        trace = tracing.current()
        if trace is not None:
            trace.touched[id(self)] = self
        self.count.assign(self.count + 1)
        live = [g is not None and p.requires_grad for g, p in zip(grads, self.params, strict=True)]
        counts = self._count(np.array(live, np.int32)) if self.counted else []
        index = 0
        for group in self.groups:
            for p in group.params:
                if live[index]:
                    state = {k: v[index] for k, v in self.state.items()}
                    if self.counted:
                        state["step"] = counts[index]
                    master = self.masters.get(index)
                    if master is None:
                        self.update(p, grads[index], state, group)
                    else:
                        self.update(master, cast(grads[index], master.dtype), state, group)
                        p.assign(master)
                index += 1

    def keep_masters(self, params: Iterable[Parameter]) -> None:
        """Keep float32 copies of these parameters of the optimiser, which steps change in their place; the parameters
        are those, rounded."""
        wanted = {id(p) for p in params}
        for i, p in enumerate(self.params):
            if id(p) in wanted and i not in self.masters:
                self.masters[i] = Parameter(p.astype(dtypes.float32), getattr(p, "name", ""))

    def _count(self, live: Any) -> list[Any]:
        """Add a step to those that are live; the count of each parameter, 0-d. Equal ones are one tensor if eager."""
        if tracing.current() is not None:
            self.steps.assign(self.steps + live)
            return [self.steps[i] for i in range(len(live))]
        numbers = self.steps.numpy() + live
        self.steps._set(Tensor(numbers))
        made = {n: Tensor(np.int32(n)) for n in set(numbers.tolist())}
        return [made[n] for n in numbers.tolist()]

    def update(self, param: Parameter, grad: Any, state: dict[str, Tensor], group: Group) -> None:
        """Change one parameter and its state. state["step"] (if `counted`): how often it was changed, this time too."""
        raise UserError("E0534", f"{type(self).__name__} defines no update", fix="use SGD, Adam or AdamW")

    # ------------------------------------------------------------------------------------------------ settings
    @property
    def lr(self) -> float:
        """The learning rate of the first group; setting it sets that of all groups."""
        return self.groups[0].lr

    @lr.setter
    def lr(self, value: Any) -> None:
        for group in self.groups:
            group.lr = value

    def set_options(self, **options: Any) -> None:
        """Change options of all groups. Compiled programs that use them are made again. Raises E0531."""
        for group in self.groups:
            if unknown := options.keys() - group.options.keys():
                why = f"{type(self).__name__} has no option {', '.join(sorted(unknown))}"
                raise UserError("E0531", why, fix=f"use {', '.join(group.options)}")
            self._check(group.lr, {**group.options, **options})
            group.options.update(options)
        self._add_state()
        clock.tick()

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise no_attribute(type(self).__name__, name, lambda: dir(self), elsewhere.OPTIMIZER)

    def settings(self) -> tuple[Any, ...]:
        """What a compiled step depends on beside tensors."""
        frozen = tuple([not p.requires_grad for p in self.params])
        return (frozen, *self.containers())

    def containers(self) -> tuple[Any, ...]:
        """The part of `settings` that can change without an attribute being set: the groups' options."""
        return tuple([tuple(sorted(g.options.items())) for g in self.groups])

    # ------------------------------------------------------------------------------------------------ state
    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield "count", self.count
        yield "steps", self.steps
        for i, group in enumerate(self.groups):
            yield f"lr.{i}", group.rate
        for slot, tensors in self.state.items():
            for i, tensor in enumerate(tensors):
                yield f"{slot}.{i}", tensor
        for i, master in self.masters.items():
            yield f"master.{i}", master

    def state_dict(self) -> dict[str, Tensor]:
        """Steps done, learning rates and the state of each parameter by slot and number, as they are now."""
        return {name: tensor.copy() for name, tensor in self._named()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`, all or nothing. Raises E0535 when names or types are not those of this optimiser."""
        if not isinstance(state, Mapping):
            raise UserError("E0535", f"the state is {arguments.brief(state)}", fix="pass what state_dict() returned")
        own = dict(self._named())
        new = {k: v if isinstance(v, Tensor) else Tensor(np.asarray(v)) for k, v in state.items()}
        wrong = [f"{k} is missing" for k in own if k not in new] + [f"{k} is unknown" for k in new if k not in own]
        wrong += [f"{k} is {t.type}, given {new[k].type}" for k, t in own.items() if k in new and new[k].type != t.type]
        if wrong:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            why = f"the state is not of this {type(self).__name__}: {', '.join(wrong[:5])}{more}"
            raise UserError("E0535", why, fix="make the optimiser with the same parameters and options")
        for name, tensor in own.items():
            tensor._set(new[name])
        for group in self.groups:
            group._lr = group.base = None

    def __repr__(self) -> str:
        groups = [f"{len(g.params)} parameters, lr={g.lr:g}, {g.options}" for g in self.groups]
        return f"{type(self).__name__}({'; '.join(groups)})"


def need(holds: bool, found: str, wanted: str) -> None:
    """E0531 unless the option's value is in range."""
    if not holds:
        raise UserError("E0531", found, fix=f"give {wanted}")
