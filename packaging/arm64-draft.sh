# Draft of `make arm64` (not in the tree: the build never got CPU to finish; 124 of ~300 crates compiled without an error).
# 1. chroot: debootstrap bookworm; sources bookworm + -updates + -security; then
#      dpkg --add-architecture arm64; apt-get update
#      apt-get install cargo-web rustc-web libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu libc6-dev:arm64 \
#        libdpdk-dev:arm64 libibverbs-dev:arm64 clang llvm libclang-dev pkg-config make gcc libc6-dev qemu-user-static dpkg-dev
#    All of it installs side by side (rustc-web 1.96); no maintainer script fails, no binfmt needed. About 6 min on a busy machine.
# 2. in it, on the tree:
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig
cargo build --release --locked --offline --workspace --bins --target aarch64-unknown-linux-gnu
# 3. tests that can run: CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
# 4. packages: TARGET=aarch64-unknown-linux-gnu packaging/packages.sh ; ARCH=arm64 packaging/debian/check.sh
#    (both know arm64 already; man pages come from the native programs in target/release)
