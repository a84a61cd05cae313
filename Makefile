# Two commands set everything up: `make demo` and `make test`. Both install what they need into .venv.
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
SEEDS ?= $(if $(ALL),20,1000)
REPEATS ?= 10
HOURS ?= 1
WORKERS ?= 0
KILLS ?= 500

.PHONY: help install compiled hooks demo check test slow test-newest browser lint types bench ui-bench soak mutants seeds crash repeats watch-links fuzz docs links compose-test lock protos clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# What keplab runs with, and all of it with tests and linters.
$(RUNTIME): requirements-runtime.lock pyproject.toml deploy/environment.py
	@python3 deploy/environment.py runtime
	@touch $@

$(READY): requirements.lock pyproject.toml deploy/environment.py
	@python3 deploy/environment.py all
	@touch $(RUNTIME) $@

install: compiled ## make .venv from the lock, with what tests and linters need

# Modules that changed are compiled once here; where Python may write no bytecode, each process would compile them anew.
compiled: $(READY)
	@python3 deploy/environment.py compile

hooks: $(READY) ## format and lint before each commit of this clone
	git config core.hooksPath .githooks

demo: $(RUNTIME) ## the runaway and its cure, side by side, as real processes
	$(BIN)/keplab compare experiments/runaway/runaway.txt --processes \
	  --arm fail:kubelet.on_reject=fail --arm unbind:kubelet.on_reject=unbind --report runs/runaway.html --recording runs/runaway

check: compiled ## while you work, under a minute: lint of what changed, unit and component tests beside it (SINCE=main for a branch)
	@$(BIN)/python -m tests.check $(or $(SINCE),HEAD)

test: compiled ## lint, types and every layer of tests, with how far it is, and a share of them on the oldest and the newest other Python of this machine
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types
	@$(BIN)/python -m tests.layers
	$(BIN)/python -m tests.pythons

slow: compiled ## write tests/slow.txt: which tests take over a quarter of a second
	$(BIN)/pytest tests/unit tests/component tests/architecture tests/meta tests/fidelity tests/examples tests/fuzz --slow --record-slow tests/slow.txt -n 2 --dist loadfile

test-newest: $(READY) ## unit, component and architecture tests and all scenarios on the oldest and the newest other Python of this machine
	$(BIN)/python -m tests.pythons tests/unit tests/component tests/architecture --slow -n 2 --dist loadfile
	$(BIN)/python -m tests.pythons tests/scenarios --slow -n 2 --dist load

browser: ## have what tests of the live page skip without: Chromium and Firefox where apt-get may install them, a TypeScript compiler where npm is
	@has() { for each; do command -v $$each && return; done; return 1; }; \
	may() { [ "$$(id -u)" = 0 ] && has apt-get >/dev/null; }; \
	want() { \
	  if may; then apt-get install -y -qq --no-install-recommends "$$@" >/dev/null && return; fi; \
	  echo "$$1 is not there and could not be installed: tests of the live page that want it skip"; }; \
	has chromium chromium-browser google-chrome && has firefox-esr firefox || { may && apt-get update -qq; }; \
	has chromium chromium-browser google-chrome >/dev/null || want chromium fonts-dejavu-core; \
	has firefox-esr firefox >/dev/null || want firefox-esr; \
	if has npm >/dev/null; then \
	  mkdir -p $(VENV)/typescript && cp tests/browser/types/package*.json $(VENV)/typescript && \
	  npm ci --prefix $(VENV)/typescript --silent --no-fund --no-audit || echo "no TypeScript compiler could be installed: types are not checked"; \
	else echo "no npm: types of the live page are not checked"; fi

lint: $(READY) ## format, lint, floors, stubs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m protos --check
	$(BIN)/python -m lab.ui.vendor --check
	$(BIN)/python -m tests.architecture.structure

types: $(READY) ## mypy --strict
	$(BIN)/mypy

bench: $(READY) ## measure, and write docs/benchmarks/
	$(BIN)/python -m lab.benchmarks

ui-bench: $(READY) ## measure the live page in Chromium: first picture, frames, seeks, memory; writes docs/benchmarks/ui.md
	$(BIN)/python -m tests.browser.bench

soak: $(READY) ## HOURS=1 (or a part of one) of churn and faults; what grows is judged after a warm-up; Ctrl-C judges what is there
	$(BIN)/keplab bench soak --hours $(HOURS)

mutants: $(READY) ## change the product in N=200 places (SEED=0), one at a time, and see whether tests notice; resumable; WORKERS=0: all cores
	$(BIN)/python -m tests.mutation --n $(or $(N),200) --seed $(or $(SEED),0) --workers $(WORKERS)

seeds: $(READY) ## SEEDS=1000 runs of the runaway with random crashes; with ALL=1 every scenario, SEEDS=20 times, without; resumable
ifdef ALL
	$(BIN)/keplab run experiments --seeds $(SEEDS) --record runs/scenarios.jsonl
else
	$(BIN)/keplab chaos experiments/runaway/runaway.txt --set kubelet.on_reject=unbind \
	  --seeds $(SEEDS) --record runs/seeds.jsonl --repeat 100
endif

crash: $(READY) ## KILLS=500 SIGKILLs of an API server under load, each with the unsynced tail of its files cut; SEED=… repeats a run
	nice -n 5 $(BIN)/python -m tests.durability.crash --kills $(KILLS) $(if $(SEED),--seed $(SEED))

repeats: $(READY) ## acceptance scenarios of kubelets that die, are cut off or come back, and of one device for two, REPEATS=10 times with seeds of their own
	nice -n 10 $(BIN)/pytest tests/scenarios/test_kubelet_faults.py tests/scenarios/test_one_device.py \
	  tests/process/test_one_device_as_processes.py --repeats $(REPEATS) -n 2 --dist load

fuzz: $(READY) ## bad input from one SEED: 20,000 requests, 4,000 gRPC frames, 100,000 texts, 50,000 expressions, or N= of each; ONLY=rest|grpc|parsers|expressions, PLACE= one of them
	nice -n 10 $(BIN)/python -m tests.fuzz --seed $(or $(SEED),1) $(if $(N),--cases $(N)) $(if $(ONLY),--only $(ONLY)) $(if $(PLACE),--place $(PLACE))

watch-links: $(READY) ## AS-13 and AS-14 with their amounts: 200 restarts under watches, a quiet watch left alone for ten minutes; about half an hour
	KEPLAB_RESTARTS=200 KEPLAB_IDLE_WATCH_S=600 nice -n 10 $(BIN)/pytest tests/process/test_watch_restarts.py tests/process/test_watch_links.py

docs: $(READY) ## the site of documents, into build/docs, which opens from disk; a warning or a link that leads nowhere is an error
	$(BIN)/python -m sphinx -q -W --keep-going -j auto -b html -c docs -d build/doctrees . build/docs
	@echo "open build/docs/index.html"

links: $(READY) ## try every address elsewhere that documents name (needs a network)
	$(BIN)/python -m sphinx -q -b linkcheck -c docs -d build/doctrees . build/links

compose-test: $(READY) ## build the image, run the mesh in containers, kill the scheduler, watch it converge
	$(BIN)/pytest tests/compose -x --tb=short

lock: $(READY) ## resolve requirements*.lock again (needs uv on the PATH)
	uv pip compile -q --universal --python-version 3.11 --extra dev --generate-hashes --no-header pyproject.toml -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml -o requirements-runtime.lock

protos: $(READY) ## regenerate the wire's stubs
	$(BIN)/python -m protos

clean: ## remove what was installed and left behind
	rm -rf $(VENV) .keplab runs build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
