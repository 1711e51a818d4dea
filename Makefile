# SPDX-License-Identifier: Apache-2.0
# `make demo` and `make test` are all that a fresh machine needs; both install what they lack.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

KUBERNETES_VERSION ?= v1.36.3
VENV := build/venv
BIN := $(CURDIR)/$(VENV)/bin
BED := PYTHONPATH=tests/bed python3 -m bed
RIG := PYTHONPATH=tests/bed:tests/openstack $(BIN)/python -m rig
export PATH := $(BIN):$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

.PHONY: demo
demo: prerequisites setup images ## a live cluster goes external: raise it, migrate it, show it
	@$(BIN)/python tests/bed/demo.py

.PHONY: demo-down
demo-down: ## remove everything that make demo made (the cache stays)
	@$(BED) down --name demo

.PHONY: test
test: prerequisites setup lint unit install-test docs-site images integration molecule ## everything that must pass before a change lands

.PHONY: test-all
test-all: test openstack-once cores ee molecule-others soak mutation ## what must pass before a release: make test, and all that takes longer

.PHONY: prerequisites
prerequisites:
	@$(BED) prerequisites

.PHONY: setup
setup: $(VENV)/.installed ## the Python environment in build/venv

$(VENV)/.installed: requirements-dev.txt runtime/pyproject.toml runtime/simcloud/pyproject.toml
	@tests/bed/setup-venv $(VENV)
	@touch $@

.PHONY: binaries
binaries: ## etcd and the Kubernetes binaries: found, cached, downloaded, or built
	@$(BED) binaries --version $(KUBERNETES_VERSION)

.PHONY: images
images: binaries ## the container images of the test bed, and the runtime's
	@$(BED) images --version $(KUBERNETES_VERSION)

.PHONY: image
image: ## the runtime's image and its archive for nodes without a registry
	@$(BED) images --only runtime

.PHONY: lint
lint: setup ## ruff, mypy, import layers, words, commit subjects, changelog fragments, ansible-lint
	@cd runtime && ruff check . && ruff format --check . && mypy && lint-imports --no-cache
	@ruff check -q --config runtime/pyproject.toml --exclude tests/unit/plugins tests molecule
	@ruff check -q --isolated --line-length 160 --select E,F,W --ignore E402 plugins tests/unit/plugins
	@ruff check -q --isolated --preview --select E30 plugins tests/unit/plugins
	@mkdir -p build/types/ansible_collections/outoftree/ccm
	@ln -sfn $(CURDIR)/plugins build/types/ansible_collections/outoftree/ccm/plugins
	@MYPYPATH=build/types mypy --config-file= --cache-dir /dev/null --no-error-summary --ignore-missing-imports \
		--disable-error-code union-attr -p ansible_collections.outoftree.ccm.plugins.module_utils
	@python tests/prose/check.py
	@python tests/prose/subjects.py
	@antsibull-changelog lint
	@ansible-lint --offline -q

# What `make quick` runs of the unit tests: the files that differ from origin/main, unless they are named.
TESTS ?= $(shell git diff --name-only --diff-filter=d origin/main -- 'tests/unit/**test_*.py' 2>/dev/null)
.PHONY: quick
quick: setup ## the fast loop, under a minute: ruff, mypy, words, and TESTS=tests/unit/...
	@cd runtime && ruff check -q . && mypy --no-error-summary
	@python tests/prose/check.py
	@$(if $(strip $(TESTS)),pytest -q -n 2 $(TESTS),echo "no unit test differs from origin/main: name some, TESTS=tests/unit/runtime/options")

.PHONY: hooks
hooks: setup ## Git hooks that lint what a commit changes
	@pre-commit install

.PHONY: actionlint
actionlint: setup ## the workflows of .github, by actionlint; Go builds it the first time
	@PYTHONPATH=tests/bed python -m tests.packaging.actionlint

.PHONY: prose
prose: setup ## words that this project does not use, in every file; make lint reads those on the list of tests/prose/terms.yml
	@python tests/prose/check.py --all

.PHONY: unit
unit: setup ## pure logic in seconds, and 10,000 sequences of faults in under three minutes
	@pytest -q -n 2 tests/unit tests/bed/tests tests/bench tests/parity tests/explore tests/mutation
	@python -m tests.explore --seeds 0-549 --jobs 2 --least 10000

CORE ?= 2.19
.PHONY: sanity
sanity: setup ## ansible-test sanity and units with one ansible-core, CORE=2.19, as a Galaxy user's CI has them
	@python -m tests.packaging.cores --do sanity,units '$(CORE)'

.PHONY: cores
cores: setup binaries ## the collection with every supported ansible-core that a Python can be found for
	@python -m tests.packaging.cores --do sanity,units,syntax,integration

.PHONY: install-test
install-test: setup binaries ## the tarball, installed beside nothing else, and what a user does with it
	@pytest -q tests/packaging

.PHONY: docs-site
docs-site: setup ## build/site: docs/, and antsibull-docs' pages about the collection
	@python tests/docs/site.py

.PHONY: ee
ee: setup ## build the execution environment of docs/how-to, use it, and remove it
	@PYTHONPATH=tests/bed:. python -m tests.packaging.ee

