# The one entry point for people and CI.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ONLY ?=
KEEP ?=
PRESET ?=
SEED ?= 1
STEPS ?= 10000
SAMPLE ?= 300
SECONDS ?= 60
IMAGE_PACKAGES := packer=packer qemu-img=qemu-utils mmdebstrap=mmdebstrap systemd-nspawn=systemd-container ssh-keygen=openssh-client shellcheck=shellcheck
QEMU_PACKAGES := qemu-system-x86_64=qemu-system-x86 mke2fs=e2fsprogs
SOURCE ?= qemu.lb
PACKER_FLAGS ?=
# Debian's cloud image lets nobody in without these; a machine without KVM is emulated. What PACKER_FLAGS says comes later and wins.
QEMU_FLAGS := -var seed=$(CURDIR)/dist/bake/seed -var ssh_private_key_file=$(CURDIR)/dist/bake/key $(if $(wildcard /dev/kvm),,-var accelerator=tcg)
REPS ?= 20
ROUTES ?= 300
BUSY ?=
LONG_S ?= 60
# Each binary is built again when its module says so; Go fetches the release of itself that go.mod asks for.
GO := CGO_ENABLED=0 GOTOOLCHAIN=auto go
CONFORMANCE := $(addprefix .cache/conformance/,controlplane echo node suite.test gateway-api)
HA_PACKAGES := haproxy=haproxy keepalived=keepalived nft=nftables ip=iproute2 sysctl=procps unshare=util-linux faketime=faketime

.PHONY: help venv move-test move-gateway-test packages-demo packages-bench packages-test packages-ha packages-conformance lock demo test test-matrix size mutants lint docs bench bench-gateway ha-bench reload-test tls-test canary-test explain-test \
	crash-test vip-test conformance fuzz soak dns-soak wheelhouse deb \
	release release-test appliance image image-test image-bench clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: packages-demo venv ## run the main job on an embedded cluster, in seconds (KEEP=1 stays up; PRESET=domains|kube2lb|kubefigurator|configmap|hosts)
	@$(BIN)/python -m tests.demo $(if $(KEEP),--keep) $(if $(PRESET),--preset=$(PRESET))

test: packages-test venv ## the whole suite
	$(BIN)/python -m pytest -n 5

test-matrix: venv ## the live tests against HAProxy 2.6, 3.0, 3.2 and 3.4 (ONLY=3.4 for one)
	@PYTHON=$(PYTHON) tests/packages.sh mmdebstrap=mmdebstrap unshare=util-linux
	@$(BIN)/python -m tests.matrix $(if $(ONLY),--only=$(ONLY))

venv: packages-demo $(VENV)/.stamp ## build .venv from the hashed lock

packages-demo:
	@PYTHON=$(PYTHON) tests/packages.sh haproxy=haproxy

packages-bench:
	@PYTHON=$(PYTHON) tests/packages.sh haproxy=haproxy nginx=nginx wrk=wrk

packages-test:
	@PYTHON=$(PYTHON) tests/packages.sh haproxy=haproxy caddy=caddy nginx=nginx promtool=prometheus chromium=chromium kubectl=kubernetes-client systemd-analyze=systemd ps=procps shellcheck=shellcheck etcd=etcd-server etcdctl=etcd-client cloud-init=cloud-init $(HA_PACKAGES) $(IMAGE_PACKAGES)

packages-conformance:
	@PYTHON=$(PYTHON) tests/packages.sh haproxy=haproxy kubectl=kubernetes-client etcd=etcd-server etcdctl=etcd-client ip=iproute2 unshare=util-linux
	@command -v go >/dev/null || { echo "Go is missing: 1.21 or later, which fetches the release that it needs" >&2; exit 1; }

packages-ha:
	@PYTHON=$(PYTHON) tests/packages.sh $(HA_PACKAGES)

$(VENV)/.stamp: requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

