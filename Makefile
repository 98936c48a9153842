# The environment is .venv, made once; `make clean-env` removes it. Everything else is in README.md.

VENV := .venv
PYTHON := $(VENV)/bin/python
UV := $(VENV)/bin/uv
TORCH := torch==2.13.0
BUILD := $(if $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep GPU),cuda,cpu)
READY := $(VENV)/.ready-$(BUILD)
ARGS ?=

# uv installs without bytecode, and images often forbid Python to write it: then every process of a run compiles its
# libraries again, which doubles the time that it takes to start. Empty is allowed.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup train test lint docs clean-env
.DELETE_ON_ERROR:

help:
	@echo "make train [ARGS=\"objective.name=grpo train.seed=1\"]   set up, then run python -m raypoly.train"
	@echo "make test  [ARGS=\"tests/raypoly -k settings\"]          set up, then run the tests"
	@echo "make setup      make $(VENV) with everything in it ($(BUILD) build: chosen by nvidia-smi)"
	@echo "make lint       ruff and mypy"
	@echo "make docs       rewrite docs/configuration.md from the config's models, and the tables of docs/objectives.md"
	@echo "make clean-env  remove $(VENV)"

setup: $(READY)

# Each stamp is made last, so an interrupted set-up goes on at the step where it stopped.
$(VENV)/.made:
	@command -v python3.11 >/dev/null || { \
	  echo "raypoly needs Python 3.11 as python3.11 on the PATH: install it (apt install python3.11-venv, brew install python@3.11, pyenv install 3.11) and run make again."; \
	  exit 1; }
	@python3.11 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	  echo "python3.11 does not start as Python 3.11: install it, or put the right one first on the PATH."; exit 1; }
	@echo "Making $(VENV) with the $(BUILD) build; about a minute, most of it download."
	@python3.11 -m venv --clear $(VENV)
	@$(PYTHON) -m pip install -qq uv
	@touch $@

# torch comes first: pip's own configuration may know a CPU build, which uv would not see.
$(READY): pyproject.toml constraints/overrides.txt $(VENV)/.made
ifeq ($(BUILD),cpu)
	@$(PYTHON) -c 'import torch; assert torch.__version__ == "2.13.0+cpu"' 2>/dev/null \
	  || $(PYTHON) -m pip install -qq "$(TORCH)+cpu" 2>/dev/null \
	  || $(UV) pip install --quiet --python $(PYTHON) --torch-backend=cpu "$(TORCH)"
endif
	@$(UV) pip install --quiet --python $(PYTHON) --override constraints/overrides.txt --editable ".[$(BUILD),dev]"
	@touch $@
	@echo "$(VENV) is ready."

train: setup
	$(PYTHON) -m raypoly.train $(ARGS)

test: setup
	$(PYTHON) -m pytest $(ARGS)

lint: setup
	$(VENV)/bin/ruff check --no-cache .
	$(VENV)/bin/ruff format --no-cache --check .
	$(VENV)/bin/mypy

docs: setup
	$(PYTHON) -m raypoly.reports.configuration_page docs/configuration.md
	$(PYTHON) -m raypoly.reports.objectives_page docs/objectives.md

clean-env:
	rm -rf $(VENV)
