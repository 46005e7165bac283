"""Data sets, Model, checkpoints, mixed precision, metrics and export of treadle.compat.mindspore."""

import struct

import numpy as np
import pytest

import treadle.compat.mindspore as ms
from treadle import UserError
from treadle.compat.mindspore import Tensor, amp, nn, ops
from treadle.compat.mindspore import dataset as ds
from treadle.compat.mindspore.dataset import transforms, vision
from treadle.compat.mindspore.train import Callback, Model, _files


# --------------------------------------------------------------------------------------------------------------- data
class Squares:
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return np.float32(i), np.int32(i * i)


def column(data, name):
    return np.concatenate([np.atleast_1d(row[name]) for row in data.create_dict_iterator(output_numpy=True)]).tolist()


def test_generator_data_set():
    data = ds.GeneratorDataset(Squares(), ["x", "y"], shuffle=False)
    assert column(data, "y") == [0, 1, 4, 9, 16]
    assert (data.get_dataset_size(), len(data), data.get_col_names()) == (5, 5, ["x", "y"])
    batches = list(data.batch(2).create_tuple_iterator())
    assert [b[0].shape for b in batches] == [(2,), (2,), (1,)]
    assert batches[0][0].dtype == ms.float32
    assert isinstance(batches[0][1], Tensor)
    assert data.batch(2, drop_remainder=True).get_dataset_size() == 2
    repeated = data.batch(2).repeat(3)
    assert (repeated.get_dataset_size(), repeated.get_batch_size(), repeated.get_repeat_count()) == (9, 2, 3)
    assert data.batch(2).output_shapes() == [[2], [2]]
    ms.set_seed(1)
    shuffled = ds.GeneratorDataset(Squares(), ["x", "y"])
    first, second = column(shuffled, "x"), column(shuffled, "x")
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    ms.set_seed(1)
    assert column(shuffled, "x") == first
    assert sorted(column(data.shuffle(3), "x")) == [0, 1, 2, 3, 4]
    with pytest.raises(UserError, match="E0595"):
        ds.GeneratorDataset(lambda: iter([(1, 2)]), ["x"])._first()
    with pytest.raises(UserError, match="E0592"):
        ds.GeneratorDataset(Squares(), ["x", "y"], sampler=3)


def test_chains():
    data = ds.NumpySlicesDataset({"a": np.arange(6), "b": np.arange(6) * 10}, shuffle=False)
    assert column(data.map(lambda a: a + 1, "a"), "a") == [1, 2, 3, 4, 5, 6]
    both = data.map(lambda a, b: (a + b, a), ["a", "b"], ["sum", "first"])
    assert both.get_col_names() == ["sum", "first"]
    assert column(both, "sum") == [0, 11, 22, 33, 44, 55]
    assert column(data.map([lambda b: b + 1, lambda b: -b], "b"), "b") == [-1, -11, -21, -31, -41, -51]
    assert column(data.filter(lambda a: a % 2 == 0, "a"), "b") == [0, 20, 40]
    assert column(data.take(3), "a") == [0, 1, 2]
    assert column(data.skip(4), "a") == [4, 5]
    assert column(data.project("b"), "b") == column(data, "b")
    assert column(data.rename("a", "c"), "c") == [0, 1, 2, 3, 4, 5]
    assert column(data.take(1) + data.skip(5), "a") == [0, 5]
    assert data.zip(data.rename(["a", "b"], ["c", "d"])).get_col_names() == ["a", "b", "c", "d"]
    parts = data.split([0.5, 0.5], randomize=False)
    assert [column(p, "a") for p in parts] == [[0, 1, 2], [3, 4, 5]]
    rows = data.create_tuple_iterator(output_numpy=True)
    assert (next(rows)[0], next(rows)[0]) == (0, 1)
    with pytest.raises(UserError, match="E0595"):
        data.map(lambda x: x, "unheard_of")
    with pytest.raises(UserError, match="E0592"):
        ds.ImageFolderDataset("folder")


