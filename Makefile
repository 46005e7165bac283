# `make` prints the targets. Needs python3 (3.11 to 3.13), make and a package index that pip can reach.
PYTHON ?= python3
MODE ?= graph
# The CPU-only torch where pip is told of a source that has it; else the index's default build, CUDA included.
TORCH ?= torch==2.13.0+cpu
PY = .venv/bin/python
PIP = pip install -q --disable-pip-version-check
.DEFAULT_GOAL := help
.PHONY: help venv demo lint test test-all faults differential bench bench-ops bench-peers gpu-check docs clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

venv: .venv/stamp ## the virtual environment in .venv, made again when pyproject.toml changes

.venv/stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
	  { echo 'Treadle needs Python 3.11 to 3.13: make PYTHON=python3.12 $(MAKECMDGOALS)'; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/$(PIP) -e '.[all]'
	touch $@

demo: venv ## train on handwritten digits; MODE=graph (default) or MODE=eager
	$(PY) examples/digits.py --mode $(MODE)

lint: venv ## ruff on everything, mypy --strict on the package
	.venv/bin/ruff check .
	.venv/bin/mypy

test: lint ## linters, types and all tests but the slow ones
	$(PY) -m pytest -q -m 'not slow and not device' -n auto --maxprocesses 4 --dist worksteal

test-all: lint ## linters, types and every test that this machine can run
	$(PY) -m pytest -q -n auto --maxprocesses 4 --dist worksteal

differential: venv ## 3,300 random calls beside PyTorch and JAX, into docs/differential.md (make bench-peers first)
	PYTHONPATH=. $(PY) -m tests.differential.run

faults: venv ## plant mistakes in rules and transforms: the tests must notice each
	PYTHONPATH=. $(PY) -m tests.faults.run

bench: venv ## ratios to the peers that are there, into bench/results/*.json
	$(PY) bench/run.py

bench-ops: venv ## single ops beside the peers, and beside what the machine can do at most
	$(PY) bench/op_sweeps.py

PEERS = onnxruntime openvino mindspore
bench-peers: .venv-peers/stamp $(PEERS:%=.venv-peers-%/stamp) ## the peers' environments in .venv-peers*

# A peer that the package index has no file for on this machine is left out; the benches say so.
.venv-peers-%/stamp: Makefile
	$(PYTHON) -m venv .venv-peers-$*
	.venv-peers-$*/bin/$(PIP) numpy $* || { echo 'peers: no $* here, left out'; rm -rf .venv-peers-$*/bin/python; }
	touch $@

.venv-peers/stamp: Makefile
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/$(PIP) '$(TORCH)' || \
	  { echo 'no $(TORCH) here: installing the default torch, about 3 GB with CUDA'; .venv-peers/bin/$(PIP) torch; }
	.venv-peers/bin/$(PIP) numpy jax onnx onnxscript
	.venv-peers/bin/python -c 'import jax, torch; print("peers: torch", torch.__version__, "jax", jax.__version__)'
	touch $@

gpu-check: venv ## run op samples, demo and comparison on a GPU; without one, say so
	$(PY) bench/gpu_check.py

docs: venv ## write the generated pages of docs/ again
	$(PY) -m treadle.base.flags > docs/flags.md
	$(PY) -m treadle.ops._document > docs/ops.md
	$(PY) bench/page.py > docs/bench.md
	$(PY) bench/page.py --readme
	PYTHONPATH=. $(PY) -m tests.mistakes.page > docs/mistakes.md
	$(PY) -m treadle.compat.mindspore._document > docs/mindspore.md

clean: ## remove environments, caches and what runs have written
	rm -rf .venv .venv-peers .venv-peers-* build dist runs src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
