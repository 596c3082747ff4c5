#!/usr/bin/env bash
# Installs the system tools that some tests use (Debian packages). A test whose
# tool is missing skips and names the package; with CI=true that is a failure.
set -euo pipefail

# axe-core, which looks for what a screen reader would stumble over. It comes from
# npm; where there is none that test is skipped.
if command -v npm >/dev/null; then
	npm ci --prefix "$(dirname "$0")/../test/browser" --no-audit --no-fund --silent
fi

packages=(chromium curl haproxy iproute2 nftables nghttp2-client nginx-light prometheus systemd)

missing=()
for p in "${packages[@]}"; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0

sudo=""
[ "$(id -u)" -eq 0 ] || sudo=sudo
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
$sudo apt-get install -q -y --no-install-recommends "${missing[@]}"
# The packages start services of their own; the tests bring theirs.
for p in "${missing[@]/nginx-light/nginx}"; do
	$sudo systemctl disable --now "$p" 2>/dev/null || $sudo service "$p" stop 2>/dev/null || true
done
