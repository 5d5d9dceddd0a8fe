# Every target creates .venv when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Without a GPU, tests with the marker gpu are deselected (tests/conftest.py).
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup demo test test-slow test-web soak lint format reference picture book browser clean

help:
	@echo "make demo       train a translator in about two minutes, then look inside it"
	@echo "make test       units, properties, small oracles (under 4 minutes)"
	@echo "make test-slow  the demo, a browser, kills, long oracles (under 35 minutes)"
	@echo "make test-web   the JavaScript engine, exports and the book in Chromium and Firefox (under 25)"
	@echo "make soak       long fuzz and fault runs (hours)"
	@echo "make book       build the book: book/_build/html/index.html"
	@echo "make lint       ruff, mypy, import contracts, generated docs;  make format  lets ruff fix what it can"
	@echo "make clean      remove .venv and caches (runs/ stays)"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Cutaway needs Python 3.11 or newer; $(PYTHON) is {v[0]}.{v[1]}. Try: make PYTHON=python3.12 ...")'
	@echo "Setting up $(VENV) (once; a few minutes with a slow connection) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $(READY)

demo: $(READY)
	@$(BIN)/cutaway demo

test: $(READY)
	$(PYTEST) -n 2

test-slow: $(READY) browser
	$(PYTEST) -m 'slow and shares' -n 2 --dist loadfile
	$(PYTEST) -m 'slow and not shares' --durations=10

# The JavaScript engine against Python; exported pages, the explorer and the whole book in two browsers. Needs Node 20.
test-web: export FIREFOX = 1
test-web: $(READY) browser book
	@cd tests/web && npm install --silent --ignore-scripts --no-audit --no-fund --omit-lockfile-registry-resolved
	node --test --test-reporter=dot tests/web/engine/*.test.mjs
	node tests/web/check_engine.mjs
	node tests/web/check_export.mjs $(BIN)/cutaway runs/demo
	node tests/web/check_explorer.mjs $(BIN)/cutaway runs/demo
	node tests/web/check_book.mjs book/_build/html

soak: $(READY)
	$(PYTEST) -m soak

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python docs/make_reference.py --check

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# docs/settings.md and docs/commands.md, from the source
reference: $(READY)
	$(BIN)/python docs/make_reference.py

# Pages show the translator of the demo.
runs/demo/scores.json: | $(READY)
	$(BIN)/cutaway demo

# Executed pages are cached by their content. -W: a broken link, a missing name, a failing cell or a number without a source
# fails the build.
book: $(READY) runs/demo/scores.json
	@OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -q -b html -c book -d book/_build/doctrees . book/_build/html || \
	{ rm -rf book/_build/doctrees; exit 1; }  # so that the next build reads and reports these pages again
	@echo "Open book/_build/html/index.html"

# the README's animation, from the explorer of runs/demo
picture: $(READY) browser
	$(BIN)/python docs/images/record_explorer.py runs/demo

# The browser tests use the system's Chromium. On Debian and Ubuntu this installs it; elsewhere it says how.
browser:
	@bash .ci/install-browser

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
