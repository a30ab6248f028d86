#!/usr/bin/env bash
# Builds the shaper against Debian 13's DPDK 24.11 on a Debian 12 machine, and runs its
# tests on ports with it. Nothing is installed: packages are fetched by an apt of its own,
# unpacked below the cache, and used with that system's own C library and drivers.
#
#   shaper-svc/tests/dpdk24.sh
#
# Needs root, for a mount of its own over DPDK's folder of drivers.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache="${RDMESH_CACHE:-$HOME/.cache/rdmesh}/dpdk24"
mirror="${RDMESH_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
root="$cache/root"
libraries="$root/usr/lib/x86_64-linux-gnu"
target=x86_64-unknown-linux-gnu

[ "$(id -u)" -eq 0 ] || { echo "dpdk24: run as root" >&2; exit 1; }
[ "$(uname -m)" = x86_64 ] || { echo "dpdk24: for x86-64" >&2; exit 1; }

# What libdpdk-dev's own dependencies are, as far as these ports need them.
packages=(libdpdk-dev libc6 libgcc-s1 libnuma1 libpcap0.8t64 libbsd0 libmd0 libelf1t64 zlib1g
  libzstd1 libdbus-1-3 libsystemd0 libcap2 libibverbs1 libnl-3-200 libnl-route-3-200 libfdt1
  libssl3t64 libjansson4 liblzma5 libxdp1 libbpf1)
for part in log kvargs telemetry eal argparse ring mempool mbuf meter net ethdev pci bus-pci \
  bus-vdev mempool-ring net-null net-ring net-pcap net-af-packet rcu hash timer sched; do
  packages+=("librte-${part}25")
done

fetch() {
  mkdir -p "$cache"/apt/{state/lists/partial,cache/archives/partial} "$cache/debs"
  : >"$cache/apt/status"
  echo "deb [arch=amd64 signed-by=$keyring] $mirror trixie main" >"$cache/apt/sources.list"
  local options=(-o "Dir::State=$cache/apt/state" -o "Dir::State::status=$cache/apt/status"
    -o "Dir::Cache=$cache/apt/cache" -o "Dir::Etc::SourceList=$cache/apt/sources.list"
    -o Dir::Etc::SourceParts=/dev/null -o APT::Architecture=amd64 -o APT::Architectures=amd64
    -o APT::Sandbox::User= -o Acquire::Languages=none)
  apt-get "${options[@]}" update -q --error-on=any
  rm -rf "$cache"/debs/*.deb "$root"
  (cd "$cache/debs" && apt-get "${options[@]}" download -q "${packages[@]}")
  for package in "$cache"/debs/*.deb; do dpkg -x "$package" "$root"; done
  # Links to what was not fetched: EAL would try to load them as drivers.
  find "$root" -xtype l -delete
}
[ -e "$libraries/librte_eal.so.25" ] || fetch

export PKG_CONFIG_PATH="$libraries/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
echo "dpdk24: DPDK $(pkg-config --modversion libdpdk)"
# A folder that holds nothing but DPDK: its libraries want a newer C library than the
# machine has, which is found when the tests run.
mkdir -p "$cache/link" "$cache/run"
ln -sf "$libraries"/librte_*.so "$cache/link/"
cat >"$cache/run/runner" <<RUNNER
#!/bin/sh
mount --bind "$libraries/dpdk" /usr/lib/x86_64-linux-gnu/dpdk
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$libraries" "\$@"
RUNNER
chmod +x "$cache/run/runner"
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="unshare -m $cache/run/runner"
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-L native=$cache/link -C link-arg=-Wl,--allow-shlib-undefined"
cargo nextest run --release --locked --target "$target" -p rdmesh-dpdk-sys -p rdmesh-shaper \
  -E 'package(rdmesh-dpdk-sys) or binary(dpdk_ports) or binary(pcap_ports)' "$@"
