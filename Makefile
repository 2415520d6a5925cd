# Every step that CI runs is a target here. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# One target folder outside the checkout, for work and CI alike: the EC2 SDK in it is worth minutes.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trysquare/target
TRYSQUARE = $(CARGO_TARGET_DIR)/debug/trysquare
include tools/versions

##@ Using it
.PHONY: demo test e2e conformance build
demo: build ## Build, run the @essential scenarios on the embedded backend, print the results
	$(TRYSQUARE) test --tags @essential

test: first-build ## Every test: units, contracts, scenarios (no cluster, no account)
	cargo test --workspace

e2e: build ## Every scenario on the embedded backend
	$(TRYSQUARE) test

conformance: build ## The conformance report of our controller on the embedded backend, into target/conformance
	$(TRYSQUARE) conformance --report target/conformance

build: first-build ## The programs: trysquare, and fake-ec2 for use without a cluster
	cargo build --package e2e --package fake-ec2 --bin trysquare --bin fake-ec2

.PHONY: first-build
first-build:
	tools/first-build.sh

##@ Working on it
.PHONY: core fmt lint deny crds golden fidelity twice sabotage quiet-day
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

.PHONY: bench-scheduler
bench-scheduler: ## Time the scheduler on upstream's own workloads; ORACLE=PROGRAM times upstream's on the same problems
	cargo build --release --package controller-core --example decide
	python3 tools/bench_scheduler.py $(CARGO_TARGET_DIR)/release/examples/decide $(if $(ORACLE),--oracle $(ORACLE))

.PHONY: parity
parity: ## Compare our decisions with upstream's on problems of SEEDS; ORACLE=PROGRAM was built from ORACLE_FOLDER, the decision oracle
	cargo build --release --package controller-core --example decide
	python3 tools/parity.py $(CARGO_TARGET_DIR)/release/examples/decide $(ORACLE_FOLDER) $(if $(ORACLE),--oracle $(ORACLE)) --seeds $(or $(SEEDS),77,2024) $(if $(CORPUS),--corpus $(CORPUS))

##@ With genuine programs (Kubernetes, etcd, helm, upstream Karpenter; needs Go)
.PHONY: tools apiserver
apiserver: build ## The @essential scenarios with our controller on a genuine control plane, within its roles and policies
	tools/build.sh etcd kube-apiserver kube-scheduler kube-controller-manager helm
	$(TRYSQUARE) test --backend apiserver --iam enforce --tags @essential

tools: ## Build the programs of tools/versions that are missing, into a cache outside the checkout
	tools/build.sh

.PHONY: kind kind-image
kind: build images ## The @essential scenarios on kind, with our images, chart and policies; KIND_IMAGE is the node image, else kind's own
	tools/build.sh helm kind
	$(TRYSQUARE) test --backend kind --iam enforce --tags @essential --jobs 4 $(if $(KIND_IMAGE),--image $(KIND_IMAGE))

kind-image: ## A kind node image where no image registry is reachable, and the Docker Engine for it (root, Debian; tools/kind/README.md)
	tools/kind/engine.sh
	tools/kind/image.sh

.PHONY: contract
contract: build ## fake-kube beside a genuine control plane: request sequences, definitions, both schedulers
	tools/build.sh etcd kube-apiserver kube-scheduler kube-controller-manager karpenter
	$(TRYSQUARE) contract

##@ With genuine clients (kubectl, AWS CLI, boto3, Chromium; needs Go, Python, Node.js)
.PHONY: clients guide kubectl-test clients-test clients-smoke fuzz bench-fake-ec2 report-test
clients: ## Make kubectl, the AWS CLI and boto3, once, and print where they are
	tools/clients.sh

guide: build ## Run every block of docs/guide and compare its output
	PATH="$(CARGO_TARGET_DIR)/debug:$$(tools/clients.sh):$$PATH" python3 tools/guide.py

kubectl-test: first-build ## fake-kube as kubectl sees it: the sessions of fake-kube/tests/kubectl
	TRYSQUARE_KUBECTL=$$(tools/build.sh kubectl) cargo test --workspace --test kubectl

clients-test: build ## fake-ec2 as boto3 and the AWS command line see it
	PATH="$$(tools/clients.sh):$$PATH" FAKE_EC2=$(CARGO_TARGET_DIR)/debug/fake-ec2 \
		python3 -m pytest --quiet -p no:cacheprovider fake-ec2/tests/clients

