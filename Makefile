# make build   bin/liqo-agent for this machine          make test    everything that must hold
# make demo    two boxes on one LAN find each other     make check   lint and unit tests, the minute while editing
# make bench   the numbers in docs/benchmarks.md        make flakes  look for tests that fail only sometimes
# make package dist/: .deb and .rpm for each platform   make attack  what attackers try, and what comes of it
# make soak    a day of peers that come and go          make chaos   faults by a schedule, and what comes of them
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The date of what is built, as reproducible builds have it.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# Everything is compiled with the same flags, so that it is compiled once: the build cache keeps results apart by them. Nothing
# that is built here is debugged, and a quarter of what the compiler writes would be for that. Collecting garbage less often
# makes it faster, and the limit keeps that in bounds.
export CGO_ENABLED := 0
SAME_FLAGS         := -trimpath -gcflags=all=-dwarf=false
export GOFLAGS     := $(filter-out $(SAME_FLAGS),$(shell go env GOFLAGS)) $(SAME_FLAGS)
COMPILE            := GOGC=400 GOMEMLIMIT=1GiB

# progress TEXT DIR: go build by it says how far it is, and about how long it takes.
progress = @$(COMPILE) $(CURDIR)/bin/progress -what '$(1)' -C $(2)
# kept TEXT DIR: the same for programs of the bed, which are linked once for all clones.
kept     = @$(COMPILE) $(CURDIR)/bin/progress -what '$(1)' -C $(2) -keep
# stage TEXT: what comes next.
stage    = @echo '== $(1)' >&2

