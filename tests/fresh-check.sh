#!/usr/bin/env bash
# Runs the README's two commands, `make demo` and `make test`, in a fresh Debian
# that holds nothing else: a debootstrap chroot with the committed tree.
#
#   tests/fresh-check.sh            bookworm
#   SUITE=trixie tests/fresh-check.sh
#   AS=user tests/fresh-check.sh       as a user who may use sudo, not as root
#
# Needs root (chroot, mounts). Prints the seconds that each command took.
# COMMANDS="demo" runs one of them alone; KEEP_CHROOT=1 leaves the chroot.
set -euo pipefail
cd "$(dirname "$0")/.."
suite="${SUITE:-bookworm}"
as="${AS:-root}"
mirror="${MIRROR:-http://deb.debian.org/debian}"
security="${SECURITY_MIRROR:-http://deb.debian.org/debian-security}"
root="${CHROOT:-/var/tmp/rdmesh-fresh-$suite}"

[ "$(id -u)" -eq 0 ] || { echo "fresh-check: run as root: it makes a chroot" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "fresh-check: apt-get install debootstrap" >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || echo "fresh-check: uncommitted changes are not part of the check" >&2

unmount() {
  for m in run/netns dev/pts dev/shm dev proc sys ""; do
    mountpoint -q "$root/$m" && umount -l "$root/$m" || true
  done
}
finish() {
  unmount
  [ -n "${KEEP_CHROOT:-}" ] || rm -rf --one-file-system "$root"
}
trap finish EXIT INT TERM

unmount
rm -rf --one-file-system "$root"
echo "fresh-check: debootstrap $suite"
include=git,make,ca-certificates
[ "$as" = root ] || include+=,sudo
debootstrap --variant=minbase --include="$include" "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
  { tail -n 20 "$root.log" >&2; exit 1; }
cat >"$root/etc/apt/sources.list" <<LIST
deb $mirror $suite main
deb $mirror $suite-updates main
deb $security $suite-security main
LIST
cp /etc/resolv.conf "$root/etc/resolv.conf"
# A site's own certificate authorities and proxies are part of the machine.
cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
# A mount point of its own, as the root of a machine is: `ip netns exec` needs that.
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"

home=/root
if [ "$as" != root ]; then
  home="/home/$as"
  chroot "$root" /usr/sbin/useradd --create-home --shell /bin/bash "$as"
  echo "$as ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$as"
  # What sudo keeps of a site's proxies, as a site's own policy would.
  echo 'Defaults env_keep += "http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY"' \
    >>"$root/etc/sudoers.d/$as"
fi
git clone -q . "$root$home/rdmesh"
chroot "$root" chown -R "$as" "$home/rdmesh"
keep_env=()
for v in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_CERT PIP_INDEX_URL \
  PIP_DEFAULT_TIMEOUT SSL_CERT_FILE CARGO_HTTP_CAINFO; do
  [ -n "${!v:-}" ] && keep_env+=("$v=${!v}")
done
for command in ${COMMANDS:-demo test}; do
  echo "fresh-check: make $command"
  began=$(date +%s)
  chroot --userspec="$as:$as" "$root" /usr/bin/env -i HOME="$home" USER="$as" LOGNAME="$as" LANG=C.UTF-8 TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${keep_env[@]}" \
    make -C "$home/rdmesh" "$command" ||
    { echo "fresh-check: make $command FAILED after $(($(date +%s) - began)) s" >&2; exit 1; }
  echo "fresh-check: make $command passed in $(($(date +%s) - began)) s"
done
