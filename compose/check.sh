#!/usr/bin/env bash
# Brings compose.yaml up with a real Docker engine, from images that are built here, and uses
# it: a snapshot goes in by gRPC, comes out by SQL, and the collector's metrics are in
# VictoriaMetrics. `make compose-check` builds before.
#
#   compose/check.sh
#   DOCKER_HOST=… compose/check.sh     with an engine that runs already
#   KEEP=1 compose/check.sh            leaves it running, and prints how to look and to end it
#
# Needs root and, the first time, Debian's mirror (MIRROR): no image is pulled. The base image
# is debootstrap's, Postgres and VictoriaMetrics are Debian's, in images that take the
# variables and arguments that the public ones take. Grafana is not to be had so: that its data
# source works is shown by asking VictoriaMetrics what Grafana asks.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${RDMESH_CACHE:-$HOME/.cache/rdmesh}/images"
export PATH="$PATH:${RDMESH_CACHE:-$HOME/.cache/rdmesh}/tools/bin:/usr/sbin:/sbin"
mirror="${MIRROR:-http://deb.debian.org/debian}"
project=rdmesh-check
say() { printf 'compose-check: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "run as root: it makes chroots and starts an engine"
for program in docker docker-compose debootstrap grpcurl curl python3; do
  command -v "$program" >/dev/null || fail "no $program: tests/setup.sh packages"
done
work=$(mktemp -d /var/tmp/rdmesh-compose.XXXXXX)
engine=
compose() { docker-compose -p "$project" --env-file "$work/env" -f compose/compose.yaml "$@"; }
finish() {
  local code=$?
  if [ "$code" -ne 0 ] && [ -e "$work/env" ]; then
    { compose ps; compose logs --no-color --tail 30; } >&2 || true
  fi
  if [ -n "${KEEP:-}" ] && [ "$code" -eq 0 ]; then
    say "left running: DOCKER_HOST=${DOCKER_HOST:-} docker ps; end it with"
    say "  docker-compose -p $project --env-file $work/env -f compose/compose.yaml down -v${engine:+; kill $engine}"
    exit 0
  fi
  if [ -e "$work/env" ]; then compose down -v -t 5 >/dev/null 2>&1 || true; fi
  if [ -n "$engine" ]; then
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
  fi
  rm -rf --one-file-system "$work"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

# An engine of its own, unless one is there.
if [ -z "${DOCKER_HOST:-}" ] && ! docker info >/dev/null 2>&1; then
  export DOCKER_HOST="unix://$work/docker.sock"
  say "starting an engine"
  mkdir -p "$cache/engine"
  dockerd --data-root "$cache/engine" --exec-root "$work/exec" --pidfile "$work/docker.pid" \
    --host "$DOCKER_HOST" >"$work/dockerd.log" 2>&1 &
  engine=$!
  until docker info >/dev/null 2>&1; do
    kill -0 "$engine" 2>/dev/null || { tail -n 5 "$work/dockerd.log" >&2; fail "dockerd ended"; }
    read -rt 0.2 <> <(:) || true
  done
fi

have() { docker image inspect "$1" >/dev/null 2>&1; }

# debian:bookworm-slim, as far as debootstrap makes it.
if ! have rdmesh-check/debian:bookworm-slim; then
  say "base image (debootstrap)"
  debootstrap --variant=minbase bookworm "$work/debian" "$mirror" >"$work/debootstrap.log" 2>&1 ||
    { tail -n 5 "$work/debootstrap.log" >&2; fail "debootstrap failed"; }
  rm -rf "$work"/debian/var/cache/apt/archives/*.deb "$work"/debian/var/lib/apt/lists/*
  tar -C "$work/debian" --one-file-system -c . |
    docker import - rdmesh-check/debian:bookworm-slim >/dev/null
fi

# A Debian with packages of another suite, as an image.
root_of() { # NAME SUITE PACKAGE…
  local root="$work/$1" suite="$2"
  shift 2
  mkdir "$root"
  docker export "$(docker create --name "rootfs-$$" rdmesh-check/debian:bookworm-slim true)" |
    tar -C "$root" -x
  docker rm "rootfs-$$" >/dev/null
  echo "deb $mirror $suite main" >"$root/etc/apt/sources.list"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  chroot "$root" apt-get update -qq >/dev/null
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
  chmod +x "$root/usr/sbin/policy-rc.d"
}
if ! have rdmesh-check/postgres:15; then
  say "image of Postgres"
  root_of postgres bookworm
  chroot "$work/postgres" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends postgresql-15 >/dev/null 2>&1 || fail "postgresql-15 cannot be installed"
  rm -rf "$work"/postgres/var/lib/postgresql/15 "$work"/postgres/var/cache/apt/archives/*.deb
  install -m 755 compose/test/postgres-entrypoint.sh "$work/postgres/usr/bin/entrypoint"
  tar -C "$work/postgres" --one-file-system -c . | docker import \
    --change 'ENTRYPOINT ["/usr/bin/entrypoint"]' --change 'ENV PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    --change 'VOLUME /var/lib/postgresql/data' - rdmesh-check/postgres:15 >/dev/null
fi
if ! have rdmesh-check/victoria-metrics:2; then
  say "image of VictoriaMetrics (Debian 13's: 12's takes no OTLP)"
  root_of metrics trixie
  (cd "$work/metrics/tmp" && chroot "$work/metrics" sh -c 'cd /tmp && apt-get download -qq victoria-metrics busybox-static' >/dev/null 2>&1) ||
    fail "victoria-metrics cannot be fetched"
  mkdir "$work/vm"
  for package in "$work"/metrics/tmp/*.deb; do dpkg -x "$package" "$work/vm"; done
  mkdir -p "$work/metrics/storage"
  cp "$work"/vm/usr/bin/victoria-metrics "$work/metrics/usr/bin/"
  cp "$(find "$work/vm" -path "*/bin/busybox" -type f)" "$work/metrics/usr/bin/wget"
  rm -rf "$work"/metrics/tmp/* "$work"/metrics/var/lib/apt/lists/*
  tar -C "$work/metrics" --one-file-system -c . | docker import \
    --change 'ENTRYPOINT ["/usr/bin/victoria-metrics"]' - rdmesh-check/victoria-metrics:2 >/dev/null
fi

say "images of rdmesh"
BASE=rdmesh-check/debian:bookworm-slim packaging/images.sh >&2

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
grpc="127.0.0.1:$(free_port)"
metrics="127.0.0.1:$(free_port)"
sed -e "s#^POSTGRES_PASSWORD=.*#POSTGRES_PASSWORD=check4711#" \
  -e "s#^RDMESH_LISTEN=.*#RDMESH_LISTEN=$grpc#" -e "s#^METRICS_LISTEN=.*#METRICS_LISTEN=$metrics#" \
  -e "s#^OTLP_INTERVAL_SECONDS=.*#OTLP_INTERVAL_SECONDS=5#" \
  -e "s#^POSTGRES_IMAGE=.*#POSTGRES_IMAGE=rdmesh-check/postgres:15#" \
  -e "s#^VICTORIAMETRICS_IMAGE=.*#VICTORIAMETRICS_IMAGE=rdmesh-check/victoria-metrics:2#" \
  compose/env.example >"$work/env"

# Until it holds, for so many seconds at most.
within() { # SECONDS WHAT COMMAND…
  local until=$((SECONDS + $1)) what="$2"
  shift 2
  until "$@"; do
    [ "$SECONDS" -lt "$until" ] || fail "not within its time: $what"
    read -rt 0.5 <> <(:) || true
  done
}
health() { docker inspect -f '{{.State.Health.Status}}' "$(compose ps -q "$1")" 2>/dev/null; }
healthy() { [ "$(health "$1")" = healthy ]; }
sql() { docker exec "$(compose ps -q postgres)" psql -U rdmesh -d rdmesh -h /run/postgresql -Atc "$1"; }

say "without a password nothing starts"
if sed 's/^POSTGRES_PASSWORD=.*/POSTGRES_PASSWORD=/' "$work/env" >"$work/none" &&
  docker-compose -p "$project" --env-file "$work/none" -f compose/compose.yaml config >/dev/null 2>&1; then
  fail "an empty password was taken"
fi

say "up"
began=$SECONDS
compose up -d >"$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "it does not come up"; }
for service in postgres collector victoriametrics; do
  within 300 "$service is healthy" healthy "$service"
done
say "healthy after $((SECONDS - began)) s"

say "confined: no root, no capability, nothing to write to"
collector=$(compose ps -q collector)
[ "$(docker exec "$collector" id -u)" = 65532 ] || fail "the collector runs as root"
docker exec "$collector" touch /touched 2>/dev/null && fail "the collector's file system can be written"
pid=$(docker inspect -f '{{.State.Pid}}' "$collector")
grep -q '^CapBnd:[[:space:]]*0000000000000000$' "/proc/$pid/status" || fail "the collector could have capabilities"
grep -q '^NoNewPrivs:[[:space:]]*1$' "/proc/$pid/status" || fail "the collector may gain rights"
grep -q '^Seccomp:[[:space:]]*2$' "/proc/$pid/status" || fail "the collector's system calls are not filtered"
for service in postgres victoriametrics; do
  docker exec "$(compose ps -q "$service")" touch /touched 2>/dev/null &&
    fail "the file system of $service can be written"
done

say "a snapshot goes in by gRPC and comes out by SQL"
python3 compose/test/snapshot.py gpu-01 4711 |
  grpcurl -plaintext -max-time 30 -d @ "$grpc" rdmesh.collector.v1.IngestService/Report >"$work/acks" ||
  { cat "$work/acks" >&2; fail "the snapshot was not taken"; }
grep -q '"sequence": "1"' "$work/acks" || { cat "$work/acks" >&2; fail "the snapshot was not acknowledged"; }
row=$(sql "select host || ' ' || job_id || ' ' || function || ' ' || errno_name || ' ' || count from rdmesh.failures where host = 'gpu-01'")
[ "$row" = "gpu-01 4711 ib_umem_get EFAULT 2" ] || fail "SQL sees: $row"

say "the metrics that it made are in VictoriaMetrics, asked as Grafana asks"
# The value of a query, empty where it finds nothing.
number() {
  curl -fsS --get "http://$metrics/api/v1/query" --data-urlencode "query=$1" | python3 -c 'import json, sys
found = json.load(sys.stdin)["data"]["result"]
print(found[0]["value"][1] if found else "")'
}
counted() { [ "$(number 'sum({__name__=~"rdmesh.collector.items(_total)?"})')" = 1 ]; }
within 60 "the collector counts one item" counted
curl -fsS "http://$metrics/api/v1/query?query=%7B__name__%3D~%22rdmesh.%2B%22%7D" |
  grep -q rdmesh-collector || fail "no metric names its service"

say "Postgres goes and comes back: the collector says so, and takes on"
postgres=$(compose ps -q postgres)
docker stop -t 60 "$postgres" >/dev/null
unhealthy() { ! healthy collector; }
within 240 "an unhealthy collector" unhealthy
docker start "$postgres" >/dev/null
within 240 "a healthy collector" healthy collector
python3 compose/test/snapshot.py gpu-02 4711 |
  grpcurl -plaintext -max-time 30 -d @ "$grpc" rdmesh.collector.v1.IngestService/Report >"$work/acks"
[ "$(sql "select count(*) from rdmesh.failures where job_id = '4711'")" = 2 ] ||
  fail "a snapshot after the restart is not there"

say "what is stored outlives the containers"
compose down -t 20 >/dev/null 2>&1
compose up -d >"$work/up.log" 2>&1
within 300 "the collector is healthy again" healthy collector
[ "$(sql "select count(*) from rdmesh.failures where job_id = '4711'")" = 2 ] ||
  fail "failures are gone with their containers"
say "passed in $SECONDS s"
