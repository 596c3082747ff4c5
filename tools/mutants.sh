#!/usr/bin/env bash
# mutants.sh [SINCE]: plants defects, one at a time, in the lines of the product that have
# changed since a commit (the last tag): an operator, a condition, a number. Prints those that
# the fast tests of the package do not find (LIVED), do not come to (NOT COVERED), or that make
# them hang (TIMED OUT). Each is equivalent, found by another package's tests, or misses one. The
# tests of coordinator are in kmutex, so there it plants nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v0.6.0 # of github.com/go-gremlins/gremlins
since=${1:-$(git describe --tags --abbrev=0)}
export GOWORK=off
[ -x "bin/gremlins-$version" ] || {
	GOBIN=$PWD/bin go install "github.com/go-gremlins/gremlins/cmd/gremlins@$version"
	mv bin/gremlins "bin/gremlins-$version"
}
GOFLAGS="$(go env GOFLAGS) -short -vet=off"
export GOFLAGS
# Gremlins looks for a package's files in the diff by their names in its folder.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=diff.relative GIT_CONFIG_VALUE_0=true
gremlins=$PWD/bin/gremlins-$version
git diff --name-only --diff-filter=d "$since" -- '*.go' | grep -vE '_test\.go$|^(test|tools|contrib|lab|examples|coordinator)/' | xargs -r -n1 dirname | sort -u | while read -r package; do
	printf '\n== %s\n' "$package"
	(cd "$package" && "$gremlins" unleash --workers 2 --timeout-coefficient 10 --invert-logical --invert-loopctrl --remove-self-assignments --output-statuses lct --diff "$since" "$PWD")
done
