#!/bin/sh
# Installs agent-sandbox-server: one file, whose checksum is compared before it is used.
#
#   install.sh [VERSION]
#
#   INSTALL_DIR   where to put it                      /usr/local/bin
#   INSTALL_FROM  folder or URL of a release           the project's releases
set -eu

dir="${INSTALL_DIR:-/usr/local/bin}"
version="${1:-0.1.0}"
version="${version#v}"
from="${INSTALL_FROM:-https://github.com/agent-sandbox/agent-sandbox-server/releases/download/v$version}"

fail() {
  echo "install: $*" >&2
  exit 1
}

[ "$(uname -s)" = Linux ] || fail "only Linux is supported"
case "$(uname -m)" in
  x86_64 | amd64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) fail "no program for $(uname -m)" ;;
esac

# $1: name, written to the working directory.
fetch() {
  case "$from" in
    http://* | https://*)
      if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --output "$1" "$from/$1"
      elif command -v wget >/dev/null; then
        wget -q -O "$1" "$from/$1"
      else
        fail "curl or wget is needed"
      fi
      ;;
    *) cp "$from/$1" "$1" ;;
  esac || fail "cannot fetch $1 from $from"
}

# So that nothing half done is ever run, all is made in a folder of its own and moved at the end.
mkdir -p "$dir" || fail "cannot make $dir"
dir="$(cd "$dir" && pwd)"
case "$from" in
  *://*) ;;
  *) from="$(cd "$from" && pwd)" || fail "there is no $from" ;;
esac
work="$(mktemp -d)"
fresh="$dir/.agent-sandbox-server.$$"
trap 'rm -rf "$work" "$fresh"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work"

archive="agent-sandbox-server_${version}_linux_$arch.tar.gz"
fetch checksums.txt
fetch "$archive"
grep "  $archive\$" checksums.txt >wanted || fail "checksums.txt does not name $archive"
sha256sum -c wanted >/dev/null 2>&1 || fail "the checksum of $archive is wrong"
tar -xzf "$archive" agent-sandbox-server || fail "$archive holds no program"
[ "$(./agent-sandbox-server version)" = "$version" ] || fail "the program does not run here, or is not $version"

cp agent-sandbox-server "$fresh" && chmod 0755 "$fresh" && mv "$fresh" "$dir/agent-sandbox-server" || fail "cannot write to $dir"
echo "$dir/agent-sandbox-server $version"
