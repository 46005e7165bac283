"""All ops. A family file declares each op with all its rules (`_declare.py` has the contract); adding an op touches one file.

Importing a family registers its ops; every name here is an `Op` that can be called on IR values or on tensors.
"""

from treadle.ops import _operators
from treadle.ops._declare import OPS, No, Op, Sample, Samples, check_declarations
from treadle.ops.activation import (
    elu,
    gelu,
    gelu_grad,
    hard_sigmoid,
    hard_swish,
    leaky_relu,
    log_sigmoid,
    relu,
    relu6,
    silu,
    silu_grad,
    softplus,
)  # fmt: skip
from treadle.ops.attention import attention, attention_fwd, attention_grad
from treadle.ops.avg_pool import avg_pool, avg_pool_grad
from treadle.ops.batch_norm import batch_norm, batch_norm_grad, batch_norm_inference
from treadle.ops.bits import (
    bit_and,
    bit_not,
    bit_or,
    bit_xor,
    bitcast,
    popcount,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
)  # fmt: skip
from treadle.ops.call import barrier, call, custom_vjp, remat
from treadle.ops.cast import cast, stop_gradient
from treadle.ops.compare import (
    equal,
    greater,
    greater_equal,
    is_finite,
    is_inf,
    is_nan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    select,
)  # fmt: skip
from treadle.ops.complex import conj, imag, make_complex, real
from treadle.ops.control import if_, while_
from treadle.ops.conv import conv, conv_input_grad, conv_weight_grad
from treadle.ops.creation import constant, full, iota
from treadle.ops.dynamic import dynamic_slice, dynamic_update_slice
from treadle.ops.elementwise import (
    abs,
    add,
    ceil,
    clamp,
    div,
    floor,
    floor_div,
    maximum,
    minimum,
    mul,
    neg,
    reciprocal,
    remainder,
    round,
    sign,
    square,
    sub,
    trunc,
    truncated_div,
    truncated_remainder,
)  # fmt: skip
from treadle.ops.functions import (
    atan2,
    cbrt,
    cos,
    erf,
    erf_inv,
    exp,
    expm1,
    integer_pow,
    log,
    log1p,
    pow,
    rsqrt,
    sigmoid,
    sin,
    sqrt,
    tan,
    tanh,
)  # fmt: skip
from treadle.ops.index import index_add, index_sum, one_hot, scatter_add_along, take, take_along_axis
from treadle.ops.loss import cross_entropy, cross_entropy_fwd, cross_entropy_grad
from treadle.ops.matmul import contract, matmul
from treadle.ops.norm import (
    exp_shift,
    layer_norm,
    layer_norm_fwd,
    layer_norm_grad,
    log_softmax,
    log_softmax_grad,
    rms_norm,
    rms_norm_fwd,
    rms_norm_grad,
    softmax,
    softmax_grad,
)
from treadle.ops.optim import adam_update, sgd_update
from treadle.ops.pool import max_pool, max_pool_grad, max_pool_take
from treadle.ops.random import (
    fold_in,
    random_bernoulli,
    random_bits,
    random_normal,
    random_split,
    random_uniform,
    threefry,
)  # fmt: skip
from treadle.ops.recurrent import gru_cell, lstm_cell, lstm_cell_fwd, lstm_cell_grad
from treadle.ops.reduce import (
    broadcast_to,
    cumsum,
    logsumexp,
    reduce_and,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
)
from treadle.ops.scan import scan
from treadle.ops.shape import concatenate, pad, reshape, reverse, slice_, transpose
from treadle.ops.sort import argmax, argmin, argsort, sort, sort_with_index, top_k

_operators.install()
check_declarations()
