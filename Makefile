# kgate: what there is to do. `make help` lists it.
GO ?= go
LINT := $(CURDIR)/bin/golangci-lint

.DEFAULT_GOAL := help
.PHONY: help build dist dist-again newcomer demo test race check soak fuzz bench lint fmt tidy cover ci clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: ## build bin/kgate, static
	GOWORK=off CGO_ENABLED=0 $(GO) build -trimpath -o bin/kgate ./cmd/kgate

dist: ## everything that is released, in dist/: the same bytes for the same commit
	tools/dist.sh

dist-again: ## make dist twice, the second time elsewhere and from nothing, and compare
	tools/dist-again.sh

demo: ## run the main job on this machine for 20 s
	$(GO) run ./cmd/kgate demo --duration 20s

# Two modules: the product's, and test, which needs more than who imports kgate should
# inherit. go.work joins them, so that each of these commands works in this folder, too.

# Tests with real processes and real time: they wait for most of theirs, so several run at
# a time, and none beside them that compute.
WAITING := ./test/cluster ./test/netns ./internal/membership ./test/browser ./test/library ./test/abuse ./test/docs \
	./test/haproxy ./cmd/kgate ./test/peers ./test/plan ./test/caddy ./internal/demo
# Tests that compare figures of gateways with those of their clients. They run alone.
COMPARING := ./test/prometheus
COMPUTING = $(shell $(GO) list work | grep -v $(patsubst ./%,-e 'kgate/%$$',$(WAITING) $(COMPARING)))
# Packages without a goroutine, and tests of texts and of programs, have nothing to race with.
SEQUENTIAL = $(shell $(GO) list ./kmutex ./coordinator ./chordring ./replication ./internal/pool ./internal/membership/leader ./internal/membership/lease \
	./configs/... ./internal/headeredit ./internal/hostaddr ./internal/httplist ./internal/problems ./test/... ./lab/... | \
	grep -v -e /lab/fuzz -e /lab/experiment -e /lab/plan)

# What is timed must not run beside compilers.
COMPILE = $(GO) list -export -test -deps $(WAITING) $(COMPARING) >/dev/null
# Command lines for bin/tests, which goes on after a failure and says at the end what failed.
# What takes long begins first.
COMPARE = $(COMPILE) && KGATE_TEST_BINARY=$$(tools/test-binary.sh) $(GO) test -json -vet=off $(COMPARING)
WAIT = KGATE_TEST_BINARY=$$(tools/test-binary.sh) $(GO) test -json -vet=off -p 3 -parallel 4 $(WAITING)
COMPUTE = $(GO) test -json -vet=off -p 4 -parallel 8 ./proxy ./internal/gateway ./kmutex ./lab/experiment $(COMPUTING)
RACE = $(GO) test -json -vet=off -race -short -p 4 -parallel 4 ./internal/membership ./proxy ./cmd/kgate $(filter-out $(SEQUENTIAL),$(COMPUTING)) ./test/library ./internal/demo
# What is not timed takes what the others leave of the processors.
IDLE = chrt --idle 0
LINTERS = $(IDLE) $(MAKE) lint
TOOLS = cd tools && export GOWORK=off && $(IDLE) $(GO) vet ./... && $(IDLE) $(GO) test -json ./...

bin/tests: $(wildcard tools/tests/*.go)
	cd tools && GOWORK=off $(GO) build -o ../$@ ./tests

test: bin/tests ## all tests but long soaks
	bin/tests -log bin/tests.log '$(COMPARE)' then '$(WAIT)' then '$(COMPUTE)'

race: bin/tests ## tests under the race detector, but those with real processes and those of packages without goroutines; the largest searches are left out
	bin/tests -log bin/race.log '$(RACE)'

check: bin/tests ## tests, race detector and linters
	bin/tests -log bin/tests.log '$(COMPARE)' then '$(WAIT)' then '$(COMPUTE)' then '$(RACE)' '$(TOOLS)' then '$(LINTERS)'

soak: ## the long runs of the tests with real processes, about an hour
	KGATE_SOAK=1 $(GO) test -v -count=1 -p 1 -parallel 1 -timeout 2h $(WAITING) $(COMPARING)

FUZZTIME ?= 30s
fuzz: ## every fuzz target for FUZZTIME (30s)
	@set -e; for pkg in $$($(GO) list work); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; done

newcomer: ## docs/install.md on clean Debian machines with systemd, as root, some minutes
	KGATE_NEWCOMER=1 $(GO) test -v -count=1 -timeout 20m ./test/newcomer

bench: ## side by side: upstream, ReverseProxy, one kgate, three; what an admission costs
	$(GO) test -run '^$$' -bench . -timeout 20m ./test/bench

lint: $(LINT) ## golangci-lint as .golangci.yaml says
	$(LINT) run ./... ./test/...
	$(LINT) fmt --diff ./...

fmt: $(LINT) ## format
	$(LINT) fmt ./...

$(LINT): tools/go.mod
	cd tools && GOWORK=off $(GO) build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

tidy: ## tidy the module files
	@set -e; for module in . test tools tools/chart contrib/caddy; do (cd $$module && GOWORK=off $(GO) mod tidy); done

cover: ## coverage of the unit tests
	$(GO) test -short -coverprofile=coverage.out ./... && $(GO) tool cover -func=coverage.out | tail -1

ci: ## what CI runs
	.ci/run

clean: ## remove what was built
	rm -rf bin dist coverage.out
