#!/bin/bash
# Runs in the machine that run.sh boots, as root, once everything is up: `ok WHAT` or
# `fault WHAT: WHY` for each check, and `end`.
set -u
export LC_ALL=C
dir=$(mktemp -d)
check() { # WHAT COMMAND…
  local what="$1"
  shift
  if "$@" >"$dir/said" 2>&1; then echo "ok $what"; else echo "fault $what: $(tail -n 3 "$dir/said" | tr '\n' ' ')"; fi
}
# Until it holds, for so many seconds of an idle machine at most: emulated beside other work,
# everything takes a multiple.
within() { # SECONDS COMMAND…
  local until=$((SECONDS + 4 * $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$until" ] || return 1
    sleep 0.5
  done
}
active() { systemctl is-active -q "$1"; }
pid_of() { systemctl show -P MainPID "$1"; }
status_of() { awk -v key="$2:" '$1 == key { print $2 }' "/proc/$(pid_of "$1")/status"; }
# The capabilities of a process as capsh names them, sorted.
names() { capsh --decode="$1" | sed 's/^[^=]*=//' | tr ',' '\n' | sort | tr '\n' ' ' | sed 's/ $//'; }
has() { [ "$(names "$(status_of "$1" "$2")")" = "$3" ] || { echo "$2 of $1: $(names "$(status_of "$1" "$2")")"; return 1; }; }
is() { [ "$(status_of "$1" "$2")" = "$3" ] || { echo "$2 of $1: $(status_of "$1" "$2")"; return 1; }; }
runs_as() { [ "$(stat -c %U "/proc/$(pid_of "$1")")" = "$2" ]; }
as_rdmesh() { RDMESH_COLLECTOR=127.0.0.1:7400 timeout 120 rdmesh "$@"; }

# Soft-RoCE, as a GPU host has its cards.
modprobe dummy && modprobe rdma_rxe
ip link add dummy0 type dummy 2>/dev/null
ip address add 192.0.2.1/24 dev dummy0
ip link set dummy0 up
rdma link add rxe0 type rxe netdev dummy0
check "soft-RoCE is there" test -e /sys/class/infiniband/rxe0

# The collector.
within 60 active postgresql@15-main
check "the database is made as docs/install.md says" \
  bash -c "cd /; runuser -u postgres -- createuser --createrole rdmesh && runuser -u postgres -- createdb -O rdmesh rdmesh"
check "the collector started at boot and waited for its database" within 60 active rdmesh-collector
check "the collector answers" within 90 as_rdmesh fleet
check "the collector is no root" runs_as rdmesh-collector rdmesh
for set in CapEff CapPrm CapBnd CapInh CapAmb; do
  check "the collector has no capability ($set)" has rdmesh-collector "$set" ""
done
check "the collector gains no rights" is rdmesh-collector NoNewPrivs 1
check "the collector's system calls are filtered" is rdmesh-collector Seccomp 2

# The tracer.
three="cap_sys_admin cap_sys_ptrace cap_syslog"
check "the tracer started at boot" within 60 active rdmesh-tracer
check "the tracer is no root" runs_as rdmesh-tracer rdmesh
for set in CapEff CapPrm CapBnd CapAmb; do
  check "the tracer has its three capabilities and no other ($set)" has rdmesh-tracer "$set" "$three"
done
check "the tracer gains no rights" is rdmesh-tracer NoNewPrivs 1
check "the tracer's system calls are filtered" is rdmesh-tracer Seccomp 2

# What attaches: module, function, how. With every capability, and under the unit.
tracer-svc probes -o json 2>"$dir/probes.err" >"$dir/root.json"
host=$(uname -n)
shows() { as_rdmesh probes "$host" -o json >"$dir/unit.json" && [ "$(wc -c <"$dir/unit.json")" -gt 500 ] && grep -q rxe_reg_user_mr "$dir/unit.json"; }
check "the tracer's report reached the collector" within 90 shows
count() { grep -oE '"state": *"attached"' "$1" | wc -l; }
check "as many probes hang under the unit as with every capability ($(count "$dir/root.json"))" \
  bash -c "[ '$(count "$dir/root.json")' -gt 10 ] && [ '$(count "$dir/unit.json")' = '$(count "$dir/root.json")' ] || { echo 'root: $(count "$dir/root.json"), unit: $(count "$dir/unit.json")'; false; }"

# What fails is recorded, and whose it is: a task of another user, its job in its environment.
failing() { # JOB: a call that fails, by another user, who stays for a while
  RDMESH_JOB_ID="$1" RANK=3 setpriv --reuid=nobody --regid=nogroup --clear-groups \
    rdmesh-verbs reg-mr-efault --linger-ms 3000
}
chmod 666 /dev/infiniband/uverbs* 2>/dev/null
recorded() { as_rdmesh failures --since 10m -o json >"$dir/failures.json" && grep -q "\"$1\"" "$dir/failures.json"; }
check "a rank of another user fails as it should" failing 4711
check "its failure is recorded with its job" within 60 recorded 4711
[ -s "$dir/failures.json" ] || as_rdmesh failures --since 10m
check "down to the function where it was born" grep -q ib_umem_get "$dir/failures.json"
journal() { journalctl -q -u "$1" --no-pager -o cat; }
check "the tracer misses no capability" bash -c "! journalctl -q -u rdmesh-tracer -o cat | grep -iE 'CAP_|not permitted|denied'"

# Each capability is needed: without it something is lost.
only() { # CAPABILITIES…: the tracer with these alone, from its start
  mkdir -p /run/systemd/system/rdmesh-tracer.service.d
  printf '[Service]\nCapabilityBoundingSet=\nCapabilityBoundingSet=%s\nAmbientCapabilities=\nAmbientCapabilities=%s\n' "$*" "$*" \
    >/run/systemd/system/rdmesh-tracer.service.d/only.conf
  systemctl daemon-reload
  # Again from nothing: a run's journal is looked at by itself.
  journalctl -q --rotate --vacuum-time=1s >/dev/null 2>&1
  systemctl restart rdmesh-tracer
}
gave_up() { [ "$(systemctl show -P ExecMainStatus rdmesh-tracer)" = "$1" ] && ! active rdmesh-tracer; }
only CAP_SYSLOG CAP_SYS_PTRACE CAP_BPF CAP_PERFMON
check "without CAP_SYS_ADMIN (with CAP_BPF and CAP_PERFMON) it ends with 77 and is not started anew" \
  within 30 gave_up 77
only CAP_SYS_ADMIN CAP_SYS_PTRACE
says() { journal rdmesh-tracer | grep -q "$1"; }
check "without CAP_SYSLOG it lacks the kernel's log" within 60 says CAP_SYSLOG
only CAP_SYS_ADMIN CAP_SYSLOG
within 30 active rdmesh-tracer
environ_is_closed() { ! nsenter --target "$(pid_of rdmesh-tracer)" --mount true 2>/dev/null || ! setpriv --reuid=rdmesh --bounding-set=-all,+sys_admin,+syslog --inh-caps=-all,+sys_admin,+syslog --ambient-caps=-all,+sys_admin,+syslog cat "/proc/$1/environ" >/dev/null; }
RDMESH_JOB_ID=4712 setpriv --reuid=nobody --regid=nogroup --clear-groups sleep 60 &
sleeper=$!
within 5 grep -q sleep "/proc/$sleeper/comm"
check "without CAP_SYS_PTRACE environments of other users are closed" environ_is_closed "$sleeper"
check "with it they are open" setpriv --reuid=rdmesh --bounding-set=-all,+sys_admin,+syslog,+sys_ptrace \
  --inh-caps=-all,+sys_admin,+syslog,+sys_ptrace --ambient-caps=-all,+sys_admin,+syslog,+sys_ptrace \
  cat "/proc/$sleeper/environ"
kill "$sleeper"
rm -r /run/systemd/system/rdmesh-tracer.service.d
systemctl daemon-reload
systemctl restart rdmesh-tracer
check "with all three it is back" within 60 active rdmesh-tracer

# The filter: a program in the tracer's place, with the tracer's capabilities, may not do what
# they would allow.
in_place_of() { # UNIT LINES-TO-DROP PROGRAM: the unit with another program; its exit code
  sed -e "/^$2/d" -e '/^Restart/d' -e '/^ExecStartPre=/d' -e 's/^Type=.*/Type=oneshot/' \
    -e "s#^ExecStart=.*#ExecStart=$3#" -e 's/^StateDirectory=.*//; s/^RuntimeDirectory=.*//' \
    "/lib/systemd/system/$1.service" >/run/systemd/system/in-place.service
  systemctl daemon-reload
  systemctl start in-place
}
# mount(2) of a tmpfs; the exit code is the errno.
mounting='/usr/bin/perl -e "exit(syscall(165, q(none), q(/mnt), q(tmpfs), 0, q()) == 0 ? 0 : \$!+0)"'
mount_as() { # UNIT DROPPED: 0, or the errno
  in_place_of "$1" "$2" "$mounting" >/dev/null 2>&1
  systemctl show -P ExecMainStatus in-place
}
equals() { [ "$1" = "$2" ] || { echo "$1, not $2"; return 1; }; }
check "CAP_SYS_ADMIN alone would let the tracer mount" equals "$(mount_as rdmesh-tracer SystemCallFilter)" 0
check "its filter does not (EPERM)" equals "$(mount_as rdmesh-tracer NoSuchKey)" 1
writing='/usr/bin/perl -e "open(F, q(>), q(/usr/bin/touched)) ? exit 0 : exit(\$!+0)"'
in_place_of rdmesh-shaper NoSuchKey "$writing" 2>/dev/null
check "root in the shaper's place cannot write to /usr (EROFS)" equals "$(systemctl show -P ExecMainStatus in-place)" 30
rm /run/systemd/system/in-place.service
systemctl daemon-reload

# The shaper: on huge pages, between the ends of two pairs of veth.
echo 256 >/proc/sys/vm/nr_hugepages
check "the shaper does not start by itself" bash -c "! systemctl is-active -q rdmesh-shaper && ! systemctl is-enabled -q rdmesh-shaper"
for n in 0 1; do
  ip link add "in$n" type veth peer name "out$n"
  ip link set "in$n" up
  ip link set "out$n" up
done
cat >/etc/rdmesh/shaper.toml <<'TOML'
name = "dpu-1"
host = "gpu-1"
[dpdk]
huge_pages = true
devices = ["net_af_packet0,iface=in0", "net_af_packet1,iface=in1"]
rx_descriptors = 1024
[[wires]]
name = "vf0"
in_port = "net_af_packet0"
out_port = "net_af_packet1"
rate = "100mbit"
queue_frames = 4096
[[wires]]
name = "back"
in_port = "net_af_packet1"
out_port = "net_af_packet0"
queue_frames = 4096
TOML
check "the shaper's configuration is taken" shaper-svc --check-config
systemctl start rdmesh-shaper
check "the shaper runs on huge pages" within 60 active rdmesh-shaper
wires() { as_rdmesh wire list -o json >"$dir/wires.json" && grep -q '"vf0"' "$dir/wires.json"; }
check "its wires reach the collector" within 60 wires
four="cap_ipc_lock cap_net_admin cap_net_raw cap_sys_rawio"
for set in CapEff CapPrm CapBnd; do
  check "the shaper has its four capabilities and no other ($set)" has rdmesh-shaper "$set" "$four"
done
check "the shaper gains no rights" is rdmesh-shaper NoNewPrivs 1
check "the shaper's system calls are filtered" is rdmesh-shaper Seccomp 2
huge() { [ "$(awk '/HugePages_Free/ { print $2 }' /proc/meminfo)" -lt 256 ]; }
check "huge pages are in use" huge
before=$(pid_of rdmesh-shaper)
systemctl kill -s KILL rdmesh-shaper
another() { local now; now=$(pid_of rdmesh-shaper); [ "$now" != 0 ] && [ "$now" != "$before" ] && active rdmesh-shaper; }
check "killed, it is started anew" within 60 another
outage() { grep -q outage /var/lib/rdmesh/shaper/state.json; }
check "and knows of its outage" within 60 outage
check "nothing was refused to the shaper" bash -c "! journalctl -q -u rdmesh-shaper -o cat | grep -iE 'not permitted|denied'"

# The end, in order.
for service in shaper tracer collector; do
  systemctl stop "rdmesh-$service"
  check "$service ends well" bash -c "[ \"\$(systemctl show -P Result rdmesh-$service)\" = success ]"
done
systemd-analyze security --no-pager rdmesh-tracer rdmesh-collector rdmesh-shaper 2>/dev/null | grep Overall
for log in tracer collector shaper; do journal "rdmesh-$log" | tail -n 4 | cut -c1-300 | sed "s/^/log $log: /"; done
echo end
