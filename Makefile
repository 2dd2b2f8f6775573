# Penstock. `make` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
export PYTHON
BIN := .venv/bin

.PHONY: help up demo test fuzz check lint format reference pictures docs wheel matrix pin clean setup setup-guide setup-dev \
	setup-bench bench-broker bench-pipeline bench-series bench-runqueue bench-overload bench-dlq bench-selfmetrics \
	bench-alerts bench-console bench-rest bench-horizon bench-scale chaos soak

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

up: setup setup-guide ## install and run the whole platform here; Ctrl-C stops it and keeps the data
	@exec $(BIN)/penstock up

demo: setup setup-guide ## the same with a light load, so that the console shows live data
	@exec $(BIN)/penstock up --demo

test: setup-dev ## install and run all tests; ARGS="-k pop" selects some
	@for program in chromium pgbouncer haproxy; do tools/test_program.sh $$program; done
	@# Tests start many Python processes: all but the first read compiled bytecode, even where writing it is switched off.
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --durations 15 --durations-min 1 $(or $(ARGS),-n 4)

fuzz: setup-dev ## try generated inputs on every parser and route; ARGS="--minutes 10 --seed 7"
	@$(BIN)/python -m tests.fuzz $(ARGS)

check: lint test ## what CI runs: format, lint, types and layers, then the tests

lint: setup-dev ## check format, lint, strict types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev ## format the code and apply safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reference: setup-dev ## regenerate the reference pages, the tables of fault runs and the Grafana dashboard
	@$(BIN)/python tools/reference.py

pictures: setup-dev ## take the pictures of the README from a running platform
	@tools/test_program.sh chromium
	@$(BIN)/python tools/pictures.py $(ARGS)

docs: setup ## build the documentation site that the broker serves at /docs/guide, and check all its links
	@$(BIN)/python tools/guide/build_guide.py --strict

wheel: setup setup-guide ## build the wheel in dist/, which pip installs elsewhere; needs no network
	@rm -rf build dist
	@$(BIN)/python -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build
	@ls dist/*.whl

matrix: setup-dev ## run the tests on every installed Python 3.11-3.14 and PostgreSQL 14-18; ARGS="-k pop" selects some
	@$(BIN)/python tools/matrix.py $(ARGS)

pin: setup-dev ## pin the newest allowed version of every dependency in the requirements files
	@$(BIN)/python tools/pin.py

chaos: setup-dev ## inject faults under load and check every guarantee; ARGS="--seed 7 --minutes 30"
	@$(BIN)/python -m chaos $(ARGS)

soak: setup-dev ## run at half capacity for 30 minutes and check that nothing grows; ARGS="--minutes 60 --seed 7"
	@$(BIN)/python -m soak $(ARGS)

bench-broker: setup-bench ## compare the broker with its peers; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.broker $(ARGS)

bench-pipeline: setup-bench ## compare the pipeline with a plain consumer; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.pipeline $(ARGS)

bench-series: setup-bench ## measure series queries over 35 million rows; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.series $(ARGS)

bench-runqueue: setup-bench ## compare run queues with their peers; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.runqueue $(ARGS)

bench-overload: setup-bench ## measure overload with and without load management; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.overload $(ARGS)

bench-dlq: setup-bench ## measure 5 million dead letters; ARGS="--rows 23000000" for more, "--quick" for a smoke run
	@$(BIN)/python -m bench.dlq $(ARGS)

bench-selfmetrics: setup-bench ## measure the cost of the broker's own metrics; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.selfmetrics $(ARGS)

bench-horizon: setup-bench ## measure queues while a transaction holds the vacuum horizon; ARGS="--minutes 60" or "--quick"
	@$(BIN)/python -m bench.horizon $(ARGS)

bench-alerts: setup-bench ## measure evaluations of 1,000 alert rules over 1,000 queues; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.alerts $(ARGS)

bench-rest: setup-bench ## measure memory, CPU, start and disk of an idle platform; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.rest $(ARGS)

bench-scale: setup-bench ## measure 100,000 queues, 1 million partitions, 50 million messages; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.scale $(ARGS)

bench-console: setup-bench ## measure the first page and the frames of 100 queues with charts; ARGS="--quick" for a smoke run
	@tools/test_program.sh chromium
	@$(BIN)/python -m bench.console $(ARGS)

setup:
	@tools/setup.sh requirements-docs.txt

setup-guide:
	@$(BIN)/python tools/guide/build_guide.py --if-changed || echo "Guide: not built. The platform runs without it; \`make docs\` says why." >&2

setup-dev:
	@tools/setup.sh requirements-dev.txt

setup-bench:
	@tools/setup.sh requirements-bench.txt

clean: ## remove the virtual environment, the data of the embedded servers, the guide and the wheel
	rm -rf .venv .penstock build dist src/penstock/console/guide
