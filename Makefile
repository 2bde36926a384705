# Everything `make` installs goes into $(VENV); versions are pinned by constraints.txt.
#   make demo    set up what is needed, then `dpgt demo`       (more: make demo ARGS="--iterations 50 --out DIR")
#   make test    set up what is needed, then the default tests (more: make test ARGS="-k graph")
#   make help    all targets
PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 2
ARGS    ?=

BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help setup setup-dev setup-torch demo test e2e hosts slow-link detection long kills soak histories fast torch browser shown deploy-check fuzz audit planted bench lint format proto keys clean

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## ?/  make \1\t/' | expand -t 18

# ---------------------------------------------------------------- set-up, once
$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "make: no $(PYTHON) on this machine. Install Python 3.11 or newer, or say which one: make PYTHON=/path/to/python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1); Python 3.11 or newer is needed. Say which one: make PYTHON=/path/to/python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) cannot make virtual environments (no venv or ensurepip). On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@echo "Setting up $(VENV) (first time only) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# setuptools comes from the constraints too, hence no build isolation: the same set-up gives the same versions tomorrow.
$(VENV)/.core: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing dpgt-node and what it needs (about a minute) ..."
	@$(PIP) install -qq -c constraints.txt setuptools
	@$(PIP) install -qq -c constraints.txt --no-build-isolation --editable .
	@touch $@

$(VENV)/.fast: $(VENV)/.dev
	@$(PIP) install -qq -c constraints.txt --no-build-isolation --editable '.[dev,fast]'
	@touch $@

$(VENV)/.torch: $(VENV)/.dev
	@echo "Installing torch and torchvision (gigabytes) ..."
	@$(PIP) install -qq -c constraints.txt --no-build-isolation --editable '.[dev,torch]'
	@touch $@

$(VENV)/.deploy: $(VENV)/.dev
	@$(PIP) install -qq -c constraints.txt --no-build-isolation --editable '.[dev,deploy]'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	@$(PIP) install -qq -c constraints.txt --no-build-isolation --editable '.[dev,fuzz]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "Installing what tests and lint need ..."
	@$(PIP) install -qq -c constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

setup: $(VENV)/.core ## the virtual environment with dpgt in it
setup-dev: $(VENV)/.dev ## the same with what tests and lint need

# ---------------------------------------------------------------- use
demo: $(VENV)/.core ## five agents train on handwritten digits on this machine
	@$(BIN)/dpgt demo $(ARGS)

# ---------------------------------------------------------------- tests; tests/conftest.py says what the tiers are
test: $(VENV)/.dev ## the default suite
	$(PYTEST) -n $(WORKERS) --dist worksteal --max-worker-restart 0 $(ARGS)

e2e: $(VENV)/.dev ## only the tests with real processes
	$(PYTEST) -m e2e $(ARGS)

hosts: $(VENV)/.dev ## every process on a host of its own (network namespaces), links cut, hosts rebooted: Linux, root, iproute2
	@$(BIN)/python -m tests.hosts.lab
	$(PYTEST) -m $(if $(SHARE),"hosts and not long",hosts) $(ARGS)

slow-link: $(VENV)/.dev ## figure: 45 MB a message over 20 MB/s between hosts (1 Mbit/s: ARGS="--all --mbit 1 --dimension 1400000"); as root
	$(BIN)/python -m tests.hosts.slow_link $(ARGS)

detection: $(VENV)/.dev ## figure: how soon each kind of loss is named, between hosts; as root
	$(BIN)/python -m tests.hosts.detection $(ARGS)

long: $(VENV)/.dev ## tests that take minutes
	$(PYTEST) -m "long and not hosts" -o faulthandler_timeout=3600 $(ARGS)

kills: $(VENV)/.dev ## kill -9 of real processes, 215 times; half an hour
	$(PYTEST) -m long tests/e2e/test_kills.py tests/e2e/test_shared_noise.py -s -o faulthandler_timeout=3600 $(ARGS)

fast: $(VENV)/.fast ## tests of the extra [fast]; installs numba and uvloop
	$(PYTEST) -m fast $(ARGS)

soak: $(VENV)/.dev ## 20,000 rounds of five daemons: memory, descriptors, threads
	$(PYTEST) -m long tests/e2e/test_soak.py -s -o faulthandler_timeout=7200 $(ARGS)

swarm: $(VENV)/.dev ## ten thousand seeded runs under faults, then the mutants they must catch
	$(BIN)/python -m tests.swarm --seeds 0..10000 --jobs $(WORKERS) $(ARGS)
	$(BIN)/python -m tests.swarm --mutants --jobs $(WORKERS)

histories: $(VENV)/.dev ## 2,000 random lives of a state directory against a dumb ledger, then the mutants they must catch
	$(BIN)/python -m tests.runtime.store.histories --histories 2000 $(ARGS)

setup-torch: $(VENV)/.torch

torch: $(VENV)/.torch ## tests of the extra [torch]; installs torch and torchvision
	$(PYTEST) -m torch -o faulthandler_timeout=3600 $(ARGS)

shown: $(VENV)/.dev ## the shell blocks of the pages that no other test runs, as they stand
	$(PYTEST) -m shown -o faulthandler_timeout=3600 $(ARGS)

browser: $(VENV)/.dev ## the live page in a headless Chromium, which must be installed
	$(PYTEST) -m browser $(ARGS)

deploy-check: $(VENV)/.deploy ## what deploy/ says, carried out: image steps in a bare Debian, units under a systemd of their own (root, debootstrap)
	$(PYTEST) tests/deploy -m $(if $(SHARE),"deploy and not long",deploy) -s -o faulthandler_timeout=3600 $(ARGS)

fuzz: $(VENV)/.fuzz ## hostile input in full: 2 million at the decoders, 50,000 at real servers, branch coverage (half an hour)
	$(BIN)/python -m tests.fuzz $(ARGS)

audit: $(VENV)/.core ## figures: lower bounds of epsilon, the bugs they catch, the counterexample (real launches: ARGS="--launches 100")
	$(BIN)/dpgt bench audit --jobs $(WORKERS) $(ARGS)

planted: $(VENV)/.dev ## figures: planted bugs, what catches each in how many runs and seconds, false alarms (ARGS="--honest 200")
	$(BIN)/python -m tests.experiments.planted $(ARGS)

bench: $(VENV)/.core ## performance figures; run it on an idle machine (all there are: dpgt bench)
	@for name in rounds wire noise store startup; do $(BIN)/dpgt bench $$name $(ARGS) || exit; done

# ---------------------------------------------------------------- lint
lint: $(VENV)/.dev ## style, types, import contracts, generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m dpgt_node.wire.generate --check
	$(BIN)/python -m dpgt_node.cli.schema --check

format: $(VENV)/.dev ## put the sources into their standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(VENV)/.dev ## regenerate dpgt_node/wire/gen from proto/
	$(BIN)/python -m dpgt_node.wire.generate

keys: $(VENV)/.dev ## regenerate docs/reference/configuration.md and the JSON Schemas from the declarations of keys
	$(BIN)/python -m dpgt_node.cli.schema

clean: ## remove what make made
	@test ! -e $(VENV)/.created || rm -rf $(VENV)
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find dpgt_node tests -name __pycache__ -prune -exec rm -rf {} +