def test_transforms():
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    np.testing.assert_allclose(vision.Rescale(0.5, 1.0)(image), image * 0.5 + 1)
    np.testing.assert_allclose(vision.Normalize([1, 2, 3], [2, 2, 4])(image), (image - [1.0, 2, 3]) / [2, 2, 4])
    assert vision.HWC2CHW()(image).shape == (3, 2, 2)
    assert transforms.TypeCast(ms.int32)(image).dtype == np.int32
    assert transforms.Compose([transforms.OneHot(3), transforms.TypeCast(ms.float32)])(1).tolist() == [0, 1, 0]


# -------------------------------------------------------------------------------------------------------- checkpoints
def test_the_file_is_a_protocol_buffer(tmp_path):
    ms.save_checkpoint([{"name": "a", "data": Tensor([1.0, 2.0])}], str(tmp_path / "one"))
    content = struct.pack("<2f", 1, 2)
    tensor = b"\x08\x02" + b"\x12\x07Float32" + b"\x1a\x08" + content  # dims, type, bytes
    value = b"\x0a\x01a" + b"\x12" + bytes([len(tensor)]) + tensor
    assert (tmp_path / "one.ckpt").read_bytes() == b"\x0a" + bytes([len(value)]) + value


def test_files_of_other_writers(tmp_path):
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    halves = [_files._field(3, array.tobytes()[i : i + 6]) for i in (0, 6)]
    head = b"\x0a\x02\x02\x03" + _files._field(2, b"Float16")  # packed sizes
    data = b"".join(_files._field(1, _files._field(1, b"w") + _files._field(2, head + half)) for half in halves)
    np.testing.assert_array_equal(_files.read(data)["w"], array)
    every = {str(d): np.ones((2, 1), d.np) for d in (ms.bool_, ms.uint8, ms.int64, ms.bfloat16, ms.float64)}
    every |= {"scalar": np.float32(3), "empty": np.zeros((0, 2), np.int8)}
    again = _files.read(_files.write({k: np.asarray(v) for k, v in every.items()}))
    for name, wanted in every.items():
        assert (again[name].dtype, again[name].shape) == (wanted.dtype, np.shape(wanted))
        np.testing.assert_array_equal(again[name], wanted)
    for wrong in (data[:-3], b"not a checkpoint", _files._field(1, _files._field(1, b"w"))):
        with pytest.raises(UserError, match="E0603"):
            _files.read(wrong)


def test_loading_into_a_net(tmp_path):
    net, other = nn.Dense(3, 2), nn.Dense(3, 2)
    ms.save_checkpoint(net, tmp_path / "net.ckpt", append_dict={"epoch": 3})
    found = ms.load_checkpoint(str(tmp_path / "net.ckpt"))
    assert found["epoch"].item() == 3
    assert ms.load_param_into_net(other, found) == ([], ["epoch"])
    np.testing.assert_array_equal(other.weight.asnumpy(), net.weight.asnumpy())
    assert list(ms.load_checkpoint(tmp_path / "net.ckpt", filter_prefix="e")) == ["weight", "bias"]
    assert ms.load_param_into_net(other, {"weight": found["weight"]}) == (["bias"], [])
    with pytest.raises(UserError, match="E0523"):
        ms.load_param_into_net(nn.Dense(4, 2), found)
    with pytest.raises(UserError, match="E0608"):
        ms.load_checkpoint("not-there.ckpt")
    with pytest.raises(UserError, match="E0606"):
        ms.save_checkpoint(3, tmp_path / "x")


# ------------------------------------------------------------------------------------------------------------- models
def line_data(count=64):
    x = np.linspace(-1, 1, count, dtype=np.float32)[:, None]
    return ds.NumpySlicesDataset((x, 3 * x - 1), ["x", "y"], shuffle=False).batch(16)


