#!/usr/bin/env bash
# Measures the steered audio output alone: two processes play the test programme to two null sinks of a private
# PipeWire, `unisono measure` records both and compares them with each other (skew) and with the programme (absolute
# error). No sender, no network: what is left is the error of the output.
#
#   build-aux/measure-output.sh [-n RUNS] [-l SECONDS] [-s SKIP] [-q QUANTUM] [-r GRAPH_RATE] [-- PLAYER OPTIONS]
#
#   -n 5      runs, each with players that start anew, 3.3 s apart
#   -l 60     seconds measured in a run
#   -s 10     seconds between the start of the second player and the measurement
#   -q 1024   frames a cycle of the graph
#   -r 48000  rate of the graph in Hz; the programme is at 48 kHz unless the player is told `--rate`
#
# Prints one line of JSON a run. Exits with 1 when a run could not be measured or is beyond the bounds:
# p50 2 µs, p95 10 µs, max 21 µs, for the skew and for each room's absolute error.
#
# Needs: pipewire wireplumber dbus-daemon jq, and cargo (or UNISONO and PLAYER with paths of the built programs).
set -euo pipefail
runs=5 length=60 skip=10 quantum=1024 rate=48000
while getopts n:l:s:q:r: option; do
  case $option in
    n) runs=$OPTARG ;; l) length=$OPTARG ;; s) skip=$OPTARG ;; q) quantum=$OPTARG ;; r) rate=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
between=3.3 # seconds between the players' starts: not a whole number of cycles

root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${UNISONO:-}" ] || [ -z "${PLAYER:-}" ]; then
  cargo build --quiet --release --manifest-path "$root/Cargo.toml" --bin unisono --example play_programme >&2
  target=$(cargo metadata --manifest-path "$root/Cargo.toml" --format-version 1 --no-deps | jq -r .target_directory)
  UNISONO=$target/release/unisono PLAYER=$target/release/examples/play_programme
fi

work=$(mktemp -d /tmp/pw.XXXXXX)
pids=() players=()
cleanup() {
  for pid in "${players[@]}" "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

export XDG_RUNTIME_DIR=$work PIPEWIRE_RUNTIME_DIR=$work XDG_CONFIG_HOME=$work/config XDG_STATE_HOME=$work/state
export DBUS_SESSION_BUS_ADDRESS=unix:path=$work/bus
unset PIPEWIRE_REMOTE DISPLAY WAYLAND_DISPLAY
mkdir -p "$XDG_CONFIG_HOME/pipewire/pipewire.conf.d" "$XDG_CONFIG_HOME/wireplumber/bluetooth.lua.d"
# For Bluetooth it wants logind, and ends on a host without one.
echo 'bluez_monitor.enabled = false' >"$XDG_CONFIG_HOME/wireplumber/bluetooth.lua.d/80-rooms.lua"
{
  echo "context.properties = { default.clock.rate = $rate default.clock.allowed-rates = [ $rate ]"
  echo "  default.clock.quantum = $quantum default.clock.min-quantum = 32 }"
  echo "context.objects = ["
  for room in roomA roomB; do
    echo "  { factory = adapter args = { factory.name = support.null-audio-sink node.name = $room"
    echo "    media.class = Audio/Sink object.linger = true audio.position = [ FL FR ] } }"
  done
  echo "]"
} >"$XDG_CONFIG_HOME/pipewire/pipewire.conf.d/10-rooms.conf"

dbus-daemon --session --nofork --address="$DBUS_SESSION_BUS_ADDRESS" >"$work/bus.log" 2>&1 & pids+=($!)
until [ -S "$work/bus" ]; do sleep 0.05; done
pipewire >"$work/pipewire.log" 2>&1 & pids+=($!)
until [ -S "$work/pipewire-0" ]; do sleep 0.05; done
wireplumber >"$work/wireplumber.log" 2>&1 & pids+=($!)
sleep 1 # the session manager's own start

failed=0
for run in $(seq "$runs"); do
  players=()
  playing=$(awk "BEGIN { print $between + $skip + $length + 10 }")
  for room in roomA roomB; do
    "$PLAYER" --device $room --sound noise --seconds "$playing" "$@" 2>"${LOG:-$work}/$room.$run.log" & players+=($!)
    [ $room = roomB ] || sleep $between
  done
  sleep "$skip"
  "$UNISONO" measure roomA roomB --sound noise --clock system --length "${length}s" --json >"$work/result.json" &
  players+=($!)
  wait $! || failed=1
  result=$(<"$work/result.json")
  jq -c --argjson run "$run" '{
    run: $run,
    skew: .skews[0].skew,
    absolute: [.rooms[] | { room, rate, time_jumps } + .absolute_error]
  }' <<<"$result"
  jq -e '[.skews[].skew, .rooms[].absolute_error] | all(
    .bad == 0 and .windows > 0 and .p50_us <= 2 and .p95_us <= 10 and .max_us <= 21)' <<<"$result" >/dev/null || {
    echo "run $run: beyond the bounds" >&2
    failed=1
  }
  for pid in "${players[@]}"; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
done
exit $failed
