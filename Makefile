# SPDX-License-Identifier: Apache-2.0
# A fresh machine needs only `make demo` and `make test`; both install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

KUBERNETES_VERSION ?= v1.37.2
VENV := build/venv
BIN := $(CURDIR)/$(VENV)/bin
BED := PYTHONPATH=tools/bed python3 -m bed
RIG := PYTHONPATH=tools/bed:tools/clouds/openstack $(BIN)/python -m rig
export PATH := $(BIN):$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# Python compiles modules once, apart from the sources. That halves the time in which each Python program starts.
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
# Many containers set this variable. Each of a thousand processes would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

.PHONY: demo
demo: prerequisites setup images ## a live cluster goes external: raise it, migrate it, show it
	@$(BIN)/python tools/bed/demo.py

# FAULT="Quota" runs only this fault.
FAULT ?=
.PHONY: demo-faults
demo-faults: setup ## break the cluster of make demo in ten ways, and see what ccm explain, doctor, plan and status say
	@$(BIN)/python tools/bed/demo_faults.py $(if $(FAULT),"$(FAULT)")

.PHONY: demo-down
demo-down: ## remove everything that make demo made (the cache stays)
	@$(BED) down --name demo

.PHONY: demo-picture
demo-picture: setup ## docs/images/demo.svg: records a run of make demo, removes the demo, and draws the recording
	@$(BIN)/python tools/docs/demo_picture.py --record

.PHONY: status-picture
status-picture: setup ## docs/images/status-*.png: the page /statusz of an example, light and dark (needs chromium)
	@$(BIN)/python tools/docs/status_picture.py

# tools/run.py runs targets of this file as parts of one run, and prints a summary. KEEP_GOING=1 (or make -k) runs all parts even if
# one fails; ONE_AT_A_TIME=1 is for a machine with one core, or a busy one. `make lint`, `make unit` and so on run one part alone.
KEEP_GOING ?= $(findstring k,$(filter-out --%,$(firstword $(MAKEFLAGS))))
ONE_AT_A_TIME ?=
PARTS := $(BIN)/python -m tools.run $(if $(KEEP_GOING),--keep-going) $(if $(ONE_AT_A_TIME),--one-at-a-time)
# The folder for results of a target's tests in such a run; $(call results,NAME) returns pytest's option for it. $(call junit,NAME) is for
# tests with servers: in such a run, one that fails gets a second try, which the summary reports. Do not use it for thousands of short
# tests: each would ask the main process twice how often it failed, which doubles the time of unit tests.
# RERUNS=0 gives no test a second try.
RESULTS ?=
RERUNS ?= 1
results = $(if $(RESULTS),--junitxml=$(RESULTS)/$(1).xml)
junit = $(call results,$(1)) $(if $(RESULTS),--reruns=$(RERUNS) --reruns-delay=2)

.PHONY: test
test: prerequisites setup ## what a contributor runs before a change lands; docs/testing.md says how long it takes
	@$(PARTS) --first images --timed integration-spine --patient lint,docs-site,peers-tests,unit \
		--elsewhere "make test-ci: a real cluster, OpenStack, all of make integration, the tarball, 5,000 sequences of faults" \
		--elsewhere "make test-all: every ansible-core, other clusters and clouds, half an hour of churn, mutation"

# docs/testing.md says what make test-all runs in addition, and why: other clusters and clouds, the playbooks' long stories, the
# mutants of the kit.
.PHONY: test-ci
test-ci: export CLOUD_TESTS := not long
test-ci: export CHAOS_KILLS := 30
test-ci: export LONG_TESTS := $(addprefix tests/integration/,faults runtime secrecy) tests/soak tests/packaging
test-ci: prerequisites setup ## what CI runs after make test: a real cluster, OpenStack, 5,000 sequences, the rest of integration
	@$(PARTS) --first images --timed molecule,openstack-once --patient sequences,install-test \
		--then integration-rest,integration-long,chaos

.PHONY: test-all
test-all: test test-ci integration-long chaos test-prometheus test-eda test-clouds cores ee newcomer molecule-layouts molecule-others test-e2e soak mutation ## what must pass before a release: test, test-ci, and all that takes longer

# An earlier table in build/costs to compare with; by default the newest one.
BEFORE ?=
.PHONY: test-costs
test-costs: setup ## what each part and file of the last make test and make test-ci cost, and what it found: BEFORE=FILE
	@python -m tools.costs $(if $(BEFORE),--against $(BEFORE))

