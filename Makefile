# Every target sets up what it needs: `make demo` and `make test` work on a fresh clone.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
DOCS_OUT := docs/_build

.DEFAULT_GOAL := help
.PHONY: help setup demo test doctest crash mutate lint format types docs examples bench-smoke bench build matrix ci clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: $(READY) ## make .venv and install everything into it

$(READY): pyproject.toml scripts/install.py scripts/install_alone.py
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) scripts/install.py --editable '.[dev]'
	$(PY) scripts/install_alone.py
	@touch $@

demo: $(READY) ## learn handwritten digits with STDP; options by ARGS="..."
	$(PY) examples/digits_stdp.py $(ARGS)

# One thread a worker: two workers with as many threads as cores each get in each other's way.
test: $(READY) ## the tests, and the examples in the docstrings; options by ARGS="..."
	OMP_NUM_THREADS=1 $(PY) -m pytest --numprocesses 2 --doctest-modules lightning_accum tests $(ARGS)

doctest: $(READY) ## the examples in the docstrings alone
	OMP_NUM_THREADS=1 $(PY) -m pytest --doctest-modules lightning_accum $(ARGS)

crash: $(READY) ## kill and resume training fifty times
	OMP_NUM_THREADS=1 LIGHTNING_ACCUM_CUTS=50 $(PY) -m pytest tests/survival $(ARGS)

mutate: $(READY) ## break single lines, and list those that no test notices; options by ARGS="..."
	$(PY) scripts/mutate.py $(ARGS)

lint: $(READY) ## ruff: rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(READY) ## let ruff mend what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: $(READY) ## mypy --strict
	$(PY) -m mypy

docs: $(READY) ## the pages, and the code on them
	$(PY) -m sphinx -q -E -W --keep-going -b html docs $(DOCS_OUT)/html
	$(PY) -m sphinx -q -W --keep-going -b doctest -d $(DOCS_OUT)/html/.doctrees docs $(DOCS_OUT)/doctest
	@cat $(DOCS_OUT)/doctest/output.txt
	@grep -qE '^ *[1-9][0-9]* tests?$$' $(DOCS_OUT)/doctest/output.txt || \
		{ echo 'Expected code to run on the pages. Found none.'; exit 1; }

examples: $(READY) ## every example, in its short form
	$(PY) scripts/run_each.py examples --short

bench-smoke: $(READY) ## every benchmark, just to see that it runs
	$(PY) scripts/run_each.py benchmarks --smoke

bench: $(READY) ## the page of benchmarks, or some of it by ARGS="competitors growth"
	$(PY) scripts/bench.py $(ARGS)

# From the files that git tracks: whatever else lies in the folders stays out.
build: $(READY) ## the wheel and the source distribution, in dist/
	rm -rf dist build
	mkdir -p build/tracked
	git ls-files -z | tar -c --null -T - | tar -x -C build/tracked
	$(PY) -m build --outdir dist build/tracked

ci: ## all of the above, as on a fresh machine
	.ci/run

matrix: ## the tests with other versions of all; some by ARGS="floors --tests tests/updates"
	$(PYTHON) scripts/matrix.py $(ARGS)

clean: ## remove what the other targets made, .venv too
	rm -rf $(VENV) .matrix dist build $(DOCS_OUT) .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutants.jsonl
	rm -rf lightning_logs checkpoints
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
