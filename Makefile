# `make demo` and `make test` need nothing but Python 3.11 or newer: they build .venv themselves.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
ALL_INSTALLED := .venv/installed-extra

.PHONY: demo test test-all bench claims lint docs tutorials dist clean

demo: $(INSTALLED)
	$(BIN)/spacetime demo

# Two processes, as every test is single-threaded; the tests of a file share what they prepare.
PYTEST := $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: lint
	$(PYTEST) -m "not slow"

test-all: lint docs $(ALL_INSTALLED)
	$(PYTEST)

bench: $(ALL_INSTALLED)
	$(BIN)/spacetime bench

# The numbers of the README and the docs, said against found.
claims: $(INSTALLED)
	$(BIN)/python -m benchmarks.claims

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(INSTALLED)
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build
	@echo "docs/_build/index.html"

dist: $(INSTALLED)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist > /dev/null
	@ls dist/*

# Runs the notebooks of the docs, and keeps what they print and draw.
tutorials: $(ALL_INSTALLED)
	$(BIN)/python docs/notebooks.py

$(INSTALLED): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --requirement requirements.lock
	$(BIN)/python -m compileall -q -j 2 .venv/lib > /dev/null || true  # on two cores, as pip does on one
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# The heavier packages of the slow tests.
$(ALL_INSTALLED): $(INSTALLED) requirements-extra.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements-extra.lock
	touch $@

clean:
	rm -rf .venv docs/_build dist