.PHONY: prerequisites
prerequisites:
	@$(BED) prerequisites

.PHONY: setup
setup: $(VENV)/.installed ## the Python environment in build/venv

$(VENV)/.installed: requirements-dev.txt runtime/pyproject.toml runtime/simcloud/pyproject.toml suite/pyproject.toml
	@tools/bed/setup-venv $(VENV)
	@touch $@

.PHONY: binaries
binaries: ## etcd and the Kubernetes binaries: found, cached, downloaded, or built
	@$(BED) binaries --version $(KUBERNETES_VERSION)

.PHONY: images
images: binaries ## the container images of the test bed, and the runtime's
	@$(BED) images --version $(KUBERNETES_VERSION)

# UPGRADE= keeps the versions in the lock if pyproject.toml allows them.
UPGRADE ?= --upgrade
.PHONY: lock
lock: setup ## runtime/*.lock: the packages of the image, and those that build its wheel: the newest ones, or UPGRADE= for no newer ones
	@python -m tools.packaging.locks $(UPGRADE)

.PHONY: descriptors
descriptors: setup ## what the runtime knows of Kubernetes' protobuf, from the Go modules that tools/bench/peer/go.mod names
	@PYTHONPATH=tools/bed:. $(BIN)/python -m tools.packaging.descriptors

.PHONY: outdated
outdated: setup ## what is pinned and has a newer release: packages, Go modules, actionlint, ansible-core, Kubernetes
	@PYTHONPATH=tools/bed:. python -m tools.packaging.outdated

.PHONY: image
image: ## the runtime's image and its archive for nodes without a registry
	@$(BED) images --only runtime

