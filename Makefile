# Penstock. `make` lists what there is.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
export PYTHON
BIN := .venv/bin

.PHONY: help up demo test check format reference bench-broker bench-pipeline bench-series bench-runqueue bench-overload bench-dlq setup setup-dev setup-bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

up: setup ## set up and run the whole platform here; Ctrl-C stops it
	@exec $(BIN)/penstock up

demo: setup ## the same, with a gentle load running so that the page is alive
	@exec $(BIN)/penstock up --demo

test: setup-dev ## set up and run all tests; ARGS="-k pop" for some
	@tools/chromium.sh
	@$(BIN)/python -m pytest $(or $(ARGS),-n 2 --dist loadfile)

check: setup-dev ## format, lint, strict types and import layers, then the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test

format: setup-dev ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reference: setup-dev ## rewrite the reference pages that follow from the code
	@$(BIN)/python tools/reference.py

bench-broker: setup-bench ## measure the broker beside its peers; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.broker $(ARGS)

bench-pipeline: setup-bench ## measure the pipeline beside a plain consumer; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.pipeline $(ARGS)

bench-series: setup-bench ## measure reading series over 35 million rows; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.series $(ARGS)

bench-runqueue: setup-bench ## measure run queues beside their peers; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.runqueue $(ARGS)

bench-overload: setup-bench ## measure what overload does, with load management and without; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.overload $(ARGS)

bench-dlq: setup-bench ## measure dead letters at 5 million; ARGS="--rows 23000000" for more, "--quick" for a smoke run
	@$(BIN)/python -m bench.dlq $(ARGS)

bench-selfmetrics: setup-bench ## measure what it costs a broker to measure itself; ARGS="--quick" for a smoke run
	@$(BIN)/python -m bench.selfmetrics $(ARGS)

setup:
	@tools/setup.sh requirements.txt

setup-dev:
	@tools/setup.sh requirements-dev.txt

setup-bench:
	@tools/setup.sh requirements-bench.txt

clean: ## remove the environment and the embedded servers' data
	rm -rf .venv .penstock
