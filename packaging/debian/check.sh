#!/usr/bin/env bash
# Tries the packages of target/debian: lintian, and in a fresh Debian install, upgrade from
# an older version with a configuration that somebody changed, removal, purge. `make packages`
# makes them before. Needs root (a chroot) and Debian's mirror (MIRROR).
#
#   packaging/debian/check.sh
#   ARCH=arm64 packaging/debian/check.sh    lintian and contents alone: nothing is run
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$PATH:/usr/sbin:/sbin"
arch="${ARCH:-amd64}"
mirror="${MIRROR:-http://deb.debian.org/debian}"
security="${SECURITY_MIRROR:-http://deb.debian.org/debian-security}"
suite="${SUITE:-bookworm}"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
names=(rdmesh rdmesh-tracer rdmesh-collector rdmesh-shaper)
say() { printf 'packages: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
passed=0
# A check: what it holds, and a command.
holds() {
  local what="$1"
  shift
  "$@" >"$work/said" 2>&1 || { cat "$work/said" >&2; fail "not so: $what"; }
  passed=$((passed + 1))
}
work=$(mktemp -d /var/tmp/rdmesh-packages.XXXXXX)
root="$work/root"
finish() {
  for m in proc dev; do
    if mountpoint -q "$root/$m"; then umount -l "$root/$m"; fi
  done
  rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

debs=()
for name in "${names[@]}"; do
  deb="target/debian/${name}_$version-1_$arch.deb"
  [ -e "$deb" ] || fail "no $deb"
  debs+=("$deb")
done

say "lintian"
holds "lintian has nothing to say" lintian --allow-root --fail-on error,warning --tag-display-limit 0 "${debs[@]}"
grep -v '^N:' "$work/said" >&2 || true
list() { dpkg-deb -c "target/debian/$1_$version-1_$arch.deb"; }
for service in tracer collector shaper; do
  list "rdmesh-$service" >"$work/list"
  for path in usr/bin/$service-svc etc/rdmesh/$service.toml usr/share/man/man1/$service-svc.1.gz; do
    holds "rdmesh-$service has $path" grep -q " ./$path\$" "$work/list"
  done
  holds "rdmesh-$service has its unit" grep -qE " \./(usr/)?lib/systemd/system/rdmesh-$service.service\$" "$work/list"
  holds "its configuration is a conffile" bash -c \
    "dpkg-deb -I target/debian/rdmesh-${service}_$version-1_$arch.deb conffiles | grep -qx /etc/rdmesh/$service.toml"
  holds "nothing of it belongs to anybody but root" bash -c "! grep -vE ' (root/root|0/0) ' '$work/list'"
done
holds "the shaper depends on DPDK" bash -c \
  "dpkg-deb -f target/debian/rdmesh-shaper_$version-1_$arch.deb Depends | grep -q librte"
if [ "$arch" != amd64 ]; then
  say "$passed passed, 0 failed"
  exit 0
fi

[ "$(id -u)" -eq 0 ] || fail "run as root: it makes a chroot"
say "older packages, to upgrade from: another version, another line in each configuration"
older="$version~older"
mkdir "$work/older"
for deb in "${debs[@]}"; do
  name=$(dpkg-deb -f "$deb" Package)
  dpkg-deb -R "$deb" "$work/$name"
  sed -i "s/^Version: .*/Version: $older-1/" "$work/$name/DEBIAN/control"
  if [ -e "$work/$name/DEBIAN/conffiles" ]; then
    while read -r conffile; do echo '# older' >>"$work/$name$conffile"; done <"$work/$name/DEBIAN/conffiles"
  fi
  dpkg-deb --root-owner-group -Zgzip -z1 -b "$work/$name" "$work/older/${name}_$older-1_$arch.deb" >/dev/null
done

say "a fresh Debian $suite"
debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/log" 2>&1 ||
  { tail -n 5 "$work/log" >&2; fail "debootstrap failed"; }
printf 'deb %s\n' "$mirror $suite main" "$mirror $suite-updates main" "$security $suite-security main" \
  >"$root/etc/apt/sources.list"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mount -t proc proc "$root/proc"
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
inside apt-get update -qq
mkdir "$root/older" "$root/newer"
cp "$work"/older/*.deb "$root/older/"
cp "${debs[@]}" "$root/newer/"
# What somebody changed stays, without a question.
install_all() { inside sh -c "apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold /$1/*.deb"; }
is_installed() { [ "$(inside dpkg-query -W -f '${Version} ${db:Status-Status}' "$1")" = "$2 installed" ]; }

say "install"
holds "they install" install_all older
for name in "${names[@]}"; do holds "$name is installed" is_installed "$name" "$older-1"; done
holds "the account is there, without a shell and a home that could be logged into" \
  bash -c "grep -qE '^rdmesh:x:[0-9]+:[0-9]+:[^:]*:/var/lib/rdmesh:/usr/sbin/nologin\$' '$root/etc/passwd'"
for service in tracer collector shaper; do
  holds "$service-svc runs" inside "$service-svc" --version
done
for service in tracer collector; do
  holds "$service takes its configuration" inside "$service-svc" --check-config
  holds "rdmesh-$service starts at boot" test -L "$root/etc/systemd/system/multi-user.target.wants/rdmesh-$service.service"
done
holds "the shaper waits to be configured" test ! -e "$root/etc/systemd/system/multi-user.target.wants/rdmesh-shaper.service"
holds "rdmesh runs" inside rdmesh --version
holds "its completions are there" inside bash -n /usr/share/bash-completion/completions/rdmesh

say "upgrade"
echo 'host = "gpu-17"' >>"$root/etc/rdmesh/tracer.toml.new"
cat "$root/etc/rdmesh/tracer.toml" >>"$root/etc/rdmesh/tracer.toml.new"
mv "$root/etc/rdmesh/tracer.toml.new" "$root/etc/rdmesh/tracer.toml"
mkdir -p "$root/var/lib/rdmesh/tracer/baselines"
echo kept >"$root/var/lib/rdmesh/tracer/baselines/one"
holds "they upgrade" install_all newer
for name in "${names[@]}"; do holds "$name is upgraded" is_installed "$name" "$version-1"; done
holds "what somebody configured stays" bash -c "chroot '$root' tracer-svc --print-config | grep -qx 'host = \"gpu-17\"'"
holds "what nobody configured is renewed" bash -c "! grep -q '^# older' '$root/etc/rdmesh/collector.toml'"
holds "what was stored stays" grep -qx kept "$root/var/lib/rdmesh/tracer/baselines/one"
holds "they install a second time" install_all newer

say "downgrade"
holds "they go back" inside sh -c "apt-get install -y -qq --allow-downgrades --no-install-recommends -o Dpkg::Options::=--force-confold /older/*.deb"
holds "what somebody configured stays" grep -qx 'host = "gpu-17"' "$root/etc/rdmesh/tracer.toml"

say "remove"
holds "they are removed" inside apt-get remove -y -qq "${names[@]}"
holds "programs are gone" bash -c "! ls '$root'/usr/bin/*-svc '$root'/usr/bin/rdmesh 2>/dev/null"
holds "what somebody configured stays" grep -qx 'host = "gpu-17"' "$root/etc/rdmesh/tracer.toml"
holds "what was stored stays" test -e "$root/var/lib/rdmesh/tracer/baselines/one"

say "purge"
holds "they are purged" inside apt-get purge -y -qq "${names[@]}"
for path in etc/rdmesh var/lib/rdmesh usr/share/doc/rdmesh usr/share/doc/rdmesh-tracer; do
  holds "/$path is gone" test ! -e "$root/$path"
done
holds "no unit of ours is left" bash -c "! find '$root/etc/systemd' '$root/lib/systemd' '$root/usr/lib/systemd' '$root/var/lib/systemd' -name '*rdmesh*' | grep ."
say "$passed passed, 0 failed"
