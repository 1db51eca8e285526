# `make` prints what there is. Works with GNU make 3.81 and bash 3.2, the ones of macOS, too: so recipes set
# pipefail themselves, because .SHELLFLAGS came with 3.82.
SHELL := bash
.DEFAULT_GOAL := help

# Every module of the repository except tools/, which has no packages of its own.
MODULES := $(sort $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './tools/*' -not -path '*/testdata/*' -not -path '*/.*/*')))

# For one part of the tests: make test PKG=./slot ARGS='-run Sibling'
PKG  ?= ./...
ARGS ?=
FUZZTIME ?= 20s

# $(call each,COMMAND) runs COMMAND in every module that has PKG, in all of them even if it fails in one.
each = status=0; for module in $(MODULES); do [ ! -d "$$module/$(PKG:/...=)" ] || (cd $$module && $(1)) || status=$$?; done; exit $$status

# SERVER is one of `make servers`; without it the redis-server in PATH is what tests run on.
SERVER ?=
on = $(if $(SERVER),dir=$$(go run ./internal/servers $(SERVER)) || exit 1; export PATH="$$dir:$$PATH";)

# Tests are never taken from the cache: they start servers, and those may have changed.
# RACE= leaves the race detector out. Most of what tests allocate is gone at once: a collector that comes later takes a
# fifth less of the processors, for three times the memory.
RACE ?= -race
collect = GOGC=400 GOMEMLIMIT=3GiB
gotest = $(collect) go test -json $(RACE) -count=1

# ARGS=-v shows the logs of tests that pass, with their figures.
report = ./internal/testreport/report $(filter -v,$(ARGS))

# What the report is made with is built first: both ends of the pipe would compile the standard library at the same time,
# each for itself.
counter = GOWORK=off go tool -n -modfile=tools/go.mod gotestsum

.PHONY: help
help: ## Print this list
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

ifneq ($(wildcard cmd/redlock/main.go),)
.PHONY: demo
demo: ## Show a quorum lock at work, on servers that the demo starts itself
	go run ./cmd/redlock demo
endif

# Three rings: internal/rings says which test is of which. PKG and ARGS choose some of one: ARGS='-run Sibling'.
rings = go run ./internal/rings
some = $(filter-out ./...,$(PKG)) -- $(ARGS)

.PHONY: test
test: try-redis ## Run the first ring: what a change may break, with the race detector; lists what was skipped
	@set -o pipefail; $(counter) >/dev/null || exit 1; $(on) $(rings) test $(some) | $(report)

.PHONY: race
race: test ## The same as test, which has the race detector on

# PART=3 is the third of its six parts; continuous integration runs one with each landing.
PART ?=
.PHONY: test-all
test-all: try-redis ## Run everything, for a night or a release: long searches, soaks, faults, all servers (hours)
	@set -o pipefail; $(on) $(rings) all $(PART) | $(report)

.PHONY: test-long
test-long: try-redis ## Run the tests that take minutes alone; PKG and ARGS='-run TestLongX' choose some
	@set -o pipefail; $(on) $(rings) long $(some) | $(report)

.PHONY: cost
cost: try-redis ## List the tests of the first ring that cost more than 2 s of processor, each alone (half an hour)
	@$(on) $(rings) cost $(filter-out ./...,$(PKG))

# SERVERS="redis-6.2 valkey-9.1" are those alone. SERVERS=-all runs every test that needs a server, on every version.
# Without the race detector, which has seen these tests in make test.
SERVERS ?=
.PHONY: test-servers
test-servers: ## Run the server ring: what the version of a server can change, on the three versions that differ most
	@set -o pipefail; go run ./internal/servers -test $(SERVERS) | $(report)

# FAULTS=each plays each fault as long, and four minutes of the random application instead of ten.
FAULTS ?= all
.PHONY: test-faults
test-faults: try-redis ## Run every fault of integration/README.md on real servers (about 20 minutes)
	@set -o pipefail; $(on) { cd integration && export REDQUORUM_FAULTS=$(FAULTS); failed=0; \
		$(gotest) -timeout 150m $(ARGS) ./faults/... || failed=$$?; \
		$(gotest) -timeout 60m -run '^TestFaults' $(ARGS) ./fencing || failed=$$?; \
		exit $$failed; \
	} | $(report)