# How often the leader is killed under load, and how long the soak takes; pytest alone kills 10 times.
CHAOS_KILLS ?= 100
# Files of tests side by side, each with an API server of its own: they wait more than they work.
SIDE_BY_SIDE ?= 3
SOAK_SECONDS ?= 1800

.PHONY: integration
integration: setup images ## the runtime against a real etcd and kube-apiserver and the simulated cloud
	@CHAOS_KILLS=$(CHAOS_KILLS) pytest -q -n $(SIDE_BY_SIDE) --dist loadfile --no-loadscope-reorder tests/integration
	@SOAK_SECONDS=120 pytest -q tests/soak

# Seeds: one (7), a range (0-9999), or several with commas between; each gives about 20 sequences.
SEEDS ?= 0-499
# One sequence, as a finding names it: then only that one is run, and its story told.
REPLAY ?=
.PHONY: explore
explore: setup ## faults at every read and write, in virtual time: SEEDS=0-9999, or REPLAY='...' for one sequence
	@python -m tests.explore --seeds '$(SEEDS)' --replay '$(REPLAY)'

# One file, or all; MOST=20 tries at most so many changes for each file.
MUTATE ?=
MOST ?= 0
.PHONY: mutation
mutation: setup ## would the tests notice? one operator changed at a time in all that only decides: an hour
	@python -m tests.mutation --most $(MOST) $(MUTATE)

.PHONY: soak
soak: setup binaries ## half an hour of churn in which nothing may grow; figures in build/soak
	@SOAK_SECONDS=$(SOAK_SECONDS) pytest -q tests/soak

.PHONY: parity
parity: setup ## docs/reference/parity.md from the tests; lists what nothing shows yet
	@python tests/parity/collector.py

.PHONY: docs
docs: setup ## pages of docs/reference from the code and its tables
	@python tests/docs/reference.py
	@python tests/docs/kubernetes_versions.py > docs/reference/kubernetes-versions.md

# Two on each change; the others before a release. Each raises clusters of its own and removes them.
SCENARIOS := default ha
OTHER_SCENARIOS := $(filter-out $(SCENARIOS),$(patsubst molecule/%/molecule.yml,%,$(wildcard molecule/*/molecule.yml)))

.PHONY: molecule
molecule: setup images ## the collection on real clusters: one control plane, and three
	@for scenario in $(SCENARIOS); do molecule test --scenario-name $$scenario || exit 1; done

.PHONY: molecule-others
molecule-others: setup images ## the other scenarios on real clusters, Kubernetes 1.30 and 1.35 among them; tells how long each took
	@for scenario in $(OTHER_SCENARIOS); do \
		began=$$SECONDS; molecule test --scenario-name $$scenario || { echo "scenario $$scenario failed"; exit 1; }; \
		echo "scenario $$scenario took $$((SECONDS - began)) s"; \
	done

.PHONY: openstack
openstack: setup ## keystone, neutron, octavia, nova... on loopback; says where clouds.yaml is
	@$(RIG) up

.PHONY: openstack-down
openstack-down: ## end the OpenStack services and remove their data (the cache stays)
	@PYTHONPATH=tests/bed:tests/openstack python3 -m rig down

# All of it, unless a part is named.
OPENSTACK_TESTS ?= tests/openstack
.PHONY: test-openstack
test-openstack: openstack binaries ## the provider openstack against the real services
	@pytest -q $(OPENSTACK_TESTS)

.PHONY: openstack-once
openstack-once: test-openstack # as test-openstack, and the services end; after a failure they stay to be looked at
	@$(MAKE) openstack-down

.PHONY: bench
bench: setup binaries ## measure against the upstream framework: 20 minutes, or BENCH="nodes handover"
	@PYTHONPATH=tests/bed:. python -m tests.bench $(BENCH)

# The release that is prepared, and the base of its image: the bed's own, unless one is named.
release-check release-prepare: VERSION ?= 1.0.0
BASE_IMAGE ?=

.PHONY: release-check
release-check: setup ## build and check all that a release has, publish nothing: VERSION=1.0.0, BASE_IMAGE=docker.io/...
	@PYTHONPATH=tests/bed:. python -m tests.packaging.release --version '$(VERSION)' --base-image '$(BASE_IMAGE)'

.PHONY: release-prepare
release-prepare: setup ## set VERSION=1.0.0 everywhere, and render CHANGELOG.md from the fragments, which go
	@python -m tests.packaging.versions --set '$(VERSION)'
	@antsibull-changelog release --version '$(VERSION)'

.PHONY: release-tag
release-tag: setup ## the signed tag of a release that is prepared and committed; does not push it
	@python -m tests.packaging.tag

# A minor to compare with, such as AGAINST=1.35; by itself the newest older one whose binaries are here.
AGAINST ?=
.PHONY: new-kubernetes
new-kubernetes: setup ## what a Kubernetes minor changes for us: VERSION=1.37, flags, gates, API, and our table of facts
	@$(BIN)/python tests/bed/new_kubernetes.py '$(VERSION)' --against '$(AGAINST)'

.PHONY: collection
collection: setup ## build/outoftree-ccm-*.tar.gz, for ansible-galaxy collection install
	@ansible-galaxy collection build --force --output-path build .