clients-smoke: build ## One script for each client (boto3, AWS CLI, Go, JavaScript, Rust) against fake-ec2, on both SQS protocols
	FAKE_EC2=$(CARGO_TARGET_DIR)/debug/fake-ec2 python3 fake-ec2/tests/clients/smoke/run.py

fuzz: ## Send fake-ec2 what libFuzzer makes of seeds, for SECONDS [20] with each of two targets, on stable Rust
	tools/fuzz.sh $(or $(SECONDS),20)

bench-fake-ec2: ## fake-ec2's requests per second beside moto_server's, its cost in a large account, start and memory; FORMAT=json for programs
	@moto=$$(tools/python.sh "moto[server]==$(MOTO)")/moto_server; \
	cargo bench --quiet --package fake-ec2 --bench requests -- --moto "$$moto" --format $(or $(FORMAT),text)

report-test: build ## report.html and conformance.html against their JSON, in a browser
	cd tools/browser && npm ci --no-audit --no-fund && TRYSQUARE=$(TRYSQUARE) node --test

##@ Deploying
.PHONY: cloud-lint cloud-test chart-test deploy-readme
cloud-lint: ## The CloudFormation template, the other YAML of deploy and the workflows (needs Go, Python)
	PATH="$$(tools/clients.sh):$$PATH"; . tools/versions; \
	cfn-lint deploy/cloudformation/*.yaml; \
	yamllint --strict deploy/cloudformation deploy/eksctl deploy/manifests .github; \
	go run github.com/rhysd/actionlint/cmd/actionlint@$$ACTIONLINT

cloud-test: ## What stands in deploy against the controller's calls, eksctl's schema and a workstation (needs Go, Python)
	PATH="$$(tools/clients.sh):$$PATH"; . tools/versions; \
	EKSCTL_MODULE=$$(go mod download -json github.com/weaveworks/eksctl@$$EKSCTL | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p') \
		python3 -m pytest --quiet -p no:cacheprovider deploy/cloud-tests

deploy-readme: build ## Run every command of deploy/README.md that needs no account, in order (needs Go, Python)
	tools/build.sh etcd kube-apiserver kube-scheduler kube-controller-manager
	mkdir -p target/bin && ln -sf "$$(tools/build.sh helm)" target/bin/helm
	PATH="$(CARGO_TARGET_DIR)/debug:$$(tools/clients.sh):$$PWD/target/bin:$$PATH" python3 tools/guide.py deploy/README.md

chart-test: build ## The charts: renders, refusals, and on a genuine API server; UPDATE_EXPECT=1 writes the golden files
	PATH="$$(tools/clients.sh):$$PATH" TRYSQUARE=$(TRYSQUARE) python3 -m pytest --quiet -p no:cacheprovider deploy/tests

.PHONY: permissions permissions-sample
permissions: build ## Take each permission of the policies and roles away in turn: its scenario must fail and name it
	tools/build.sh etcd kube-apiserver kube-scheduler kube-controller-manager helm
	$(TRYSQUARE) permissions --check

permissions-sample: build ## The same of all policies, and of six rules of the roles
	tools/build.sh etcd kube-apiserver kube-scheduler kube-controller-manager helm
	$(TRYSQUARE) permissions --check --of iam
	$(TRYSQUARE) permissions --check --of rbac --sample 6

.PHONY: images image-fake-ec2 images-twice images-test
images: ## The images controller, fake-ec2 and trysquare, FROM scratch, into target/images and Docker, with their sizes
	tools/images.py

image-fake-ec2: ## The image fake-ec2 alone
	tools/images.py fake-ec2

images-twice: ## Prove that another checkout of this commit gives the same images to the byte
	tools/images-twice.sh

images-test: images ## Every image in containers: read-only, signals, names, boto3, testcontainers (needs Docker)
	PATH="$$(tools/clients.sh):$$PATH" python3 -m pytest --quiet -p no:cacheprovider deploy/images/tests
	for what in "--lib testcontainers" "--doc testcontainers" "--test testcontainers"; do \
		cargo test --locked --package fake-ec2 --features testcontainers $$what || exit 1; \
	done

##@ Continuous integration
.PHONY: ci
# Where no image registry is reachable; elsewhere kind has its own.
ci: KIND_IMAGE = trysquare-node:$(KUBERNETES)
ci: lint cloud-lint cloud-test demo twice test kubectl-test clients-test clients-smoke fuzz report-test guide contract chart-test permissions-sample deploy-readme apiserver kind-image kind images-test ## What CI runs, in order, stopping at the first failure

##@ Help
.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