.PHONY: test-interop
test-interop: try-redis ## Contend with the reference system's Java client (needs Java 17 and Maven)
	@set -o pipefail; $(on) { cd integration && $(gotest) -timeout 30m $(ARGS) ./interop/...; } | $(report)

# Members in containers. PROFILE: masters3, masters5, toxiproxy, tls, cluster, sentinel; REDIS_IMAGE chooses
# the server, and "docker/set image" makes one where there is no registry.
PROFILE ?= masters3
.PHONY: up
up: ## Start a set of members in containers (PROFILE=masters3, see docker/compose.yaml)
	@docker/set up $(PROFILE)

.PHONY: down
down: ## End all sets of members in containers, and delete their data
	@docker/set down

.PHONY: recordings
recordings: ## Make docs/*.cast, docs/timeline.png and docs/recordings.md anew (a minute, on a quiet machine; needs chromium)
	go run ./internal/recordings

.PHONY: test-docker
test-docker: ## Stop, kill, pause and disconnect members in containers (needs docker and compose)
	@set -o pipefail; docker/set down && docker/set up masters3 || exit 1; status=0; \
	{ (cd integration && REDQUORUM_DOCKER=1 $(gotest) -timeout 15m $(ARGS) ./docker/...) || status=$$?; docker/set down || true; exit $$status; } \
		| $(report)

# A failing seed prints itself; REDQUORUM_SEED=N replays it alone, and with REDQUORUM_SEEDS it is the first.
SEEDS ?= 1000
.PHONY: soak
soak: ## Play SEEDS (1000) random schedules in fake time
	@set -o pipefail; REDQUORUM_SEEDS=$(SEEDS) go test -json -count=1 -timeout 24h -run '^TestSeeds' $(ARGS) ./redlock | $(report)

# The random application of integration/README.md. OUT gets its figures; without the race detector, for pace.
DURATION ?= 2h
OUT ?= integration/results
.PHONY: soak-app
soak-app: try-redis ## Run clients that do everything at random beside random faults, for DURATION (2h)
	@set -o pipefail; { cd integration && REDQUORUM_APP_SOAK=$(DURATION) REDQUORUM_APP_OUT=$(abspath $(OUT)) \
		nice go test -json -count=1 -timeout 24h -run '^TestFaultsRandomApplication$$' $(ARGS) ./faults; } | $(report)

.PHONY: mutants
mutants: ## Take every guard out once, and list the test that notices (20 minutes)
	@go run ./internal/mutants $(ARGS)

.PHONY: spec
spec: ## Check the spec of the mutex with spin: every schedule, and a mutant for each rule (3 minutes of one core)
	@docs/spec/check

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (20s) each
	@$(call each,for pkg in $$(go list $(PKG)); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; done)

.PHONY: microbench
microbench: ## Run the micro-benchmarks
	@$(call each,go test -run '^$$' -bench . -benchmem $(ARGS) $(PKG))

# The suite of bench/: ARGS are its flags, see bench/README.md.
.PHONY: bench
bench: try-redis ## What redquorum has to reach, beside it, on servers it starts itself (about 3 minutes)
	@cd bench && go run . $(ARGS)

.PHONY: bench-full
bench-full: try-redis ## The same with all workloads (hours; goes on where it was stopped)
	@cd bench && go run . -full $(ARGS)

