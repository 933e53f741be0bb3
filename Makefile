# Every command makes the virtual environment that it needs; PYTHON chooses the interpreter.
PYTHON ?= python3
# Processes that share the tests.
WORKERS ?= 2
# A checkout of the pinned release, for `make bench` and `make third-party`.
CHECKOUT ?=
# Where `make train` writes; an empty folder, or one that is not there.
FOLDER ?= trained

BIN := .venv/bin
# The build environments that pip makes are held to the same pins; newer releases of pip read
# the second name for them. Relative, because pip splits the value at blanks.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help verify test lint format wheel-check third-party bench train coverage clean

help: ## Say what the commands do
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 20

verify: .venv/.runtime ## The main job: the reference engine passes, every mutant is killed
	$(BIN)/medusa-oracles verify

# A worker is one process: threads of its own would only fight the other worker's.
test: .venv/.dev ## The whole test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS)

lint: .venv/.dev ## Style, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks docs conformance/gpu_check.py conformance/third_party/judge.py tests/packaging/wheel_check.py
	$(BIN)/lint-imports

format: .venv/.dev ## Rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel-check: .venv/.dev ## Build the sdist, the wheel from it, and use that wheel elsewhere
	$(BIN)/python tests/packaging/wheel_check.py

bench: .venv/.runtime ## Time the tree builder and the search beside their peers
	$(BIN)/python benchmarks/tree_build.py $(if $(CHECKOUT),--checkout "$(CHECKOUT)")
	$(BIN)/python benchmarks/tree_search.py

train: .venv/.runtime ## Train a small decoder and its heads, and decode with them
	$(BIN)/medusa-oracles train "$(FOLDER)"

coverage: .venv/.runtime ## Write the tables of docs/ again, which say what covers what
	$(BIN)/python docs/make_coverage.py

third-party: .venv/.runtime ## Judge published packages, each at its pinned version
	$(BIN)/python conformance/third_party/judge.py $(if $(CHECKOUT),--checkout "$(CHECKOUT)")

clean: ## Remove the virtual environment and all caches
	rm -rf .venv .third_party .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

.venv/.runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -e .
	touch $@

.venv/.dev: .venv/.runtime
	$(BIN)/python -m pip install -q -e '.[dev]'
	touch $@