# A check that passed on the same contents, here or in another checkout, does not run again (tools/kept.py).
KEPT := $(BIN)/python -m tools.kept
CHECKS := $(or $(OUTOFTREE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/outoftree.ccm)/checks

# What the test pep8 of `ansible-test sanity` allows, from its own list; with the same program and width, `make lint` finds what that test would.
PEP8_LIST = build/venv/lib/python3*/site-packages/ansible_test/_util/controller/sanity/pep8/current-ignore.txt
.PHONY: lint
lint: setup types ## ruff, mypy, import layers, words, commits, changelog fragments, quarantine, ansible-lint
	@cd runtime && ruff check . && ruff format --check . && lint-imports --no-cache
	@ruff check -q --config runtime/pyproject.toml --exclude tests/unit/plugins tests tools molecule suite
	@ruff check -q --isolated --select F extensions plugins tests/unit/plugins
	@pycodestyle --max-line-length 160 --ignore "$$(grep -oh '^[EW][0-9]*' $(PEP8_LIST) | paste -sd,)" extensions plugins tests/unit/plugins
	@mkdir -p build/types/ansible_collections/outoftree/ccm
	@ln -sfn $(CURDIR)/plugins build/types/ansible_collections/outoftree/ccm/plugins
	@$(KEPT) types-of-plugins plugins/module_utils -- env MYPYPATH=build/types mypy --config-file= --cache-dir $(CHECKS)/mypy-plugins \
		--no-error-summary --ignore-missing-imports \
		--disable-error-code union-attr -p ansible_collections.outoftree.ccm.plugins.module_utils
	@python tools/prose/check.py
	@python tools/prose/commits.py
	@python -m tests.quarantine
	@python -m tools.new_kubernetes.decisions
	@$(KEPT) changelog changelogs galaxy.yml -- antsibull-changelog lint
	@$(KEPT) ansible-lint $(LINTED) -- ansible-lint --offline -q

# What ansible-lint reads in three minutes. Of module_utils, it needs only the file with the options that modules share. make test-ci
# lints the whole tarball.
LINTED := .ansible-lint ansible.cfg galaxy.yml requirements.yml site.yml docs/docsite docs/how-to docs/inventories extensions meta molecule \
	playbooks $(filter-out plugins/module_utils,$(wildcard plugins/*)) plugins/module_utils/cluster/api.py roles ':!*.md'

.PHONY: types
types: setup ## mypy, strictly, on the runtime and the suite
	@$(KEPT) types runtime ':!*.md' -- sh -c 'cd runtime && mypy --no-error-summary --cache-dir $(CHECKS)/mypy'
	@$(KEPT) types-of-suite suite -- sh -c 'cd suite && mypy --no-error-summary --cache-dir $(CHECKS)/mypy-suite'

# The unit tests that `make quick` runs: by default the test files that differ from origin/main.
TESTS ?= $(shell git diff --name-only --diff-filter=d origin/main -- 'tests/unit/**test_*.py' 2>/dev/null)
.PHONY: quick
quick: setup types ## the fast loop, under half a minute: ruff, mypy, words, and TESTS=tests/unit/...
	@cd runtime && ruff check -q .
	@python tools/prose/check.py
	@$(if $(strip $(TESTS)),pytest -q -n 2 $(TESTS),echo "no unit test differs from origin/main: name some, TESTS=tests/unit/runtime/options")

.PHONY: hooks
hooks: setup ## Git hooks that lint what a commit changes
	@pre-commit install

.PHONY: actionlint
actionlint: setup ## the workflows of .github, by actionlint; Go builds it the first time
	@PYTHONPATH=tools/bed python -m tools.packaging.actionlint

.PHONY: prose
prose: setup ## words that this project does not use, in every file; make lint reads those on the list of tools/prose/terms.yml
	@python tools/prose/check.py --all

# One order of sets, so that each run is the same one.
.PHONY: unit
unit: export PYTHONHASHSEED := 0
unit: setup ## pure logic, and 10,000 sequences of faults
	@pytest -q $(call results,unit) -n 2 --timeout 300 tests/unit tests/tools tests/peers tests/explore
	@python -m tests.explore --seeds 0-59 --chains 0-379 --jobs 2 --least 10000

# Tests that compare with the program that owns a file's format: systemd, Kubernetes' parser.
DRAWN := tests/unit/formats tests/unit/plugins/module_utils/edit/test_units_against_systemd.py
.PHONY: sequences
sequences: setup ## 5,000 sequences of faults more than make unit has, and all texts of which that draws a thousand
	@DRAWN_TEXTS=6000 pytest -q $(call results,sequences) -n 2 $(DRAWN)
	@python -m tests.explore --seeds 60-339 --jobs 2 --least 5000

CORE ?= 2.19
.PHONY: sanity
sanity: setup ## ansible-test sanity and units with one ansible-core, CORE=2.19, as a Galaxy user's CI has them
	@python -m tools.packaging.cores --do sanity,units '$(CORE)'

# ONLY="2.21 2.22" names the releases of ansible-core to test.
ONLY ?=
.PHONY: cores
cores: setup binaries ## the collection with every supported ansible-core that a Python can be found for: or ONLY=2.22
	@python -m tools.packaging.cores $(ONLY)

.PHONY: install-test
install-test: setup binaries ## the tarball, installed beside nothing else, and what a user does with it
	@pytest -q $(call junit,install-test) -m 'not long' tests/packaging

.PHONY: docs-site
docs-site: setup ## build/site/devel, or VERSION=1.0.0: docs/, and antsibull-docs' pages about the collection
	@python tools/docs/site.py --version "$(VERSION)"

.PHONY: ee
ee: setup ## build the execution environment of docs/how-to, use it, and remove it
	@PYTHONPATH=tools/bed:. python -m tools.packaging.ee

.PHONY: newcomer
newcomer: setup binaries ## README and the first pages, word by word, in a bare Debian 12 and a bare Ubuntu 24.04
	@PYTHONPATH=tools/bed:. python -m tools.packaging.newcomer

# How often `make chaos` kills the leader under load (`make integration`: 3 times). SOAK_SECONDS: how long `make soak` takes.
CHAOS_KILLS ?= 100
# The number of pytest workers, each with its own API server. It may exceed the number of cores, because tests mostly wait.
SIDE_BY_SIDE ?= 4
SOAK_SECONDS ?= 1800
# Tests of clouds that are stand-ins in the test's own process: they need only binaries.
STAND_INS := $(addprefix tests/clouds/,azure cloudstack gce hetzner libcloud)
# The integration tests that `make test` runs: one path through each real part. CI runs the rest.
SPINE := $(addprefix tests/integration/,collection/test_runs.py engine runtime test_admission_policy.py test_production_image.py)
INTEGRATION := pytest -q -n $(SIDE_BY_SIDE) --dist loadfile --no-loadscope-reorder

.PHONY: integration
integration: setup images ## the runtime against a real etcd and kube-apiserver and the simulated cloud
	@CHAOS_KILLS=3 $(INTEGRATION) $(call junit,integration) -m 'not long' tests/integration $(STAND_INS)

.PHONY: integration-spine integration-rest
integration-spine: setup images ## of make integration, one way through each real part: the runtime as a process, one run of the playbooks
	@$(INTEGRATION) $(call junit,integration) -m 'not long' $(SPINE)
integration-rest: setup images ## of make integration, what integration-spine leaves: faults, secrecy, the collection, stand-ins of clouds
	@CHAOS_KILLS=3 $(INTEGRATION) $(call junit,integration) -m 'not long' $(addprefix --ignore=,$(SPINE)) tests/integration $(STAND_INS)

.PHONY: mutants
mutants: setup binaries ## providers with one mistake each: does the kit for providers notice?
	@$(INTEGRATION) $(call junit,mutants) tests/integration/conformance/test_mutants.py

LONG_TESTS ?= tests/integration tests/soak tests/packaging
.PHONY: integration-long
integration-long: setup binaries ## the long stories among the tests, which make integration and make install-test leave out
	@SOAK_SECONDS=120 $(INTEGRATION) $(call junit,integration-long) -m long $(LONG_TESTS)

.PHONY: chaos
chaos: setup binaries ## the leader is killed CHAOS_KILLS times at random moments: 100 times, unless you say otherwise
	@CHAOS_KILLS=$(CHAOS_KILLS) pytest -q $(call junit,chaos) tests/integration/faults/test_chaos.py

# The requests of each of six runs, and how many in a second at most.
REQUESTS ?= 350000
RATE ?= 1000
.PHONY: requests
requests: setup binaries ## more than a million requests while all Nodes are replaced: is one lost? And with upstream's framework; an hour
	@REPLACE_REQUESTS=$(REQUESTS) REPLACE_RATE=$(RATE) pytest -q -s --timeout 14400 tests/integration/runtime/test_replaced_nodes.py

# A seed (7), a range (0-9999), or several of these, separated by commas. Each seed gives about 20 sequences.
SEEDS ?= 0-499
# Seeds of chains: 25 sequences, one after the other in one cluster. A sequence of a chain takes less than half the CPU of a single run.
CHAINS ?=
# Seeds of machines that die while the cloud fails or shows another project: each gives about 20 sequences.
DEATHS ?=
# A sequence as a finding names it: only this sequence runs, and what happens is printed.
REPLAY ?=
.PHONY: explore
explore: setup ## faults at every read and write, in virtual time: SEEDS=0-9999, or REPLAY='...' for one sequence
	@python -m tests.explore --seeds '$(SEEDS)' --chains '$(CHAINS)' --deaths '$(DEATHS)' --replay '$(REPLAY)'

# MUTATE selects files by parts of their paths; MOST=20 tries at most 20 changes for each file.
MUTATE ?=
MOST ?= 0
.PHONY: mutation
mutation: setup ## would the tests notice? one operator changed at a time in all that only decides: 40 minutes
	@python -m tools.mutation --most $(MOST) $(MUTATE)

.PHONY: soak
soak: setup binaries ## half an hour of churn in which nothing may grow; figures in build/soak
	@SOAK_SECONDS=$(SOAK_SECONDS) pytest -q tests/soak

# Names of controllers in tools/suite.py. A stopped run resumes where it stopped, unless AGAIN=1.
CONTROLLERS ?=
AGAIN ?=
.PHONY: ccm-suite
ccm-suite: setup binaries ## hold controllers to the suite for any of them, and write docs/reference/suite.md: CONTROLLERS="ours upstream"
	@PYTHONPATH=tools/bed:tools/clouds/openstack:. python -m tools.suite $(CONTROLLERS) $(if $(AGAIN),--again)

.PHONY: parity
parity: setup ## docs/reference/parity.md from the tests; lists what nothing shows yet
	@python tools/parity/collector.py

.PHONY: peers-tests
peers-tests: setup ## test tables of released controllers and of upstream's libraries, on our functions
	@python -m tests.peers

.PHONY: docs
docs: setup ## pages of docs/reference from the code and its tables
	@python tools/docs/reference.py
	@python tools/docs/kubernetes_versions.py > docs/reference/kubernetes-versions.md
	@python tools/docs/awx_files.py
	@python tools/docs/commands.py
	@python -m tests.comparison
	@python -m tools.e2e.page
	@PYTHONPATH=tools/bed:. python -m tools.suite --page

# CI runs `default` on each change; the other scenarios run before a release. Each creates its own cluster and removes it.
LAYOUT_SCENARIOS := kubespray dual_stack
OTHER_SCENARIOS := $(filter-out default $(LAYOUT_SCENARIOS),$(patsubst molecule/%/molecule.yml,%,$(wildcard molecule/*/molecule.yml)))