bin/progress: $(filter-out %_test.go,$(wildcard internal/progress/*.go))
	@echo "building what tells the progress of builds" >&2
	@$(COMPILE) go build -ldflags '-s -w' -o $@ ./internal/progress

# One static binary without symbols, and without anything of the place where it is built: a commit gives the same bytes.
export GOTOOLCHAIN ?= local
# Without the part of the command line's library that writes documents: nothing here calls it, but what it imports would be linked.
GO_BUILD := go build -trimpath -buildvcs=false -tags urfave_cli_no_docs -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X liqo.io/agent/trust.built=$(SOURCE_DATE_EPOCH)'

AGENT ?= bin/liqo-agent

# Before the bed's programs are built, their modules are downloaded while the agent is being compiled.
.PHONY: build
build: bin/progress
	$(call progress,the agent,.) $(if $(filter demo test,$(MAKECMDGOALS)),$(if $(wildcard bin/kubebox),,-fetch internal/bed/kube)) $(GO_BUILD) -o $(AGENT) .

# Agents of another age, for the test of what happens when two versions meet: they speak these versions of the protocol.
SPEAKING := 1-2 2

.PHONY: versions
versions: $(SPEAKING:%=bin/liqo-agent-speaks-%)

.PHONY: $(SPEAKING:%=bin/liqo-agent-speaks-%)
$(SPEAKING:%=bin/liqo-agent-speaks-%): bin/liqo-agent-speaks-%:
	@$(COMPILE) go build -tags urfave_cli_no_docs -ldflags '-s -w -X main.version=v0.0.0-speaks-$* -X liqo.io/agent/peer.spoken=$*' -o $@ .

PLATFORMS := amd64 arm64 armv7

.PHONY: build-all
build-all: $(PLATFORMS:%=bin/liqo-agent-linux-%)

bin/liqo-agent-linux-amd64: export GOARCH = amd64
bin/liqo-agent-linux-arm64: export GOARCH = arm64
bin/liqo-agent-linux-armv7: export GOARCH = arm
bin/liqo-agent-linux-armv7: export GOARM = 7
# Static pattern: targets that are always made again do not match ordinary ones.
.PHONY: $(PLATFORMS:%=bin/liqo-agent-linux-%)
$(PLATFORMS:%=bin/liqo-agent-linux-%): bin/liqo-agent-linux-%:
	GOOS=linux $(GO_BUILD) -o $@ .

# Packages, plain binaries, their SBOMs, install.sh and SHA256SUMS: the same bytes again for a commit and a version of Go.
MAINTAINER ?= liqo-agent maintainers <maintainers@liqo-agent.invalid>

.PHONY: package
package: build build-all bin/packager man
	bin/packager -version '$(VERSION)' -maintainer '$(MAINTAINER)' -out dist $(foreach p,$(PLATFORMS),$(p)=bin/liqo-agent-linux-$(p))
	@ls -l dist

# A module of its own.
bin/packager: $(wildcard packaging/build/*.go) packaging/build/go.mod packaging/build/go.sum | bin/progress
	$(call kept,what makes packages,packaging/build) go build -ldflags '-s -w' -o $(CURDIR)/$@ .

# The manual pages, from the command tree and the table of settings.
.PHONY: man
man:
	rm -rf bin/man && mkdir -p bin/man
	go run ./internal/reference/cmd/man bin/man

# The control plane of the test bed: minutes to build at first, so only when its sources have changed. Without its
# version in it, kubectl cannot talk to it. Its module tests the rules of the custom resources, too, with what is compiled.
KUBE_DIR     := internal/bed/kube
KUBE_SOURCES := $(wildcard $(KUBE_DIR)/*.go) $(KUBE_DIR)/go.mod $(KUBE_DIR)/go.sum
KUBE_VERSION := $(shell awk '$$1 == "k8s.io/kubernetes" {print $$2}' $(KUBE_DIR)/go.mod)
KUBE_PARTS   := $(subst ., ,$(KUBE_VERSION:v%=%))
KUBE_STAMP   := k8s.io/component-base/version
KUBE_LDFLAGS := -s -w \
	-X $(KUBE_STAMP).gitVersion=$(KUBE_VERSION) \
	-X $(KUBE_STAMP).gitMajor=$(word 1,$(KUBE_PARTS)) \
	-X $(KUBE_STAMP).gitMinor=$(word 2,$(KUBE_PARTS))

.PHONY: kubebox
kubebox: bin/kubebox bin/kubectl
bin/kubebox: $(KUBE_SOURCES) | bin/progress
	$(call kept,Kubernetes $(KUBE_VERSION) for the test bed,$(KUBE_DIR)) go build -ldflags '$(KUBE_LDFLAGS)' -o $(CURDIR)/$@ .

bin/kubectl: $(wildcard $(KUBE_DIR)/kubectl/*.go) $(KUBE_DIR)/go.mod $(KUBE_DIR)/go.sum | bin/progress
	$(call kept,kubectl for the test bed,$(KUBE_DIR)) go build -ldflags '$(KUBE_LDFLAGS)' -o $(CURDIR)/$@ ./kubectl

# The kubelet of the test bed that runs pods without containers, and the one with containers, together with kube-proxy,
# for which few tests ask.
bin/kwok: $(KUBE_DIR)/go.mod $(KUBE_DIR)/go.sum | bin/progress
	$(call kept,kwok for the test bed,$(KUBE_DIR)) go build -ldflags '-s -w' -o $(CURDIR)/$@ sigs.k8s.io/kwok/cmd/kwok

bin/kubelet: $(wildcard $(KUBE_DIR)/kubelet/*.go) $(KUBE_DIR)/go.mod $(KUBE_DIR)/go.sum | bin/progress
	$(call kept,the kubelet for the test bed,$(KUBE_DIR)) go build -ldflags '$(KUBE_LDFLAGS)' -o $(CURDIR)/$@ ./kubelet

# What runs in pods of the real kubelet.
bin/shop: $(wildcard internal/bed/cmd/shop/*.go) | bin/progress
	$(call kept,what runs in pods of the test bed,.) go build -ldflags '-s -w' -o $@ ./internal/bed/cmd/shop

# The DNS server of clusters.
bin/coredns: $(wildcard $(KUBE_DIR)/coredns/*.go) $(KUBE_DIR)/go.mod $(KUBE_DIR)/go.sum | bin/progress
	$(call kept,CoreDNS for the test bed,$(KUBE_DIR)) go build -ldflags '-s -w' -o $(CURDIR)/$@ ./coredns

# What makes volumes for claims, as in K3s.
bin/local-path-provisioner: $(KUBE_DIR)/go.mod $(KUBE_DIR)/go.sum | bin/progress
	$(call kept,local-path-provisioner for the test bed,$(KUBE_DIR)) go build -ldflags '-s -w' -o $(CURDIR)/$@ github.com/rancher/local-path-provisioner

# What kubectl top asks, as in K3s.
bin/metrics-server: $(wildcard $(KUBE_DIR)/metricsserver/*.go) $(KUBE_DIR)/go.mod $(KUBE_DIR)/go.sum | bin/progress
	$(call kept,metrics-server for the test bed,$(KUBE_DIR)) go build -ldflags '-s -w' -o $(CURDIR)/$@ ./metricsserver

# What K3s keeps its objects in.
KINE_DIR := internal/bed/kine

bin/kine: $(KINE_DIR)/go.mod $(KINE_DIR)/go.sum | bin/progress
	$(call kept,kine for the test bed,$(KINE_DIR)) go build -ldflags '-s -w' -o $(CURDIR)/$@ github.com/k3s-io/kine

# Liqo's own controllers, its custom resources and what its Helm chart installs: only for the tests that are about Liqo.
# make test-liqo LIQO_VERSION=v1.1.2 does it with another version of Liqo than that of the module.
LIQO_VERSION  ?=
LIQO_DIR      := internal/bed/liqo
LIQO_OUT      := bin/liqo$(LIQO_VERSION:%=-%)
LIQO_PROGRAMS := $(addprefix $(LIQO_OUT)/,liqo-controller-manager crd-replicator webhook chart)
# Of another version, the go command finds out what else it requires.
LIQO_MOD      := $(if $(LIQO_VERSION),$(LIQO_OUT)/go.mod)
LIQO_MODFLAGS := $(if $(LIQO_VERSION),-mod=mod -modfile=$(CURDIR)/$(LIQO_MOD))

$(LIQO_OUT)/go.mod: $(LIQO_DIR)/go.mod
	@mkdir -p $(LIQO_OUT)
	{ sed -n '/^module /p; /^go /p; /^tool (/,/^)/p' $<; echo 'require github.com/liqotech/liqo $(LIQO_VERSION)'; } >$@

$(LIQO_PROGRAMS) &: $(wildcard $(LIQO_DIR)/chart/*.go) $(LIQO_DIR)/go.mod $(LIQO_DIR)/go.sum | bin/progress $(LIQO_MOD)
	@mkdir -p $(LIQO_OUT)
	$(call progress,the controllers of Liqo for the test bed,$(LIQO_DIR)) go build $(LIQO_MODFLAGS) -ldflags '-s -w' -o $(CURDIR)/$(LIQO_OUT)/ tool ./chart

$(addprefix $(LIQO_OUT)/,chart.json crds.json networking.json) &: $(LIQO_PROGRAMS)
	$(LIQO_OUT)/chart $$(cd $(LIQO_DIR) && go list $(LIQO_MODFLAGS) -m -f '{{.Dir}} {{.Version}}' github.com/liqotech/liqo) $(LIQO_OUT)

.PHONY: liqo
liqo: $(LIQO_OUT)/chart.json

# What Liqo 1.x does, as the agent relies on it, and what is to drive it. make test does neither, but in CI.
.PHONY: test-liqo
test-liqo: setup kubebox bin/kwok liqo bin/tools/staticcheck
	cd $(LIQO_DIR) && go vet ./chart && $(CURDIR)/bin/tools/staticcheck ./chart
	LIQO_BED_LIQO='$(LIQO_VERSION)' $(EACH_TIME) -v ./internal/bed/liqotest ./liqo/integration

# The rules of the custom resources, as the API server's own code reads them, and the network policies of guests, as an
# engine enforces them.
.PHONY: rules
rules: bin/kubebox
	cd $(KUBE_DIR) && go test -vet=off -count=1 -ldflags '-s -w' ./rules ./netpol

# Debian packages the tests and the demo need.
.PHONY: setup
setup:
	@hack/setup.sh

# QEMU, and a kernel with WireGuard for the tests in a virtual machine.
.PHONY: vm
vm:
	@hack/vm.sh

# The tests of WireGuard alone. make test runs them, too.
.PHONY: test-wireguard
test-wireguard: vm
	go test -count=1 -vet=off -ldflags '-s -w' -run TestInVM -v ./network/integration

bin/tools/staticcheck: tools/go.mod tools/go.sum | bin/progress
	$(call kept,staticcheck,tools) go build -o $(CURDIR)/$@ honnef.co/go/tools/cmd/staticcheck

# After the other one, with which it shares packages.
bin/tools/govulncheck: tools/go.mod tools/go.sum | bin/progress bin/tools/staticcheck
	$(call kept,govulncheck,tools) go build -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck

# What lint finds in the code itself, without a look at modules and at the network.
.PHONY: lint-code
lint-code: bin/tools/staticcheck
	$(call stage,gofmt; vet; staticcheck)
	@unformatted=$$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l); \
	if [[ -n $$unformatted ]]; then echo "not formatted by gofmt:" $$unformatted >&2; exit 1; fi
	@if git grep -n --untracked 'synctest\.Test(t' -- '*_test.go'; then echo "begin bubbles with bubble.Test: its doc comment says why" >&2; exit 1; fi
	$(COMPILE) go vet ./...
	bin/tools/staticcheck ./...

.PHONY: lint
lint: lint-code bin/tools/govulncheck
	cd packaging/build && go vet . && $(CURDIR)/bin/tools/staticcheck .
	go mod verify
	go mod tidy -diff
	@# Of a small program first, only to know whether the database can be reached: to load the packages takes many times as long.
	@unreachable='dial tcp|no such host|fetching vulnerabilities'; \
	found=$$(bin/tools/govulncheck -mode=binary bin/progress 2>&1 || true); \
	if [[ ! $$found =~ $$unreachable ]] && found=$$(bin/tools/govulncheck ./... 2>&1); then exit 0; fi; \
	if [[ $$found =~ $$unreachable ]]; then echo "govulncheck skipped: its database cannot be reached"; \
	else echo "$$found" >&2; exit 1; fi

# The minute while editing: no bed, no control planes, no namespaces, no race detector. Tests that import the bed are left out.
BED   := liqo.io/agent/internal/bed
# without REGEXP: the packages that do not match it, and whose tests import nothing that does.
without = $(shell go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | awk '{ for (i = 1; i <= NF; i++) if ($$i ~ "$(1)") next; sub("liqo.io/agent", "."); print $$1 }')
UNITS   = $(call without,^$(BED)$$)

.PHONY: check
check: lint-code
	$(call stage,unit tests)
	@go test -vet=off -ldflags '-s -w' $(UNITS) | { grep -v -e '^ok ' -e '^? ' -e 'no test files' || true; }

# Looks for tests that fail only sometimes: make flakes N=10 SEED=1 PKG=./mdnssvc/... RUN=TestOne FOR=2h
N   ?= $(if $(FOR),0,10)
PKG ?= ./...

.PHONY: flakes
flakes: setup programs
	@go build -o bin/hunt ./internal/flakes
	@bin/hunt $(RACE) -n '$(N)' -pkg '$(PKG)' -run '$(RUN)' $(if $(SEED),-seed '$(SEED)') $(if $(FOR),-for '$(FOR)')

# What tests run.
.PHONY: programs
programs: build versions bin/liqo-agent-race kubebox bin/kwok bin/kubelet bin/shop bin/coredns bin/local-path-provisioner bin/metrics-server bin/packager man

# The agent with the race detector, for one story from end to end.
.PHONY: bin/liqo-agent-race
bin/liqo-agent-race: private export CGO_ENABLED := 1
bin/liqo-agent-race: | bin/progress
	$(call progress,the agent with the race detector,.) go build $(RACE) -tags urfave_cli_no_docs -ldflags '-s -w' -o $@ .

# The race detector looks at all but SQLite and the parser of YAML, which are C in the clothes of Go and take ten times as long
# under it, and at all but the arithmetic of cryptography, which takes as much longer. Nothing that synchronizes goroutines may be
# left out: the linker takes one of the copies of a generic function, and the detector would miss what that one does.
UNRACED := modernc.org/... go.yaml.in/yaml/v2 $(addprefix crypto/internal/fips140/,edwards25519/... nistec/... mlkem bigmod aes/... sha256 sha512 sha3)
RACE    := -race $(UNRACED:%=-gcflags='%=-dwarf=false -race=false')

# Tests that only run built programs, or read documents and sources: in them the race detector would look at nothing but the tests.
# The longest come first in each group, so that nothing is waited for alone at the end.
E2E     := ./internal/e2e
DRIVING := ./network/integration ./internal/packagetest ./doctor/integration ./service/integration . ./internal/reference
# Two use a processor most of the time. Of those that wait most of the time (mdnssvc, mdnscheck, resolver), no two begin together.
HEAVY   := ./peering/integration ./sharing/integration
LONGEST := ./mdnssvc ./state ./endpoint ./internal/mdnscheck ./internal/bed ./network/filter ./dnssd/resolver/integration
# Tests that start no other program and use no bed depend on nothing that the go command does not see, so it knows when they need not
# run again.
# The list is made once, when it is needed.
ALONE    = $(eval ALONE := $(call without,^$(BED)$$|^$(BED)/cmd/|^os/exec$$))$(ALONE)
# Those in which neither code nor tests themselves begin a goroutine or take a lock: the race detector would see nothing new there, and
# take up to seven times as long.
CONCURRENT   := ^\s*go |\.Go\(|\.Parallel\(|^\s"sync(/atomic)?"$$|\bchan\b|httptest|bubble\.|net\.(Listen|Pipe)
ALONE_RACED   = $(filter $(shell git grep -lE '$(CONCURRENT)' -- '*.go' | xargs dirname | sort -u | sed 's,^,./,'),$(ALONE))
ALONE_UNRACED = $(filter-out $(ALONE_RACED),$(ALONE))
OTHERS   = $(LONGEST) $(filter-out $(E2E) $(DRIVING) $(HEAVY) $(LONGEST) $(ALONE),$(patsubst liqo.io/agent%,.%,$(shell go list ./...)))

# Three groups side by side, each of which takes about as long as the end-to-end tests. With more packages at a time they are in each
# other's way. lint has run vet; without symbols, the test programs are linked in half the time. FRESH=1 runs again what has not
# changed since it passed.
# The timeout bounds a hang; slow machines need a multiple of what fast ones do. Each test that is under way has up to three
# control planes, and each of these costs a hundredth of a processor while it has nothing to do. End-to-end tests wait more than
# others, so there one more fits in. On one processor they begin from the last file to the first, as versions of Go do until now:
# the longest are not left for the end, where they would run alone. Only time depends on it.
# Collecting garbage less often saves a tenth of the processor time of end-to-end tests and of links. Tests that
# measure an agent's memory let it collect its own as it does by itself.
GO_TEST    := GOGC=400 go test -vet=off -parallel 3 -ldflags '-s -w' -timeout 60m
EACH_TIME  := $(GO_TEST) -count=1

# The programs one after another: two builds at once would compile the same packages twice.
.PHONY: one-by-one
one-by-one:
	@MAKEFLAGS= $(MAKE) --no-print-directory programs rules

# Beside lint, which needs nothing of them but what the agent is compiled from, and beside what the virtual machine waits for.
.PHONY: test
test: setup build
	@$(MAKE) --no-print-directory -j3 vm lint one-by-one
	$(call stage,tests)
	cd packaging/build && go test -count=1 ./...
	@bin/progress -what tests $(EACH_TIME) -parallel 4 -cpu 1 $(E2E) \
		-- CGO_ENABLED=1 $(EACH_TIME) $(RACE) -p 2 $(HEAVY) \
		++ CGO_ENABLED=1 $(EACH_TIME) $(RACE) -p 3 $(OTHERS) \
		-- $(EACH_TIME) -p 1 $(DRIVING) \
		++ CGO_ENABLED=1 $(if $(FRESH),$(EACH_TIME),$(GO_TEST)) $(RACE) -p 3 $(ALONE_RACED) \
		++ $(if $(FRESH),$(EACH_TIME),$(GO_TEST)) -p 3 $(ALONE_UNRACED)
	$(if $(filter true,$(CI)),$(MAKE) reads test-liqo)

# What people see of pods at home and next door, side by side, against the table in docs/sharing.md. make test leaves it out, but in CI.
.PHONY: reads
reads: setup programs
	go test -count=1 -vet=off -ldflags '-s -w' -run '^TestPodsReadAsAtHome$$' -v ./internal/e2e

# The end-to-end tests with the objects of clusters in kine, as K3s has them, and not in etcd: make kine RUN=TestSharing. make test
# leaves them out.
.PHONY: kine
kine: PKG = ./internal/e2e
kine: setup programs bin/kine
	LIQO_BED_STORE=kine $(EACH_TIME) -v -p 1 -run '$(RUN)' $(PKG)

# Boxes to which a schedule of faults happens, drawn from a seed: make chaos SEEDS=1-20 ROUNDS=40, or SEEDS=17 again, or STORE=kine,
# or FAULTS=lossy,disorder. See docs/reliability.md. make test leaves it out.
SEEDS  ?= 1-3
ROUNDS ?= 20
BOXES  ?= 3
STORE  ?= etcd
FAULTS ?=

.PHONY: chaos
chaos: setup build versions kubebox bin/kwok bin/kubelet $(if $(filter kine,$(STORE)),bin/kine)
	LIQO_BED_STORE='$(STORE)' LIQO_CHAOS_SEEDS='$(SEEDS)' LIQO_CHAOS_ROUNDS='$(ROUNDS)' LIQO_CHAOS_BOXES='$(BOXES)' \
		LIQO_CHAOS_FAULTS='$(FAULTS)' \
		go test -count=1 -vet=off -ldflags '-s -w' -timeout 0 -run '^TestChaos(Notices)?$$' -v ./internal/e2e

# Peers come and go, and pods move, for as long as FOR says: make soak FOR=96m stands for a day. With FASTER=1
# the intervals are the defaults, and it takes FOR=5h until growth is judged. See docs/reliability.md.
.PHONY: soak
soak: setup build kubebox bin/kwok
	go build -o bin/neighbours ./internal/bed/cmd/neighbours
	go run ./internal/bed/cmd/bench -soak '$(or $(FOR),15m)' -faster '$(or $(FASTER),15)'

# The tests that docs/security.md names, with a table of what was tried and seen. make test runs them, too.
.PHONY: attack
attack: setup programs
	go build -o bin/attacks ./internal/attack/cmd/attacks
	$(call stage,attacks)
	@bin/attacks docs/security.md $(EACH_TIME)

# Root on the machine has containers, others have not (bed.RealRoot).
PODS := $(if $(shell [[ $$(id -u) == 0 ]] && read -r _ outside _ </proc/self/uid_map && [[ $$outside == 0 ]] && echo yes),bin/kubelet bin/shop bin/coredns bin/local-path-provisioner,bin/kwok)

# make bench ONLY=network: the scenarios whose names match that. The plot is drawn by scenario network.
.PHONY: bench
bench: setup build kubebox bin/kwok $(PODS)
	go build -o bin/neighbours ./internal/bed/cmd/neighbours
	go build -ldflags '-s -w' -o bin/netend ./internal/bed/cmd/netend
	go run ./internal/bed/cmd/bench -only '$(ONLY)' -plots docs

# How what the agent needs grows with the number of neighbours, peers, pods, Services and paths: make scale MOST=1000
MOST ?= 0

.PHONY: scale
scale: setup build kubebox bin/kwok
	go build -o bin/neighbours ./internal/bed/cmd/neighbours
	go build -ldflags '-s -w' -o bin/netend ./internal/bed/cmd/netend
	go run ./internal/bed/cmd/bench -scale -only '$(ONLY)' -most '$(MOST)' -plots docs

.PHONY: demo
demo: setup build kubebox $(PODS)
	$(call progress,the demo,.) go build -ldflags '-s -w' -o bin/demo ./internal/bed/cmd/demo
	@bin/demo

# The demo as it ran, for the README.
.PHONY: record
record: setup build kubebox $(PODS)
	go build -o bin/demo ./internal/bed/cmd/demo
	go run ./internal/bed/cmd/record -cast docs/demo.cast -svg docs/demo.svg -still "Six pods are ready" bin/demo

.PHONY: clean
clean:
	rm -rf bin dist
