"""`raise` in a branch on a tensor: what the branch does before, and the tensors in the message, are the program's."""

import numpy as np
import pytest

import treadle as td


def checked(x):
    count = [0]
    for i in range(3):
        if x[i] > 5:
            print("bad", x[i])
            count[0] += 1
            raise ValueError(f"too large: {x[i]:.1f} at {i}", x.sum())
        count[0] += 1
    return x * 2, count


@pytest.mark.parametrize("run", [checked, td.jit(checked)], ids=["eager", "jit"])
def test_prints_and_messages_of_the_branch(run, capsys):
    result, count = run(td.Tensor(np.array([1.0, 2, 3])))
    assert result.tolist() == [2, 4, 6]
    assert count == [3]
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="too large") as caught:
        run(td.Tensor(np.array([1.0, 9, 3])))
    text, total = caught.value.args
    assert (text, float(total)) == ("too large: 9.0 at 1", 13)
    assert capsys.readouterr().out == "bad Tensor(9., dtype=float64)\n"
