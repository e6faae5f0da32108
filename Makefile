# Every target sets up what it needs: `make demo` and `make test` work on a fresh clone.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# Stamps: each target installs what it needs, and nothing else.
DEMO := $(VENV)/.ready-demo
TESTS := $(VENV)/.ready-tests
DEV := $(VENV)/.ready-dev
RIVALS := $(VENV)/.ready-rivals
SIMULATORS := .references/.ready
# Says of which sources the kernel beside it is, or why there is none.
KERNEL := lightning_accum/sparse/kernel/kernel.json
DOCS_OUT := docs/_build
# Libraries that the tests try.
ALONE := neurons events speech bindsnet inferno-ai

.DEFAULT_GOAL := help
.PHONY: help setup kernel demo test doctest crash sanitize mutate lint format types docs notebooks outputs zoo references examples bench-smoke bench build release-check matrix ci clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: $(DEV) ## make .venv, with what tests, linters and the docs need

$(PY):
	$(PYTHON) -m venv $(VENV)

$(DEMO): pyproject.toml scripts/install_environment.py | $(PY)
	$(PY) scripts/install_environment.py --editable '.[examples]'
	@touch $@

$(TESTS): pyproject.toml scripts/install_environment.py scripts/install_extras.py | $(PY)
	$(PY) scripts/install_environment.py --editable '.[test]'
	$(PY) scripts/install_extras.py $(ALONE)
	@touch $@

# The extra `test` is part of `dev`, and is not resolved by itself first.
$(DEV): pyproject.toml scripts/install_environment.py scripts/install_extras.py | $(PY)
	$(PY) scripts/install_environment.py --editable '.[dev]'
	$(PY) scripts/install_extras.py $(ALONE)
	@touch $(TESTS) $@

$(RIVALS): $(TESTS)
	$(PY) scripts/install_extras.py rivals
	@touch $@

# pip has built it; this does so again after an edit of the sources. Plain torch does without.
$(KERNEL): scripts/build_kernel.py $(wildcard lightning_accum/sparse/kernel/*.[ch]) | $(PY)
	$(PY) scripts/build_kernel.py || true

demo test doctest crash mutate docs outputs zoo examples bench-smoke bench: $(KERNEL)

kernel: $(PY) ## build the compiled kernel in place
	$(PY) scripts/build_kernel.py

demo: $(DEMO) ## learn handwritten digits with STDP; options by ARGS="..."
	$(PY) examples/digits_stdp.py $(ARGS)

# One thread a worker: two workers with as many threads as cores each get in each other's way. A file
# is one worker's, which so makes its fixtures once; the order of paths has short files at its end.
BY_FILE := --dist loadfile --no-loadscope-reorder
test: $(TESTS) ## the tests, and the examples in the docstrings; options by ARGS="..."
	OMP_NUM_THREADS=1 $(PY) -m pytest --numprocesses 2 $(BY_FILE) --doctest-modules lightning_accum tests $(ARGS)

doctest: $(TESTS) ## the examples in the docstrings alone
	OMP_NUM_THREADS=1 $(PY) -m pytest --doctest-modules lightning_accum $(ARGS)

crash: $(TESTS) ## kill and resume training fifty times
	OMP_NUM_THREADS=1 LIGHTNING_ACCUM_CUTS=50 $(PY) -m pytest tests/survival $(ARGS)

# An address that C should not touch, or an operation that C does not define, ends the tests.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -g -O1
sanitize: $(TESTS) ## tests of the kernel and of hostile states, under address and undefined-behaviour checks
	CFLAGS="$(SANITIZE)" LDFLAGS="$(SANITIZE)" $(PY) scripts/build_kernel.py
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 \
		$(PY) -m pytest --capture=sys tests/sparse tests/survival/test_hostile_states.py $(ARGS); \
		status=$$?; $(PY) scripts/build_kernel.py && exit $$status

mutate: $(TESTS) ## break single lines, and list those that no test notices; options by ARGS="..."
	$(PY) scripts/mutate.py $(ARGS)

lint: $(DEV) ## ruff: rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(DEV) ## let ruff mend what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: $(DEV) ## mypy --strict
	$(PY) -m mypy

docs: $(DEV) ## the pages, and the code on them
	OMP_NUM_THREADS=1 $(PY) -m sphinx -q -E -W --keep-going -b html docs $(DOCS_OUT)/html
	OMP_NUM_THREADS=1 $(PY) -m sphinx -q -W --keep-going -b doctest -d $(DOCS_OUT)/html/.doctrees docs $(DOCS_OUT)/doctest
	@cat $(DOCS_OUT)/doctest/output.txt
	@grep -qE '^ *[1-9][0-9]* tests?$$' $(DOCS_OUT)/doctest/output.txt || \
		{ echo 'Expected code to run on the pages. Found none.'; exit 1; }

notebooks: $(DEV) ## the tutorials as notebooks, in docs/_build/notebooks
	@mkdir -p $(DOCS_OUT)/notebooks
	@for page in $$(grep -l '{code-cell}' docs/tutorials/*.md); do \
		$(VENV)/bin/mystnb-to-jupyter --overwrite $$page \
			$(DOCS_OUT)/notebooks/$$(basename $$page .md).ipynb || exit 1; \
	done
	$(PY) docs/_ext/tutorials.py $(DOCS_OUT)/notebooks/*.ipynb

outputs: $(TESTS) ## what examples print, for the gallery; some by ARGS="digits_stdp --short"
	$(PY) scripts/record.py $(ARGS)

zoo: $(DEMO) ## the page of networks, or some of it by ARGS="--only conv_wta"
	$(PY) scripts/zoo.py $(ARGS)

$(SIMULATORS):
	$(PYTHON) -m venv .references
	.references/bin/python -m pip install --quiet nest-simulator==3.10 brian2==2.9 'numpy<2'
	@touch $@

references: $(SIMULATORS) ## what NEST and Brian2 compute, which tests compare with; in an environment of their own
	.references/bin/python scripts/nest_reference.py

examples: $(TESTS) ## every example, in its short form
	$(PY) scripts/run_each.py examples --short

bench-smoke: $(RIVALS) ## every benchmark, just to see that it runs
	$(PY) scripts/run_each.py benchmarks --smoke

bench: $(RIVALS) ## the page of benchmarks, or some of it by ARGS="competitors growth"
	-$(MAKE) $(SIMULATORS) # without them, their rows are left out
	$(PY) scripts/bench.py $(ARGS)
	$(PY) scripts/bench_picture.py

# From the files that git tracks: whatever else lies in the folders stays out.
build: $(DEV) ## the wheel for this platform and the source distribution, in dist/
	rm -rf dist build
	mkdir -p build/tracked
	git ls-files -z | tar -c --null -T - | tar -x -C build/tracked
	$(PY) -m build --outdir dist build/tracked

release-check: build docs ## what must hold of a release, besides .ci/run
	$(PY) -m twine check --strict dist/*
	$(PY) scripts/release_check.py dist/*

ci: ## all of the above, as on a fresh machine
	.ci/run

matrix: ## the tests with other versions of all; some by ARGS="floors --tests tests/updates"
	$(PYTHON) scripts/matrix.py $(ARGS)

clean: ## remove what the other targets made, .venv too
	rm -rf $(VENV) .matrix dist build $(DOCS_OUT) .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutants.jsonl
	rm -rf lightning_logs checkpoints lightning_accum/sparse/kernel/kernel.so $(KERNEL)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