.PHONY: molecule
molecule: setup images ## the collection on a real cluster with one control plane
	@molecule/run default

.PHONY: molecule-ha
molecule-ha: setup images ## the collection on a real cluster with three control planes
	@molecule/run ha

.PHONY: molecule-layouts
molecule-layouts: setup images ## the collection on a cluster as kubespray leaves it, and on one with IPv4 and IPv6
	@molecule/run $(LAYOUT_SCENARIOS)

.PHONY: molecule-others
molecule-others: setup images ## the other scenarios on real clusters, Kubernetes 1.30 and 1.36 among them
	@molecule/run $(OTHER_SCENARIOS)

# With MODE=proxy, load balancers are as in make demo: two specs skip themselves, and one is left out. MODE=conformance runs SIG
# Network's specs of conformance before the migration, after it, and after the rollback, and MODE=dual-stack those of dual-stack clusters. MODE=openstack
# runs the first ones with two controllers of OpenStack's services, one after the other.
MODE ?= pass-through
# FOCUS selects specs by their names; QUICK=1 leaves out both rolling updates, KEEP=1 leaves the cluster as it is, and RECORD=1
# keeps the results for the tables of docs/testing.md.
FOCUS ?=
QUICK ?=
KEEP ?=
RECORD ?=
.PHONY: test-e2e
test-e2e: prerequisites setup ## Kubernetes' own specs of load balancers and Nodes on a migrated cluster: or MODE=proxy, MODE=conformance, MODE=dual-stack, MODE=openstack, FOCUS=REGEXP, QUICK=1
	@python -m tools.e2e --mode $(MODE) $(if $(FOCUS),--focus "$(FOCUS)") $(if $(QUICK),--quick) $(if $(KEEP),--keep) \
		$(if $(RECORD),--record)

