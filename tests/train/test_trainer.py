"""Trainer: fitting, modes, metrics, callbacks, data of all kinds, bad losses, resuming."""

import io
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import nn, optim, train
from treadle.data.loader import DataLoader

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 5)).astype(np.float32)
Y = (X @ RNG.normal(size=(5, 3))).argmax(1).astype(np.int32)


def made(**how: Any) -> train.Trainer:
    td.manual_seed(1)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))
    optimizer = optim.Adam(net.parameters(), lr=0.03)
    return train.Trainer(net, loss=nn.CrossEntropyLoss(), optimizer=optimizer, metrics=[train.Accuracy()], **how)


def loader() -> DataLoader:
    return DataLoader((X, Y), batch_size=32, seed=2)


def test_learns_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = made()
    history = trainer.fit(loader(), epochs=8, validate=(X[:20], Y[:20]))
    assert len(history.losses) == 8 * 3 and len(history.epochs) == 8
    assert history.losses[-1] < history.losses[0] / 2 and history["accuracy"][-1] > 0.8
    assert set(history.epochs[0]) == {"loss", "accuracy", "val_loss", "val_accuracy", "seconds", "samples_per_second"}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[-1].startswith("epoch 8/8  loss 0.") and lines[-1].endswith("0:00 left")
    assert "val_accuracy" in lines[0] and "samples/s" in lines[0] and "%" in lines[0]
    assert len(trainer._step.programs()) == 2  # whole batches, and the smaller last one
    whole, parts = (trainer.evaluate((X[:20], Y[:20]), batch_size=n) for n in (20, 16))
    assert parts == pytest.approx(whole, rel=1e-5)
    judged = trainer.evaluate((X[:20], Y[:20]))
    assert judged["accuracy"] == history["val_accuracy"][-1]
    predicted = trainer.predict(X[:20])
    assert (predicted.numpy().argmax(1) == Y[:20]).mean() == pytest.approx(judged["accuracy"])
    batches = [(X[:10], Y[:10]), (X[10:20], Y[10:20])]
    np.testing.assert_array_equal(trainer.predict(batches).numpy(), predicted.numpy())
    assert all(cell.training for cell in trainer.net.cells())


def test_eager_gives_the_same_losses() -> None:
    compiled = made().fit(loader(), epochs=2, progress=False).losses
    eager = made(jit=False).fit(loader(), epochs=2, progress=False).losses
    np.testing.assert_allclose(eager, compiled, 1e-4)


def test_frozen_parameters_stay() -> None:
    trainer = made()
    trainer.net[0].freeze()
    before = trainer.net[0].weight.numpy(), trainer.net[4].weight.numpy()
    trainer.fit((X, Y), epochs=1, progress=False)
    np.testing.assert_array_equal(trainer.net[0].weight.numpy(), before[0])
    assert not np.array_equal(trainer.net[4].weight.numpy(), before[1])


class Log(train.Callback):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_fit_start(self, trainer: Any) -> None:
        self.calls.append("start")

    def on_epoch_start(self, trainer: Any) -> None:
        self.calls.append(("epoch", trainer.state.epoch))

    def on_step_end(self, trainer: Any, loss: float) -> None:
        self.calls.append(("step", trainer.state.step, loss == trainer.history.losses[-1]))

    def on_epoch_end(self, trainer: Any, logs: dict[str, float]) -> None:
        self.calls.append(("end", sorted(logs)))

    def on_fit_end(self, trainer: Any) -> None:
        self.calls.append("end")


def test_callbacks() -> None:
    log = Log()
    made(callbacks=[log]).fit([(X[:35], Y[:35]), (X[35:], Y[35:])], epochs=2, progress=False)
    epoch = [("step", 1, True), ("step", 2, True), ("end", ["accuracy", "loss"])]
    again = [("step", 3, True), ("step", 4, True), ("end", ["accuracy", "loss"])]
    assert log.calls == ["start", ("epoch", 0), *epoch, ("epoch", 1), *again, "end"]


def test_schedule_early_stop_and_checkpoints(tmp_path: Any) -> None:
    trainer = made()
    schedule = optim.ExponentialLR(trainer.optimizer, 0.5)
    trainer.callbacks += [
        train.LearningRateSchedule(schedule, each="epoch"),
        train.EarlyStopping("loss", patience=2, min_delta=100.0),
        train.ModelCheckpoint(tmp_path / "best", monitor="loss"),
        train.ModelCheckpoint(tmp_path / "epoch{epoch}"),
    ]
    history = trainer.fit((X, Y), epochs=9, progress=False)
    assert len(history.epochs) == 3  # the first is always better than nothing, then two without gain
    assert trainer.optimizer.lr == pytest.approx(0.03 / 8)
    assert {p.name for p in tmp_path.iterdir()} == {"best", "epoch1", "epoch2", "epoch3"}
    assert train.read(tmp_path / "epoch2").step == 6
    with pytest.raises(td.UserError, match=r"E0563.*'val_loss'.*\n.*\n.*\n.*fix use one of loss, accuracy"):
        made(callbacks=[train.EarlyStopping()]).fit((X, Y), progress=False)
    for wrong in (lambda: train.EarlyStopping(mode="best"), lambda: train.LearningRateSchedule(schedule, each="day")):
        with pytest.raises(td.UserError, match="E0563"):
            wrong()


