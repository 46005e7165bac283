"""Run the cases of new_cases.py in PyTorch and write new_golden.json. Needs torch, which the tests do not."""

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.nn import new_cases
from tests.nn.make_more_golden import results


def main():
    lines = [f"  {json.dumps(name)}: {json.dumps(fact)}" for name, fact in results(new_cases.CASES)]
    version = json.dumps(torch.__version__.partition("+")[0])
    text = f'{{\n "torch": {version},\n "cases": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    (Path(__file__).parent / "new_golden.json").write_text(text)


if __name__ == "__main__":
    main()