.PHONY: openstack
openstack: setup ## keystone, neutron, octavia, nova... on loopback; says where clouds.yaml is
	@$(RIG) up

.PHONY: openstack-down
openstack-down: ## end the OpenStack services and remove their data (the cache stays)
	@PYTHONPATH=tools/bed:tools/clouds/openstack python3 -m rig down

# The tests to run, by default all. CLOUD_TESTS is an expression for pytest's -m.
OPENSTACK_TESTS ?= tests/clouds/openstack
CLOUD_TESTS ?=
.PHONY: test-openstack
test-openstack: openstack binaries ## the provider openstack against the real services, and beside cloud-provider-openstack
	@$(if $(CLOUD_TESTS),,$(BED) program openstack-cloud-controller-manager >/dev/null)
	@pytest -q $(call junit,openstack) -m '$(CLOUD_TESTS)' $(OPENSTACK_TESTS)

.PHONY: openstack-once
openstack-once: test-openstack # as test-openstack, and the services end; after a failure they stay to be looked at
	@$(MAKE) openstack-down

.PHONY: test-clouds
test-clouds: test-openstack test-vsphere test-hetzner test-aws test-azure test-cloudstack test-gce test-libcloud ## every provider of a cloud against that cloud's services, or a stand-in for them

.PHONY: record-comparison
record-comparison: export RECORD_COMPARISON := 1
record-comparison: test-clouds ## write what the tests see of providers beside their vendors' controllers: tests/comparison/results
	@$(MAKE) docs

.PHONY: test-hetzner
test-hetzner: setup binaries ## the provider hetzner against our stand-in; make integration runs it, too
	@$(INTEGRATION) $(call junit,hetzner) tests/clouds/hetzner tests/unit/runtime/providers/hetzner

.PHONY: test-azure
test-azure: setup binaries ## the provider azure against our stand-in; make integration runs it, too
	@$(INTEGRATION) $(call junit,azure) tests/clouds/azure tests/unit/runtime/providers/azure

