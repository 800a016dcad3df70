"""A soak: random work from many callers at once, and nothing may be lost, made up or left running.

Each scene below makes one exec, treats it in a way of its own, and knows the only bytes and results
that may come of it. Scenes run side by side on one mount for as long as asked; then the daemon must
be as it was at the start. A failure prints the seed of its scene: --seed runs it again, alone.
"""

import argparse
import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import harness
import targets
from harness import unique_seconds, wait_for

END_SECONDS = 120  # for the scenes that are under way when the time is over
MEMORY_GROWTH_MAX = 64 << 20


class Scene:
    """What every scene uses: the mount, its own randomness, its own exec."""

    def __init__(self, mount, seed):
        self.mount = mount
        # Not the number itself: it has chosen the scene, and would choose the same first step in each.
        self.random = random.Random(f"scene {seed}")
        self.exec = mount.new(f"soak{seed}")

    def bytes(self, most):
        return self.random.randbytes(int(2 ** self.random.uniform(0, most.bit_length() - 1)))

    def pieces(self, data):
        while data:
            n = int(2 ** self.random.uniform(0, 17))
            yield data[:n]
            data = data[n:]

    def pause(self):
        """Now and then, and short: what happens in between is the point, never how long it takes."""
        if self.random.random() < 0.3:
            time.sleep(self.random.uniform(0, 0.02))

    def read(self, name="stdout"):
        """Reads to the end in steps of random sizes, at a random pace."""
        out = []
        with open(self.exec / name, "rb", buffering=0) as f:
            while piece := f.read(int(2 ** self.random.uniform(0, 20))):
                out.append(piece)
                self.pause()
        return b"".join(out)


def numbers(last):
    return b"".join(b"%d\n" % n for n in range(1, last + 1))


def same(got, wanted, what):
    if got == wanted:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
    raise AssertionError(f"{what}: {len(got)} bytes for {len(wanted)}, the same up to {at}")


