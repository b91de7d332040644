# `make` lists what can be run. Everything is installed into .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test test-shared test-slow check bench docs clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## install everything into .venv

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python 3.11 or newer is needed, {sys.executable} is {sys.version.split()[0]}; set PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

run: setup ## train an MLP on digits, compile it, run it on the emulated board
	@$(BIN)/mlsdk run digits

test: setup ## the tests (under 10 minutes on 2 cores)
	$(BIN)/python -m pytest -n 2 -m "not slow and not shared"

test-shared: setup ## the store's tests on a PostgreSQL and an S3 server
	$(BIN)/python -m pytest -n 2 -m shared tests/store

test-slow: setup ## the long tests too, with many more random examples
	MLSDK_EXAMPLES=150 $(BIN)/python -m pytest -n 2

check: setup ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup ## measure; results as a table and in bench/results/
	$(BIN)/python -m bench

docs: setup ## write the pages that come from tables
	$(BIN)/python -m mlsdk.device.isa.manual > docs/isa.md
	$(BIN)/python -m mlsdk.manual > docs/api.md
	$(BIN)/python -m bench.operators_page > docs/operators.md
	$(BIN)/python -m mlsdk.tasks.option_page > docs/options.md
	$(BIN)/python tests/pipeline/emit/conformance_page.py > docs/conformance.md

clean: ## remove .venv and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
