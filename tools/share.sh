#!/usr/bin/env bash
# Copies what a release brings beside the program to a folder: the documentation and what it names,
# in the layout of the source, so that links from page to file hold.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$1
mkdir -p "$out/contrib" "$out/packaging"
cp -r README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs configs "$out/"
cp -r contrib/haproxy "$out/contrib/"
cp -r packaging/kubernetes packaging/helm packaging/Containerfile "$out/packaging/"
find "$out" \( -name '*.go' -o -name '*_test.yaml' \) -delete