def concurrently(*functions):
    """Runs each in a thread of its own; raises what the first to fail raised."""
    faults = []

    def guard(function):
        try:
            function()
        except Exception as e:
            faults.append(e)

    threads = [threading.Thread(target=guard, args=(f,)) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if faults:
        raise faults[0]


def through_cat(s):
    """What goes in comes out."""
    data = s.bytes(4 << 20)
    early = s.random.random() < 0.3
    got = []

    def write():
        for piece in s.pieces(data):
            s.exec.append("stdin", piece)
            s.pause()
        s.exec.ctl("eof")

    if early:
        data = data[: 32 << 10]
        write()
        s.exec.spec(["cat"])
        got.append(s.read())
    else:
        s.exec.spec(["cat"])
        concurrently(write, lambda: got.append(s.read()))
    same(got[0], data, "cat")
    assert s.exec.result() == "0"


def both_streams(s):
    """Many readers, some of them late, all read the same from the first byte on."""
    out, err, code = s.random.randint(0, 60000), s.random.randint(0, 2000), s.random.randint(0, 255)
    reads = []

    def read(name):
        s.pause()
        reads.append((name, s.read(name)))

    s.exec.spec(f"seq 1 {out}; seq 1 {err} >&2; exit {code}")
    names = [s.random.choice(["stdout", "stderr"]) for _ in range(s.random.randint(1, 4))]
    concurrently(*[lambda name=name: read(name) for name in names])
    assert s.exec.result() == str(code)
    for name, got in [*reads, ("stdout", s.read()), ("stderr", s.read("stderr"))]:
        same(got, numbers(out if name == "stdout" else err), name)


def removed(s):
    """A tree that is removed, one way or another, says so to who still reads, and is gone."""
    mark = unique_seconds()
    s.exec.spec(["sh", "-c", "echo up; setsid sleep $1 & sleep $1 & (sleep $1 &) ; wait", "sh", mark])
    way = s.random.choice(["rmdir", "kill", "owner"])
    with open(s.exec / "exit", "rb", buffering=0) as result, s.exec.lines() as stdout:
        if s.random.random() < 0.7:
            assert stdout.read(1) == b"u"
        if way == "rmdir":
            os.rmdir(s.exec)
        elif way == "kill":
            s.exec.ctl("kill")
        else:
            os.close(os.open(s.exec / "owner", os.O_RDONLY))
        assert result.read() == b"killed\n", way
    wait_for(
        lambda: not s.mount.target.processes(mark),
        f"the tree to die of {way}",
        30 + s.mount.target.kill_seconds,
    )


def cut_off(s):
    """Who reads when an exec is removed has what it wrote so far, and then the end."""
    last = 200000
    with s.exec.lines() as stdout, open(s.exec / "exit", "rb", buffering=0) as result:
        s.exec.spec(["seq", "1", str(last)])
        s.pause()
        out = stdout.read(s.random.randint(1, 4096))
        os.rmdir(s.exec)
        while piece := stdout.read(1 << 16):
            out += piece
        told = result.read()
    whole = numbers(last)
    assert told in (b"killed\n", b"0\n"), told
    same(out, whole[: len(out)] if told != b"0\n" else whole, "what was read of a removed exec")


def dead_readers(s):
    """Readers that are killed while they wait take no byte with them."""
    s.exec.spec("while read line; do echo $line; done")
    for n in range(s.random.randint(1, 5)):
        with harness.child("cat", s.exec / "stdout", stdout=subprocess.DEVNULL) as reader:
            s.exec.append("stdin", b"%d\n" % (n + 1))
            s.pause()
            reader.send_signal(s.random.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
            reader.wait(20)
    s.exec.ctl("eof")
    same(s.read(), numbers(n + 1), "after dead readers")
    assert s.exec.result() == "0"


def dead_writers(s):
    """A writer that is killed has written what it was told it wrote, each byte once."""
    s.exec.spec("sleep .05; exec cat")
    script = 'i=0; while i=$((i + 1)); do echo $i; done >> "$0"'
    with harness.child("sh", "-c", script, s.exec / "stdin", stderr=subprocess.DEVNULL) as writer:
        time.sleep(s.random.uniform(0, 0.2))
        writer.kill()
        writer.wait(20)
    s.exec.ctl("eof")
    out = s.read()
    same(out, numbers(out.count(b"\n")), "of a dead writer")
    assert s.exec.result() == "0"


def refused(s):
    """A refused spec starts nothing, and may be written again."""
    for bad in s.random.sample(['{"cmd":1}', "[]", '{"cmd":["x"],"y":1}', '{"cmd":["x"]]'], 2):
        try:
            s.exec.spec(bad)
        except OSError as e:
            assert e.errno == errno.EINVAL, e
        else:
            raise AssertionError(f"{bad} was taken")
    assert s.exec.status()["state"] == "new"
    name = s.random.choice(["TERM", "USR1", "KILL"])
    s.exec.spec(f"kill -s {name} $$")
    code = 128 + getattr(signal, f"SIG{name}")
    wanted = f"signal {name}" if s.mount.target.can("signal-result") else str(code)
    assert s.exec.result() in (wanted, f"signal {name}")


def signalled(s):
    s.exec.spec("trap 'echo caught; exit 9' TERM; echo up; while :; do sleep .01; done")
    with s.exec.lines() as stdout:
        assert harness.line_of(stdout) == b"up\n"
        s.exec.ctl("signal TERM")
        assert harness.line_of(stdout) == b"caught\n"
        assert stdout.read() == b""
    assert s.exec.result() == "9"


SCENES = [through_cat, both_streams, removed, cut_off, dead_readers, dead_writers, refused, signalled]


class Soak:
    def __init__(self, mount, seed):
        self.mount = mount
        self.next_seed = seed
        self.lock = threading.Lock()
        self.played = dict.fromkeys((f.__name__ for f in SCENES), 0)
        self.faults = []

    def play_one(self, seed):
        scene = None
        function = random.Random(seed).choice(SCENES)
        try:
            scene = Scene(self.mount, seed)
            function(scene)
        except Exception:
            self.faults.append(f"{function.__name__}, --seed {seed}:\n{traceback.format_exc()}")
        finally:
            if scene:
                scene.exec.remove()
        with self.lock:
            self.played[function.__name__] += 1

    def play(self, until):
        while time.monotonic() < until and not self.faults:
            with self.lock:
                seed = self.next_seed
                self.next_seed += 1
            self.play_one(seed)

    def run(self, seconds, callers):
        until = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self.play, args=(until,), daemon=True) for _ in range(callers)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join(max(0, until + END_SECONDS - time.monotonic()))
        if any(t.is_alive() for t in threads):
            self.faults.append(f"a scene hangs; execs: {os.listdir(self.mount.path)}")


def soak(name, arguments):
    """Returns whether nothing was wrong."""
    with targets.running(name) as target, tempfile.TemporaryDirectory(prefix="spawnfs-soak-") as place:
        mount = harness.Mount(target, f"{place}/m", ["retain=1M"])
        work = Soak(mount, arguments.seed or random.SystemRandom().randrange(1 << 40))
        grown = 0
        try:
            with mount:
                before = harness.rss(mount.pid)
                if arguments.seed:
                    work.play_one(arguments.seed)
                else:
                    work.run(arguments.seconds, arguments.callers)
                if not work.faults:
                    wait_for(lambda: os.listdir(mount.path) == [".spawnfs"], "the mount to be empty")
                    mount.check_settled()
                grown = harness.rss(mount.pid) - before
                if grown > MEMORY_GROWTH_MAX * harness.SLOW:
                    work.faults.append(f"the daemon has grown by {grown >> 20} MiB")
        except AssertionError as e:
            work.faults.append(str(e))
    for fault in work.faults:
        print(fault, file=sys.stderr)
    played = ", ".join(f"{n} {scene}" for scene, n in work.played.items())
    print(f"{name}: {played}; {len(work.faults)} faults; the daemon grew by {grown >> 10} KiB")
    return not work.faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--seed", type=int, help="one scene only")
    parser.add_argument("targets", nargs="*", default=["local"])
    arguments = parser.parse_args()
    # Ignored in what a shell runs in the background, and then in the readers that get it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    results = [soak(name, arguments) for name in arguments.targets]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