docs: venv ## generate docs/settings.md
	$(BIN)/pyconfd settings --markdown > docs/settings.md

size: venv ## lines, modules, classes, names used twice and comment share, by package
	@$(BIN)/python -m tests.size

mutants: venv ## how many small changes to the pure packages the nearest tests catch (SAMPLE=300 SEED=1 ONLY=path)
	@SAMPLE=$(SAMPLE) SEED=$(SEED) $(BIN)/python -m tests.mutants $(ONLY)

lint: venv ## lint, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: packages-bench venv ## measure; one JSON object a line (ONLY=name for one figure)
	@$(BIN)/python -m tests.bench $(ONLY)

bench-gateway: packages-conformance packages-bench packages-ha venv $(filter-out %suite.test,$(CONFORMANCE)) ## the tests of gateway-api-bench and more on a real control plane; needs root and Go (ONLY=a,b ROUTES=300 BUSY=1 PEER=DIR)
	@ONLY='$(ONLY)' ROUTES='$(ROUTES)' BUSY='$(BUSY)' PEER='$(PEER)' $(BIN)/python -m tests.bench.gateway

move-test: packages-test venv ## 300 Ingresses of ingress-nginx by a real HAProxy, against what it documents (SEED=1)
	@$(BIN)/python -m tests.moving $(SEED)

move-gateway-test: packages-test venv ## the same Ingresses as ingress2gateway converts them; needs Go (SEED=1)
	@$(BIN)/python -m tests.moving.gateway $(SEED)

ha-bench: packages-ha venv ## measure each fault of the floating address; needs root (ONLY=a,b REPS=20 LONG_S=60)
	@REPS=$(REPS) LONG_S=$(LONG_S) $(BIN)/python -m tests.vip.bench $(ONLY)

vip-test: packages-ha venv ## real failovers of the floating address and of the names in network namespaces, once each; needs root
	PYCONFD_TEST_FAILOVER=1 $(BIN)/python -m pytest -n 2 tests/vip tests/dns/test_failover.py

conformance: packages-conformance venv $(CONFORMANCE) ## the official Gateway API suite on a real control plane; needs root and Go (ONLY=regex KEEP=1)
	@$(BIN)/python -m tests.conformance $(if $(ONLY),--only='$(ONLY)') $(if $(KEEP),--keep)

.cache/conformance/controlplane: tests/conformance/controlplane/main.go tests/conformance/controlplane/go.sum
	$(GO) -C $(<D) build -o $(CURDIR)/$@ .

.cache/conformance/echo: tests/conformance/echo/go.sum
	$(GO) -C $(<D) build -o $(CURDIR)/$@ sigs.k8s.io/gateway-api/conformance/echo-basic

