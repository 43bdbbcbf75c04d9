# Everything sets itself up: a Python from 3.11 on and make are all it takes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.DEFAULT_GOAL := help
# Tests start hundreds of interpreters, which should not compile everything anew.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo test check style types imports generated compiled bench generate format lock kill power cuts linear isolation machine feed lag events duplicates pgbouncer clean

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(READY)  ## processes share a counter and an inventory; one is killed; the sums are right
	@$(BIN)/python -m holdfast.demo

# Many tests wait for a disk or a server: four workers keep two processors busy. tests/conftest.py
# puts the long modules first.
test: $(READY)  ## everything: the gate, then all tests against real servers
	@$(MAKE) --no-print-directory --jobs=2 check compiled
	$(BIN)/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder

check: types style imports generated  ## lint, types, import contracts, generated code, schemas

types: $(READY)
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

imports: $(READY)
	$(BIN)/lint-imports --no-logo

generated: $(READY)
	$(BIN)/python -m tools.generate_sync --check
	$(BIN)/python -m tools.dump_schema --check
	$(BIN)/python -m tools.capability_table --check

# All workers load the same modules: compiled once, beside mypy, instead of by each of them. What
# cannot be loaded is told by the run that follows.
compiled: $(READY)
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true

bench: $(READY)  ## compare with raw drivers and peers; prints tables
	$(BIN)/python -m bench cells
	$(BIN)/python -m bench records
	$(BIN)/python -m bench events

generate: $(READY)  ## write sync/, schema.sql and the capability table anew
	$(BIN)/python -m tools.generate_sync
	$(BIN)/python -m tools.dump_schema
	$(BIN)/python -m tools.capability_table

format: $(READY)  ## put the code into its form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# For every Python and system that we support, not for the one that writes it.
lock: $(READY)  ## choose the newest versions and write requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--extra postgres --extra redis --extra nats --extra claimcheck --extra eventsourcing \
		--extra testing --extra demo --extra dev --output-file requirements.lock pyproject.toml

kill: $(READY)  ## 10,000 kills on SQLite, 1,000 on each server
	HOLDFAST_KILLS=10000 $(BIN)/python -m pytest -s -k "kill or early" \
		tests/crash tests/redis/test_outages.py tests/nats/test_durability.py

power: $(READY)  ## 100,000 power losses
	HOLDFAST_POWER_TRIALS=100000 $(BIN)/python -m pytest tests/faults/test_power_loss.py -s

cuts: $(READY)  ## 5,000 connections cut in the middle of a call
	HOLDFAST_CUTS=5000 $(BIN)/python -m pytest tests/faults/test_postgres_faults.py tests/faults/test_postgres_branches.py -s

linear: $(READY)  ## 200 histories of 10,000 operations on each engine
	HOLDFAST_HISTORIES=200 HOLDFAST_HISTORY_OPS=10000 \
		$(BIN)/python -m pytest tests/races/test_linearizability.py -s

isolation: $(READY)  ## 200 histories of 3,000 sessions on each engine
	HOLDFAST_SESSION_HISTORIES=200 HOLDFAST_SESSIONS=3000 \
		$(BIN)/python -m pytest tests/races/test_isolation.py -s

machine: $(READY)  ## 20,000 random programs of 100 steps on each engine
	HOLDFAST_EXAMPLES=20000 $(BIN)/python -m pytest tests/machine -s

feed: $(READY)  ## a million changes followed on each engine
	HOLDFAST_CHANGES=1000000 $(BIN)/python -m pytest tests/feed/test_feed.py -s

lag: $(READY)  ## how far the projector is behind while 500 events come each second
	$(BIN)/python -m tests.projector.lag

events: $(READY)  ## 16 writers and readers of the feed, 2,000 calls of each writer
	HOLDFAST_APPENDS=2000 $(BIN)/python -m pytest tests/races/test_events.py -s

duplicates: $(READY)  ## a million appends of known events on each SQL engine
	HOLDFAST_DUPLICATES=1000000 $(BIN)/python -m pytest tests/races/test_duplicates.py -s -k "sqlite or postgres"

pgbouncer: $(READY)  ## the conformance suite and faults through a PgBouncer; needs the program
	HOLDFAST_NEED_PGBOUNCER=1 $(BIN)/python -m pytest -n 2 --dist loadscope \
		tests/conformance/test_pgbouncer.py tests/faults/test_pgbouncer.py

clean:  ## remove the environment and what tests left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The lock file names every package with its hash, so everyone has the same environment.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Holdfast needs Python 3.11 or newer; try: make PYTHON=python3.11"; exit 1; }
	@echo "Setting up $(VENV) (about a minute, once) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-compile -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)
