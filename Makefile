# The verbs of this repository. `make help` lists them; CI calls `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/pytest

.PHONY: help
help: ## list the verbs
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | sort | awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'

$(READY): requirements.lock requirements/bootstrap.lock pyproject.toml
	@echo "== python environment in $(VENV)"
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or later is needed, {v.major}.{v.minor} was found: run make with PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "the venv module is missing: install python3-venv (Debian) or your system's equivalent"; exit 1; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock
	@$(BIN)/uv pip sync -q --require-hashes --python $(BIN)/python requirements.lock requirements/bootstrap.lock
	@$(BIN)/uv pip install -q --no-deps --no-build-isolation --python $(BIN)/python -e .
	@touch $@

.PHONY: venv
venv: $(READY) ## the development environment in .venv

include make/bed.mk
include make/bench.mk
include make/demo.mk

## --- checks and tests

.PHONY: fmt
fmt: $(READY) ## format the code
	@$(BIN)/ruff format -q . && $(BIN)/ruff check -q --fix . || true

.PHONY: check
check: $(READY) ## format, lint, types, import contracts, generated files, requirements (no services needed)
	@$(BIN)/ruff format --check -q . || { echo "run: make fmt"; exit 1; }
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@MYPYPATH=runtime:operator:tests:bench:bench/peers $(BIN)/mypy scripts bench
	@$(BIN)/lint-imports --no-cache
	@$(MAKE) -s gen-check
	@$(BIN)/python scripts/spec.py --check --proofs
	@$(BIN)/python scripts/sizes.py

.PHONY: gen
gen: $(READY) ## write all generated files
	@$(BIN)/python -m dockwork_operator.models.generate
	@$(BIN)/python scripts/job_states.py
	@$(BIN)/python scripts/spec.py --proofs > /dev/null

.PHONY: gen-check
gen-check: $(READY)
	@$(BIN)/python -m dockwork_operator.models.generate --check
	@$(BIN)/python scripts/job_states.py --check

.PHONY: spec
spec: $(READY) ## first-stage requirements that no test covers, per chapter
	@$(BIN)/python scripts/spec.py

.PHONY: test-unit
test-unit: $(READY) ## decisions, without I/O: seconds
	@$(PYTEST) tests/unit -q

.PHONY: test-store
test-store: $(READY) ## transitions and workers on a real Redis
	@$(PYTEST) tests/store -q

.PHONY: test-reconcile
test-reconcile: $(READY) binaries ## the operator against a real API server and a real Redis
	@$(PYTEST) tests/reconcile -q

.PHONY: test-cluster
test-cluster: $(READY) binaries ## the CRDs and the charts against a real API server
	@$(PYTEST) tests/cluster -q

.PHONY: test-e2e
test-e2e: $(READY) cluster images ## real pods on a kind cluster
	@$(PYTEST) tests/e2e -q -p no:randomly

.PHONY: test
test: $(READY) ## everything that CI runs
	@bash scripts/test.sh

.PHONY: test-full
test-full: $(READY) ## make test, and the long tests that CI leaves out
	@DOCKWORK_TEST_FULL=1 bash scripts/test.sh

.PHONY: lock
lock: $(READY) ## renew the lock files (hashes, no index addresses)
	@bash scripts/lock.sh

.PHONY: clean
clean: ## remove what the verbs left in this checkout (not the cache)
	@rm -rf $(VENV) dist build demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
