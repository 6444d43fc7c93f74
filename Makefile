# The one entry point for people and CI.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ONLY ?=
KEEP ?=
PRESET ?=

.PHONY: help venv packages-demo packages-test lock demo test test-matrix lint docs bench reload-test clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: packages-demo venv ## run the main job on an embedded cluster, under a minute (KEEP=1 stays up; PRESET=domains|kube2lb|kubefigurator|configmap|hosts)
	@$(BIN)/python -m tests.demo $(if $(KEEP),--keep) $(if $(PRESET),--preset=$(PRESET))

test: packages-test venv ## the whole suite
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-matrix: venv ## the live tests against HAProxy 2.6, 3.0, 3.2 and 3.4 (ONLY=3.4 for one)
	@PYTHON=$(PYTHON) tests/packages.sh mmdebstrap=mmdebstrap unshare=util-linux
	@$(BIN)/python -m tests.matrix $(if $(ONLY),--only=$(ONLY))

venv: packages-demo $(VENV)/.stamp ## build .venv from the hashed lock

packages-demo:
	@PYTHON=$(PYTHON) tests/packages.sh haproxy=haproxy

packages-test:
	@PYTHON=$(PYTHON) tests/packages.sh haproxy=haproxy caddy=caddy nginx=nginx kubectl=kubernetes-client systemd-analyze=systemd ps=procps shellcheck=shellcheck etcd=etcd-server etcdctl=etcd-client

$(VENV)/.stamp: requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

docs: venv ## write the generated references anew
	$(BIN)/pyconfd settings --markdown > docs/settings.md

lint: venv ## lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: packages-demo venv ## measure; one JSON object a line (ONLY=name for one figure)
	@$(BIN)/python -m tests.bench $(ONLY)

reload-test: packages-demo venv ## a hundred reloads under load
	PYCONFD_TEST_RELOADS=100 $(BIN)/python -m pytest -q tests/haproxy/test_reloads_under_load.py

lock: ## write the hashed locks anew from pyproject.toml (needs uv)
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes pyproject.toml --group build -o requirements.lock
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes pyproject.toml --group dev -o requirements-dev.lock

clean: ## remove what make built
	rm -rf $(VENV) .cache dist
