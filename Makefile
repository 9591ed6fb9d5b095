# The first call creates .venv and installs the package in it; later calls do not install
# again until pyproject.toml or constraints.txt changes.

VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
DOCS    := $(VENV)/.installed-docs
SPHINX   = $(BIN)/python -m sphinx -W --keep-going -q
WORKERS ?= 2
# An interpreter of your choice: make test PYTHON=/path/to/python3.12
PYTHON  ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types unit test-gpu bench docs linkcheck release format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## create .venv and install the package with everything the targets need

demo: $(STAMP)  ## fit the Rings data and draw it before and after the diffeomorphism
	$(BIN)/python examples/rings.py --out out/rings.png

test: lint types unit  ## lint, types and tests: what continuous integration runs

lint: $(STAMP)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy, strict, on the package
	$(BIN)/mypy

unit: $(STAMP)  ## the tests alone, in WORKERS=2 processes of one thread each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-gpu:  ## tests that need a CUDA device, from the source tree, with the python3 at hand
	@files="$$(grep -rl --include='test_*.py' 'mark\.gpu' tests)" || { echo "no GPU tests yet"; exit 0; }; \
	PYTHONPATH=src python3 -m pytest -m gpu $$files

bench: $(STAMP)  ## every benchmark in benchmarks/, one after the other
	@set -e; for script in $(wildcard benchmarks/[!_]*.py); do \
	  echo "== $$script"; $(BIN)/python "$$script"; \
	done

docs: $(DOCS)  ## the pages, examples run: docs/_build/html/index.html
	$(SPHINX) -b html docs docs/_build/html
	@echo "pages: docs/_build/html/index.html"

linkcheck: $(DOCS)  ## ask for every address the pages name; needs a network
	$(SPHINX) -b linkcheck -D plot_gallery=0 docs docs/_build/linkcheck

release: $(STAMP)  ## wheel and source archive in dist/
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[release]'
	rm -rf dist
	$(BIN)/python -m build

format: $(STAMP)  ## rewrite the sources as `make lint` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv, caches and what the demo wrote
	rm -rf $(VENV) build dist out docs/_build docs/gallery docs/generated docs/api docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@python=""; \
	for candidate in $(if $(PYTHON),"$(PYTHON)",python3.11 python3.12 python3.13 python3); do \
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	      >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "finemorphs needs Python 3.11 or newer with its venv module; none of" \
	    "$(or $(PYTHON),python3.11 python3.12 python3.13 python3) is one." \
	    "Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2; \
	  exit 1; \
	fi; \
	echo "creating $(VENV) with $$("$$python" --version) and installing; this takes a few minutes"; \
	"$$python" -m venv --clear $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@
