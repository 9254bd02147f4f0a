#!/usr/bin/env python3
"""Runs the demo: a sender, two rooms, a live table, the skew. Called by demo.sh, which builds first."""
import argparse
import collections
import csv
import json
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOMS = ("kitchen", "parlour")
FIRST_FRAME_DEADLINE_S = 20.0
SETTLED_AFTER_S = 3.0  # of each room; what comes before is its start


def percentile(values, percent):
    """The smallest value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


class Room:
    """One `unisono --headless --json` and what it last said."""

    def __init__(self, name, command, log, stream):
        self.name, self.log, self.stream, self.status, self.first_frame = name, log, stream, None, None
        self.errors = []  # of each second in which the sound was locked: median and 99 %, µs
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError):
                print(f"{self.name}: {line.strip()}", file=sys.stderr)

    def _take(self, line):
        if line["type"] == "status":
            self.status = line
            stream = line[self.stream]
            if stream and stream["frames"] and self.first_frame is None:
                self.first_frame = time.monotonic()
            if stream and stream["error_us"] and line["verdict"] in ("synced", "approximate"):
                self.errors.append((stream["error_us"]["p50"], stream["error_us"]["p99"]))

    def row(self):
        """The room's line of the table."""
        status = self.status
        if not status:
            return f"{self.name:<10} starting"
        stream = status[self.stream] or {}
        error = stream.get("error_us")
        text = f"{error['p50'] / 1e3:+8.3f} {error['p99'] / 1e3:8.3f}" if error else f"{'-':>8} {'-':>8}"
        why = f"  {status['reason']['text']}" if status["reason"] else ""
        return f"{self.name:<10} {status['verdict']:<12} {stream.get('frames', 0):>6} {text}{why}"


def presented(room):
    """Sender time → when that frame was presented: on the shared clock, and on CLOCK_MONOTONIC (all in ns)."""
    with open(room.log, newline="") as file:
        return {
            int(row["sender_time_ns"]): (int(row["presented_ns"]), int(row["monotonic_ns"]))
            for row in csv.DictReader(file)
            if row["stream"] == room.stream and row["sender_time_ns"] and row["monotonic_ns"]
        }


def start_sender(options):
    """Starts the sender on a free port and returns it with its URL."""
    sender = subprocess.Popen(
        [os.path.join(options.bin, "unisono-send"), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    url = None
    for line in sender.stdout:
        found = re.search(r"rtsp://\S+", line)
        if found:
            url = found.group(0)
            break
    if not url:
        sys.exit("error: the sender did not start")
    threading.Thread(target=lambda: collections.deque(sender.stdout, maxlen=0), daemon=True).start()
    return sender, url


def summarize_sound(rooms):
    """The last lines when the rooms play sound: what each room's own output measured."""
    print(f"\n{'room':<10} {'verdict':<12} {'error p50':>12} {'error p99':>12}   (presentation error, ms)")
    well = True
    for room in rooms:
        verdict = room.status["verdict"] if room.status else "-"
        well = well and verdict in ("synced", "approximate") and bool(room.errors)
        if room.errors:
            p50 = statistics.median(p50 for p50, _ in room.errors) / 1e3
            p99 = max(p99 for _, p99 in room.errors) / 1e3
            print(f"{room.name:<10} {verdict:<12} {p50:>+12.6f} {p99:>12.6f}")
        else:
            print(f"{room.name:<10} {verdict:<12} not locked to the shared clock yet")
    if all(room.errors for room in rooms):
        medians = [statistics.median(p50 for p50, _ in room.errors) for room in rooms]
        print(f"{'skew':<10} {(medians[0] - medians[1]) / 1e3:+.6f} ms, the difference of the medians")
    return well


def summarize(rooms, latency_ns):
    """The last lines: verdict and error of each room, and the skew between them. Returns whether all is well."""
    print(f"\n{'room':<10} {'verdict':<12} {'error p50':>12} {'error p99':>12}   (presentation error, ms)")
    logs, well = [], True
    for room in rooms:
        frames = presented(room)
        begin = min((mono for _, mono in frames.values()), default=0) + SETTLED_AFTER_S * 1e9
        logs.append({sent: mono for sent, (_, mono) in frames.items() if mono >= begin})
        errors = [shown - sent - latency_ns for sent, (shown, mono) in frames.items() if mono >= begin]
        verdict = room.status["verdict"] if room.status else "-"
        if not errors:
            print(f"{room.name:<10} {verdict:<12} no frame with the sender's time")
            well = False
            continue
        p50, p99 = statistics.median(errors) / 1e6, percentile([abs(error) for error in errors], 99) / 1e6
        print(f"{room.name:<10} {verdict:<12} {p50:>+12.3f} {p99:>12.3f}")
        well = well and verdict == "synced"
    skews = [logs[0][sent] - logs[1][sent] for sent in logs[0].keys() & logs[1].keys()]
    if not skews:
        print("skew       no frame was presented in both rooms")
        return False
    sizes = [abs(skew) for skew in skews]
    print(
        f"{'skew':<10} {statistics.median(skews) / 1e6:+.3f} ms median, {percentile(sizes, 99) / 1e6:.3f} ms p99"
        f" over {len(skews)} frames presented in both rooms"
    )
    return well


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--listen", action="store_true", help="play the sound of both rooms on the own sound system")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long the rooms play")
    options = parser.parse_args()
    began, processes, table = time.monotonic(), [], sys.stdout.isatty()
    stream = "audio" if options.listen else "video"

    def stop():
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as folder:
        try:
            sender, url = start_sender(options)
            processes.append(sender)
            print(f"sender     {url}")
            rooms = []
            for name in ROOMS:
                log = os.path.join(folder, f"{name}.csv")
                command = [os.path.join(options.bin, "unisono"), "--headless", url, "--json", "--frame-log", log]
                command.append("--no-video" if options.listen else "--no-audio")
                room = Room(name, command, log, stream)
                rooms.append(room)
                processes.append(room.process)
                print(f"{name:<10} unisono --headless {url} {command[-1]}")
            print(f"\n{'room':<10} {'verdict':<12} {'frames':>6} {'p50 ms':>8} {'p99 ms':>8}")
            end, drawn = None, False
            while end is None or time.monotonic() < end:
                time.sleep(0.5 if table else 2.0)
                if end is None and all(room.first_frame for room in rooms):
                    end = time.monotonic() + options.seconds
                    first = max(room.first_frame for room in rooms) - began
                if end is None and time.monotonic() - began > FIRST_FRAME_DEADLINE_S:
                    sys.exit("error: no picture within 20 s")
                if any(room.process.poll() is not None for room in rooms):
                    sys.exit("error: a room ended early")
                if drawn and table:
                    print(f"\x1b[{len(rooms)}A", end="")
                for room in rooms:
                    print(f"\x1b[K{room.row()}" if table else room.row(), flush=True)
                drawn = True
            stop()
            print(f"\nfirst frames {first:.1f} s after the start")
            well = summarize_sound(rooms) if options.listen else summarize(rooms, 1_000_000_000)
        except KeyboardInterrupt:
            well = True
        finally:
            stop()
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
