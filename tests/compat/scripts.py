"""Small programs in the style of MindSpore's tutorials; each gives numbers that must be the same in both modes."""

import numpy as np

import treadle.compat.mindspore as ms
from treadle.compat.mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from treadle.compat.mindspore import dataset as ds
from treadle.compat.mindspore.common.initializer import Normal
from treadle.compat.mindspore.ops import composite as C
from treadle.compat.mindspore.ops import functional as F
from treadle.compat.mindspore.ops import operations as P
from treadle.compat.mindspore.train import Callback, LossMonitor, Model
from treadle.data import load_digits


def linear_regression():
    """`Model.train` on y = 2 x + 3 from a generator; returns the losses and (weight, bias)."""

    def points(num):
        for _ in range(num):
            x = np.random.uniform(-1.0, 1.0)
            yield np.array([x]).astype(np.float32), np.array([2 * x + 3 + np.random.normal(0, 0.01)]).astype(np.float32)

    class Keep(Callback):
        def __init__(self):
            self.losses = []

        def step_end(self, run_context):
            self.losses.append(float(run_context.original_args().net_outputs.asnumpy()))

    class LinearNet(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc = nn.Dense(1, 1, Normal(0.02), Normal(0.02))

        def construct(self, x):
            return self.fc(x)

    data = ds.GeneratorDataset(list(points(160)), column_names=["data", "label"], shuffle=False).batch(16).repeat(4)
    net, keep = LinearNet(), Keep()
    model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), learning_rate=0.1, momentum=0.9))
    model.train(2, data, callbacks=[keep, LossMonitor(40)], dataset_sink_mode=False)
    return keep.losses, [p.asnumpy().item() for p in net.trainable_params()]


class LeNet5(nn.Cell):
    """The classic network, for images of one channel and `size` pixels a side."""

    def __init__(self, num_class=10, size=16):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, pad_mode="same")
        self.conv2 = nn.Conv2d(6, 16, 3, pad_mode="valid")
        self.fc1 = nn.Dense(16 * (size // 4 - 1) ** 2, 64, weight_init=Normal(0.05))
        self.fc2 = nn.Dense(64, num_class, weight_init=Normal(0.05))
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        return self.fc2(self.relu(self.fc1(x)))


def digit_data(batch_size=64, count=640):
    """Digits of 8 x 8, doubled to 16 x 16: batches of float32 [N, 1, 16, 16] and int32 labels."""
    images, labels = load_digits()[0]
    images = np.kron(np.asarray(images).reshape(-1, 1, 8, 8)[:count], np.ones((2, 2), np.float32)).astype(np.float32)
    data = ds.NumpySlicesDataset((images, np.asarray(labels)[:count]), ["image", "label"], shuffle=True)
    return data.map(ds.transforms.TypeCast(ms.int32), "label").batch(batch_size, drop_remainder=True)


def lenet(folder):
    """`Model.train` with accuracy, checkpoint and reload; returns the losses and the accuracies before and after."""

    class Keep(Callback):
        def __init__(self):
            super().__init__()
            self.losses = []

        def on_train_step_end(self, run_context):
            self.losses.append(float(run_context.original_args().net_outputs.asnumpy()))

    data, net, keep = digit_data(), LeNet5(), Keep()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(net, loss, nn.Adam(net.trainable_params(), 0.005), metrics={"Accuracy": nn.Accuracy()})
    config = ms.CheckpointConfig(save_checkpoint_steps=data.get_dataset_size(), keep_checkpoint_max=2)
    saver = ms.ModelCheckpoint(prefix="lenet", directory=folder, config=config)
    model.train(4, data, callbacks=[saver, keep, ms.TimeMonitor()])
    accuracy = model.eval(data)["Accuracy"]
    fresh = LeNet5()
    missing, unknown = ms.load_param_into_net(fresh, ms.load_checkpoint(saver.latest_ckpt_file_name))
    assert missing == [] and all("moment" in n or n in EXTRA for n in unknown)
    again = Model(fresh, loss, metrics={"Accuracy": nn.Accuracy()}).eval(data)["Accuracy"]
    return keep.losses, [accuracy, again]


EXTRA = ("global_step", "learning_rate", "epoch_num", "step_num")


def functional_training():
    """The quick start: forward_fn, value_and_grad, a train_step, one pass of training and one of testing."""
    net = nn.SequentialCell(
        nn.Flatten(), nn.Dense(256, 64, weight_init="he_uniform"), nn.ReLU(), nn.Dense(64, 10, weight_init="he_uniform")
    )
    loss_fn, optimizer = nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1)
    losses = []

    def forward_fn(data, label):
        logits = net(data)
        return loss_fn(logits, label), logits

    grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)

    def train_step(data, label):
        (loss, _), grads = grad_fn(data, label)
        optimizer(grads)
        return loss

    data = digit_data()
    for _ in range(4):
        net.set_train()
        for image, label in data.create_tuple_iterator():
            losses.append(float(train_step(image, label).asnumpy()))
    net.set_train(False)
    right = total = 0
    for batch in data.create_dict_iterator():
        pred = net(batch["image"])
        right += (pred.argmax(1) == batch["label"]).asnumpy().sum()
        total += len(pred)
    return losses, [right / total]


