#!/usr/bin/env bash
# Makes what is released twice: here, and in a fresh clone in another place with an
# empty build cache. Fails unless both are the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "$(git status --porcelain)" ]; then
	echo "commit first: only what is committed can be made again" >&2
	exit 1
fi
there=$(mktemp -d)
trap 'chmod -R u+w "$there"; rm -rf "$there"' EXIT
git clone --quiet --no-hardlinks . "$there/elsewhere"
tools/dist.sh dist >/dev/null
GOCACHE=$there/cache "$there/elsewhere/tools/dist.sh" "$there/dist" >/dev/null
diff dist/SHA256SUMS "$there/dist/SHA256SUMS"
echo "the same bytes twice:"
cat dist/SHA256SUMS
