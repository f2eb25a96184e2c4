#!/usr/bin/env bash
# Copyright the nomad-gpu-mem authors
# SPDX-License-Identifier: MPL-2.0

# Checks the files of dist.sh: the same bytes from two folders, a complete archive, and a Debian package that
# installs the program with its plugins and leaves nothing when it is removed. Usage: test-dist.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$GPU_MEM_ROOT"
((EUID == 0)) || die "$(basename "$0") needs root: dpkg gives files to root"
need dpkg jq

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
root=$temp/root

# build_twice: a second time from a copy at another path, with another umask and time zone.
build_twice() {
  scripts/dist.sh
  mkdir "$temp/copy"
  tar --create --exclude=./bin --exclude=./dist . | tar --extract --directory="$temp/copy"
  (umask 077 && TZ=Asia/Tokyo "$temp/copy/scripts/dist.sh")
  diff dist/SHA256SUMS "$temp/copy/dist/SHA256SUMS" || die "two runs of dist.sh made different files"
  (cd dist && sha256sum --quiet --check SHA256SUMS)
}

# check_archive: the program prints its version, both plugins link to it, and notices and list have every module.
check_archive() {
  local folder name module
  tar --extract --gzip --directory="$temp" --file="$(echo dist/*_linux_"$arch".tar.gz)"
  folder=$(echo "$temp"/nomad-gpu-mem_*)
  says_version "$folder/nomad-gpu-mem"
  for name in device-gpu-mem driver-gpu-docker; do
    [[ $(realpath "$folder/plugins/nomad-$name") == "$folder/nomad-gpu-mem" ]] || die "plugin $name is not the program"
  done
  for name in LICENSE README.md docs/cli.md example/two-tasks/two-tasks.nomad.hcl; do
    [[ -s $folder/$name ]] || die "$name is not in the archive"
  done
  jq --exit-status '.bomFormat == "CycloneDX"' dist/*_linux_"$arch".cdx.json >/dev/null
  jq -r '.components[] | .name + " " + .version' dist/*_linux_"$arch".cdx.json >"$temp/modules"
  while read -r module; do
    grep -qF "$module (" "$folder/THIRD_PARTY_NOTICES" || die "the notices lack $module"
    grep -qxF "$module" "$temp/modules" || die "the list of modules lacks $module"
  done < <(go version -m "$folder/nomad-gpu-mem" | awk '
    $1 == "dep" || $1 == "=>" { if ($1 == "dep" && last != "") print last; last = $2 " " $3 }
    END { print last }')
}

says_version() { [[ $("$1" version) == "nomad-gpu-mem $(scripts/version.sh) "* ]] || die "$1 says $("$1" version)"; }

# in_root OPTION...: dpkg for a system without packages.
in_root() { dpkg --root="$root" --force-depends --log="$temp/log" "$@" >"$temp/out" 2>&1 || { cat "$temp/out" >&2 && die "dpkg $1"; }; }

check_package() {
  local name
  mkdir -p "$root"/var/lib/dpkg/{info,updates} "$root/opt/nomad/plugins"
  touch "$root/var/lib/dpkg/status" "$root/opt/nomad/plugins/another"
  in_root --install dist/*_"$arch".deb
  says_version "$root/usr/bin/nomad-gpu-mem"
  for name in device-gpu-mem driver-gpu-docker; do
    [[ $(readlink "$root/opt/nomad/plugins/nomad-$name") == /usr/bin/nomad-gpu-mem ]] || die "plugin $name does not lead to the program"
  done
  [[ ! -e $root/etc && ! -e $root/lib ]] || die "the package installs a service or settings"
  in_root --purge nomad-gpu-mem
  [[ $(cd "$root" && find opt usr -type f -o -type l -o -type d -empty 2>/dev/null) == opt/nomad/plugins/another ]] ||
    die "the removed package left: $(cd "$root" && find opt usr)"
  [[ -z $(find "$root/var/lib/dpkg/info" -name 'nomad-gpu-mem*') ]] || die "dpkg still knows the removed package"
}

arch=$(go env GOHOSTARCH)
build_twice
check_archive
check_package
say "dist: the same bytes from two folders; the archive is complete; the package is installed and removed"