.PHONY: test-cloudstack
test-cloudstack: setup binaries ## the provider cloudstack against our stand-in; make integration runs it, too
	@$(INTEGRATION) $(call junit,cloudstack) tests/clouds/cloudstack tests/unit/runtime/providers/cloudstack

.PHONY: test-gce
test-gce: setup binaries ## the provider gce against our stand-in; make integration runs it, too
	@$(INTEGRATION) $(call junit,gce) tests/clouds/gce tests/unit/runtime/providers/gce

.PHONY: test-libcloud
test-libcloud: setup binaries ## the provider libcloud over recorded answers, and over HTTP; make integration runs it, too
	@$(INTEGRATION) $(call junit,libcloud) tests/clouds/libcloud tests/unit/runtime/providers/libcloud

.PHONY: test-vsphere
test-vsphere: setup binaries ## the provider vsphere on vcsim, beside cloud-provider-vsphere; Go builds both the first time: minutes
	@$(INTEGRATION) $(call junit,vsphere) -m '$(CLOUD_TESTS)' tests/clouds/vsphere

.PHONY: test-aws
test-aws: setup binaries ## the provider aws on moto, beside cloud-provider-aws; Go builds that the first time: minutes
	@$(INTEGRATION) $(call junit,aws) -m '$(CLOUD_TESTS)' tests/clouds/aws tests/unit/runtime/providers/aws

.PHONY: test-prometheus
test-prometheus: setup binaries ## the alerts by promtool, and a real Prometheus that scrapes the runtime; Go builds both the first time: minutes
	@pytest -q $(call junit,prometheus) tests/prometheus

.PHONY: test-eda
test-eda: setup binaries ## the rulebooks of extensions/eda by the real ansible-rulebook, and jobs as AWX runs them; installs both and Java the first time
	@pytest -q $(call junit,eda) tests/eda

.PHONY: bench
bench: setup binaries ## measure against the upstream framework: half an hour, or BENCH="nodes handover"
	@PYTHONPATH=tools/bed:. python -m tools.bench $(BENCH)

.PHONY: bench-collection
bench-collection: setup binaries ## measure the playbooks over 50, 200 and 1,000 hosts: an hour, or BENCH="--hosts 50"
	@PYTHONPATH=tools/bed:. python -m tools.bench_collection --keep now $(BENCH)

# The release to prepare, and the base of its image, by default the bed's own base.
changelog release-check release-prepare: VERSION ?= 1.0.0
BASE_IMAGE ?=

.PHONY: changelog
changelog: setup ## print the changelog as the release has it, from the fragments, and check it: VERSION=1.0.0
	@python -m tools.packaging.fragments --version '$(VERSION)'

.PHONY: release-check
release-check: setup ## build and check all that a release has, publish nothing: VERSION=1.0.0, BASE_IMAGE=docker.io/...
	@PYTHONPATH=tools/bed:. python -m tools.packaging.release --version '$(VERSION)' --base-image '$(BASE_IMAGE)'

.PHONY: release-prepare
release-prepare: setup ## set VERSION=1.0.0 everywhere, and render CHANGELOG.md from the fragments, which go
	@python -m tools.packaging.versions --set '$(VERSION)'
	@antsibull-changelog release --version '$(VERSION)'

.PHONY: release-tag
release-tag: setup ## the signed tag of a release that is prepared and committed; does not push it
	@python -m tools.packaging.tag

# A minor to compare with, such as AGAINST=1.35; by default the minor before VERSION.
AGAINST ?=
.PHONY: new-kubernetes
new-kubernetes: setup ## what a Kubernetes minor changes for us, from its sources: VERSION=1.38; without, what is new since the last look
	@python -m tools.new_kubernetes $(VERSION) $(if $(AGAINST),--against '$(AGAINST)')

.PHONY: new-kubernetes-cluster
new-kubernetes-cluster: setup ## after that: build VERSION=1.38, compare its programs, then migrate a cluster and upgrade one
	@python -m tools.new_kubernetes.programs '$(VERSION)' --against '$(AGAINST)'
	@molecule/run default kubeadm_upgrade

.PHONY: collection
collection: setup ## build/outoftree-ccm-*.tar.gz, for ansible-galaxy collection install
	@ansible-galaxy collection build --force --output-path build .
