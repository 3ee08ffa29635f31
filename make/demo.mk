# The demo: real pictures through real pods.

.PHONY: demo
demo: $(READY) cluster images ## the main job from nothing: a cluster, the charts, a Queue, a CronJob, 2,000 jobs, the numbers
	@PYTHONPATH=tests $(BIN)/python scripts/demo.py

.PHONY: demo-down
demo-down: ## remove the demo and its cluster
	@if [ -x $(BIN)/python ]; then PYTHONPATH=tests $(BIN)/python scripts/demo.py --down || true; fi
	@$(MAKE) -s cluster-down
	@rm -rf demo-output
