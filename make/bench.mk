## --- figures

.PHONY: bench-throughput
bench-throughput: $(READY) ## one worker process, 20,000 no-op jobs of 1 KiB, AOF everysec; the last line is JSON
	@$(BIN)/python bench/throughput.py

SEED ?=
CHAOS_OPTIONS ?=

.PHONY: chaos
chaos: $(READY) ## 100,000 jobs under random SIGKILLs of workers and Redis and rolling restarts (SEED=7 repeats a plan)
	@PYTHONPATH=bench:tests $(BIN)/python bench/chaos.py $(if $(SEED),--seed $(SEED)) $(CHAOS_OPTIONS)
