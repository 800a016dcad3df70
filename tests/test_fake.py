"""Faults on order: a mount of the target fake:, whose specs are scripts (backend/fake.c)."""

import contextlib
import errno
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest

from harness import BUILD, Mount, process_state, small_disk, wait_for
from targets import Target
from test_tree import raises


class FakeMount(Mount):
    program = BUILD / "tests" / "spawnfs-fake"


def fake_target():
    target = Target(address="fake:", refuses=("pty", "limits", "user", "sandbox"))
    target.name = "fake"
    return target


@pytest.fixture
def fakes(tmp_path):
    mounts = []

    def make(*options, **kwargs):
        place = tmp_path / f"m{len(mounts)}"
        mount = FakeMount(fake_target(), place, options, **kwargs).start()
        mounts.append(mount)
        return mount

    yield make
    for mount in mounts:
        mount.stop()


@pytest.fixture
def fake(fakes):
    return fakes()


def script(*steps, **keys):
    return {"cmd": ["fake", *steps], **keys}


# ---- the start ----


def test_the_write_returns_when_the_command_has_started(fake):
    with fake.new() as e:
        began = time.monotonic()
        e.spec(script("delay 300", "start", "stay"))
        assert time.monotonic() - began >= 0.29
        assert e.status()["state"] == "running"
        assert e.status()["pid"] > 0


REFUSALS = ["EACCES", "ENXIO", "EHOSTUNREACH", "ENOENT", "ETIMEDOUT", "ECONNREFUSED", "E2BIG"]


@pytest.mark.parametrize("delay", ["0", "50"])
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_start(fake, name, delay):
    with fake.new() as e:
        with raises(getattr(errno, name)):
            e.spec(script(f"delay {delay}", f"refuse {name} ask the owner for a key"))
        assert e.result() == f"failed {name}"
        assert "ask the owner for a key" in e.status()["error"]
        assert e.read("stdout") == e.read("stderr") == b""
        with raises(errno.EBUSY):
            e.spec(script("exit 0"))
        with raises(errno.EPIPE):
            e.append("stdin", b"x")


def test_what_waits_for_the_start_hears_of_a_refusal(fake):
    """A reader of exit and one of stdout, from before the spec was written."""
    with fake.new() as e:
        readers = [
            subprocess.Popen(["cat", e / name], stdout=subprocess.PIPE) for name in ("exit", "stdout")
        ]
        with raises(errno.EACCES):
            e.spec(script("delay 100", "refuse EACCES no"))
        assert [r.communicate(timeout=10)[0] for r in readers] == [b"failed EACCES\n", b""]


