# A fresh machine needs git, make and Python 3.11+; everything else is made here, once, in $(VENV).
#
#   make quickstart   an agent trains itself on sorting: a table, a learning curve, and a way to watch it play
#   make test         what the gate runs: lint, format, strict types, tests
#   make test-slow    tests that take minutes
#   make bench        throughput figures (printed; they depend on the machine)
#
# Variables: PYTHON (the interpreter to start from), VENV, TORCH (the torch a CPU-only machine installs first),
# TORCH_INDEX (an index with CPU-only wheels, for machines whose default index serves CUDA builds).

VENV ?= .venv
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11 python,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(name))))

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install quickstart test tests test-slow lint types format bench docs clean

help:
	@sed -n 's/^#   make/make/p' Makefile

install: $(STAMP)

# An NVIDIA machine takes the CUDA build that the project file asks for; any other would pull gigabytes it cannot use.
$(STAMP): pyproject.toml Makefile
	@test -n "$(PYTHON)" || { echo "peira needs Python 3.11 or newer; install one, or name it: make PYTHON=/path/to/python"; exit 1; }
	@echo "[1/3] virtual environment in $(VENV) ($$($(PYTHON) --version))"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if nvidia-smi -L >/dev/null 2>&1; then \
		echo "[2/3] NVIDIA GPU found: torch comes with the project"; \
	else \
		echo "[2/3] no NVIDIA GPU: installing $(TORCH) (CPU build; one large download)"; \
		$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)'; \
	fi
	@echo "[3/3] peira and its tools"
	@$(PIP) -e '.[dev]'
	@touch $@

quickstart: $(STAMP)
	@$(BIN)/peira quickstart $(ARGS)

test: lint types tests

tests: $(STAMP)
	@echo "tests"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(ARGS)

test-slow: $(STAMP)
	@OMP_NUM_THREADS=2 $(BIN)/python -m pytest -q -m slow --timeout=7200 $(ARGS)

bench: $(STAMP)
	@for script in tests/bench/bench_*.py; do echo "$$script"; OMP_NUM_THREADS=2 $(BIN)/python $$script || exit 1; done

lint: $(STAMP)
	@echo "lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@echo "types"
	@$(BIN)/mypy

format: $(STAMP)
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# Pages that are written from the code; a test holds that they are in step.
docs: $(STAMP)
	@$(BIN)/python -m peira.training.pages docs

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist
