#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Makes the files of a release in dist/: for each architecture an archive, a Debian package and a list of the
# modules in it (CycloneDX), and checksums of all files. Another run at the same commit makes the same bytes.
# arm64 is built where its C cross compiler is installed, since the program needs cgo. Usage: dist.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$GPU_MEM_ROOT"
need nfpm cyclonedx-gomod readelf

version=$(scripts/version.sh)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
umask 022

# compiler ARCH: the C compiler for it, if one is installed.
compiler() {
  local machine=x86_64
  [[ $1 == amd64 ]] || machine=aarch64
  if [[ $1 == $(go env GOHOSTARCH) ]]; then go env CC; else command -v "$machine-linux-gnu-gcc"; fi
}

# compile ARCH FOLDER
compile() {
  GOOS=linux GOARCH=$1 CC=$(compiler "$1") GPU_MEM_BIN=$2 GOFLAGS=-buildvcs=true scripts/build.sh program >&2
}

# stage ARCH FOLDER: the files of an archive and a package. Nomad loads each plugin under its own name.
stage() {
  mkdir -p "$2/plugins"
  compile "$1" "$2"
  ln -s ../nomad-gpu-mem "$2/plugins/nomad-device-gpu-mem"
  ln -s ../nomad-gpu-mem "$2/plugins/nomad-driver-gpu-docker"
  git ls-files -z LICENSE README.md CHANGELOG.md SECURITY.md docs example | xargs -0 cp --parents -t "$2"
  GOOS=linux GOARCH=$1 scripts/notices.sh >"$2/THIRD_PARTY_NOTICES"
  find "$2" -type f ! -name nomad-gpu-mem -exec chmod 644 {} +
  find "$2" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

# archive FOLDER
archive() {
  tar --create --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --directory="$work" "$(basename "$1")" |
    gzip --no-name --best >"dist/$(basename "$1").tar.gz"
}

# libc PROGRAM: the version of the C library that the program needs.
libc() { readelf --version-info --wide "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1 | sed 's/GLIBC_//'; }

# package ARCH FOLDER
package() {
  local config=$work/nfpm-$1.yaml
  sed -e "s|@ARCH@|$1|; s|@VERSION@|$version|; s|@STAGE@|$2|; s|@LIBC@|$(libc "$2/nomad-gpu-mem")|" \
    -e "s|@DATE@|$(date --date="@$SOURCE_DATE_EPOCH" +%FT%TZ)|" scripts/nfpm.yaml >"$config"
  nfpm package --config "$config" --packager deb --target "dist/nomad-gpu-mem_${version/+/.}_$1.deb" >&2
}

# modules FOLDER: the list of modules, as the program itself has it.
modules() {
  cyclonedx-gomod bin -json -noserial -version "v$version" -output "$work/modules" "$1/nomad-gpu-mem" 2>"$work/log" ||
    { cat "$work/log" >&2 && die "the modules of $(basename "$1") cannot be listed"; }
  # Time and tool build of the list differ between machines.
  jq --sort-keys 'del(.metadata.timestamp, .metadata.tools)' "$work/modules" >"dist/$(basename "$1").cdx.json"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf dist
mkdir dist
for arch in amd64 arm64; do
  if ! compiler "$arch" >/dev/null; then
    say "$arch: not built, since its C compiler is not installed: apt-get install gcc-aarch64-linux-gnu" >&2
    continue
  fi
  folder=$work/nomad-gpu-mem_${version/+/.}_linux_$arch
  stage "$arch" "$folder"
  archive "$folder"
  package "$arch" "$folder"
  modules "$folder"
done
(cd dist && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
say "made dist/: $(ls -x -w 0 dist)"