def test_fit_with_callbacks(capsys):
    moments = []

    class Note(Callback):
        def epoch_begin(self, run_context):
            moments.append("epoch")

        def on_train_step_end(self, run_context):
            moments.append(run_context.original_args().cur_step_num)
            if run_context.original_args().cur_epoch_num == 3:
                run_context.request_stop()

    net = nn.Dense(1, 1)
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1), metrics={"mse", "loss"})
    rates = ms.LearningRateScheduler(lambda rate, step: rate * 0.9)
    model.fit(5, line_data(), line_data(), callbacks=[Note(), ms.LossMonitor(4), rates])
    assert moments == ["epoch", 1, 2, 3, 4, "epoch", 5, 6, 7, 8, "epoch", 9]
    assert model._optimizer.get_lr().item() == pytest.approx(0.1 * 0.9**9)
    out = capsys.readouterr().out
    assert "epoch: 2 step: 4, loss is" in out
    assert "Eval result: epoch 1, metrics: {'loss': " in out
    found = model.eval(line_data())
    assert found["mse"] == pytest.approx(found["loss"], rel=1e-4)
    x = np.ones((2, 1), np.float32)
    np.testing.assert_allclose(model.predict(x).asnumpy(), net(Tensor(x)).asnumpy())


def test_early_stopping_and_missing_parts():
    net = nn.Dense(1, 1)
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.0), metrics={"loss"})
    history = ms.History()
    model.fit(9, line_data(), line_data(), callbacks=[history, ms.EarlyStopping("eval_loss", patience=2)])
    assert history.epoch["epoch"] == [1, 2, 3]
    for call in (lambda: Model(net).train(1, line_data()), lambda: Model(net, nn.MSELoss()).eval(line_data())):
        with pytest.raises(UserError, match="E0565"):
            call()
    with pytest.raises(UserError, match="E0560"):
        Model(net, nn.MSELoss(), metrics={"unheard_of"})


