#!/usr/bin/env bash
# Makes the container images of what is built: rdmesh-collector and rdmesh-tracer, tagged with
# the workspace's version. `make images` builds before. DOCKER_HOST names another engine; BASE
# another Debian than debian:bookworm-slim, for which the programs have to be built.
#
# The shaper has none: it needs a DPU's devices, and runs by its unit there.
set -euo pipefail
cd "$(dirname "$0")/.."
base="${BASE:-debian:bookworm-slim}"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
image() { # NAME, PROGRAM…
  local name="$1" program
  shift
  rm -rf "${staged:?}/$name"
  mkdir "$staged/$name"
  for program in "$@"; do
    [ -x "target/release/$program" ] || { echo "images: no target/release/$program: make build" >&2; exit 1; }
    # Line tables stay behind: backtraces name functions all the same.
    strip --strip-debug -o "$staged/$name/$program" "target/release/$program"
  done
  docker build -q --build-arg "BASE=$base" -t "rdmesh-$name:$version" \
    -f "packaging/images/$name.Dockerfile" "$staged/$name" >/dev/null
  docker image inspect -f "{{index .RepoTags 0}} {{.Size}} bytes" "rdmesh-$name:$version"
}
image collector collector-svc rdmesh
image tracer tracer-svc