def blocked_writer(e, spec):
    """A process in the write of the spec; it prints the errno that it gets."""
    text = (
        "import os, signal, sys\n"
        "class Told(Exception): pass\n"
        "def tell(*_): raise Told\n"
        "signal.signal(signal.SIGUSR1, tell)\n"
        "fd = os.open(sys.argv[1], os.O_WRONLY)\n"
        "print('ready', flush=True)\n"
        "try: print(os.write(fd, sys.argv[2].encode()))\n"
        "except Told: print('told')\n"
        "except OSError as e: print(e.errno)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", text, e / "spec", json.dumps(spec)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout.readline() == "ready\n"
    e.wait_state("starting")
    return writer


def test_a_slow_start_can_be_interrupted(fake):
    with fake.new() as e:
        writer = blocked_writer(e, script("delay 100000"))
        writer.send_signal(signal.SIGUSR1)
        assert writer.communicate(timeout=10)[0] == "told\n"


def test_a_writer_killed_in_a_slow_start_is_gone_at_once(fake):
    with fake.new() as e:
        writer = blocked_writer(e, script("delay 100000"))
        writer.kill()
        wait_for(lambda: process_state(writer.pid) in (None, "Z"), "the writer to end")
        writer.communicate()


def test_removal_in_a_slow_start_ends_it(fake):
    with fake.new() as e:
        writer = blocked_writer(e, script("delay 100000"))
        exit_file = open(e / "exit", "rb", buffering=0)
        e.remove()
        assert exit_file.read() == b"killed\n"
        exit_file.close()
        assert int(writer.communicate(timeout=10)[0]) > 0


def test_stdin_written_before_a_slow_start_comes_first(fake):
    with fake.new() as e:
        e.append("stdin", b"one ")
        e.spec(script("delay 100", "echo-stdin", "exit 0"))
        e.write("stdin", b"two")
        assert e.read("stdout") == b"one two"
        assert e.result() == "0"


# ---- loss, and kills that do not work ----


def test_a_lost_stream(fake):
    fake.allow("lost", "kill failed")
    with fake.new() as e:
        e.spec(script("kill-fails 2", "out before", "lose stream_closed"))
        assert e.result() == "lost stream_closed"
        assert e.status()["remote"] == "running"
        assert e.read("stdout") == b"before\n"
        wait_for(lambda: e.status()["remote"] == "gone", "the kill to have worked")
        assert e.result() == "lost stream_closed"


def test_a_kill_that_never_works_is_told_and_given_up(fakes):
    fake = fakes("kill_give_up=6")
    fake.allow("kill failed", "gave up")
    with fake.new() as e:
        e.spec(script("kill-fails forever", "out x", "stay"))
        began = time.monotonic()
        e.ctl("kill")
        assert e.result() == "killed"
        assert time.monotonic() - began < 5
        assert e.status()["remote"] == "running"
        wait_for(lambda: e.status()["remote"] == "unknown", "the kill to be given up", 15)
        assert e.result() == "killed"
        assert e.read("stdout") == b"x\n"


def test_a_kill_without_an_answer_blocks_nobody(fakes):
    fake = fakes("shutdown=1")
    fake.allow("1 commands on fake: are not known to be gone")
    with fake.new() as e:
        e.spec(script("kill-ignored 1", "kill-delay 0", "stay"))
        began = time.monotonic()
        e.remove()
        assert time.monotonic() - began < 1
        with fake.new(e.name) as again:
            again.spec(script("out mine", "exit 0"))
            assert again.read("stdout") == b"mine\n"


def test_unmount_ends_although_a_kill_does_not_work(fakes):
    fake = fakes("shutdown=1")
    fake.allow(".")
    e = fake.new()
    e.spec(script("kill-fails forever", "stay"))
    began = time.monotonic()
    fake.unmount()
    assert fake.wait_daemon() is not None
    assert time.monotonic() - began < 8
    fake.broken = True


def test_a_slow_kill_is_told_when_it_has_worked(fake):
    with fake.new() as e:
        e.spec(script("kill-delay 300", "stay"))
        began = time.monotonic()
        e.ctl("kill")
        assert e.result() == "killed"
        assert time.monotonic() - began >= 0.29
        assert e.status()["remote"] == "gone"


def test_timeout(fake):
    with fake.new() as e:
        e.spec(script("out x", "stay", timeout=0.1))
        assert e.result() == "timeout"
        assert e.read("stdout") == b"x\n"


# ---- output ----


def numbered(size):
    return b"".join(b"%015d\n" % i for i in range(size // 16))


def test_a_flood_arrives_whole(fakes):
    size = 64 << 20
    fake = fakes("retain=1M", "spool_memory=128K")
    wanted = hashlib.sha256(numbered(size)).hexdigest()
    with fake.new() as e:
        e.spec(script(f"flood {size}", "exit 0"))
        wait_for(lambda: e.size() == 1 << 20, "the flood to be held back")
        found = hashlib.sha256()
        with open(e / "stdout", "rb", buffering=0) as f:
            while data := f.read(1 << 20):
                found.update(data)
        assert found.hexdigest() == wanted
        assert e.result() == "0"
        assert e.size() == size


def test_output_after_the_exit_and_a_late_end(fake):
    with fake.new() as e:
        e.spec(script("exit 0", "delay 100", "out late", "delay 200", "err later"))
        began = time.monotonic()
        assert e.result() == "0"
        assert time.monotonic() - began >= 0.29
        assert e.read("stdout") == b"late\n"
        assert e.read("stderr") == b"later\n"


def test_a_stream_held_open_does_not_hold_exit_back(fakes):
    fake = fakes("drain_quiet=0.1", "drain_limit=1")
    with fake.new() as e:
        e.spec(script("out x", "exit 7", "stay"))
        began = time.monotonic()
        assert e.result() == "7"
        assert time.monotonic() - began < 5
        assert e.read("stdout") == b"x\n"
        assert "cut off" in e.status()["error"]


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", 256) as place:
        yield place


@contextlib.contextmanager
def flooded(fakes, *options, **kwargs):
    """An exec whose 4 MiB are more than can be spooled."""
    fake = fakes("retain=16M", "spool_memory=64K", *options, **kwargs)
    fake.allow("cannot spool")
    with fake.new() as e:
        e.spec(script("flood 4M", "exit 0"))
        wait_for(lambda: "cannot spool" in fake.stderr(), "a warning")
        yield e


def test_a_full_spool_disk_holds_back_and_goes_on(disk, fakes):
    with flooded(fakes, f"spool={disk}") as e:
        assert 256 << 10 < e.size() < 1 << 20
        assert e.status()["state"] == "running"
        subprocess.run(["mount", "-o", "remount,size=32M", disk], check=True)
        assert e.result() == "0"
        assert e.read("stdout") == numbered(4 << 20)
    wait_for(lambda: os.statvfs(disk).f_bfree == os.statvfs(disk).f_blocks, "its space again")


def test_a_reader_goes_on_although_the_spool_disk_is_full(disk, fakes):
    with flooded(fakes, f"spool={disk}") as e:
        with open(e / "stdout", "rb", buffering=0) as f:
            assert b"".join(iter(lambda: f.read(1 << 20), b"")) == numbered(4 << 20)
            with raises(errno.ENODATA):
                os.pread(f.fileno(), 1, 0)
        assert e.result() == "0"
        assert e.status()["stdout"]["first"] > 0


def test_the_limit_on_file_sizes_is_like_a_full_disk(fakes):
    with flooded(fakes, wrap=["prlimit", "--fsize=500000"]) as e:
        assert e.read("stdout") == numbered(4 << 20)
        assert e.result() == "0"


# ---- input ----


def test_slow_input_arrives_whole(fake):
    data = os.urandom(1 << 20)
    with fake.new() as e:
        e.spec(script("slow-stdin 40000", "echo-stdin", "exit 0"))
        e.write("stdin", data)
        assert e.read("stdout") == data


def test_a_nonblocking_writer_is_told_the_truth(fake):
    data = os.urandom(200_000)
    with fake.new() as e:
        e.spec(script("slow-stdin 10000", "echo-stdin", "exit 0"))
        fd = os.open(e / "stdin", os.O_WRONLY | os.O_NONBLOCK)
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        done = again = 0
        while done < len(data):
            assert poll.poll(10_000), "POLLOUT"
            try:
                done += os.write(fd, data[done : done + 50_000])
            except BlockingIOError:
                again += 1
        os.close(fd)
        assert e.read("stdout") == data
        assert again < 100


def test_input_that_the_command_closes(fake):
    with fake.new() as e:
        e.spec(script("close-stdin EPIPE", "stay"))
        with raises(errno.EPIPE):
            e.append("stdin", b"x")


def test_an_interrupted_writer_leaves_a_whole_stream(fake):
    """What write() said was taken is what arrives, also when a signal cut it short."""
    text = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGALRM, lambda *_: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.02, 0.013)\n"
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "signal.siginterrupt(signal.SIGALRM, True)\n"
        "data = open(sys.argv[2], 'rb').read()\n"
        "fd = os.open(sys.argv[1], os.O_WRONLY)\n"
        "done = 0\n"
        "while done < len(data):\n"
        "    n = libc.write(fd, data[done:], len(data) - done)\n"
        "    if n > 0: done += n\n"
        "    elif ctypes.get_errno() != 4: sys.exit(str(ctypes.get_errno()))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    data = os.urandom(500_000)
    source = fake.path.parent / "data"
    source.write_bytes(data)
    with fake.new() as e:
        e.spec(script("slow-stdin 5000", "echo-stdin", "exit 0"))
        subprocess.run([sys.executable, "-c", text, e / "stdin", source], check=True, timeout=25)
        assert e.read("stdout") == data
