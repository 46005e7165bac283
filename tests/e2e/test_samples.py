"""The samples of the system's documents, word for word, with their results checked."""

import numpy as np
import pytest

import treadle as td

SAMPLE_1 = """
import numpy as np, treadle as td
from treadle import Cell, Parameter, Tensor, context, grad_all, nn

# 1 gradient of a function with respect to all inputs (Python numbers are promoted to float32): 5.0 and 2.0
def cost(x, y): return x * (x + y)
@td.jit
def test_grad(x, y): return grad_all(cost)(x, y)
test_grad(2, 1)
"""

SAMPLE_2 = """
# 2 a cell without super().__init__(), forward() (construct() is accepted too), eager first, then the whole graph: one
# line
class Net(Cell):
    def __init__(self): self.w = Parameter(Tensor(np.ones([10])))
    def forward(self, x, y): return (x + y) * self.w
net = Net(); x = Tensor(np.ones([10])); y = Tensor(np.ones([10]))
out = net(x, y)                                   # eager
eager = out
context.set_context(mode=context.GRAPH_MODE)
out = net(x, y)                                   # compiled
gout = grad_all(net)(x, y)
"""

SAMPLE_6 = """
# 6 everyday training
net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 8 * 8, 10))
opt = td.optim.Adam(net.parameters(), lr=1e-3)
@td.jit
def step(x, y):
    loss, grads = td.value_and_grad(lambda: nn.functional.cross_entropy(net(x), y), net.parameters())()
    opt.step(grads)
    return loss
"""

SAMPLE_6_TRAINER = """
td.train.Trainer(net, loss=nn.CrossEntropyLoss(), optimizer=opt).fit(train_data, epochs=5, validate=test_data)
"""


@pytest.fixture
def space():
    """The namespace the samples share; the mode is put back afterwards."""
    names = {"__name__": "samples"}
    exec(SAMPLE_1, names)
    yield names
    td.context.set_context(mode=td.context.PYNATIVE_MODE)


def test_sample_1_gradient_of_a_function(space):
    gx, gy = space["test_grad"](2, 1)
    assert (gx.item(), gy.item(), gx.dtype) == (5.0, 2.0, td.float32)


def test_sample_2_a_cell_eager_then_compiled(space):
    exec(SAMPLE_2, space)
    assert space["eager"].tolist() == space["out"].tolist() == [2.0] * 10
    assert space["out"].dtype == td.float64
    assert [g.tolist() for g in space["gout"]] == [[1.0] * 10] * 2


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_sample_6_everyday_training(space, mode, capsys):
    td.context.set_context(mode=mode)
    td.manual_seed(0)
    exec(SAMPLE_6, space)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 64).astype(np.int32)
    images = rng.normal(size=(64, 1, 10, 10)).astype(np.float32) * 0.1
    images[np.arange(64), 0, labels, labels] += 3
    losses = [space["step"](images[:32], labels[:32]).item() for _ in range(60)]
    assert losses[-1] < losses[0] / 2
    space["train_data"] = space["test_data"] = [(images[:32], labels[:32]), (images[32:], labels[32:])]
    exec(SAMPLE_6_TRAINER, space)
    again = space["step"](images[:32], labels[:32]).item()
    assert again < losses[-1]
