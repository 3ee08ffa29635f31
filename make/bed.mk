## --- the test bed: a kind cluster on this machine

BED := $(PYTHON) tests/bed

.PHONY: binaries cluster cluster-down images build

binaries: ## the API server and etcd that the reconcile and cluster tiers start, in the cache
	@$(BED) binaries kube-apiserver etcd kubectl helm > /dev/null

cluster: ## bring the test bed's cluster up (DOCKWORK_BED names it)
	@$(BED) up

cluster-down: ## delete the test bed's cluster
	@$(BED) down

images: $(READY) cluster ## build the project's images and load them into the cluster
	@$(BED) images

build: $(READY) cluster ## the wheel in dist/, and the images
	@$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@$(BED) images --no-load
	@$(BED) sizes
