"""Train a small convolutional network on 1,797 real handwritten digits, a fifth of them held out.

Shows progress, prints the held-out accuracy, saves a checkpoint, loads it in a new process and predicts there, draws
`runs/digits/digits.png` (loss curve and predictions), and prints what each stage of the compiler made of the network.

    python examples/digits.py [--mode graph|eager] [--epochs 30]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import treadle as td
from treadle import nn

FOLDER = Path("runs/digits")
BATCH = 64


def network() -> nn.Sequential:
    """8x8 grey images, float32[n, 1, 8, 8], to ten scores, float32[n, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.GELU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.GELU(), nn.AvgPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.GELU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(64 * 2 * 2, 10),
    )  # fmt: skip


class Shifted:
    """The batches of a loader, each image moved by up to one pixel each way: more to learn from few images."""

    def __init__(self, loader: td.data.DataLoader) -> None:
        self.loader, self.rng = loader, np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        for images, labels in self.loader:
            padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
            rows, columns = self.rng.integers(0, 3, (2, len(images), 1)) + np.arange(8)
            yield padded[np.arange(len(images))[:, None, None], 0, rows[:, :, None], columns[:, None]][:, None], labels


def train(mode: str, epochs: int) -> tuple[nn.Sequential, td.train.History]:
    """The trained network and the record of the run."""
    td.context.set_context(mode=mode)
    td.manual_seed(0)
    (x, y), held_out = td.data.load_digits(held_out=0.2, seed=0)
    train_data = Shifted(td.data.DataLoader((x, y), batch_size=BATCH, seed=0))
    test_data = td.data.DataLoader(held_out, batch_size=BATCH, shuffle=False)
    net = network()
    optimizer = td.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    steps = epochs * len(train_data)
    schedule = td.optim.CosineAnnealingLR(optimizer, steps)
    trainer = td.train.Trainer(
        net,
        loss=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        metrics=[td.train.Accuracy()],
        callbacks=[td.train.LearningRateSchedule(schedule)],
        jit=mode == "graph",
    )
    history = trainer.fit(train_data, epochs=epochs, validate=test_data)
    accuracy = trainer.evaluate(test_data)["accuracy"]
    print(f"held-out accuracy {100 * accuracy:.1f} %")
    td.train.save(FOLDER / "checkpoint", net, optimizer, extra={"accuracy": float(accuracy), "mode": mode})
    return net, history


def predict() -> None:
    """In a new process: load the checkpoint and print the predictions for the held-out images as JSON."""
    net = network()
    td.train.load(FOLDER / "checkpoint", net)
    _, (images, _) = td.data.load_digits(held_out=0.2, seed=0)
    scores = td.train.Trainer(net).predict(images)
    print(json.dumps(np.argmax(scores, axis=1).tolist()))


def report(net: nn.Sequential, images: np.ndarray, labels: np.ndarray) -> str:
    """What each stage of the compiler made of one training step, a line each."""
    net.train()
    x, y = td.tensor(images), td.tensor(labels)
    loss = nn.CrossEntropyLoss()
    return td.api.stages(lambda x, y: loss(net(x), y), net.parameters(), x, y, name="one training step")


def draw(losses: list[float], images: np.ndarray, labels: np.ndarray, found: np.ndarray) -> Path:
    """The loss curve beside 18 held-out images with their predictions; wrong ones first, in red."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    axes.plot(losses, linewidth=0.8)
    axes.set(xlabel="step", ylabel="loss", yscale="log", title="training loss")
    order = np.argsort(found == labels, kind="stable")[:18]
    for axes, i in zip(right.subplots(3, 6).flat, order, strict=True):
        axes.imshow(images[i, 0], cmap="gray_r")
        axes.set_title(f"{found[i]}", color="black" if found[i] == labels[i] else "red")
        axes.axis("off")
    right.suptitle("held-out digits and what the network reads")
    path = FOLDER / "digits.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["graph", "eager"], default="graph")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--predict", action="store_true", help="only load the checkpoint and predict")
    options = parser.parse_args()
    if options.predict:
        return predict()
    start = time.perf_counter()
    net, history = train(options.mode, options.epochs)
    command = [sys.executable, __file__, "--predict"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found = np.array(json.loads(answer.stdout))
    _, (images, labels) = td.data.load_digits(held_out=0.2, seed=0)
    print(f"a new process, from the checkpoint: {np.mean(found == labels):.1%} of the held-out digits read rightly")
    (FOLDER / f"losses-{options.mode}.json").write_text(json.dumps(history.losses))
    print(f"picture: {draw(history.losses, images, labels, found)}")
    print(report(net, images[:BATCH], labels[:BATCH]))
    print(f"all of it took {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
