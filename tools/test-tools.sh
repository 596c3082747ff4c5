#!/usr/bin/env bash
# Installs the system tools that some tests use (Debian packages). A test whose
# tool is missing skips and names the package; with CI=true that is a failure.
set -euo pipefail

packages=(chromium curl haproxy iproute2 nftables nghttp2-client nginx-light prometheus python3 redis-server rsync systemd varnish)
command -v npm >/dev/null || packages+=(npm) # nodejs of other sources brings it along

missing=()
for p in "${packages[@]}"; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
	sudo=""
	[ "$(id -u)" -eq 0 ] || sudo=sudo
	export DEBIAN_FRONTEND=noninteractive
	$sudo apt-get update -q
	$sudo apt-get install -q -y --no-install-recommends "${missing[@]}"
	# The packages start services of their own; the tests bring theirs.
	for p in "${missing[@]/nginx-light/nginx}" varnishncsa; do
		$sudo systemctl disable --now "$p" 2>/dev/null || $sudo service "$p" stop 2>/dev/null || true
	done
fi

# axe-core, which looks for what a screen reader would stumble over.
npm ci --prefix "$(dirname "$0")/../test/browser" --no-audit --no-fund --silent
