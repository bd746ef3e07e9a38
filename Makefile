# Targets a person can guess. `make help` lists them; `make check` is what CI runs.

GO       ?= go
FUZZTIME ?= 10s
# Passed to the demo: make demo ARGS='--seed 7 --jobs 500'
ARGS     ?=

LINTER   := bin/golangci-lint
LINTMOD  := internal/tools/golangci-lint

.DEFAULT_GOAL := help
.PHONY: help demo test race lint fmt vet tidy fuzz build check clean postgres

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: postgres ## run the main job on real parts, with crashes (ARGS='--seed 7')
	$(GO) run ./cmd/settle demo $(ARGS)

# With DATABASE_URL set the tests use that server and need no binaries; the demo always starts its own.
test: $(if $(DATABASE_URL),,postgres) ## run all tests
	$(GO) test ./...

race: $(if $(DATABASE_URL),,postgres) ## run all tests with the race detector (needs a C compiler)
	$(GO) test -race ./...

lint: $(LINTER) ## run the linters of .golangci.yaml
	$(LINTER) run ./...

fmt: ## format the code
	gofmt -s -w .

vet: ## go vet, also of the build without the embedded broker
	$(GO) vet ./...
	$(GO) vet -tags nodemo ./...

tidy: ## tidy every go.mod
	$(GO) mod tidy
	$(GO) -C $(LINTMOD) mod tidy

fuzz: ## run each fuzz target for FUZZTIME (10s)
	GO='$(GO)' internal/tools/fuzz.sh $(FUZZTIME)

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
