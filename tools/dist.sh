#!/usr/bin/env bash
# Makes what is released, in dist/ or the folder named: binaries, archives, Debian
# packages, an inventory of the modules in each (SBOM), and checksums. The same
# commit and Go give the same bytes, wherever and whenever it runs.
#
# PLATFORMS="linux/amd64" makes only those.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(realpath -m "${1:-dist}")
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.0

version=${VERSION:-$(git describe --tags --match 'v*' 2>/dev/null || echo "0.0.0+git$(git log -1 --format=%cd.%h --date=format:%Y%m%d --abbrev=9)")}
version=${version#v}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC GOWORK=off
umask 022
rm -rf "$out"
work=$out/.work
mkdir -p "$work/man" "$work/completion"

build() { # GOOS GOARCH FILE
	CGO_ENABLED=0 GOOS=$1 GOARCH=$2 GOFLAGS= go build -trimpath -buildvcs=auto \
		-ldflags "-s -w -buildid= -X main.version=$version" -o "$3" ./cmd/kgate
}

build "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)" "$work/kgate"
"$work/kgate" manual "$work/man"
gzip -9n "$work"/man/*.1
"$work/kgate" completion bash >"$work/completion/kgate.bash"
"$work/kgate" completion zsh >"$work/completion/_kgate"
"$work/kgate" completion fish >"$work/completion/kgate.fish"

tools/share.sh "$work/share"

for platform in $platforms; do
	os=${platform%/*} arch=${platform#*/}
	name=kgate_${version}_${os}_${arch}
	root=$work/$name
	mkdir -p "$root"
	build "$os" "$arch" "$root/kgate"
	cp -r "$work/share/." "$work/man" "$work/completion" "$root/"
	(cd tools && go run ./sbom "$root/kgate") >"$out/$name.sbom.json"
	tar --create --directory "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--mode=u+rwX,go+rX,go-w --format=ustar "$name" | gzip -9n >"$out/$name.tar.gz"
	if [ "$os" = linux ]; then
		VERSION=$version ARCH=$arch BINARY=$root/kgate MANUAL=$work/man COMPLETION=$work/completion SHARE=$work/share \
			go run "$nfpm" package --config packaging/nfpm.yaml --packager deb --target "$out/$name.deb" >/dev/null
	fi
done

rm -rf "$work"
(cd "$out" && sha256sum -- * >SHA256SUMS)
cat "$out/SHA256SUMS"
