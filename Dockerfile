# Images of the server, for amd64 and arm64.
#
#   docker build -t agent-sandbox-server .                   a sandbox: Debian, the server, its policy
#   docker build --target full -t agent-sandbox-server:full . the same with Python, git and Chromium
#   docker build --target binary -t agent-sandbox-server:binary .   the program alone, for other images:
#       COPY --from=agent-sandbox-server:binary /agent-sandbox-server /usr/local/bin/
#
# With template.yaml beside it, the server block of that template is the policy of the image; a template that
# would not launch ends the build. BuildKit is needed (it says which platform is built).
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=debian:bookworm-slim

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG TARGETARCH
ENV CGO_ENABLED=0
RUN --mount=type=cache,target=/root/.cache/go-build \
    GOOS=linux GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" \
        -o /out/agent-sandbox-server ./cmd/agent-sandbox-server
# The program that runs here is this machine's, whatever is built.
RUN --mount=type=cache,target=/root/.cache/go-build \
    go run -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" ./cmd/agent-sandbox-server \
        check-config --template template.yaml --strict --write-policy /out/server-policy.json

FROM scratch AS binary
COPY --from=build /out/agent-sandbox-server /agent-sandbox-server

FROM ${BASE_IMAGE} AS sandbox
RUN useradd --uid 1000 --create-home --home-dir /home/user --shell /bin/bash user
COPY --from=build /out/server-policy.json /etc/agent-sandbox/server-policy.json
COPY --from=build /out/agent-sandbox-server /usr/local/bin/agent-sandbox-server
# By number, so that a platform can see that it is not root.
USER 1000:1000
ENV HOME=/home/user LANG=C.UTF-8
WORKDIR /home/user
EXPOSE 9000 9001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["agent-sandbox-server", "healthcheck"]
ENTRYPOINT ["agent-sandbox-server"]
CMD ["serve"]

FROM sandbox AS full
USER 0:0
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates chromium fonts-dejavu-core git procps python3 python3-venv \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/* \
    # Chromium's own sandbox needs user namespaces, which most engines refuse. Where they do, the container is what
    # is left between a page and the sandbox, as it is for everything else in it.
    && printf '%s\n' 'unshare --user true 2>/dev/null || export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox"' >/etc/chromium.d/sandbox
USER 1000:1000

FROM sandbox AS default
