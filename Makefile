# `make pilot` and `make test` are all a fresh machine needs: Python 3.11 or newer, make, a package index.
# Choose another interpreter with `make PYTHON=python3.12 …`.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt
# One worker a core; a file's tests stay together, since some share what they made.
# A worker that dies ends the suite: its tests would wait for another in vain.
CORES := -n auto --dist loadfile --max-worker-restart=0
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup pilot test check faults check-format check-lint check-types check-layers check-tests check-wheel \
	format bench clean
# One thing after the other: readable output, and two cores are not many.
.NOTPARALLEL:

help:
	@echo "make pilot    rehearse the main job on the embedded corpus (sets up the environment first)"
	@echo "make test     run the tests that take little time"
	@echo "make check    everything CI checks: format, lint, types, layers, all tests, the built package"
	@echo "make faults   break everything in every way, not only in the share of make check (hours)"
	@echo "make format   rewrite the code in its standard form"
	@echo "make bench    measure against the floors and peers"
	@echo "make clean    remove caches and builds (not the environment, not your runs)"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@echo "==> environment ($(VENV))"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else \
		"Python 3.11 or newer is needed; this is %d.%d. Name another: make PYTHON=python3.12 …" % sys.version_info[:2])'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@# The build back end comes from the pinned set too, hence no isolated build.
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

pilot: $(STAMP)
	@$(PY) -P -m ledger pilot

test: $(STAMP)
	@echo "==> tests (without the slow ones)"
	@$(PY) -m pytest -q $(CORES) -m "not slow"

faults: $(STAMP)
	@echo "==> every fault"
	@FAULTS=all $(PY) -m pytest -q $(CORES) --timeout=7200 tests/faults

check: check-format check-lint check-types check-layers check-tests check-wheel
	@echo "==> all checks passed"

check-format: $(STAMP)
	@echo "==> format"
	@$(PY) -m ruff format --check --quiet .

check-lint: $(STAMP)
	@echo "==> lint"
	@$(PY) -m ruff check --quiet .

check-types: $(STAMP)
	@echo "==> types"
	@$(PY) -m mypy --no-error-summary

check-layers: $(STAMP)
	@echo "==> layers"
	@$(VENV)/bin/lint-imports --no-logo

check-tests: $(STAMP)
	@echo "==> tests"
	@$(PY) -m pytest -q $(CORES)

check-wheel: $(STAMP)
	@echo "==> the built package in an empty environment"
	@$(PY) tools/check_wheel.py

format: $(STAMP)
	@$(PY) -m ruff check --quiet --fix-only .
	@$(PY) -m ruff format --quiet .

bench: $(STAMP)
	@$(PY) -P tools/bench

clean:
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find ledger trainer data_prep tests tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
