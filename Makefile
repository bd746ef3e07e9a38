# Targets a person can guess. `make help` lists them; `make check` is what CI runs.

GO        ?= go
FUZZTIME  ?= 10s
# Passed to the demo: make demo ARGS='--seed 7 --jobs 500'
ARGS     ?=

LINTER    := bin/golangci-lint
LINTMOD   := internal/tools/golangci-lint
PROMTOOL  := bin/promtool
PROMMOD   := internal/tools/promtool
VULNCHECK := bin/govulncheck
VULNMOD   := internal/tools/govulncheck
JAEGER    := bin/jaeger
JAEGERMOD := internal/tools/jaeger

# Modules of their own, with the rules of the main one.
MODULES   := internal/outside internal/e2e internal/cloudevents internal/browser internal/peers internal/deploy

.DEFAULT_GOAL := help
.PHONY: help api demo test race lint fmt vet tidy fuzz build check clean postgres jaeger jaeger-test docs pooler-test cloudevents-test browser-test night chain-test model matrix soak rules-test bench peers peers-test deploy-test licences vulncheck

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: postgres ## run the main job on real parts, with crashes (ARGS='--seed 7')
	$(GO) run ./cmd/settle demo $(ARGS)

# With DATABASE_URL set the tests use that server and need no binaries; the demo always starts its own.
test: $(if $(DATABASE_URL),,postgres) ## run all tests
	$(GO) test -timeout 20m ./...

race: $(if $(DATABASE_URL),,postgres) ## run all tests with the race detector (needs a C compiler)
	$(GO) test -race -timeout 30m ./...

lint: $(LINTER) ## run the linters of .golangci.yaml, in all modules but those of tools
	$(LINTER) run ./...
	@sed 's/warn-unused: true/warn-unused: false/' .golangci.yaml >bin/golangci-modules.yaml # not each exception is needed in each
	@set -e; for module in $(MODULES); do \
	  echo "$(LINTER) run, in $$module"; \
	  (cd $$module && $(CURDIR)/$(LINTER) run --path-mode abs --config $(CURDIR)/bin/golangci-modules.yaml ./...); \
	done

# Traces in memory, gone with Ctrl-C. The Go module of Jaeger comes without the built UI: JAEGER_UI=DIR names a folder
# that has it, for example the one in Jaeger's container image.
jaeger: $(JAEGER) ## run Jaeger on the loopback interface, for make demo ARGS='--otlp http://127.0.0.1:4317'
	@echo "send to   http://127.0.0.1:4317 (OTLP over gRPC), http://127.0.0.1:4318 (over HTTP)"
	@echo "look at   http://127.0.0.1:16686/api/traces?service=settle-worker (JSON; with JAEGER_UI=DIR the UI at /search)"
	$(JAEGER) --config $(JAEGERMOD)/jaeger.yaml

jaeger-test: $(JAEGER) $(if $(DATABASE_URL),,postgres) ## find the spans of killed and late jobs in a real Jaeger
	$(GO) -C internal/e2e vet .
	$(GO) -C internal/e2e test -count=1 .

# A PgBouncer that is missing fails them, with the command that installs it.
pooler-test: $(if $(DATABASE_URL),,postgres) ## run the program behind a real PgBouncer, which has to be installed
	$(GO) -C internal/e2e vet ./pooler
	$(GO) -C internal/e2e test -count=1 ./pooler

cloudevents-test: $(if $(DATABASE_URL),,postgres) ## publish and receive CloudEvents with their official SDK
	$(GO) -C internal/cloudevents vet .
	$(GO) -C internal/cloudevents test -race -count=1 .

# A Chromium that is missing fails them, with the command that installs it. The pictures of all pages stay in bin/screens.
browser-test: $(if $(DATABASE_URL),,postgres) ## walk through the support screen in a real Chromium, which has to be installed
	$(GO) -C internal/browser vet .
	$(GO) -C internal/browser test -count=1 -timeout 15m .

# No container engine and no cluster: the program of the image on real servers, and the manifests against what it knows.
deploy-test: $(PROMTOOL) $(if $(DATABASE_URL),,postgres) ## check the image, the rights, and the manifests of deploy
	$(GO) -C internal/deploy vet ./...
	$(GO) -C internal/deploy test -count=1 -timeout 15m ./...
	$(PROMTOOL) check config --syntax-only deploy/compose/prometheus.yaml

rules-test: $(PROMTOOL) ## check the alert rules of deploy/prometheus and run their tests
	$(PROMTOOL) check rules deploy/prometheus/rules.yaml
	$(PROMTOOL) test rules deploy/prometheus/rules_test.yaml

# Six minutes: the provider is away for two of them.
night: $(if $(DATABASE_URL),,postgres) ## run an operator's night: an outage, hidden effects, a kill, a purge; then decide the rest by commands
	$(GO) vet -tags night ./cmd/settle
	$(GO) test -tags night -count=1 -timeout 20m -run TestNight ./cmd/settle

