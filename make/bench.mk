## --- figures

.PHONY: bench-throughput
bench-throughput: $(READY) ## one worker process, 20,000 no-op jobs of 1 KiB, AOF everysec; the last line is JSON
	@$(BIN)/python bench/throughput.py
