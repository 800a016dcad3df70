#!/usr/bin/python3
"""Runs the suite: a pytest for each target, more for the longest, all at once, since most tests wait
more than they compute.

    tests/run.py [--target NAME]... [arguments of pytest]

A line of each appears when it is whole, with its target before it; what failed, and why, in one
piece when that pytest has ended; and at the end the sum. With one --target it is that pytest's
output alone. ^C, SIGTERM and SIGHUP end each after the test that it is in, and wait until it has
stopped its services.
"""

import argparse
import collections
import datetime
import os
import pathlib
import re
import selectors
import signal
import subprocess
import sys
import time

import targets

TESTS = pathlib.Path(__file__).resolve().parent
# Exit statuses of pytest.
FAILED, NOTHING_TO_RUN = 1, 5
SECTION = re.compile(r"=+ (.*) =+$")
COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|warnings?|deselected)")


class Lane:
    """The pytest of one target, in a session of its own: ^C is for us, who pass it on once."""

    def __init__(self, name, arguments, stdout):
        self.name = name
        self.partial = b""
        self.report = []  # what comes after the progress
        self.status = None
        self.told = False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT if stdout else None,
            start_new_session=True,
        )

    def interrupt(self):
        if self.status is None and not self.told:
            self.told = True
            self.process.send_signal(signal.SIGINT)

    def read(self):
        """Shows what has come; False at the end."""
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        lines = (self.partial + data).split(b"\n")
        self.partial = lines.pop()
        for line in lines:
            self.take(line.decode(errors="replace").rstrip())
        return bool(data)

    def take(self, line):
        section = SECTION.match(line)
        if self.report or (section and section[1] != "test session starts"):
            self.report.append(line)
        elif line and not section:
            show(f"{self.name:>{WIDTH}} | {line}")

    def end(self):
        self.status = self.process.wait()
        self.process.stdout.close()
        if self.status != NOTHING_TO_RUN:
            show("", f"---- {self.name}", *self.report)

    def counts(self):
        # Warnings of the interpreter may come behind pytest's closing line.
        found = (COUNT.findall(line) for line in reversed(self.report) if SECTION.match(line))
        closing = next(filter(None, found), [])
        return {what.removesuffix("s"): int(n) for n, what in closing}

    def failures(self):
        found = [line for line in self.report if line.startswith(("FAILED ", "ERROR "))]
        if not found and not self.told and self.status not in (0, FAILED, NOTHING_TO_RUN):
            found.append(f"{self.name}: pytest ended with status {self.status}")
        return found


WIDTH = max(map(len, targets.registry))
# One lane of each would take longer than all the others.
PARTS = {
    "e2b": ["common", "own", "seconds", "minutes"],
    "docker": ["common", "own"],
    "via": ["common", "own"],
}


def show(*lines):
    print(*lines, sep="\n", flush=True)


def stops_at_a_failure(arguments):
    return any(a in ("-x", "--exitfirst") or a.startswith("--maxfail") for a in arguments)


def on_interrupt(lanes):
    """Passes ^C and its like on to the lanes; returns the list of what came."""
    came = []

    def interrupt(signo, _):
        if not came:
            show("", "interrupted: waiting for the services of the tests to stop")
        came.append(signo)
        for lane in lanes:
            lane.interrupt()

    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signo, interrupt)
    return came


def follow(lanes, arguments):
    """Shows the lanes until all have ended."""
    with selectors.DefaultSelector() as selector:
        for lane in lanes:
            selector.register(lane.process.stdout, selectors.EVENT_READ, lane)
        while selector.get_map():
            for key, _ in selector.select():
                if key.data.read():
                    continue
                selector.unregister(key.fileobj)
                key.data.end()
                if key.data.status == FAILED and stops_at_a_failure(arguments):
                    for lane in lanes:
                        lane.interrupt()


def summary(lanes, seconds):
    total = collections.Counter()
    for lane in lanes:
        total.update(lane.counts())
    del total["deselected"]
    words = ", ".join(f"{n} {what}" for what, n in sorted(total.items())) or "no tests ran"
    failures = [line for lane in lanes for line in lane.failures()]
    took = f"{seconds:.2f}s ({datetime.timedelta(seconds=int(seconds))})"
    show("", *failures, f" {words} in {took} ".center(80, "="))


def alone(name, arguments):
    lane = Lane(name, ["--target", name, *arguments], None)
    came = on_interrupt([lane])
    status = lane.process.wait()
    return 128 + came[0] if came else status


def together(names, share, arguments):
    began = time.monotonic()
    # Each has a part of the machine only.
    os.environ.setdefault("SPAWNFS_SLOW", "3")
    lanes = []
    came = on_interrupt(lanes)
    for name in names:
        for part in PARTS.get(name, [None]):
            of_part = ["--part", part] if part else []
            label = f"{name} {part}" if part else name
            options = ["--no-header", share, name, *of_part]
            lanes.append(Lane(label, [*options, *arguments], subprocess.PIPE))
    follow(lanes, arguments)
    summary(lanes, time.monotonic() - began)
    statuses = {lane.status for lane in lanes}
    if came:
        return 128 + came[0]
    return max(statuses - {NOTHING_TO_RUN}, key=abs, default=NOTHING_TO_RUN)


def names_tests(argument):
    path = pathlib.Path(argument.split("::")[0]).resolve()
    return path.exists() and TESTS in (path, *path.parents)


def main():
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--target", action="append", default=[], choices=list(targets.registry))
    own, arguments = parser.parse_known_args()
    if not any(map(names_tests, arguments)):
        arguments.append(str(TESTS))
    if len(own.target) == 1:
        return alone(own.target[0], arguments)
    if own.target:
        return together(own.target, "--target", arguments)
    return together(list(targets.registry), "--share", arguments)


if __name__ == "__main__":
    sys.exit(main())
