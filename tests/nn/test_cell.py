"""Cells: parts, names, state, settings, copies, and what may change inside a compiled call."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import nn
from treadle.api.programs import trace_module
from treadle.frontend.trace import clock
from treadle.ir.walk import all_nodes


@pytest.fixture
def graph_mode() -> Iterator[None]:
    before = td.context.get_context("mode")
    td.context.set_context(mode=td.context.GRAPH_MODE)
    yield
    td.context.set_context(mode=before)


class Net(nn.Cell):
    """No super().__init__(), construct instead of forward, a list of cells, a shared parameter, a buffer."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.layers = [nn.Linear(3, 3), nn.Linear(3, 3, bias=False)]
        self.last = nn.Sequential(nn.ReLU(), nn.Linear(3, 2))
        self.layers[1].weight = self.layers[0].weight
        self.calls = td.Tensor(np.int32(0))

    def construct(self, x: Any) -> Any:
        self.calls += 1
        for layer in self.layers:
            x = layer(x) * self.scale
        return self.last(x)


def test_parts_and_names() -> None:
    net = Net()
    names = ["layers.0.weight", "layers.0.bias", "last.1.weight", "last.1.bias"]
    assert [n for n, _ in net.named_parameters()] == names
    assert net.num_parameters == 9 + 3 + 6 + 2
    assert [n for n, _ in net.named_buffers()] == ["calls"]
    assert [n for n, _ in net.named_cells()] == ["", "layers.0", "layers.1", "last", "last.0", "last.1"]
    assert set(net.state_dict()) == {*names, "layers.1.weight", "calls"}
    assert net.layers[0].weight.name == "weight"
    text = repr(net)
    assert text.startswith("Net(\n  (layers.0): Linear(in_features=3, out_features=3, bias=True)\n")
    assert "  (last): Sequential(\n    (0): ReLU()\n    (1): Linear(in_features=3, out_features=2" in text


def test_buffers_change_alike_in_both_modes(graph_mode: None) -> None:
    net, x = Net(), td.Tensor(np.ones((1, 3), np.float32))
    compiled = [net(x).numpy() for _ in range(3)]
    assert net.calls.item() == 3
    td.context.set_context(mode=td.context.PYNATIVE_MODE)
    np.testing.assert_allclose(net(x).numpy(), compiled[0], 1e-5)
    assert net.calls.item() == 4


def test_settings_make_new_programs(graph_mode: None) -> None:
    net, x = Net(), td.Tensor(np.ones((1, 3), np.float32))
    first = net(x).numpy()
    net.scale = 0.0
    np.testing.assert_allclose(net(x).numpy(), [net.last[1].bias.numpy()])
    net.scale = 2.0
    np.testing.assert_array_equal(net(x).numpy(), first)
    net.last[1].weight = nn.Parameter(np.zeros((2, 3), np.float32))
    np.testing.assert_allclose(net(x).numpy(), [net.last[1].bias.numpy()])


def test_equal_settings_do_not_tick() -> None:
    net = Net()
    now = clock.now
    net.scale = 2.0
    net.train()
    net.calls = td.Tensor(np.int32(5))
    assert clock.now == now and net.calls.item() == 5
    net.eval()
    assert clock.now > now and not net.last[0].training


def test_a_buffer_is_the_cells_own() -> None:
    net, x, y = nn.Cell(), td.Tensor([1.0]), td.Tensor([2.0])
    net.kept = x
    net.kept = y
    assert x.item() == 1 and net.kept.item() == 2
    net.kept += 1
    assert y.item() == 2 and net.kept.item() == 3


def test_what_a_compiled_call_may_not_set() -> None:
    class Counts(nn.Cell):
        def __init__(self) -> None:
            self.n = 0

        def forward(self, x: Any) -> Any:
            self.n += 1
            return x

    class Remembers(nn.Cell):
        def forward(self, x: Any) -> Any:
            self.last = x
            return x

    for net in (Counts(), Remembers()):
        with pytest.raises(td.UserError, match="E0521"):
            td.jit(net)(td.Tensor([1.0]))
        net(td.Tensor([1.0]))

    def inside(x: Any) -> Any:
        net = nn.Sequential(nn.ReLU())
        net.eval()
        return net(x)

    assert td.jit(inside)(td.Tensor([-1.0])).item() == 0
    with pytest.raises(td.UserError, match="E0561"):
        td.jit(lambda x: nn.Linear(1, 1)(x))(td.Tensor([1.0]))


