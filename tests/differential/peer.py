"""Computes the peers' answers, in the peers' environment: `peer.py torch|jax CALLS.npz ANSWERS.npz`.

An answer is {"outs": [arrays], "grads": {name: array}}, or {"error": text} where the peer refuses the call;
{"grads": text} where it refuses the gradient only.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.differential.calls import cotangent, read, write
from tests.differential.draw import Narrow


def flat(result: Any) -> list[Any]:
    return [x for part in result for x in flat(part)] if isinstance(result, tuple | list) else [result]


def refusal(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


class Torch:
    """PyTorch: conjugated gradients, brought to the convention of the others."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.version = torch.__version__.partition("+")[0]
        self.lib, self.names = torch, {"torch": torch, "F": torch.nn.functional, "L": torch.linalg, "T": torch.fft}

    def put(self, value: Any) -> Any:
        if isinstance(value, Narrow):
            return self.lib.tensor(value.array).to(self.lib.bfloat16)
        return self.lib.tensor(value) if isinstance(value, np.ndarray) else value

    def get(self, tensor: Any) -> Any:
        tensor = self.lib.as_tensor(tensor).detach().resolve_conj()
        return Narrow(tensor.float().numpy()) if tensor.dtype is self.lib.bfloat16 else tensor.numpy().copy()

    def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        torch = self.lib
        args = {k: self.put(v) for k, v in call["args"].items()}
        for name in call["wrt"]:
            args[name].requires_grad_()
        outs = flat(eval(call["torch"], {**self.names, **args}))
        result: dict[str, Any] = {"outs": [self.get(o) for o in outs], "grads": {}}
        pairs = []
        for i, o in enumerate(outs):
            if torch.is_tensor(o) and (o.is_floating_point() or o.is_complex()):
                ct = cotangent(call, i, tuple(o.shape), "c" if o.is_complex() else "f").conj()
                if o.requires_grad:
                    pairs.append((o, torch.tensor(ct).to(o.dtype)))
        wrt = [args[n] for n in call["wrt"]]
        try:
            grads: Any = [None] * len(wrt)
            if pairs and wrt:
                grads = torch.autograd.grad([o for o, _ in pairs], wrt, [c for _, c in pairs], allow_unused=True)
            grads = [torch.zeros_like(x) if g is None else g.conj().resolve_conj() for g, x in zip(grads, wrt)]
            result["grads"] = {n: self.get(g) for n, g in zip(call["wrt"], grads)}
        except (RuntimeError, NotImplementedError) as error:
            result["grads"] = refusal(error)
        return result


class Jax:
    """JAX with 64-bit numbers."""

    def __init__(self) -> None:
        import jax
        import jax.numpy as jnp
        from jax.scipy import linalg as scipy_linalg
        from jax.scipy import special

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_disable_most_optimizations", True)
        self.jax, self.jnp, self.version = jax, jnp, jax.__version__
        names = {"jax": jax, "jnp": jnp, "F": jax.nn, "L": jnp.linalg, "T": jnp.fft, "S": special}
        self.names = {**names, "lax": jax.lax, "SL": scipy_linalg}

    def put(self, value: Any) -> Any:
        if isinstance(value, Narrow):
            return self.jnp.asarray(value.array, self.jnp.bfloat16)
        return self.jnp.asarray(value) if isinstance(value, np.ndarray) else value

    def get(self, array: Any) -> Any:
        array = self.jnp.asarray(array)
        return Narrow(np.asarray(array, np.float32)) if array.dtype == self.jnp.bfloat16 else np.asarray(array)

    def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        try:
            return self.computed(call, call["wrt"])
        except (ValueError, TypeError, NotImplementedError) as error:
            if not call["wrt"]:
                raise
            return {**self.computed(call, []), "grads": refusal(error)}

    def computed(self, call: dict[str, Any], wrt: list[str]) -> dict[str, Any]:
        """Results and gradients by one compiled program: JAX without it compiles each step for each shape."""
        jnp = self.jnp
        args = {k: self.put(v) for k, v in call["args"].items()}

        def results(*values: Any) -> Any:
            found = flat(eval(call["jax"], {**self.names, **args, **dict(zip(wrt, values))}))
            found = [jnp.asarray(o) for o in found]
            return [o for o in found if jnp.issubdtype(o.dtype, jnp.inexact)], found

        def run(*values: Any) -> Any:
            if not wrt:
                return results()[1], []
            moving, pull, found = self.jax.vjp(results, *values, has_aux=True)
            places = [i for i, o in enumerate(found) if jnp.issubdtype(o.dtype, jnp.inexact)]
            cts = [cotangent(call, i, o.shape, "c" if jnp.iscomplexobj(o) else "f") for i, o in zip(places, moving)]
            return found, pull([jnp.asarray(c, o.dtype) for c, o in zip(cts, moving)])

        outs, grads = self.jax.jit(run)(*[args[n] for n in wrt])
        return {"outs": [self.get(o) for o in outs], "grads": {n: self.get(g) for n, g in zip(wrt, grads)}}


SIDES = {"torch": Torch, "jax": Jax}


def main(name: str, calls: str, answers: str) -> None:
    warnings.simplefilter("ignore")
    side, found = SIDES[name](), []
    for call in read(Path(calls)):
        if not call[name]:
            found.append({"error": "no such function"})
            continue
        try:
            found.append(side.answer(call))
        except Exception as error:  # what a peer refuses is an answer too; the comparison counts it
            found.append({"error": refusal(error)})
    write(Path(answers), [found, {name: side.version}])


if __name__ == "__main__":
    main(*sys.argv[1:])
