#!/usr/bin/env bash
# Boots a Debian with systemd in QEMU, with the packages of target/debian installed, and looks
# whether the services do their work under their units: with those capabilities and no others,
# behind those system call filters. `make units-check` makes the packages before.
#
#   packaging/systemd/check/run.sh
#   KEEP=1 packaging/systemd/check/run.sh    leaves the machine's disk and log
#
# Needs root (a chroot) and, the first time, Debian's mirror (MIRROR). In the machine runs
# guest.sh, which writes a line for each check to a serial line.
set -euo pipefail
cd "$(dirname "$0")/../../.."
export PATH="$PATH:/usr/sbin:/sbin"
cache="${RDMESH_CACHE:-$HOME/.cache/rdmesh}/units"
mirror="${MIRROR:-http://deb.debian.org/debian}"
security="${SECURITY_MIRROR:-http://deb.debian.org/debian-security}"
debs="${DEBS:-target/debian}"
suite=bookworm
# Emulated, on a busy machine: booting takes a minute or two, every check seconds.
limit_seconds="${LIMIT_SECONDS:-1800}"
say() { printf 'units-check: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "run as root: it makes a chroot"
for program in debootstrap qemu-system-x86_64 mke2fs dpkg-deb; do
  command -v "$program" >/dev/null || fail "no $program: tests/setup.sh packages"
done
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
packages=()
for name in rdmesh rdmesh-tracer rdmesh-collector rdmesh-shaper; do
  deb="$debs/${name}_$version-1_amd64.deb"
  [ -e "$deb" ] || fail "no $deb: make packages"
  packages+=("$deb")
done

# Debian with what the services stand on, made once.
plain="$cache/$suite.tar"
work=$(mktemp -d /var/tmp/rdmesh-units.XXXXXX)
finish() {
  for m in dev proc; do
    if mountpoint -q "$work/root/$m"; then umount -l "$work/root/$m"; fi
  done
  if [ -n "${KEEP:-}" ]; then say "kept: $work"; else rm -rf --one-file-system "$work"; fi
}
trap finish EXIT
trap 'exit 130' INT TERM
mkdir -p "$cache" "$work/root"
within_root() { chroot "$work/root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
if [ ! -e "$plain" ]; then
  say "making a Debian ($suite) with systemd, a kernel and Postgres"
  debootstrap --variant=minbase "$suite" "$work/root" "$mirror" >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log" >&2; fail "debootstrap failed"; }
  printf 'deb %s\n' "$mirror $suite main" "$mirror $suite-updates main" "$security $suite-security main" \
    >"$work/root/etc/apt/sources.list"
  cp /etc/resolv.conf "$work/root/etc/resolv.conf"
  printf '#!/bin/sh\nexit 101\n' >"$work/root/usr/sbin/policy-rc.d"
  chmod +x "$work/root/usr/sbin/policy-rc.d"
  # Only what a machine of virtio and soft-RoCE needs goes into the initramfs.
  mkdir -p "$work/root/etc/initramfs-tools/conf.d"
  echo 'MODULES=list' >"$work/root/etc/initramfs-tools/conf.d/rdmesh"
  printf 'virtio_pci\nvirtio_blk\next4\n' >"$work/root/etc/initramfs-tools/modules"
  mount -t proc proc "$work/root/proc"
  { within_root apt-get update -qq &&
    mkdir -p "$work/root/etc/initramfs-tools" &&
    within_root apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold \
      systemd systemd-sysv dbus udev kmod iproute2 rdma-core ibverbs-providers \
      libcap2-bin procps postgresql adduser initramfs-tools linux-image-amd64; } >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log" >&2; fail "the packages cannot be installed"; }
  umount "$work/root/proc"
  rm -rf "$work"/root/var/cache/apt/archives/*.deb
  tar -C "$work/root" --one-file-system -cf "$plain.new" .
  mv "$plain.new" "$plain"
else
  tar -C "$work/root" -xf "$plain"
fi

say "installing the packages"
mkdir "$work/root/tmp/debs"
cp "${packages[@]}" "$work/root/tmp/debs/"
mount -t proc proc "$work/root/proc"
within_root sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends /tmp/debs/*.deb' \
  >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "the packages cannot be installed"; }
umount "$work/root/proc"
install -m 755 target/release/rdmesh-verbs "$work/root/usr/local/bin/"
install -m 755 packaging/systemd/check/guest.sh "$work/root/usr/local/bin/rdmesh-units-check"
cat >"$work/root/etc/systemd/system/rdmesh-units-check.service" <<'UNIT'
[Unit]
Description=Checks of rdmesh's units
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/local/bin/rdmesh-units-check
StandardOutput=file:/dev/ttyS1
StandardError=journal+console
ExecStopPost=/usr/bin/systemctl poweroff --force --force
[Install]
WantedBy=multi-user.target
UNIT
ln -s ../rdmesh-units-check.service \
  "$work/root/etc/systemd/system/multi-user.target.wants/rdmesh-units-check.service"
# Emulated, the tracer takes more of a CPU than it may on a host.
sed -i 's/^#budget_percent = .*/budget_percent = 0/' "$work/root/etc/rdmesh/tracer.toml"
echo units-check >"$work/root/etc/hostname"
echo "127.0.0.1 localhost units-check" >"$work/root/etc/hosts"
echo "/dev/vda / ext4 rw 0 1" >"$work/root/etc/fstab"
ln -sf /dev/null "$work/root/etc/systemd/system/apt-daily.timer"
ln -sf /dev/null "$work/root/etc/systemd/system/apt-daily-upgrade.timer"

kernel=$(readlink -f "$work/root"/boot/vmlinuz-* | sort -V | tail -n 1)
initrd=$(readlink -f "$work/root"/boot/initrd.img-* | sort -V | tail -n 1)
cp "$kernel" "$work/vmlinuz"
cp "$initrd" "$work/initrd"
say "booting $(basename "$kernel")"
mke2fs -q -t ext4 -d "$work/root" -L root "$work/disk" 4G
began=$SECONDS
timeout "$limit_seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -M q35 -m 2560 -smp 2 \
  -nodefaults -no-user-config -display none -no-reboot \
  -serial "file:$work/console" -serial "file:$work/checks" \
  -kernel "$work/vmlinuz" -initrd "$work/initrd" \
  -append "root=/dev/vda rw console=ttyS0,115200 panic=-1 mitigations=off random.trust_cpu=on tsc=reliable no_timer_check" \
  -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" ||
  say "the machine was stopped after $limit_seconds s"
tr -d '\r' <"$work/checks" >"$work/lines" || true
cat "$work/lines" >&2
passed=$(grep -c '^ok ' "$work/lines" || true)
failed=$(grep -c '^fault ' "$work/lines" || true)
if ! grep -q '^end$' "$work/lines" || [ "$failed" -gt 0 ]; then
  tail -n 25 "$work/console" >&2
  KEEP=1
  fail "$passed passed, $failed failed, after $((SECONDS - began)) s"
fi
say "$passed passed, 0 failed, in $((SECONDS - began)) s"
