"""Small models as people write them: the same losses eager and compiled, and the programs follow the settings."""

from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import nn, optim
from treadle.api.programs import trace_module
from treadle.ir.walk import all_nodes

RNG = np.random.default_rng(0)


class Residual(nn.Cell):
    def __init__(self, inputs: int, outputs: int) -> None:
        self.conv = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        return nn.functional.relu(self.norm(self.conv(x)) + self.down(x))


class GPT(nn.Cell):
    """One block; the head shares the embedding's weight."""

    def __init__(self) -> None:
        self.embedding, self.positions = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.blocks = nn.CellList(nn.TransformerBlock(8, 2) for _ in range(1))
        self.dropout = nn.Dropout(0.1)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        x = self.dropout(self.embedding(tokens) + self.positions(np.arange(tokens.shape[1])))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).reshape(-1, 20)


class Recurrent(nn.Cell):
    def __init__(self) -> None:
        self.embedding, self.lstm = nn.Embedding(20, 4), nn.LSTM(4, 5, batch_first=True)
        self.head = nn.Linear(5, 20)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.lstm(self.embedding(tokens))[0]).reshape(-1, 20)


IMAGES = RNG.normal(size=(4, 2, 6, 6)).astype(np.float32), np.array([0, 1, 2, 0])
TOKENS = RNG.integers(0, 20, (2, 6)), RNG.integers(0, 20, 12)
MODELS: dict[str, Any] = {
    "resnet": (lambda: nn.Sequential(Residual(2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3)), IMAGES),
    "gpt": (GPT, TOKENS),
    "lstm": (Recurrent, TOKENS),
}


@pytest.mark.parametrize("name", MODELS)
def test_eager_and_compiled_training_agree(name: str) -> None:
    make, (x, y) = MODELS[name]
    found = []
    for compiled in (True, False):
        td.manual_seed(4)
        net = make()
        optimizer = optim.AdamW(net.parameters(), lr=1e-2)

        def step(x: Any, y: Any, net: Any = net, optimizer: Any = optimizer) -> Any:
            loss, grads = td.value_and_grad(lambda: nn.functional.cross_entropy(net(x), y), optimizer.params)()
            optimizer.step(optim.clip_grad_norm(grads, 1.0))
            return loss

        run = td.jit(step) if compiled else step
        found.append([run(x, y).item() for _ in range(3)] + [float(np.abs(b.numpy()).sum()) for b in net.buffers()])
        assert found[-1][2] < found[-1][0]
    np.testing.assert_allclose(found[0], found[1], 1e-4)


def test_programs_follow_the_mode_of_cells_inside_gradients() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0)), np.ones((2, 3), np.float32)
    run = td.jit(lambda x: td.value_and_grad(lambda: net(x).sum(), net.parameters())()[0])
    assert run(x).item() == 0
    net.eval()
    assert run(x).item() != 0
    net.train()
    assert run(x).item() == 0


def test_the_program_of_an_lstm_does_not_grow_with_its_length() -> None:
    net = nn.LSTM(3, 4)
    grad = lambda x: td.grad(lambda: net(x)[0].sum(), net.parameters())()
    sizes = [len(list(all_nodes(trace_module(grad, np.ones((n, 2, 3), np.float32)).main))) for n in (3, 50)]
    assert sizes[0] == sizes[1]


def test_the_example_of_the_design() -> None:
    net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 8 * 8, 10))
    opt = td.optim.Adam(net.parameters(), lr=1e-3)

    @td.jit
    def step(x, y):
        loss, grads = td.value_and_grad(lambda: nn.functional.cross_entropy(net(x), y), net.parameters())()
        opt.step(grads)
        return loss

    x, y = RNG.normal(size=(20, 1, 10, 10)).astype(np.float32), RNG.integers(0, 10, 20)
    assert step(x, y).item() > step(x, y).item()
    train_data = test_data = [(x, y)]
    trainer = td.train.Trainer(net, loss=nn.CrossEntropyLoss(), optimizer=opt)
    history = trainer.fit(train_data, epochs=5, validate=test_data)
    assert history["val_loss"][-1] < history["val_loss"][0]
