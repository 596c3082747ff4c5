#!/usr/bin/env bash
# Builds the kgate that tests with real processes start, once for all of them, and
# prints its path for KGATE_TEST_BINARY. The path has the binary's digest: another
# binary is another path, and the go command runs tests again instead of showing
# what they said of an older one.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${KGATE_TEST_BINARY:-}" ]; then
	echo "$KGATE_TEST_BINARY"
	exit
fi
mkdir -p bin/test
new=$(mktemp -d bin/test/new.XXXXXX)
trap 'rm -rf "$new"' EXIT
GOWORK=off CGO_ENABLED=0 go build -buildvcs=false -o "$new/kgate" ./cmd/kgate
to=bin/test/$(sha256sum "$new/kgate" | cut -c1-16)
mkdir -p "$to"
mv "$new/kgate" "$to/kgate"
find bin/test -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf {} +
echo "$PWD/$to/kgate"
