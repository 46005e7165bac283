"""The package of ops: every family is imported, names lead to ops, modules and ops do not share names."""

import pkgutil

import pytest

from treadle import ops


def test_every_op_is_a_name_of_the_package():
    names = {op.name for op in vars(ops).values() if isinstance(op, ops.Op)}
    assert names == set(ops.OPS)


def test_no_family_has_the_name_of_an_op():
    assert not {m.name for m in pkgutil.iter_modules(ops.__path__)} & set(ops.OPS)


def test_an_unknown_op_is_named():
    with pytest.raises(AttributeError, match="no op 'tanhh'"):
        ops.tanhh