def test_resuming_gives_the_same_losses(tmp_path: Any) -> None:
    whole = made().fit(loader(), epochs=4, progress=False).losses
    first = made()
    first.fit(loader(), epochs=2, progress=False)
    first.save(tmp_path / "c", extra={"note": "half way"})
    second, data = made(), loader()
    td.manual_seed(99)
    assert second.restore(tmp_path / "c", data) == {"note": "half way"}
    assert second.state.step == 6 and data.epoch == 2
    np.testing.assert_array_equal(second.fit(data, epochs=2, progress=False).losses, whole[6:])


def test_a_bad_loss_names_the_step() -> None:
    log = Log()
    x = X.copy()
    x[40] = np.nan
    batches = [(x[:35], Y[:35]), (x[35:], Y[35:])]
    with pytest.raises(td.UserError, match=r"E0564 the loss is nan at step 2 \(step 2 of epoch 1\)"):
        made(callbacks=[log]).fit(batches, progress=False)
    assert log.calls[-1] == "end"
    assert np.isnan(made(check_finite=False).fit(batches, progress=False).losses[1])


def test_wrong_data() -> None:
    trainer = made()
    for data in (3, X, "x", [X], [], {"x": X}):
        with pytest.raises(td.UserError, match="E0565"):
            trainer.fit(data, progress=False)
    once = iter([(X, Y)])
    with pytest.raises(td.UserError, match="E0565 epoch 2 has no batch"):
        trainer.fit(once, epochs=2, progress=False)
    with pytest.raises(td.UserError, match="E0565"):
        train.Trainer(trainer.net).fit((X, Y))
    with pytest.raises(td.UserError, match="E0565"):
        train.Trainer(trainer.net).evaluate((X, Y))
    with pytest.raises(td.UserError, match="E0565"):
        trainer.predict([])
    with pytest.raises(td.UserError, match="E0565"):
        train.Trainer(nn.LSTM(5, 2)).predict([(X,)])


def test_several_inputs_and_another_net() -> None:
    class Both(nn.Cell):
        def __init__(self) -> None:
            self.a = nn.Linear(5, 1)

        def forward(self, x: Any, y: Any) -> Any:
            return self.a(x) + y

    net = Both()
    trainer = train.Trainer(net, nn.functional.mse_loss, optim.SGD(net.parameters(), lr=0.1))
    target = np.ones((70, 1), np.float32)
    losses = trainer.fit((X, target, target * 3), epochs=5, progress=False).losses
    assert losses[-1] < losses[0]
    trainer.net = Both()
    trainer.optimizer = optim.SGD(trainer.net.parameters(), lr=0.1)
    before = net.a.weight.numpy()
    trainer.fit((X, target, target * 3), progress=False)
    np.testing.assert_array_equal(net.a.weight.numpy(), before)


def test_the_bar_on_a_terminal() -> None:
    out = io.StringIO()
    made(callbacks=[train.ProgressBar(live=True, file=out)]).fit((X, Y), epochs=2, progress=False)
    text = out.getvalue()
    assert "epoch 1/2  loss" in text and "epoch 2/2" in text and "samples/s" in text and "left" in text


def test_metrics() -> None:
    scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    accuracy, top2 = train.Accuracy(), train.TopK(2)
    for metric, wanted in ((accuracy, 1 / 3), (top2, 2 / 3)):
        metric.update(scores[:2], np.array([1, 1]))
        metric.update(scores[2:], np.array([0]))
        assert metric.compute() == pytest.approx(wanted)
        metric.reset()
        assert np.isnan(metric.compute())
    accuracy.update(np.array([0.3, -0.2, 2.0]), np.array([1, 1, 1]))
    assert accuracy.compute() == pytest.approx(2 / 3)
    planes = np.moveaxis(np.eye(3)[[[0, 1], [2, 2]]], -1, 1)
    accuracy.reset()
    accuracy.update(planes, np.array([[0, 1], [2, 0]]))
    assert accuracy.compute() == 0.75 and top2.name == "top2"
    for wrong in (
        lambda: accuracy.update(scores, np.array([1])),
        lambda: train.TopK(0),
        lambda: train.Metric().update(scores, scores),
    ):
        with pytest.raises(td.UserError, match="E0560"):
            wrong()
