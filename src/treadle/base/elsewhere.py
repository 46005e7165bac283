"""Names that users of other libraries look for, and what stands in their place here; for messages."""

from __future__ import annotations

_GRADIENTS = "gradients are results: value, grads = td.value_and_grad(loss, net.parameters())(...)"
_DEVICE = "the environment chooses the device: TREADLE_PLATFORM=cuda"
_FREEZE = "name what to differentiate by in td.grad; freeze parameters with net.freeze()"

TENSOR = {
    "backward": _GRADIENTS,
    "grad": _GRADIENTS,
    "requires_grad": _FREEZE,
    "requires_grad_": _FREEZE,
    "cuda": _DEVICE,
    "cpu": "use .numpy(), or choose the device in the environment: TREADLE_PLATFORM=cpu",
    "device": _DEVICE,
    "contiguous": "leave it out: every tensor is contiguous",
    "data": "use the tensor itself, or .detach()",
    "values": "use .numpy(); td.max and td.argmax give value and place",
    "block_until_ready": "use .numpy(), which waits",
    "at": "write into the tensor: x[i] = v, x[i] += v",
}
CELL = {
    "to": "net.astype(td.bfloat16) changes the type; " + _DEVICE,
    "cuda": _DEVICE,
    "cpu": _DEVICE,
    "half": "use net.astype(td.float16)",
    "float": "use net.astype(td.float32)",
    "double": "use net.astype(td.float64)",
    "zero_grad": "leave it out: gradients are results, nothing is kept",
    "requires_grad_": "use net.freeze()",
    "backward": _GRADIENTS,
    "fit": "use train.Trainer(net, loss, optimizer).fit(data)",
    "compile": "use td.jit(net)",
    "init": "parameters are made in __init__",
    "params": "use net.parameters()",
    "weights": "use net.parameters(), or net.state_dict()",
}
OPTIMIZER = {
    "zero_grad": "leave it out: gradients are results of td.value_and_grad, nothing is kept",
    "param_groups": "use .groups",
    "init": "the state is made with the optimiser",
    "minimize": "use step(grads)",
    "apply_gradients": "use step(grads)",
    "apply": "use step(grads)",
}
TREADLE = {
    "no_grad": "leave it out: gradients are taken by td.grad and td.value_and_grad only",
    "inference_mode": "leave it out: gradients are taken by td.grad and td.value_and_grad only",
    "enable_grad": "leave it out: gradients are taken by td.grad and td.value_and_grad only",
    "autograd": "use td.grad, td.value_and_grad, td.vjp or td.custom_gradient",
    "compile": "use td.jit",
    "function": "use td.jit",
    "pmap": "use td.vmap",
    "lax": "use td.cond, td.while_loop and td.scan",
    "numpy": "use the functions of td itself: td.sum, td.exp, ...",
    "random": "use td.rand, td.randn, td.randint, ... and td.manual_seed",
    "PRNGKey": "use td.manual_seed(seed), or td.Generator(seed)",
    "cuda": _DEVICE,
    "device": _DEVICE,
    "set_device": _DEVICE,
    "save": "use train.save(folder, net) or net.state_dict()",
    "load": "use train.load(folder, net)",
    "utils": "use td.data for data sets, td.optim for clipping",
    "set_context": "use td.context.set_context(mode=...)",
    "tree_map": "use td.tree.tree_map",
    "Module": "use td.nn.Module, or td.Cell",
    "Variable": "use td.Parameter",
    "as_tensor": "use td.tensor",
    "FloatTensor": "use td.tensor(..., dtype=td.float32)",
    "LongTensor": "use td.tensor(..., dtype=td.int64)",
    "set_default_dtype": "give dtype= where tensors and layers are made",
    "float": "use td.float32",
    "double": "use td.float64",
    "half": "use td.float16",
    "long": "use td.int64",
    "int": "use td.int32",
    "bool": "use td.bool_",
}
