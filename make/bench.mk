## --- figures

BENCH_CACHE := $(or $(DOCKWORK_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/dockwork)/bench
BENCH_PYTHON := PYTHONPATH=bench:tests:runtime $(BIN)/python

.PHONY: bench-throughput
bench-throughput: $(READY) ## one worker process, 20,000 no-op jobs of 1 KiB, AOF everysec; the last line is JSON
	@$(BIN)/python bench/throughput.py

SEED ?=
CHAOS_OPTIONS ?=

.PHONY: chaos
chaos: $(READY) ## 100,000 jobs under random SIGKILLs of workers and Redis and rolling restarts (SEED=7 repeats a plan)
	@$(BENCH_PYTHON) bench/chaos.py $(if $(SEED),--seed $(SEED)) $(CHAOS_OPTIONS)

# An environment of its own for each lock file: the peers need different versions of redis-py.
$(BENCH_CACHE)/%/.ready: bench/peers/locks/%.lock $(READY)
	@echo "== bench: $* environment"
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(BIN)/uv pip sync -q --require-hashes --python $(@D)/bin/python $<
	@touch $@

$(BENCH_CACHE)/bullmq/.ready: bench/peers/bullmq/package-lock.json bench/peers/bullmq/peer.mjs
	@echo "== bench: BullMQ"
	@mkdir -p $(@D) && cp bench/peers/bullmq/package.json $^ $(@D)
	@cd $(@D) && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

$(BENCH_CACHE)/asynq/.ready: bench/peers/asynq/main.go bench/peers/asynq/go.mod bench/peers/asynq/go.sum
	@echo "== bench: Asynq"
	@mkdir -p $(@D)
	@cd bench/peers/asynq && go build -o $(@D)/asynq .
	@touch $@

BENCH_PEERS := $(foreach name,python saq arq charts bullmq asynq,$(BENCH_CACHE)/$(name)/.ready)

.PHONY: bench-peers
bench-peers: $(BENCH_PEERS) ## build what the comparison needs, outside of the checkout (Python, Node.js, Go)

.PHONY: bench-lock
bench-lock: $(READY) ## renew the peers' lock files (hashes, no index addresses)
	@for name in python saq arq charts; do \
	  $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	    --no-emit-find-links -o bench/peers/locks/$$name.lock bench/peers/locks/$$name.in; done

BENCH_OPTIONS ?=

.PHONY: bench
bench: $(READY) $(BENCH_PEERS) ## Dockwork and its pinned peers, workloads A to G, three repeats (BENCH_OPTIONS="--quick --peers dockwork,taskiq")
	@$(BENCH_PYTHON) bench/compare.py $(BENCH_OPTIONS)

MILLION_OPTIONS ?=

.PHONY: bench-million
bench-million: $(READY) ## a million jobs of 1 KiB over three primaries, then over one: TLS, AOF always, every receipt checked
	@$(BENCH_PYTHON) bench/million.py $(MILLION_OPTIONS)

.PHONY: bench-report
bench-report: $(BENCH_CACHE)/charts/.ready ## docs/performance.md and its charts, from bench/results
	@PYTHONPATH=bench $(BENCH_CACHE)/charts/bin/python bench/report.py
