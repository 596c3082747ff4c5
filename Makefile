# kgate: what there is to do. `make help` lists it.
GO ?= go
LINT := $(CURDIR)/bin/lint

# As a release is built, so that nothing is compiled twice. The race detector needs cgo.
export CGO_ENABLED = 0

# Compilers, linters and worlds in virtual time end soon, so less of their time goes into collecting garbage.
compile beside lint virtual concurrent clocked: export GOGC = 400

.DEFAULT_GOAL := help
.PHONY: help build dist dist-again newcomer demo test compile virtual real race concurrent clocked beside timeless check soak fuzz mutants bench lint fmt tidy cover ci clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: ## build bin/kgate, static
	GOWORK=off $(GO) build -trimpath -o bin/kgate ./cmd/kgate

dist: ## everything that is released, in dist/: the same bytes for the same commit
	tools/dist.sh

dist-again: ## make dist twice, the second time elsewhere and from nothing, and compare
	tools/dist-again.sh

demo: ## run the main job on this machine for 20 s
	$(GO) run ./cmd/kgate demo --duration 20s

# Three modules: the product's, and test and an example, which need more than who imports kgate
# should inherit. go.work joins them: "work" is the packages of all. Real processes need a processor
# now and then, but at once. Many wait for most of their time, so more of them run at once than there
# are processors, and those that take longest begin first. What no clock judges runs beside them, as
# far as they leave a processor: linters and compilers beside the tests in real time, and those in
# virtual time beside the race detector.
TEST = KGATE_TEST_BINARY=$$(tools/test-binary.sh) $(GO) test -vet=off
VIRTUAL := ./kmutex ./coordinator ./replication ./internal/gateway ./internal/membership/... ./internal/pool ./lab/... ./cmd/kgate-lab ./proxy/http1
REAL = ./test/browser ./test/cluster ./test/prometheus ./test/netns ./proxy $(filter-out $(shell $(GO) list $(VIRTUAL)),$(shell $(GO) list work))

# Packages with goroutines. The race detector takes many times as long, so it runs what is fast.
CONCURRENT := . ./chordring/serfring ./client ./internal/admin ./internal/journal \
	./internal/node ./internal/pace ./internal/peercall ./internal/transport ./proxy/... ./replication/disk ./telemetry ./telemetry/prom ./test/library
CLOCKED := ./internal/gateway ./internal/membership
# They take half the time of all, and reach half a percent of the statements that the others do not.
LONG := ^Test(Fair|Sharing|ExpectedWait|ManyJoin|UpstreamsComeAndGo|AbandonedThroughLosses)

test: ## the fast tests: five minutes, and nothing but Go
	$(TEST) -p 5 -parallel 8 -short work

virtual: ## the tests in virtual time, few seeds of each: make soak has more
	$(GO) test -vet=off -p 2 -short $(VIRTUAL)

real: ## the tests in real time but the long ones of make soak; those with other programs need tools/test-tools.sh
	$(TEST) -p 3 -parallel 4 $(REAL)

race: concurrent clocked ## the fast tests of packages with goroutines under the race detector

concurrent:
	CGO_ENABLED=1 $(GO) test -vet=off -race -short -p 4 -parallel 8 $(CONCURRENT)

clocked: # on several processors, timers of virtual time crash the detector (Go 1.26)
	CGO_ENABLED=1 $(GO) test -vet=off -race -short -cpu 1 -skip '$(LONG)' $(CLOCKED)

compile: ## all packages and their tests, so that little is left to do while real processes are judged
	$(GO) list -test -export -deps work >/dev/null

beside: ## the linters, and compilation for the race detector, when nothing else wants a processor
	nice -n 19 $(MAKE) --no-print-directory lint
	CGO_ENABLED=1 nice -n 19 $(GO) list -race -test -export -deps $(CONCURRENT) $(CLOCKED) >/dev/null

timeless:
	nice -n 10 $(MAKE) --no-print-directory --keep-going virtual clocked

check: ## what CI runs: all tests, linters, race detector; goes on after a failure
	@$(MAKE) --keep-going --no-print-directory --jobs 2 --output-sync=line real beside; real=$$?; \
	$(MAKE) --keep-going --no-print-directory --jobs 2 --output-sync=line concurrent timeless && exit $$real

soak: ## every seed, the planted defects, the exact bounds in real time, and what runs long: hours on a quiet machine
	npm ci --prefix test/browser/grafana --no-audit --no-fund --silent
	KGATE_SOAK=1 $(GO) test -v -count=1 -p 2 -timeout 2h $(VIRTUAL)
	KGATE_SOAK=1 $(GO) test -v -count=1 -p 1 -parallel 1 -timeout 2h ./cmd/kgate ./test/...

FUZZTIME ?= 30s
fuzz: ## every fuzz target for FUZZTIME (30s)
	@set -e; for pkg in $$($(GO) list work); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; done

SINCE ?=
mutants: ## before a release: defects in lines that changed since SINCE (the last tag) that the fast tests miss
	tools/mutants.sh $(SINCE)

newcomer: ## docs/install.md on clean Debian machines with systemd, as root, some minutes
	KGATE_NEWCOMER=1 $(GO) test -v -count=1 -timeout 20m ./test/newcomer

bench: ## side by side: upstream, ReverseProxy, one kgate, three; what an admission costs
	$(GO) test -run '^$$' -bench . -timeout 20m ./test/bench

lint: $(LINT) bin/gofumpt ## staticcheck, vet and more, as tools/lint and staticcheck.conf say; formatting
	$(LINT) -unchecked tools/lint/unchecked.txt ./... ./test/... ./examples/kgrpc
	test -z "$$(bin/gofumpt -l . | tee /dev/stderr)"

fmt: bin/gofumpt ## format
	bin/gofumpt -w .

$(LINT): tools/go.mod tools/lint/main.go # "go tool" would compile Go's library anew
	cd tools && GOWORK=off $(GO) build -o ../bin/ ./...
	touch $@

bin/gofumpt: tools/go.mod
	cd tools && GOWORK=off $(GO) build -o ../bin/ mvdan.cc/gofumpt
	touch $@

tidy: ## tidy the module files
	@set -e; for module in . test examples/kgrpc tools tools/chart contrib/caddy; do (cd $$module && GOWORK=off $(GO) mod tidy); done

cover: ## coverage of the unit tests
	$(GO) test -short -coverprofile=coverage.out ./... && $(GO) tool cover -func=coverage.out | tail -1

ci: ## what CI runs
	.ci/run

clean: ## remove what was built
	rm -rf bin dist coverage.out
