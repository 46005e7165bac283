"""Ops that call Python: `host_call` for what it does (print, check), `host_function` for what it gives.

The function is an attribute, a `Host`. In a compiled program it runs on the host while the program waits, exactly once
for each time the node is reached and in the order of the nodes: before lowering, a token is led from each call to the
next (lower/ordering.py), by the `ordered` rules that stand here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.ir.host import Host
from treadle.ir.node import Fn, Value
from treadle.ir.op import No
from treadle.ir.types import TensorType, Types, f64, i32, type_of
from treadle.ops._declare import Sample, Samples, op
from treadle.ops._regions import need
from treadle.ops.calls import call, custom_vjp, remat
from treadle.ops.control import if_, while_

TOKEN = i32[()]


@op(effect="calls Python", axes=No("Python sees whole tensors"), onnx=No("a model file cannot hold Python code"))
def host_call(*operands: Value, host: Host, ordered: bool = False) -> Any:
    """Call host.function(*arrays) for what it does.

    ordered: the first operand is the token of the call before it (int32[]), and the result is the token for the next
    one. Raises E0177 when it is no token.
    """


@host_call.type
def _(*operands: TensorType, host: Host, ordered: bool = False) -> Types:
    need(not ordered or operands[:1] == (TOKEN,), "E0177", f"no token among {operands}", "pass it first")
    return (TOKEN,) if ordered else ()


@host_call.ref
def _(*operands: Any, host: Host, ordered: bool = False) -> Any:
    host.function(*operands[1 if ordered else 0 :])
    return operands[:1] if ordered else ()


@host_call.hlo
def _(b: Any, *operands: Any, host: Host, ordered: bool = False) -> Any:
    assert ordered, "lowered without an order"
    return b.call_host(host, operands, acts=True)


host_call.rules["grad"] = No("it has no result")


@host_call.ordered
def _(run: Any, inputs: tuple[Value, ...], token: Value, *, host: Host, ordered: bool) -> Any:
    own = 1 if ordered else 0  # a token of its own orders nothing else
    return inputs[:own], host_call(token, *inputs[own:], host=host, ordered=True)[0]


@host_call.samples
def _(s: Samples) -> Iterator[Sample]:
    nothing = Host.of(_nothing, "nothing")
    yield s(f64[2, 3], i32[()], host=nothing, ordered=False)
    yield s(f64[0], host=nothing, ordered=False)
    yield s(np.int32(0), f64[2], host=nothing, ordered=True)
    yield s(f64[2], host=nothing, ordered=True, bad="E0177")


def _nothing(*arrays: Any) -> None:
    """What the samples call."""


@op(
    axes=No("Python sees whole tensors"),
    onnx=No("a model file cannot hold Python code"),
    grad=No("what Python computes cannot be differentiated: give it a gradient by td.custom_gradient"),
)
def host_function(*operands: Value, host: Host, results: Types) -> Any:
    """host.function(*arrays), a tuple of arrays of the types `results`. It must do nothing else: calls whose results
    nobody reads are left out, equal ones are merged.

    Raises E0178 when Python returns something else.
    """


@host_function.type
def _(*operands: TensorType, host: Host, results: Types) -> Types:
    return results


@host_function.ref
def _(*operands: Any, host: Host, results: Types) -> Any:
    return run_function(host, operands, results)


def run_function(host: Host, arrays: Any, results: Types) -> tuple[Any, ...]:
    """What the function returns. Raises E0178 when it is not of these types."""
    found = tuple([np.asarray(a) for a in host.function(*arrays)])
    types = tuple([type_of(a) for a in found])
    fix = "return arrays of the types that the program was told"
    need(types == results, "E0178", f"{host.name} returned {_list(types)}, not {_list(results)}", fix)
    return found


def _list(types: Types) -> str:
    return ", ".join(map(str, types)) or "nothing"


@host_function.hlo
def _(b: Any, *operands: Any, host: Host, results: Types) -> Any:
    return b.call_host(host, operands, acts=False)


@host_function.samples
def _(s: Samples) -> Iterator[Sample]:
    twice = Host.of(_twice, "twice")
    yield s(f64[2, 3], host=twice, results=(f64[2, 3],))
    yield s(f64[0], host=twice, results=(f64[0],))
    yield s(i32[()], host=twice, results=(i32[()],))


def _twice(x: Any) -> tuple[Any, ...]:
    return (np.asarray(x + x),)


# -------------------------------------------------------------------------------------- the order in other ops' bodies
@if_.ordered
def _(run: Any, inputs: tuple[Value, ...], token: Value, *, then: Fn, orelse: Fn) -> Any:
    results = if_(*inputs, token, then=run.region(then), orelse=run.region(orelse))
    return results[:-1], results[-1]


@while_.ordered
def _(
    run: Any, inputs: tuple[Value, ...], token: Value, *, cond: Fn, body: Fn, n_consts: int, capacity: int = 0
) -> Any:
    if not run.acts(cond):
        test = run.traced(lambda *args: run.inline(cond, args[:-1], args[-1])[0], [*inputs, token], cond.name)
        results = while_(*inputs, token, cond=test, body=run.region(body), n_consts=n_consts, capacity=capacity)
        return results[:-1], results[-1]
    # A condition can give no token: it is reached at the end of each trip, and its answer is carried.
    (go,), token = run.inline(cond, inputs, token)

    def step(*args: Value) -> list[Value]:
        consts, carry = args[:n_consts], args[n_consts:-2]
        carry, token = run.inline(body, [*consts, *carry], args[-2])
        (go,), token = run.inline(cond, [*consts, *carry], token)
        return [*carry, token, go]

    given = [*inputs, token, go]
    test = run.traced(lambda *args: args[-1], given, cond.name)
    done = while_(*given, cond=test, body=run.traced(step, given, body.name), n_consts=n_consts, capacity=capacity)
    return done[:-2], done[-2]


@call.ordered
def _(run: Any, inputs: tuple[Value, ...], token: Value, *, callee: str, results: Types) -> Any:
    outputs = call(*inputs, token, callee=run.callee(callee), results=(*results, TOKEN))
    return outputs[:-1], outputs[-1]


@remat.ordered
def _(run: Any, inputs: tuple[Value, ...], token: Value, *, body: Fn) -> Any:
    return run.inline(body, inputs, token)


@custom_vjp.ordered
def _(run: Any, inputs: tuple[Value, ...], token: Value, *, body: Fn, backward: Fn, n_outputs: int) -> Any:
    outputs, token = run.inline(body, inputs, token)
    return outputs[:n_outputs], token
