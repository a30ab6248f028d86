# Two commands do everything on a fresh Debian 12 or 13 machine:
#
#   make demo          a real kernel failure, traced, joined with its job, explained
#   make test          all tests
#
# and for those who install it: packages, images, compose-check, units-check;
# and for those who work on rdmesh: lint, fuzz, faults, bench, drills, probes, dpdk24, fresh-check, clean.

SHELL := /bin/bash
CACHE := $(or $(RDMESH_CACHE),$(HOME)/.cache/rdmesh)
# The pinned tools come last, so that what a developer has installed wins.
export PATH := $(PATH):$(CACHE)/tools/bin:/usr/sbin:/sbin
BIN := target/release

.PHONY: help setup build demo test lint fmt fuzz faults bench drills probes dpdk24 fresh-check clean \
    packages images compose-check units-check

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

setup:
	@tests/setup.sh test

# Everything is built with one optimised profile: tests and binaries alike.
build: setup
	cargo build --release --locked --workspace

# What the demo starts. KEEP=1 leaves the lab running and prints how to look around.
DEMO := rdmesh-client rdmesh-collector rdmesh-guest rdmesh-lab rdmesh-tracer rdmesh-verbs
demo:
	@tests/setup.sh demo
	cargo build --release --locked $(DEMO:%=-p %)
	$(BIN)/rdmesh-lab demo $(if $(KEEP),--keep)

# TESTS narrows it down: make test TESTS='-E "package(rdmesh-store)"'
# The shaper's tests on network namespaces need root, or a user who may make namespaces;
# for others they are counted as skipped.
ROOT_ONLY := binary(veth)
# Tests of minutes: make probes.
LONG := package(rdmesh-lab) & binary(long)
CONFINED_UID = $(shell unshare -U -r -n -m mount -t tmpfs tmpfs /run 2>/dev/null || id -u)
# The binaries are built together with the tests: alone they would be built with other features
# of the libraries, and most of the workspace twice.
test: setup
	cargo build --release --locked --workspace --bins --tests
	cargo nextest run --release --locked --workspace --no-fail-fast \
	    $(if $(TESTS),$(TESTS),-E 'not ($(LONG))$(if $(filter-out 0,$(CONFINED_UID)), and not $(ROOT_ONLY))')

lint: 
	@tests/setup.sh lint
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
	cargo clippy --release --locked -p rdmesh-shaper --no-default-features --all-targets -- -D warnings
	cargo deny --log-level error check bans licenses sources

fmt:
	cargo fmt --all

# Every decoder with random input, FUZZ_SECONDS (60 unless given) for each target.
fuzz:
	tests/fuzz.sh $(or $(FUZZ_SECONDS),60)

# A mesh with a hundred simulated agents whose parts are killed, frozen and cut off: ROUNDS
# (200) rounds by SEED (any, and printed). Needs root: Postgres runs as an account of its own.
faults: setup
	cargo build --release --locked --workspace --bins --tests
	$(BIN)/rdmesh-lab faults --rounds $(or $(ROUNDS),200) $(if $(SEED),--seed $(SEED))

# ONLY=<area> runs one area: lab, tracer, shaper. The shaper needs root.
bench: build
	@tests/setup.sh bench
	$(BIN)/rdmesh-lab bench $(if $(ONLY),--only $(ONLY))

# Attempts whose cause is known by construction, and the table of causes and verdicts.
drills:
	@$(MAKE) --no-print-directory test TESTS='--no-capture -E "test(every_drill_has_its_cause)"'

# Baselines of good calls: every scenario on every kernel, some minutes. make test has two
# scenarios of them on one kernel.
probes: setup
	cargo build --release --locked --workspace --bins --tests
	cargo nextest run --release --locked --workspace --no-fail-fast \
	    -E '$(LONG)'

# The shaper against Debian 13's DPDK 24.11 on a Debian 12 machine. Needs root.
dpdk24:
	shaper-svc/tests/dpdk24.sh

# Debian packages into target/debian/, tried in a fresh Debian: needs root.
packages: build
	@tests/setup.sh packages
	packaging/packages.sh
	packaging/debian/check.sh

# Container images rdmesh-collector and rdmesh-tracer, in the engine that docker(1) reaches.
images: build
	packaging/images.sh

# compose/ with a real engine and images that are built here; minutes, needs root.
compose-check: build
	@tests/setup.sh packages
	compose/check.sh

# The packages on a Debian with systemd in QEMU: units, capabilities, filters; needs root.
units-check: packages
	cargo build --release --locked --workspace --bins
	packaging/systemd/check/run.sh

# The two commands above in a chroot that holds a fresh Debian and nothing else.
fresh-check:
	tests/fresh-check.sh

clean:
	cargo clean