def test_metrics():
    scores = np.array([[0.9, 0.1, 0], [0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.4, 0.5, 0.1]], np.float32)
    labels = np.array([0, 2, 0, 1])
    wanted = {"acc": 0.75, "top_1_accuracy": 0.75, "top_5_accuracy": 1.0}
    for name, value in wanted.items():
        metric = nn.metrics.metric_of(name)
        metric.update(Tensor(scores[:2]), Tensor(labels[:2]))
        metric.update(Tensor(scores[2:]), Tensor(labels[2:]))
        assert metric.eval() == value
    pairs = {nn.Precision(): [1, 0.5, 1], nn.Recall(): [0.5, 1, 1], nn.F1(): [2 / 3, 2 / 3, 1]}
    for metric, value in pairs.items():
        metric.update(scores, np.eye(3)[labels])
        np.testing.assert_allclose(metric.eval(), value)
        assert metric.eval(True) == pytest.approx(np.mean(value))
    mae = nn.MAE()
    mae.update(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    assert mae.eval() == 1.5


# ---------------------------------------------------------------------------------------------------- mixed precision
def test_mixed_precision_levels():
    seen = []

    class Look(nn.Cell):
        def construct(self, x):
            seen.append(x.dtype)
            return x

    def net():
        return nn.SequentialCell([nn.Dense(4, 4), Look(), nn.BatchNorm1d(4), Look()])

    x = Tensor(np.ones((2, 4), np.float32))
    assert amp.auto_mixed_precision(net(), "O2")(x).dtype == ms.float16  # the last cell casts its input
    assert amp.auto_mixed_precision(net(), "O3", ms.bfloat16)(x).dtype == ms.bfloat16
    assert net()(x).dtype == ms.float32
    assert seen == [ms.float16, ms.float16, ms.bfloat16, ms.bfloat16, ms.float32, ms.float32]
    mixed = amp.auto_mixed_precision(nn.SequentialCell([nn.Dense(4, 4, has_bias=False), Look()]), "O1")
    seen.clear()
    assert mixed(x).dtype == ms.float16
    assert seen == [ms.float16]
    assert mixed.trainable_params()[0].dtype == ms.float32
    with pytest.raises(UserError, match="E0592"):
        amp.auto_mixed_precision(net(), "O4")


def test_loss_scalers():
    scaler = amp.DynamicLossScaler(8.0, 2, 2)
    np.testing.assert_allclose(scaler.unscale(scaler.scale(Tensor([3.0]))).asnumpy(), [3])
    found = []
    for finite in (True, True, True, False, False):
        scaler.adjust(Tensor(finite))
        found.append(scaler.scale_value.item())
    assert found == [8, 16, 16, 8, 4]
    assert amp.all_finite((Tensor([1.0]), Tensor([2.0]))).item() is True
    assert amp.all_finite((Tensor([1.0]), Tensor([np.inf]))).item() is False


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_a_step_with_an_overflow_changes_nothing(mode):
    ms.set_context(mode=mode)
    try:
        net = nn.Dense(1, 1, "ones", "zeros")
        optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
        update = nn.DynamicLossScaleUpdateCell(2.0**10, 2, 2)
        step = nn.TrainOneStepWithLossScaleCell(nn.WithLossCell(net, nn.MSELoss()), optimizer, update).set_train()
        good, bad = Tensor([[1.0]]), Tensor([[np.inf]])
        _, overflow, scale = step(good, bad)
        assert (overflow.item(), scale.item(), step.scale_sense.item()) == (True, 1024, 512)
        assert (net.weight.item(), optimizer.global_step.asnumpy().item()) == (1, 0)
        loss, overflow, _ = step(good, good * 3)
        assert (loss.item(), overflow.item()) == (4, False)
        assert net.weight.item() == pytest.approx(1.4)
        step(good, good)
        assert step.scale_sense.item() == 1024
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def test_model_with_loss_scale_manager():
    net = nn.Dense(1, 1)
    manager = ms.FixedLossScaleManager(64.0, drop_overflow_update=False)
    optimizer = nn.SGD(net.trainable_params(), 0.1, loss_scale=64.0)
    model = Model(net, nn.MSELoss(), optimizer, loss_scale_manager=manager)
    model.train(15, line_data())
    assert abs(net.weight.item() - 3) < 0.5


# ------------------------------------------------------------------------------------------------------------- export
def test_export_is_not_covered_and_says_what_is():
    with pytest.raises(UserError, match=r"(?s)E0592.*to_onnx"):
        ms.export(nn.Dense(3, 4), Tensor(np.ones((2, 3), np.float32)), file_name="net", file_format="ONNX")


def test_with_grad_cell_and_value():
    net = nn.Dense(2, 1, "ones", "zeros", has_bias=False)
    grads = nn.WithGradCell(net, nn.MSELoss())(Tensor([[1.0, 2.0]]), Tensor([[1.0]]))
    np.testing.assert_allclose(grads[0].asnumpy(), [[4, 8]])
    value, (gradient,) = nn.ForwardValueAndGrad(net, net.trainable_params(), get_by_list=True)(Tensor([[1.0, 2.0]]))
    np.testing.assert_allclose([value.item(), *gradient.asnumpy().ravel()], [3, 1, 2])
    assert ops.depend(3, None) == 3


def test_mnist_files(tmp_path):
    images, labels = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28), np.array([7, 3], np.uint8)
    for part in ("train", "t10k"):
        head = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 2) + labels.tobytes())
    data = ds.MnistDataset(str(tmp_path), "test", shuffle=False)
    assert data.output_shapes() == [[28, 28, 1], []]
    assert column(data, "label") == [7, 3]
    assert len(ds.MnistDataset(tmp_path)) == 4
    with pytest.raises(UserError, match="E0595"):
        ds.MnistDataset(tmp_path / "nowhere")
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"short")
    with pytest.raises(UserError, match="E0595"):
        ds.MnistDataset(tmp_path, "test")
