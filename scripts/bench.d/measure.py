"""What the benchmarks share: the build that they measure, a mount of it, and a line for each figure."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build-bench"
BENCH = BUILD / "tests" / "bench" / "bench"
MIB = 1 << 20
QUICK = "--quick" in sys.argv
if {"-h", "--help"} & set(sys.argv):
    print(sys.modules["__main__"].__doc__)
    sys.exit()


def build(*programs):
    """spawnfs, the program that measures, and further ones, optimized."""
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["meson", "setup", "--buildtype=release", BUILD, ROOT], check=True,
                       stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", BUILD, "spawnfs", "tests/bench/bench", *programs], check=True,
                   stdout=subprocess.DEVNULL)


class Mount:
    """A mount of a target for as long as the with statement lasts."""

    def __init__(self, target, *options, env=None):
        self.target = target
        self.options = options
        self.env = env

    def __enter__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="spawnfs-bench-"))
        args = [BUILD / "spawnfs", "-f"]
        for option in self.options:
            args += ["-o", option]
        self.daemon = subprocess.Popen([*args, self.target, self.dir], env=self.env)
        while not os.path.ismount(self.dir):
            if self.daemon.poll() is not None:
                sys.exit("the mount failed")
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait()
        self.dir.rmdir()

    def ours(self, work, *args):
        return run(BENCH, "fs-" + work, self.dir, *args)


def run(*args, env=None):
    """The figure that a program prints."""
    done = subprocess.run([str(a) for a in args], check=True, stdout=subprocess.PIPE, text=True,
                          env=env)
    return float(done.stdout)


def in_turn(rounds, choose, *measures):
    """Takes each measure in turn, several times; choose (median, min, max) makes one of each."""
    taken = [[] for _ in measures]
    for _ in range(rounds):
        for values, measure in zip(taken, measures):
            values.append(measure())
    return [choose(values) for values in taken]


def report(name, ours, theirs, unit, ratio, goal, at_least):
    """A line: whether the ratio reaches the goal, and the figures. theirs is None: there is no peer."""
    ok = ratio >= goal if at_least else ratio <= goal
    against = f" against {theirs:.1f}" if theirs is not None else ""
    print(f"{'ok ' if ok else 'NO '} {name:<44} {ratio:8.2f} ({'≥' if at_least else '≤'} {goal})   "
          f"{ours:.1f}{against} {unit}", flush=True)


def play(functions, *args):
    """Calls each bench_NAME(*args), or only those that the command line names."""
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    for name, bench in list(functions.items()):
        if name.startswith("bench_") and (not names or name[6:] in names):
            bench(*args)
