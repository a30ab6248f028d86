#!/usr/bin/env bash
# Runs every fuzz target for so many seconds: tests/fuzz.sh SECONDS [TARGET…]
#
# What cargo-fuzz does, with the compiler at hand: coverage is counted by LLVM's own
# pass, which a stable compiler takes with RUSTC_BOOTSTRAP. A corpus stays under
# target/fuzz-corpus and is used again; an input that fails is kept there too and its
# path is printed. Put it into a test, then mend the fault.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?how many seconds for each target}
shift
flags=(
	--cfg fuzzing
	-C passes=sancov-module
	-C llvm-args=-sanitizer-coverage-level=4
	-C llvm-args=-sanitizer-coverage-inline-8bit-counters
	-C llvm-args=-sanitizer-coverage-pc-table
	-C llvm-args=-sanitizer-coverage-trace-compares
	-C codegen-units=1
	-C debug-assertions
)
target=x86_64-unknown-linux-gnu
[ "$(uname -m)" = x86_64 ] || target=$(rustc -vV | sed -n 's/^host: //p')

for folder in services/fuzz shaper-svc/fuzz tracer-svc/fuzz; do
	names=()
	for source in "$folder"/fuzz_targets/*.rs; do
		name=$(basename "$source" .rs)
		[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
		names+=("$name")
	done
	[ ${#names[@]} -gt 0 ] || continue
	# The flags are for the target alone: build scripts run without them.
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="${flags[*]}" CARGO_TARGET_DIR=target/fuzz \
		cargo build --release --manifest-path "$folder/Cargo.toml" --target "$target" \
		"${names[@]/#/--bin=}"
	for name in "${names[@]}"; do
		corpus=target/fuzz-corpus/$name
		mkdir -p "$corpus"
		# Well-formed input to begin with.
		seeds=()
		[ ! -d "$folder/seeds/$name" ] || seeds=("$folder/seeds/$name")
		echo "fuzz: $name for $seconds s"
		"target/fuzz/$target/release/$name" -max_total_time="$seconds" -max_len=4096 \
			-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
			-artifact_prefix="$corpus-" "$corpus" "${seeds[@]}"
	done
done
