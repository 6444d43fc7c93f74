# The one entry point for people and CI.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help venv lock test lint demo bench clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(VENV)/.stamp ## build .venv from the hashed lock

$(VENV)/.stamp: requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

lock: ## write the hashed locks anew from pyproject.toml (needs uv)
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes pyproject.toml -o requirements.lock
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes pyproject.toml --group dev -o requirements-dev.lock

lint: venv ## lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: venv ## the whole suite
	$(BIN)/pytest -n 2

clean: ## remove what make built
	rm -rf $(VENV) .cache dist