.cache/conformance/node: $(wildcard tests/conformance/node/*.go) tests/conformance/go.sum
	$(GO) -C tests/conformance build -o $(CURDIR)/$@ ./node

.cache/conformance/suite.test: tests/conformance/suite_test.go tests/conformance/go.sum
	$(GO) -C tests/conformance test -c -o $(CURDIR)/$@ .

.cache/conformance/gateway-api: tests/conformance/go.sum
	$(GO) -C $(<D) mod download sigs.k8s.io/gateway-api
	@ln -sfn $$($(GO) -C $(<D) list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api) $@

reload-test: packages-demo venv ## a hundred reloads under load
	PYCONFD_TEST_RELOADS=100 $(BIN)/python -m pytest -q tests/haproxy/test_reloads_under_load.py

tls-test: packages-demo venv ## the life of a Secret a hundred times under 32 busy TLS clients, and a page in Chromium
	@PYTHON=$(PYTHON) tests/packages.sh chromium=chromium
	PYCONFD_TEST_TLS_ROUNDS=100 $(BIN)/python -m pytest -q -s tests/e2e/test_tls.py

canary-test: packages-demo venv ## the life of a canary behind a Gateway twenty times under 32 busy clients
	PYCONFD_TEST_CANARY_ROUNDS=20 $(BIN)/python -m pytest -q -s tests/e2e/test_canary.py

explain-test: packages-demo venv ## 20,000 random requests: where `pyconfd explain URL` says that they go, against a real HAProxy (SEED=1)
	PYCONFD_TEST_REQUESTS=20000 PYCONFD_TEST_SEED=$(SEED) $(BIN)/python -m pytest -q -s tests/explain/test_requests_agree.py

crash-test: packages-demo venv ## killed before each single effect of every change, where the suite takes every eighth
	PYCONFD_TEST_CRASHES=1 $(BIN)/python -m pytest -q -n 2 tests/haproxy/test_crashes.py tests/haproxy/test_live_crashes.py tests/haproxy/test_spare_crashes.py tests/daemon/test_pin_crashes.py

fuzz: packages-demo venv ## hostile tenants against every preset, hostile templates against haproxy -c (SECONDS=60 SEED=)
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
	PYCONFD_FUZZ_CASES=$$(( $(SECONDS) * 20 )) PYCONFD_FUZZ_SEED=$(or $(SEED),$$RANDOM) $(BIN)/python -m pytest -q tests/presets/test_allowed_fuzz.py tests/presets/test_smuggling.py

soak: packages-demo venv ## random faults against a real HAProxy (SEED=1 STEPS=10000, or REPLAY=FILE); prints what was survived
	@$(BIN)/python -m tests.simulation --seed $(SEED) --steps $(STEPS) $(if $(REPLAY),--replay $(REPLAY))

dns-soak: venv ## fifty seeds of every simulation of DNS nodes
	PYCONFD_TEST_DNS_SEEDS=50 $(BIN)/python -m pytest -q -n 2 tests/dns/test_simulations.py

wheelhouse: venv ## dist/wheelhouse: every wheel with its hash, to install without a network (dist/wheelhouse/requirements.txt)
	@$(BIN)/python -m release wheelhouse

deb: venv ## a Debian package in dist
	@$(BIN)/python -m release deb

release: venv ## wheel, package, lock, bill of materials and checksums in dist; checks the changelog
	@$(BIN)/python -m release release

release-test: packages-test venv ## the whole form of what is tested of them; needs root
	@PYTHON=$(PYTHON) tests/packages.sh lintian=lintian
	PYCONFD_TEST_RELEASE=1 $(BIN)/python -m pytest -n 2 tests/release

appliance: wheelhouse ## dist/pyconfd-appliance.tar: all that makes an appliance of a Debian 12 machine (packer/README.md)
	@packer/bundle.sh dist/pyconfd-appliance.tar

image: appliance ## bake an image with Packer (SOURCE=qemu.lb|amazon-ebs.lb|null.machine PACKER_FLAGS='-var region=...')
	mkdir -p dist/image
	$(if $(filter qemu.lb,$(SOURCE)),packer/seed.sh dist/bake)
	cd packer && packer build -only=$(SOURCE) $(if $(filter qemu.lb,$(SOURCE)),$(QEMU_FLAGS)) $(PACKER_FLAGS) .
	@$(BIN)/python -m release.image dist/image dist/wheelhouse

image-test: packages-test venv ## two appliances in one network, a life of the Debian package, and a disk that is baked and booted without hardware; needs root
	@PYTHON=$(PYTHON) tests/packages.sh $(QEMU_PACKAGES)
	PYCONFD_TEST_IMAGE=1 $(BIN)/python -m pytest -n 2 tests/image

image-bench: packages-test venv ## from power to serving, measured in a machine with the real systemd; needs root
	@$(BIN)/python -m tests.image.bench

lock: ## write the hashed locks again from pyproject.toml (needs uv)
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes pyproject.toml --group build -o requirements.lock
	uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes pyproject.toml --group dev -o requirements-dev.lock

clean: ## remove what make built
	rm -rf $(VENV) .cache dist