# All entries in few repetitions, and in more those that the goals compare. It goes on where it was stopped; if its raw data
# is complete, it measures nothing.
reference = cd bench && go run . -out results/reference
ours = floor,floor-mutex,floor-notify,floor-scripts,floor-standing,redquorum,redquorum-keep,redquorum-new
peers = redsync-rueidis,rueidislock,etcd
.PHONY: bench-reference
bench-reference: try-redis ## The run that bench/results/reference has (half an hour; begin without its raw.jsonl)
	@test -e bench/results/reference/raw.jsonl || rm -f bench/results/reference/*
	@$(reference) -entries '*' -duration 300ms -reps 3 -workloads W1,W2,W3d
	@$(reference) -entries '*' -duration 300ms -reps 3 -n 3 -workloads W20
	@$(reference) -entries $(ours) -duration 300ms -reps 7 -workloads W1,W2,W3d
	@$(reference) -entries $(ours),$(peers) -duration 300ms -reps 3 -workloads W3,W20
	@$(reference) -entries $(ours) -duration 300ms -reps 1 -workloads W17,W18,W19
	@$(reference) -full -entries floor,redquorum,redquorum-new -duration 300ms -reps 2 -workloads W8
	@$(reference) -full -entries floor,redquorum -duration 500ms -reps 3 -n 5 -workloads W4,W5
	@$(reference) -full -entries floor,redquorum -reps 1 -n 1,5 -workloads W6,W7
	@$(reference) -full -entries $(ours),$(peers) -duration 300ms -reps 2 -workloads W3p,burst

# MEMBERS are servers that run already; otherwise five are brought up in containers, and down again.
.PHONY: bench-docker
bench-docker: ## Compare on five members in containers, or on servers that run: MEMBERS=host:port,…
	@if [ -n "$(MEMBERS)" ]; then cd bench && go run . -members "$(MEMBERS)" $(ARGS); \
	else trap 'docker/set down 2>/dev/null || true' EXIT; docker/set up masters5 >/dev/null || exit 1; \
		(cd bench && go run . -members 127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003,127.0.0.1:7004,127.0.0.1:7005 $(ARGS)); fi

.PHONY: bench-setup
bench-setup: ## Build what bench compares with in other languages (Node with npm, Java 17 with Maven)
	@status=0; \
	if command -v npm >/dev/null; then (cd bench/children/node && npm ci --no-audit --no-fund) || status=1; else echo "no npm (Debian: apt-get install nodejs npm)" >&2; fi; \
	if command -v mvn >/dev/null; then (cd bench/children/redisson && mvn -q -B package) || status=1; else echo "no mvn (Debian: apt-get install openjdk-17-jdk-headless maven)" >&2; fi; \
	exit $$status

# staticcheck is a tool of tools/go.mod; -modfile does not go with workspaces, hence GOWORK=off for building it. It checks
# all modules of the workspace at once, as go vet does, so that what they share is read once.
linted = $(if $(filter ./...,$(PKG)),$(MODULES:%=%/...),$(PKG))
.PHONY: lint
lint: ## Check formatting, go vet, and staticcheck
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w these files:"; echo "$$unformatted"; exit 1; fi
	@go vet $(linted)
	@"$$(GOWORK=off go tool -n -modfile=tools/go.mod staticcheck)" $(linted)

# The modules that others import. bench and integration pass too, but what they import takes minutes to compile, and
# they run on Linux: PORTABLE=./integration checks one of them. On Windows bench does not build.
PUBLISHED := $(filter-out ./bench ./integration,$(MODULES))
PORTABLE ?= $(PUBLISHED)
.PHONY: published
published:
	@echo $(PUBLISHED)
.PHONY: portable
portable: ## Vet for Windows and macOS (PORTABLE chooses modules)
	@status=0; for system in windows darwin; do echo "$$system: go vet"; \
		GOOS=$$system CGO_ENABLED=0 go vet $(PORTABLE:%=%/...) || status=1; done; exit $$status

.PHONY: redis
redis: ## Install redis-server if it is missing
	@./internal/install-redis

# versitygw is a server of S3. DynamoDB Local is of its maker, and needs Java.
.PHONY: storages
storages: ## Install servers that tests of fencing run on, and that Debian does not have
	GOFLAGS= go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	@integration/fencing/mysql/fetch || echo "no MySQL: it comes from the packages of Ubuntu 22.04, with apt-get" >&2
	@if command -v mvn >/dev/null; then mvn -q -B -f integration/fencing/dynamodb/pom.xml dependency:copy-dependencies -DoutputDirectory=target/lib; \
	else echo "no mvn: without DynamoDB Local (Debian: apt-get install openjdk-17-jdk-headless maven)" >&2; fi

.PHONY: servers
servers: ## List the versions that tests can run on: make test SERVER=valkey-9.1
	@go run ./internal/servers

# Without redis-server most tests still run, and the report lists the others; `make redis` is the strict one.
.PHONY: try-redis
try-redis:
	@$(if $(SERVER),true,./internal/install-redis) || echo "going on without redis-server: tests that need it are listed at the end" >&2