class ResidualBlock(nn.Cell):
    """Two convolutions beside a short cut."""

    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride=stride, pad_mode="same")
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, pad_mode="pad", padding=1)
        self.norm2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU()
        self.down_sample = None
        if stride != 1 or inside != outside:
            self.down_sample = nn.SequentialCell(
                [nn.Conv2d(inside, outside, 1, stride=stride), nn.BatchNorm2d(outside)]
            )

    def construct(self, x):
        identity = x
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.down_sample is not None:
            identity = self.down_sample(x)
        return self.relu(out + identity)


def resnet():
    """Two residual blocks, trained by TrainOneStepCell; returns the losses and the moving means' size."""

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layer = nn.SequentialCell([ResidualBlock(1, 8, stride=2), ResidualBlock(8, 8)])
            self.mean = ops.ReduceMean(keep_dims=True)
            self.flatten = nn.Flatten()
            self.fc = nn.Dense(8, 10)

        def construct(self, x):
            return self.fc(self.flatten(self.mean(self.layer(x), (2, 3))))

    net = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    rate = nn.cosine_decay_lr(0.001, 0.3, 20, 10, 3)
    optimizer = nn.Momentum(net.trainable_params(), rate, 0.9, weight_decay=1e-4)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer).set_train()
    losses = []
    for _ in range(2):
        for image, label in digit_data(32, 320):
            losses.append(float(step(image, label).asnumpy()))
    moving = net.parameters_dict()["layer.0.down_sample.1.moving_mean"]
    return losses, [float(np.abs(moving.asnumpy()).sum())]


def lstm_classifier():
    """Which half of a sequence is larger: embedding, LSTM, the last hidden state; returns the losses."""

    class Classifier(nn.Cell):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 8, embedding_table=Normal(1.0))
            self.lstm = nn.LSTM(8, 16, num_layers=1, batch_first=True)
            self.fc = nn.Dense(16, 1)
            self.sigmoid = ops.Sigmoid()

        def construct(self, inputs):
            _, (hidden, _) = self.lstm(self.embedding(inputs))
            hidden = ops.concat((hidden[-1, :, :],), axis=1)
            return self.sigmoid(self.fc(hidden)).squeeze(1)

    net = Classifier()
    tokens = np.random.randint(0, 10, (128, 8)).astype(np.int32)
    labels = (tokens[:, :4].sum(1) > tokens[:, 4:].sum(1)).astype(np.float32)
    optimizer = nn.Adam(net.trainable_params(), learning_rate=0.02)
    loss_fn = nn.BCELoss(reduction="mean")
    grad_fn = ms.value_and_grad(lambda data, label: loss_fn(net(data), label), None, optimizer.parameters)
    losses = []
    for _ in range(20):
        loss, grads = grad_fn(Tensor(tokens), Tensor(labels))
        optimizer(grads)
        losses.append(float(loss))
    return losses, []


def custom_train_step():
    """A TrainOneStepCell of one's own with GradOperation, sensitivity, HyperMap and clipping; returns the losses."""
    scale = C.MultitypeFuncGraph("scale")

    @scale.register("Number", "Tensor")
    def _scale(factor, grad):
        return grad * F.cast(factor, grad.dtype)

    class TrainStep(nn.TrainOneStepCell):
        def __init__(self, network, optimizer, sens=4.0):
            super().__init__(network, optimizer, sens)
            self.hyper_map = C.HyperMap()
            self.fill = P.Fill()

        def construct(self, data, label):
            loss = self.network(data, label)
            sens = self.fill(loss.dtype, loss.shape, self.sens)
            grads = self.grad(self.network, self.weights)(data, label, sens)
            grads = self.hyper_map(F.partial(scale, 1 / self.sens), grads)
            grads = ops.clip_by_global_norm(grads, 1.0)
            loss = F.depend(loss, self.optimizer(grads))
            return loss

    class WithLoss(nn.Cell):
        def __init__(self, backbone):
            super().__init__(auto_prefix=False)
            self.backbone = backbone

        def construct(self, data, label):
            return ops.mse_loss(self.backbone(data), label)

    net = nn.SequentialCell(nn.Dense(3, 16), nn.Tanh(), nn.Dense(16, 1))
    x = np.random.normal(size=(64, 3)).astype(np.float32)
    y = (x[:, :1] * x[:, 1:2]).astype(np.float32)
    groups = [{"params": [p for p in net.trainable_params() if "bias" in p.name], "weight_decay": 0.0, "lr": 0.05}]
    groups += [{"params": [p for p in net.trainable_params() if "bias" not in p.name]}]
    optimizer = nn.AdamWeightDecay(groups, learning_rate=0.02, weight_decay=0.001)
    step = TrainStep(WithLoss(net), optimizer)
    step.set_train()
    return [float(step(Tensor(x), Tensor(y)).asnumpy()) for _ in range(40)], []