# 10,000 jobs in one to two minutes, several faults a second.
soak: $(if $(DATABASE_URL),,postgres) ## break everything at random under 10,000 jobs, and count the effects (ARGS='--jobs 300000 --seed 7')
	$(GO) run ./cmd/settle soak $(ARGS)

# Some minutes. The machine should have nothing else to do.
bench: $(if $(DATABASE_URL),,postgres) ## measure jobs per second, latency, growth and recovery (ARGS='--only loop,external')
	$(GO) run ./cmd/settle bench $(ARGS)

# Some minutes, on servers of its own. The machine should have nothing else to do.
peers: postgres ## measure Settle beside River, a hand-written loop and a bare prototype (ARGS='--all', ARGS='--tune')
	@$(GO) -C internal/peers run . $(ARGS)

peers-test: postgres ## the same in short: fail if Settle is absurdly slower than River, or if a contestant loses a job
	$(GO) -C internal/peers vet .
	$(GO) -C internal/peers test -count=1 -timeout 20m .

# About a minute. SETTLE_CHAIN_SEED=N repeats who is killed when.
chain-test: $(if $(DATABASE_URL),,postgres) ## charge 10,000 orders while workers are killed: as many events and receipts
	$(GO) vet -tags chain ./internal/cases
	$(GO) test -tags chain -count=1 -timeout 10m -v -run TestTenThousandCharges ./internal/cases

# About two minutes. A cell counts only if a process was seen to die at its point. The whole log stays in bin/matrix.log.
matrix: $(if $(DATABASE_URL),,postgres) ## kill a worker at each point of a delivery, and show what each cell of the matrix came to
	GO='$(GO)' internal/tools/matrix.sh

# Needs spin and a C compiler: apt-get install spin.
model: ## check the model of the protocol with spin, and refute six wrong ones
	internal/model/check.sh

# A name that is exported stays: look at the diff before it is committed.
api: ## write docs/api.txt anew: every public name of the packages that others import
	$(GO) test -count=1 -run 'TestPublicNames$$' . -update-api

docs: ## write docs/configuration.md anew from the flags
	$(GO) test -count=1 -run TestConfigurationReference ./cmd/settle -args -update

fmt: ## format the code
	gofmt -s -w .

vet: ## go vet, also of the build without the embedded broker
	$(GO) vet ./...
	$(GO) vet -tags nodemo ./...

# Not those of Jaeger and promtool: tidying them fetches hundreds of modules for the tests of their dependencies.
tidy: ## tidy every go.mod
	$(GO) mod tidy
	@set -e; for module in $(MODULES); do echo "$(GO) mod tidy, in $$module"; $(GO) -C $$module mod tidy; done
	$(GO) -C $(LINTMOD) mod tidy
	$(GO) -C $(VULNMOD) mod tidy

fuzz: ## run each fuzz target for FUZZTIME (10s)
	GO='$(GO)' internal/tools/fuzz.sh $(FUZZTIME)

licences: ## list the licences of what the program is built of in docs/licences.md, and collect their texts in bin/licences
	$(GO) test -count=1 -run TestTheLicencesOfTheProgram . -update-licences

# Not part of make check: it needs https://vuln.go.dev (or GOVULNDB=URL, which may be file:///…), and what that says changes
# from day to day without a change of ours.
vulncheck: $(VULNCHECK) ## look for known vulnerabilities that the program reaches (needs the Go vulnerability database)
	internal/tools/vulncheck.sh ./cmd/settle ./consumer/... ./handlers/... ./idemstore/...

build: ## build bin/settle
	$(GO) build -trimpath -o bin/settle ./cmd/settle

check: ## run what CI runs
	bash .ci/run </dev/null

clean: ## remove what make built
	rm -rf bin

# Installs the distribution's PostgreSQL when its server binaries are missing, and says so.
postgres:
	@internal/tools/install-postgres.sh

$(LINTER): $(LINTMOD)/go.mod $(LINTMOD)/go.sum
	@echo "building golangci-lint; the first time takes some minutes" >&2
	$(GO) -C $(LINTMOD) build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(VULNCHECK): $(VULNMOD)/go.mod $(VULNMOD)/go.sum
	$(GO) -C $(VULNMOD) build -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck
	@touch $@

$(PROMTOOL): $(PROMMOD)/go.mod $(PROMMOD)/go.sum
	@echo "building promtool; the first time takes some minutes, later ones come from Go's build cache" >&2
	$(GO) -C $(PROMMOD) build -ldflags '-s -w' -o $(CURDIR)/$@ github.com/prometheus/prometheus/cmd/promtool
	@touch $@

$(JAEGER): $(JAEGERMOD)/go.mod $(JAEGERMOD)/go.sum
	@echo "building Jaeger; the first time takes up to 14 minutes, later ones come from Go's build cache" >&2
	$(GO) -C $(JAEGERMOD) build -ldflags '-s -w' -o $(CURDIR)/$@ github.com/jaegertracing/jaeger/cmd/jaeger
	@touch $@
