#!/usr/bin/env bash
# Installs what is missing, builds, and plays one RTSP stream in two rooms on this machine: a sender, two rooms, a live
# table, and at the end how far apart they were.
#
#   build-aux/demo.sh [--listen] [--seconds N]
#     --listen     plays the sound of both rooms on your own sound system
#     --seconds N  how long the rooms play (default 15)
set -euo pipefail
cd "$(dirname "$0")/.."
. build-aux/lib.sh
for argument in "$@"; do case $argument in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac; done
ensure_packages "${PACKAGES_BUILD[@]}" "${PACKAGES_RUN[@]}" python3
ensure_rust
say "Building (the first time takes some minutes)"
# Without the window: the rooms of the demo need none.
cargo build --release --quiet --no-default-features --features sender,pipewire
target=${CARGO_TARGET_DIR:-target}
exec python3 build-aux/demo.py --bin "$target/release" "$@"