def grad_operation():
    """Gradients of a cell by inputs and weights, first and second order; returns numbers to be compared."""

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.matmul = P.MatMul()
            self.z = Parameter(Tensor(np.array([1.5], np.float32)), name="z")

        def construct(self, x, y):
            return self.matmul(x * self.z, y)

    class GradNet(nn.Cell):
        def __init__(self, net, **options):
            super().__init__()
            self.net = net
            self.params = ParameterTuple(net.trainable_params())
            self.grad_op = C.GradOperation(**options)

        def construct(self, x, y):
            if self.grad_op.get_by_list:
                return self.grad_op(self.net, self.params)(x, y)
            return self.grad_op(self.net)(x, y)

    x = Tensor([[0.5, 0.6, 0.4], [1.2, 1.3, 1.1]], dtype=ms.float32)
    y = Tensor([[0.01, 0.3, 1.1], [0.1, 0.2, 1.3], [2.1, 1.2, 3.3]], dtype=ms.float32)
    net = Net()
    found = [GradNet(net)(x, y), *GradNet(net, get_all=True)(x, y), *GradNet(net, get_by_list=True)(x, y)]
    inputs, weights = GradNet(net, get_all=True, get_by_list=True)(x, y)
    found += [*inputs, *weights]

    class Sin(nn.Cell):
        def construct(self, x):
            return ops.sin(x)

    class Grad(nn.Cell):
        def __init__(self, network):
            super().__init__()
            self.grad, self.network = ops.GradOperation(), network

        def construct(self, x):
            return self.grad(self.network)(x)

    found += [Grad(Sin())(Tensor([0.3])), Grad(Grad(Sin()))(Tensor([0.3])), ms.grad(ms.grad(ops.sin))(Tensor(0.3))]
    return [n for f in found for n in f.asnumpy().reshape(-1).tolist()], []


def control_flow():
    """`if`, `for`, `while` and lists on Python values in construct, a jitted function; returns the losses."""

    class Net(nn.Cell):
        def __init__(self, depth, wide):
            super().__init__()
            self.depth, self.wide = depth, wide
            self.layers = nn.CellList([nn.Dense(4, 4) for _ in range(depth)])
            self.head = nn.Dense(8 if wide else 4, 1)

        def construct(self, x, flip=False):
            parts = []
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if i % 2 == 0:
                    x = ops.tanh(x)
                elif i == 1:
                    x = ops.relu(x) + 0.1 * x
                parts.append(x)
            while len(parts) > 2:
                parts.pop(0)
            x = ops.concat(tuple(parts), 1) if self.wide else parts[-1]
            if flip:
                x = -x
            return self.head(x)

    @ms.jit
    def distance(a, b, power):
        total = a - b
        for _ in range(power - 1):
            total = total * (a - b)
        return total.mean()

    x = Tensor(np.random.normal(size=(32, 4)).astype(np.float32))
    y = Tensor(np.random.normal(size=(32, 1)).astype(np.float32))
    losses = []
    for depth, wide in ((3, True), (2, False)):
        net = Net(depth, wide)
        optimizer = nn.RMSProp(net.trainable_params(), 0.01, centered=wide, momentum=0.5)
        step = ms.value_and_grad(lambda a, b, net=net: distance(net(a), b, 2), None, optimizer.parameters)
        for _ in range(15):
            loss, grads = step(x, y)
            optimizer(grads)
            losses.append(float(loss))
        assert not np.allclose(net(x, True).asnumpy(), net(x).asnumpy())
    return losses, [losses[14] / losses[0], losses[-1] / losses[15]]


def user_optimizer():
    """An optimiser of one's own from `nn.Optimizer`, a schedule, dropout; returns the losses."""

    class Lookahead(nn.Optimizer):
        def __init__(self, params, learning_rate, momentum=0.9):
            super().__init__(learning_rate, params)
            self.momentum = Parameter(Tensor(momentum, ms.float32), name="momentum")
            self.moments = self.parameters.clone(prefix="moments", init="zeros")

        def construct(self, gradients):
            lr = self.get_lr()
            params = self.parameters
            for i in range(len(params)):
                ops.assign(self.moments[i], self.moments[i] * self.momentum + gradients[i])
                ops.assign(params[i], params[i] - self.moments[i] * lr)
            return params

    net = nn.SequentialCell([nn.Dense(2, 32, activation="relu"), nn.Dropout(p=0.1), nn.Dense(32, 1)])
    x = np.random.normal(size=(64, 2)).astype(np.float32)
    data = (Tensor(x), Tensor(np.abs(x[:, :1] - x[:, 1:])))
    optimizer = Lookahead(net.trainable_params(), 0.05)
    net_with_loss = nn.WithLossCell(net, nn.MSELoss())
    step = nn.TrainOneStepCell(net_with_loss, optimizer)
    step.set_train()
    losses = [float(step(*data)) for _ in range(30)]
    sgd = nn.SGD(net.trainable_params(), nn.ExponentialDecayLR(0.05, 0.5, 10), momentum=0.9, nesterov=True)
    step = nn.TrainOneStepCell(net_with_loss, sgd).set_train()
    return losses + [float(step(*data)) for _ in range(10)], [float(sgd.get_lr())]
