# Two commands do everything: `make train` and `make test`. Each sets up its own .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test test-slow format clean

train: .venv/installed
	$(BIN)/svsl train planar-reacher --components 40 --out runs/first --overwrite

test: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

test-slow: .venv/installed-dev
	$(BIN)/pytest -m slow

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "svsl needs Python 3.11 or newer; choose one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv
