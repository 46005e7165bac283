"""What the functions of the corpus use: classes, objects and containers."""

import dataclasses
import enum
import typing

import treadle as td
from treadle import nn

PAIRS = ((2.0,), (-3.0,), (0.5,))
VECTORS = (([1.0, 2.0],), ([-1.0, 0.5],), ([4.0, 4.0],))


class Point:
    """Two tensors."""

    def __init__(self, x, y):
        self.x = x
        self.y = y if y is not None else x

    def scaled(self, k):
        if self.x > 0:
            return Point(self.x * k, self.y)
        return Point(self.x, self.y * k)

    def larger(this):
        return this.x if this.x > this.y else this.y

    @property
    def size(self):
        return self.x if self.x > 0 else -self.x

    @staticmethod
    def clip(x):
        return x if x < 1 else x * 0 + 1

    @classmethod
    def twice(cls, x):
        if x > 0:
            return cls(x * 2, x)
        return cls(x, x * 2)

    def __add__(self, other):
        return Point(self.x + other.x, self.y - other.y)

    def __getitem__(self, i):
        return self.x if i == 0 else self.y

    def __len__(self):
        return 2

    def __iter__(self):
        yield self.x
        yield self.y

    def __contains__(self, k):
        return k == 1

    def __call__(self, x):
        if x > self.x:
            return self.x
        return x


class Private:
    """Private names."""

    def __init__(self, x):
        self.__x = x

    def __double(self):
        return self.__x * 2 if self.__x > 0 else self.__x

    def get(self):
        __local = self.__double()
        if __local > 1:
            return __local
        return self.__x

    def set(self, x):
        if x > 0:
            self.__x = x * 3
        return self.get()


class Base:
    """A base class."""

    def f(self, x):
        return x * 2 if x > 0 else x

    def g(self, x):
        return self.f(x) + 1


class Derived(Base):
    """A class that calls its base."""

    def f(self, x):
        if x > 1:
            return super().f(x) * 10
        return super().f(x - 1)

    def g(this, x):
        y = super().g(x)
        return y if y > 0 else -y


class Counter:
    """State that changes."""

    def __init__(self, value):
        self.value = value
        self.steps = 0
        self.items = []

    def add(self, x):
        self.steps += 1
        if x > 0:
            self.value = self.value + x
        else:
            self.value = self.value - 2 * x
        return self

    @property
    def half(self):
        return self.value / 2

    @half.setter
    def half(self, x):
        self.value = x * 2


@dataclasses.dataclass
class Pair:
    """A dataclass."""

    a: object
    b: object = 1.0

    def total(self):
        return self.a + self.b if self.a > self.b else self.b


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A frozen dataclass."""

    a: object
    k: int = 2

    def more(self):
        if self.a > 0:
            return dataclasses.replace(self, a=self.a * self.k)
        return self


class Named(typing.NamedTuple):
    """A named tuple."""

    x: object
    y: object

    def larger(self):
        return self.x if self.x > self.y else self.y


class Color(enum.Enum):
    """An enum."""

    RED = 1
    BLUE = 2


class Slots:
    """A class without a dict."""

    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


class Gate(nn.Cell):
    """A cell with branches."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(td.tensor([0.5, -2.0], dtype=td.float64))
        self.k = 2

    def forward(self, x):
        y = self.w * x
        if y.sum() > 0:
            return y * self.k
        for i in range(3):
            y = y - i
            if y.sum() < -8:
                break
        return y


class Steps(nn.Cell):
    """A cell with a loop and a buffer."""

    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.count = td.tensor(0.0, dtype=td.float64)

    def forward(this, x):
        while (x * x).sum() < 50:
            x = x * 2 + this.gate(x).sum() * 0.1
        if x.sum() > 0:
            this.count.assign(this.count + 1)
        else:
            this.count.assign(this.count - 10)
        return x
