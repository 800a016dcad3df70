"""exit: blocks, is told once, is the same for all, and comes after the last byte of output."""

import os
import signal
import subprocess
import time

import pytest

from harness import SLOW, blocked, call, child, unique_seconds, wait_for


@pytest.mark.parametrize("code", [0, 1, 2, 77, 126, 127, 128, 137, 143, 254, 255])
def test_statuses(mount, code):
    assert mount.run(["sh", "-c", f"exit {code}"])[0] == str(code)


@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM", "HUP", "INT", "ABRT", "PIPE", "USR1"])
def test_death_by_a_signal_of_its_own(mount, target, name):
    result = mount.run(["sh", "-c", f"kill -s {name} $$"])[0]
    if target.can("signal-result"):
        assert result == f"signal {name}"
    else:
        assert result in (f"signal {name}", str(128 + signal.Signals[f"SIG{name}"]))


def test_137_and_signal_and_killed_are_three_things(mount, target):
    assert mount.run(["sh", "-c", "exit 137"])[0] == "137"
    if target.can("signal-result"):
        assert mount.run(["sh", "-c", "kill -s KILL $$"])[0] == "signal KILL"
    with mount.new() as e:
        e.spec(["sleep", unique_seconds()])
        e.ctl("kill")
        assert e.result() == "killed"


def test_it_blocks_until_the_end(mount, job):
    job.spec(["cat"])
    with child("cat", job / "exit", stdout=subprocess.PIPE) as reader:
        blocked(reader.pid)
        assert os.stat(job / "exit").st_size == 0
        job.ctl("eof")
        assert reader.communicate(timeout=10)[0] == b"0\n"
    assert os.stat(job / "exit").st_size == 2


def test_it_blocks_before_the_start(mount, job):
    with child("cat", job / "exit", stdout=subprocess.PIPE) as reader:
        blocked(reader.pid)
        job.spec(["sh", "-c", "exit 9"])
        assert reader.communicate(timeout=10)[0] == b"9\n"


def test_all_readers_get_the_same_for_ever(mount, job):
    job.spec(["sh", "-c", "read x; exit 42"])
    readers = [subprocess.Popen(["cat", job / "exit"], stdout=subprocess.PIPE) for _ in range(10)]
    job.append("stdin", b"\n")
    for reader in readers:
        assert reader.communicate(timeout=10)[0] == b"42\n"
    for _ in range(3):
        assert job.result() == "42"
    for line in ("kill", "signal TERM"):
        try:
            job.ctl(line)
        except OSError:
            pass
        assert job.result() == "42"


def test_reads_in_pieces_and_at_offsets(mount, job):
    job.spec(["sh", "-c", "exit 137"])
    with open(job / "exit", "rb", buffering=0) as f:
        assert [f.read(1) for _ in range(5)] == [b"1", b"3", b"7", b"\n", b""]
        assert os.pread(f.fileno(), 10, 1) == b"37\n"
        assert os.pread(f.fileno(), 10, 4) == b""


def test_the_last_byte_is_readable_before_exit(mount):
    for _ in range(20):
        with mount.new() as e:
            e.spec(["sh", "-c", "seq 1 20000; seq 1 20000 >&2; exit 3"])
            assert e.result() == "3"
            assert e.size("stdout") == e.size("stderr") == 108_894
            fd = os.open(e / "stdout", os.O_RDONLY | os.O_NONBLOCK)
            got = 0
            while piece := os.read(fd, 1 << 20):  # EAGAIN would raise
                got += len(piece)
            os.close(fd)
            assert got == 108_894


def test_exit_comes_without_anybody_reading_the_output(mount, job):
    job.spec(["sh", "-c", "head -c 3000000 /dev/zero; exit 6"])
    assert job.result() == "6"
    assert len(job.read("stdout")) == 3_000_000


def test_a_full_pipe_of_an_ended_command_is_not_cut_short(mounted):
    """What is left in the pipe of a held-back command must not hold exit back, nor be lost."""
    mount = mounted("spool_memory=64K", "retain=64K")
    with mount.new() as e:
        # The shell leaves as soon as its last write is in the pipe; the spool is full by then.
        e.spec(["sh", "-c", "head -c 65536 /dev/zero; head -c 60000 /dev/zero; exit 5"])
        assert e.result() == "5"
        assert len(e.read("stdout")) == 125_536


# ---- children in the background ----


@pytest.mark.needs("children")
def test_a_background_child_does_not_hold_exit_back(mount, job):
    seconds = unique_seconds()
    began = time.monotonic()
    job.spec(["sh", "-c", f"sleep {seconds} & echo hi"])
    assert job.result() == "0"
    assert time.monotonic() - began < 10 * SLOW
    assert job.read("stdout") == b"hi\n"
    assert mount.target.processes(seconds), "only a kill ends the child"
    job.remove()
    wait_for(lambda: not mount.target.processes(seconds), "the child to be killed", 10)


@pytest.mark.needs("children")
def test_late_output_within_the_quiet_time_is_kept(mounted):
    mount = mounted("drain_quiet=3", "drain_limit=20")
    with mount.new() as e:
        e.spec(["sh", "-c", "(sleep .5; echo late) & echo early"])
        assert e.result() == "0"
        assert e.read("stdout") == b"early\nlate\n"


@pytest.mark.needs("children")
def test_a_background_child_that_never_stops_writing_is_cut_off_at_the_limit(mounted):
    mount = mounted("drain_quiet=0.5", "drain_limit=1")
    with mount.new() as e:
        e.spec(["sh", "-c", "(while :; do echo x; sleep .05; done) & echo early; exit 4"])
        began = time.monotonic()
        assert e.result() == "4"
        assert 0.5 < time.monotonic() - began < 8 * SLOW
        out = e.read("stdout")
        assert b"early\n" in out and out.count(b"x\n") >= 3
        assert e.read("stdout") == out, "nothing comes after the end"


@pytest.mark.needs("children")
def test_a_child_without_the_pipes_holds_nothing_back(mount, job):
    seconds = unique_seconds()
    job.spec(["sh", "-c", f"sleep {seconds} > /dev/null 2>&1 < /dev/null & exit 8"])
    began = time.monotonic()
    assert job.result() == "8"
    assert time.monotonic() - began < 5 * SLOW
    assert mount.target.processes(seconds)


@pytest.mark.needs("early-end")
def test_the_state_after_the_leader_is_draining(mounted):
    mount = mounted("drain_quiet=5", "drain_limit=5")
    with mount.new() as e:
        e.spec(["sh", "-c", "sleep 1000 & echo hi"])
        e.wait_state("draining")
        fd = os.open(e / "exit", os.O_RDONLY | os.O_NONBLOCK)
        with pytest.raises(BlockingIOError):
            os.read(fd, 10)
        os.close(fd)
        e.ctl("kill")
        assert e.result() in ("0", "killed")


def test_a_finished_exec_is_found_by_its_size(mount, job):
    job.spec(["cat"])
    assert call(["sh", "-c", f"test -s {job / 'exit'} || echo running"]) == b"running\n"
    job.ctl("eof")
    job.result()
    assert call(["sh", "-c", f"test -s {job / 'exit'} && echo done"]) == b"done\n"


def test_exit_in_a_shell_script(mount, tmp_path):
    script = """
        set -e
        d=$(mktemp -d -p "$1")
        echo 'echo out; echo err >&2; exit 3' > "$d/spec"
        cat "$d/stdout"; cat "$d/stderr"; cat "$d/exit"
        rmdir "$d"
    """
    assert call(["sh", "-c", script, "sh", mount.path]) == b"out\nerr\n3\n"
