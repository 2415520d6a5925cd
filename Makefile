# Every step that CI runs is a target here. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# One target folder outside the checkout, for work and CI alike: the EC2 SDK in it is worth minutes.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trysquare/target
TRYSQUARE = $(CARGO_TARGET_DIR)/debug/trysquare

##@ Using it
.PHONY: demo test e2e build
demo: build ## Build, run the @essential scenarios on the embedded backend, print the results
	$(TRYSQUARE) test --tags @essential

test: first-build ## Every test: units, contracts, scenarios (no cluster, no account)
	cargo test --workspace

e2e: build ## Every scenario on the embedded backend
	$(TRYSQUARE) test

build: first-build ## The trysquare program
	cargo build --package e2e --bin trysquare

.PHONY: first-build
first-build:
	tools/first-build.sh

##@ Working on it
.PHONY: core fmt lint deny crds golden fidelity twice sabotage quiet-day report-test
core: ## The everyday loop: format, lint and test the deciding crate alone; builds neither kube nor the EC2 SDK
	cargo fmt --package controller-core
	cargo clippy --package controller-core --all-targets -- --deny warnings
	cargo test --package controller-core

fmt: ## Format everything
	cargo fmt --all

lint: first-build ## Formatting and clippy, as CI checks them
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	python3 tools/fidelity.py --check

deny: ## Licences and advisories of all dependencies (needs cargo-deny)
	cargo deny check

crds: ## Write deploy/chart/crds from the types
	UPDATE_CRDS=1 cargo test --package controller-api

golden: ## Accept changed golden files; read the diff before committing it
	UPDATE_EXPECT=1 cargo test --workspace

fidelity: ## Write docs/fidelity.md from the marks in fake-ec2
	python3 tools/fidelity.py > docs/fidelity.md

twice: build ## Prove that every @essential scenario repeats to the byte, and that the proof can fail
	tools/twice.sh $(TRYSQUARE)

sabotage: first-build ## Break the product on purpose, one patch at a time; each must fail its scenario
	tools/sabotage.sh

quiet-day: build ## A virtual day without changes, with an interruption at its end
	$(TRYSQUARE) test --tags @quiet-day --calls

report-test: build ## Check report.html against report.json in a browser (needs Node.js and Chromium)
	cd tools/browser && npm ci --no-audit --no-fund && TRYSQUARE=$(TRYSQUARE) node --test

##@ Continuous integration
.PHONY: ci
ci: lint demo twice test ## What CI runs, in order, stopping at the first failure

##@ Help
.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
