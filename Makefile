# One word for each thing a developer does here. `make serve` and `make test` set up what they need.
BIN          := bin/agent-sandbox-server
MODULE       := github.com/agent-sandbox/agent-sandbox-server
VERSION      ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
HOST         ?= 127.0.0.1
PORT         ?= 9000
BASE_DIR     ?= $(CURDIR)/sandbox
FUZZTIME     ?= 20s
LDFLAGS      := -s -w -X main.version=$(VERSION)
LINT         := go tool -modfile=tools/go.mod golangci-lint

.PHONY: build serve test vet unit manifests journey image-test lint fmt generate conformance fuzz bench clean

build:
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o $(BIN) ./cmd/agent-sandbox-server

# No token: everybody who reaches the port may run commands, so it listens on loopback only.
serve: build
	mkdir -p "$(BASE_DIR)"
	$(BIN) serve --host $(HOST) --port $(PORT) --base-dir "$(BASE_DIR)"

# One recipe, so that the order holds under `make -j` too.
test:
	scripts/setup
	$(MAKE) vet
	$(MAKE) unit
	$(MAKE) journey

vet:
	@unformatted="$$(gofmt -l .)"; [ -z "$$unformatted" ] || { echo "not formatted (make fmt): $$unformatted" >&2; exit 1; }
	go vet ./...

unit:
	CGO_ENABLED=1 go test -race -timeout 20m ./...
	$(MAKE) manifests

manifests:
	cd deploy && go vet ./... && go test ./...

journey: build
	SERVER_BIN=$(BIN) journey/run

# Builds every image and runs it. Starts an engine if there is none: root, Debian.
image-test:
	images/run -s

lint:
	$(LINT) run ./...
	cd deploy && go tool -modfile=../tools/go.mod golangci-lint run ./...

fmt:
	$(LINT) fmt ./...

generate:
	go generate ./...

conformance:
	.ci/run conformance

fuzz:
	scripts/fuzz $(FUZZTIME)

bench:
	scripts/setup
	bench/run

clean:
	rm -rf bin dist
