# `make train` and `make test` are all you need; both set up .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test test-slow test-lowest test-foreign format docs results dist check-dist clean

train: .venv/installed
	$(BIN)/svsl train planar-reacher --components 40 --out runs/first --overwrite

test: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pytest -n auto

test-slow: .venv/installed-dev
	$(BIN)/pytest -m slow

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# docs/ as a website that opens from disk: site/index.html
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# the tables and figures of the pages, from docs/results/data
results: .venv/installed
	$(BIN)/python tools/results.py make

# the wheel is built from the sdist, so a file missing from one is missing from both
dist: .venv/installed-dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

# installs the wheel in a separate environment and uses it from another folder: it must not need this checkout
check-dist: dist
	rm -rf build/check-dist
	$(PYTHON) -m venv build/check-dist
	build/check-dist/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/check-dist && env -u PYTHONPATH bin/python ../../tools/first_minute.py

# the lowest versions that pyproject.toml allows, without the extras; their warnings about newer indirect ones do not count
test-lowest:
	rm -rf build/lowest
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/lowest/bin/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct \
		--editable . 'pytest>=8.2' 'hypothesis>=6.100'
	build/lowest/bin/python -m pytest -o filterwarnings= $(addprefix tests/,model simulation tasks evaluation runs cli/test_cli.py)

# the examples with environments that need an older MuJoCo than the other tests use
test-foreign:
	rm -rf build/foreign
	$(PYTHON) -m venv build/foreign
	build/foreign/bin/python -m pip install --quiet --disable-pip-version-check --editable . \
		'pytest>=8.2' 'gymnasium[mujoco]>=1.0' gymnasium-robotics 'mujoco<3.9'
	build/foreign/bin/python -m pytest -o filterwarnings= tests/project/test_examples.py

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
	rm -rf .venv build dist site
