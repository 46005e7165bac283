"""Operators and methods of `Tensor` that are made of ops (being written)."""


class TensorMethods:
    """Mixed into Tensor."""

    __slots__ = ()
