"""Run the cases of metric_cases.py in scikit-learn and write golden.json. The tests do not need scikit-learn."""

import json
import sys
from pathlib import Path

import numpy as np
import sklearn
from sklearn import metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.train import metric_cases


def plain(value):
    if isinstance(value, tuple):
        return [[None if np.isinf(x) else float(f"{x:.9g}") for x in part] for part in value]
    return float(f"{value:.9g}")


def main():
    lines = []
    for name, (_, theirs, prediction, target) in metric_cases.CASES.items():
        lines.append(f"  {json.dumps(name)}: {json.dumps(plain(theirs(metrics, prediction, target)))}")
    text = f'{{\n "scikit-learn": {json.dumps(sklearn.__version__)},\n "cases": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    (Path(__file__).parent / "golden.json").write_text(text)


if __name__ == "__main__":
    main()