def test_state() -> None:
    net, other = Net(), Net()
    state = net.state_dict()
    net.last[1].bias.assign(np.array([7.0, 7.0]))
    assert state["last.1.bias"].numpy()[0] != 7
    other.load_state_dict(state)
    np.testing.assert_array_equal(other.last[1].bias.numpy(), state["last.1.bias"].numpy())
    del state["layers.1.weight"]  # the same tensor as layers.0.weight, which is there
    other.load_state_dict(state)
    before = other.last[1].bias.numpy()
    with pytest.raises(td.UserError, match=r"E0522.*missing: last\.1\.weight; unknown: more"):
        other.load_state_dict({"more": 1, **{k: v for k, v in state.items() if k != "last.1.weight"}})
    with pytest.raises(td.UserError, match=r"E0523.*last\.1\.bias is f32\[2\], the state has f64\[3\]"):
        other.load_state_dict({**state, "last.1.weight": np.zeros((2, 3), np.float32), "last.1.bias": np.zeros(3)})
    np.testing.assert_array_equal(other.last[1].bias.numpy(), before)
    other.load_state_dict({"more": 1, "last.1.bias": np.zeros(2, np.float32)}, strict=False)
    assert not other.last[1].bias.numpy().any()
    loss = nn.CrossEntropyLoss(np.ones(3, np.float32))
    assert loss.state_dict() == {} and len(loss.buffers()) == 1


def test_copies_stand_alone() -> None:
    net = Net()
    twin = copy.deepcopy(net)
    assert twin.layers[1].weight is twin.layers[0].weight is not net.layers[0].weight
    twin.layers[0].weight.assign(np.zeros((3, 3), np.float32))
    twin.calls += 1
    assert net.layers[0].weight.numpy().any() and net.calls.item() == 0


def test_whole_model_changes() -> None:
    net = Net()
    assert not any(p.requires_grad for p in net.freeze().parameters())
    assert all(p.requires_grad for p in net.freeze(False).parameters())
    seen: list[str] = []
    net.apply(lambda cell: seen.append(type(cell).__name__))
    assert seen == ["Linear", "Linear", "ReLU", "Linear", "Sequential", "Net"]
    net.astype(td.bfloat16)
    assert {p.dtype for p in net.parameters()} == {td.bfloat16} and net.calls.dtype is td.int32
    with pytest.raises(td.UserError, match="E0520"):
        nn.Cell()(1)
    with pytest.raises(td.UserError, match="E0503"):
        net.last[1].bias = td.Tensor([1.0])


def test_scopes_say_which_part() -> None:
    module = trace_module(Net(), td.Tensor(np.ones((1, 3), np.float32)))
    scopes = {n.where.scope for n in all_nodes(module.main) if n.op.name == "contract"}
    assert scopes == {"Net/layers/0", "Net/layers/1", "Net/last/1"}


def test_containers() -> None:
    a, b, c = nn.Linear(1, 2), nn.Linear(2, 3), nn.ReLU()
    cells = nn.CellList([a, b])
    assert cells.append(c)[-1] is c and len(cells) == 3 and list(cells) == [a, b, c]
    cells.insert(0, c)
    del cells[3]
    cells[1] = b
    assert list(cells) == [c, b, b] and [type(x) for x in cells[1:]] == [nn.Linear] * 2
    assert isinstance(cells[1:], nn.CellList)
    assert [n for n, _ in cells.named_parameters()] == ["1.weight", "1.bias"]
    named = nn.CellDict({"a": a})
    named["b"] = b
    assert "b" in named and list(named) == ["a", "b"] and named["a"] is a and len(named) == 2
    del named["a"]
    assert named.items() == [("b", b)]
    net = nn.Sequential({"first": a, "second": nn.functional.relu})
    assert len(net) == 2 and net[0] is a and [n for n, _ in net.named_parameters()] == ["first.weight", "first.bias"]
    assert net.append(b)(td.Tensor([[1.0]])).shape == (1, 3) and len(net[1:]) == 2
    for wrong in (lambda: cells.append(1), lambda: nn.Sequential(1), lambda: named.update({"keys": a})):
        with pytest.raises(td.UserError, match="E0550"):
            wrong()
    for uncallable in (cells, named):
        with pytest.raises(td.UserError, match="E0551"):
            uncallable(1)
