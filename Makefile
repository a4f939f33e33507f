# make audit    one dry pass over this machine and over the example fleet
# make test     the quick tests        make test-all  all of them
# make test-long   a daemon killed 200 times under load, and 30 days of its life: half an hour
# make lint     ruff and mypy          make bench     the benchmarks
# make docs     rewrite generated pages
# make clean    remove what was built

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

# stoploss exits with 1 where something burns and with 4 where something could not be read; both are answers.
define answered
$(1) || { status=$$?; case $$status in 1|4) ;; *) exit $$status;; esac; }
endef

.PHONY: audit test test-all test-long lint bench docs clean
.DEFAULT_GOAL := audit

audit: $(VENV)/.installed
	@$(call answered,$(BIN)/stoploss audit policies.example.yaml)
	@echo
	@$(BIN)/python examples/fleet/generate.py
	@$(call answered,$(BIN)/stoploss audit policies.example.yaml --signals examples/fleet/signals)

test: $(VENV)/.installed-dev
	$(BIN)/pytest -m "not slow" -n 2

test-all: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2

test-long: $(VENV)/.installed-dev
	STOPLOSS_KILLS=200 STOPLOSS_DAYS=30 $(BIN)/pytest -m slow tests/daemon/test_killed_under_load.py tests/daemon/test_days.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/evaluate.py

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/build.py

clean:
	rm -rf $(VENV) dist build out .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "stoploss needs Python 3.11 or later; on Debian: apt-get install python3 python3-venv python3-dev" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@# durable-rules, which Python 3.13 does without, is compiled here.
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13))' || exit 0; \
	command -v gcc >/dev/null || command -v cc >/dev/null || { echo "a C compiler is missing; on Debian: apt-get install gcc" >&2; exit 1; }; \
	$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
	|| { echo "Python.h is missing; on Debian: apt-get install python3-dev" >&2; exit 1; }
	@echo "making $(VENV) (once, about a minute)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(VENV)/.installed $@
