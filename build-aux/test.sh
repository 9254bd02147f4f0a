#!/usr/bin/env bash
# Installs what is missing and runs everything that a change must pass: format, lints of every feature set, and all tests.
#   build-aux/test.sh [ARGUMENTS FOR THE TEST RUNNER]
set -euo pipefail
cd "$(dirname "$0")/.."
. build-aux/lib.sh
ensure_packages "${PACKAGES_BUILD[@]}" "${PACKAGES_RUN[@]}" "${PACKAGES_GUI[@]}" "${PACKAGES_TEST[@]}"
ensure_rust
say "Format"
cargo fmt --all --check
say "Lints of every feature set"
cargo clippy --locked --all-targets -- -D warnings
for features in "" sender pipewire gui; do
  cargo clippy --locked --lib --bins --no-default-features --features "$features" -- -D warnings
done
say "A headless build links no GTK"
if cargo tree --locked --edges normal --no-default-features --features sender,pipewire --prefix none | grep -E '^(gtk4|libadwaita)'; then
  die "a headless build links GTK"
fi
say "Tests"
if cargo nextest --version >/dev/null 2>&1; then
  cargo nextest run --locked "$@"
  cargo test --locked --doc
else
  cargo test --locked "$@"
fi
