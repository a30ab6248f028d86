#!/usr/bin/env bash
# Makes the Debian packages of what is built: rdmesh, rdmesh-tracer, rdmesh-collector and
# rdmesh-shaper, into target/debian/. `make packages` builds, calls this, and tries them.
#
#   packaging/packages.sh                 of target/release, for this machine
#   TARGET=aarch64-unknown-linux-gnu packaging/packages.sh
#
# What cargo-deb cannot make out of the tree is laid into target/packaging before: manual
# pages and completions, which the programs tell themselves, and Debian's changelog.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${RDMESH_CACHE:-$HOME/.cache/rdmesh}"
export PATH="$PATH:$cache/cargo-tools/bin"
target="${TARGET:-}"
binaries="target/${target:+$target/}release"
# What runs here and tells of itself; the same programs, built for this machine.
native=target/release
out="${OUT:-target/debian}"
made=target/packaging

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The time of the commit, so that the same tree gives the same packages.
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH

for program in tracer-svc collector-svc shaper-svc rdmesh; do
  [ -x "$binaries/$program" ] || { echo "packages: no $binaries/$program: make build" >&2; exit 1; }
  [ -x "$native/$program" ] || native="$binaries"
done

rm -rf "$made"
mkdir -p "$made/man" "$made/completions" "$made/lintian" "$out"
man() {
  # Deterministic: help2man takes the date from SOURCE_DATE_EPOCH.
  help2man --no-info --section=1 --name="$2" --source="rdmesh $version" \
    --version-string="$1 $version" --output="$made/man/$1.1" "$native/$1"
}
man tracer-svc "record failing returns of the kernel's RDMA control path"
man collector-svc "take what agents report and say what broke a job"
man shaper-svc "move a host's frames through a virtual wire of a given rate"
man rdmesh "ask what broke a job, and see hosts, probes and wires"
for shell in bash:rdmesh.bash zsh:_rdmesh fish:rdmesh.fish; do
  "$native/rdmesh" completions "${shell%%:*}" >"$made/completions/${shell#*:}"
done
for package in rdmesh rdmesh-tracer rdmesh-collector rdmesh-shaper; do
  cp "packaging/debian/$package.lintian-overrides" "$made/lintian/$package"
done

# One package for each: crate, package. Without line tables: backtraces name functions all the
# same, and the packages are a third of the size.
while read -r crate package; do
  cat >"$made/changelog" <<CHANGELOG
$package ($version-1) unstable; urgency=medium

  * The changes of this version: CHANGELOG.md of the sources.

 -- rdmesh developers <rdmesh@users.noreply.github.com>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
CHANGELOG
  cargo deb --no-build --strip --offline --locked -q -p "$crate" ${target:+--target "$target"} \
    --deb-version "$version-1" --output "$out/"
done <<'LIST'
rdmesh-client rdmesh
rdmesh-tracer rdmesh-tracer
rdmesh-collector rdmesh-collector
rdmesh-shaper rdmesh-shaper
LIST
ls -l "$out"/*_"$version"-1_*.deb
