"""stdin: exact, in order, held back when full, and ended only when it should be."""

import errno
import fcntl
import hashlib
import os
import signal
import subprocess
import time

import pytest

from harness import blocked, call, child, line_of, process_state, unique_seconds, wait_for
from test_tree import raises

APPEND = os.O_WRONLY | os.O_APPEND


def test_input_reaches_the_command(mount):
    assert mount.run(["cat"], stdin=b"hello\n") == ("0", b"hello\n", b"")


def test_a_command_without_input_waits(mount, job):
    job.spec(["cat"])
    with child("cat", job / "exit", stdout=subprocess.PIPE) as reader:
        blocked(reader.pid)
        job.ctl("eof")
        assert reader.communicate(timeout=10)[0] == b"0\n"


def test_early_input_is_queued_in_order(mount, job):
    job.append("stdin", b"first ")
    job.append("stdin", b"second ")
    with child("cat", job / "stdout", stdout=subprocess.PIPE) as cat:
        job.spec(["cat"])
        job.append("stdin", b"third")
        job.ctl("eof")
        assert cat.communicate(timeout=10)[0] == b"first second third"


def test_early_input_and_its_end_are_queued(mount, job):
    job.write("stdin", b"all of it")
    job.spec(["cat"])
    assert job.read("stdout") == b"all of it"
    assert job.result() == "0"


def test_an_early_end_without_input(mount, job):
    job.ctl("eof")
    job.spec(["cat"])
    assert job.read("stdout") == b""
    assert job.result() == "0"


def test_early_input_larger_than_the_queue_blocks_and_is_kept(mounted):
    mount = mounted("stdin_queue=64K")
    data = os.urandom(1 << 20)
    with mount.new() as e, child("sh", "-c", f"exec cat > {e / 'stdin'}", stdin=subprocess.PIPE) as cat:
        fcntl.fcntl(cat.stdin, fcntl.F_SETPIPE_SZ, 1 << 20)
        cat.stdin.write(data)
        cat.stdin.close()
        cat.stdin = None
        blocked(cat.pid)
        e.spec(["sha256sum"])
        assert cat.wait(10) == 0
        assert e.read("stdout").split()[0].decode() == hashlib.sha256(data).hexdigest()


# ---- the end of input ----


def test_append_ends_nothing(mount, job):
    job.spec(["cat"])
    with job.lines() as out:
        for word in (b"a\n", b"b\n"):
            call(["sh", "-c", f"echo {word.decode().strip()} >> {job / 'stdin'}"])
            assert line_of(out) == word
        assert job.status()["state"] == "running"
        job.ctl("eof")
        assert out.read(10) == b""
    assert job.result() == "0"


def test_close_of_a_truncating_handle_is_the_end(mount, job):
    job.spec(["cat"])
    call(["sh", "-c", f"echo all > {job / 'stdin'}"])
    assert job.read("stdout") == b"all\n"
    assert job.result() == "0"


def test_shells_that_duplicate_the_handle_do_not_end_it_early(mount, job):
    for shell in ("sh", "bash"):
        with mount.new() as e:
            e.spec(["cat"])
            script = "{ echo a; (echo b); /bin/echo c; exec 3>&1; echo d >&3; exec 3>&-; echo e; }"
            call([shell, "-c", f"{script} > {e / 'stdin'}"])
            assert e.read("stdout") == b"a\nb\nc\nd\ne\n"


def test_the_last_of_several_writers_ends_it(mount, job):
    job.spec(["cat"])
    first = os.open(job / "stdin", os.O_WRONLY)
    second = os.open(job / "stdin", os.O_WRONLY)
    os.write(first, b"1")
    os.close(first)
    os.write(second, b"2")
    job.wait_size(2)
    assert job.status()["state"] == "running"
    os.close(second)
    assert job.read("stdout") == b"12"
    assert job.result() == "0"


def test_an_appender_that_stays_holds_the_end_back(mount, job):
    job.spec(["cat"])
    appender = os.open(job / "stdin", APPEND)
    job.write("stdin", b"1")
    os.write(appender, b"2")
    job.wait_size(2)
    assert job.status()["state"] == "running"
    os.close(appender)
    assert job.read("stdout") == b"12"


def test_a_duplicate_in_another_process_holds_the_end_back(mount, job):
    job.spec(["cat"])
    with open(job / "stdin", "wb", buffering=0) as f:
        holder = subprocess.Popen(["sleep", unique_seconds()], stdout=f)
    try:
        job.append("stdin", b"x")
        job.wait_size(1)
        assert job.status()["state"] == "running"
    finally:
        holder.kill()
        holder.wait()
    assert job.result() == "0"


def test_the_writers_death_ends_it(mount, job):
    job.spec(["cat"])
    with child("sh", "-c", f"exec > {job / 'stdin'}; echo x; exec sleep 1000") as writer:
        job.wait_size(2)
        writer.kill()
        writer.wait()
        assert job.read("stdout") == b"x\n"
        assert job.result() == "0"


def test_an_open_without_a_write_is_an_empty_input(mount, job):
    job.spec(["wc", "-c"])
    call(["sh", "-c", f": > {job / 'stdin'}"])
    assert job.read("stdout").strip() == b"0"


def test_cp_and_dd_and_tee(mount, tmp_path):
    (tmp_path / "data").write_bytes(b"x" * 300_000)
    for command in ("cp {0} {1}", "dd if={0} of={1} bs=1000 status=none", "tee {1} < {0} > /dev/null",
                    "cat {0} > {1}", "cat < {0} | dd of={1} conv=notrunc status=none"):
        with mount.new() as e:
            e.spec(["wc", "-c"])
            call(["sh", "-c", command.format(tmp_path / "data", e / "stdin")])
            assert e.read("stdout").strip() == b"300000"


def test_ctl_eof_ends_it_whoever_has_it_open(mount, job):
    job.spec(["cat"])
    with open(job / "stdin", "wb", buffering=0) as f:
        f.write(b"x")
        job.ctl("eof")
        assert job.read("stdout") == b"x"
        with raises(errno.EPIPE):
            f.write(b"y")


def test_writes_after_the_end_are_epipe(mount, job):
    job.spec(["sh", "-c", "cat; read x < /dev/null; exec sleep 1000"])
    job.write("stdin", b"x")
    job.wait_size(1)
    with raises(errno.EPIPE):
        job.append("stdin", b"y")
    assert job.status()["state"] == "running"


def test_preallocation_writes_nothing(mount, job):
    """posix_fallocate(3) writes NULs by itself into a file whose file system has no answer."""
    spec = os.open(job / "spec", os.O_WRONLY)
    with raises(errno.ESPIPE):
        os.posix_fallocate(spec, 0, 10)
    os.write(spec, b'["cat"]')
    os.close(spec)
    stdin = os.open(job / "stdin", os.O_WRONLY)
    with raises(errno.ESPIPE):
        os.posix_fallocate(stdin, 0, 10)
    os.write(stdin, b"hi")
    os.close(stdin)
    assert (job.read("stdout"), job.result()) == (b"hi", "0")


def test_stdin_none(mount, job):
    job.spec({"cmd": ["cat"], "stdin": "none"})
    assert job.result() == "0"
    assert job.read("stdout") == b""
    for flags in (os.O_WRONLY, APPEND, os.O_WRONLY | os.O_TRUNC):
        with pytest.raises(OSError):
            os.open(job / "stdin", flags)


def test_stdin_none_of_a_running_command(mount, job):
    job.spec({"cmd": ["sh", "-c", "cat; exec sleep 1000"], "stdin": "none"})
    with pytest.raises(OSError):
        os.open(job / "stdin", APPEND)


def test_stdin_open_is_ended_by_eof_alone(mount, job):
    job.spec({"cmd": ["cat"], "stdin": "open"})
    for word in (b"a\n", b"b\n"):
        job.write("stdin", word)
    job.wait_size(4)
    assert job.status()["state"] == "running"
    job.ctl("eof")
    assert job.read("stdout") == b"a\nb\n"
    assert job.result() == "0"


def test_a_kill_is_never_an_end_of_input(mount):
    """A command that finishes its work at end of input must not finish half of it."""
    proof = f"/tmp/spawnfs-{unique_seconds()}"
    try:
        for how in ("rmdir", "kill"):
            e = mount.new()
            e.spec(["sh", "-c", f"echo up; cat > /dev/null; echo half > {proof}"])
            with open(e / "stdin", "wb", buffering=0) as f, e.wait_up() as out:
                f.write(b"half a job")
                if how == "rmdir":
                    os.rmdir(e)
                else:
                    e.ctl("kill")
                while out.read(100):
                    pass
            if how == "kill":
                assert e.result() == "killed"
                e.remove()
            assert mount.run(["test", "-e", proof])[0] == "1"
    finally:
        mount.run(["rm", "-f", proof])


# ---- a full pipe ----

# Takes no input until it is told to.
COUNT_WHEN_TOLD = "trap 'exec wc -c' USR1; echo up; while :; do sleep .05; done"


def fill(path):
    """Writes with O_NONBLOCK until EAGAIN; returns the open descriptor and what was taken."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    total = 0
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < 0.3:
        try:
            total += os.write(fd, b"x" * 65536)
            idle_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.02)
    return fd, total


def test_a_full_pipe_is_eagain_and_loses_nothing(mount, job):
    job.spec(["sh", "-c", COUNT_WHEN_TOLD])
    job.wait_up().close()
    fd, total = fill(job / "stdin")
    assert 0 < total < 64 << 20
    job.ctl("signal USR1")
    os.close(fd)
    assert job.read("stdout").split() == [b"up", b"%d" % total]


def test_a_full_pipe_blocks_the_writer_until_there_is_room(mount, job):
    job.spec(["sh", "-c", COUNT_WHEN_TOLD])
    job.wait_up().close()
    with child("sh", "-c", f"exec head -c 20000000 /dev/zero > {job / 'stdin'}") as writer:
        blocked(writer.pid)
        job.ctl("signal USR1")
        assert writer.wait(20) == 0
    assert job.read("stdout").split() == [b"up", b"20000000"]


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_blocked_writer_can_be_interrupted(mount, job, signo):
    job.spec(["sleep", "1000"])
    with child("sh", "-c", f"exec cat /dev/zero > {job / 'stdin'}") as writer:
        blocked(writer.pid)
        writer.send_signal(signo)
        assert writer.wait(5) == -signo


def test_what_an_interrupted_write_returned_is_what_arrived(mount, job):
    """Each write's count is exact, whatever interrupts it."""
    job.spec(["sh", "-c", "read x; sleep 1.5; exec cat"])
    data = bytes(i * 7 % 251 for i in range(1 << 20))
    fd = os.open(job / "stdin", os.O_WRONLY)
    os.write(fd, b"\n")
    sent = b""

    # Python repeats a write that EINTR stopped, and returns the count of one that was cut short.
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with child("sh", "-c", f"while sleep .02; do kill -s USR1 {os.getpid()}; done"):
            until = time.monotonic() + 1
            while time.monotonic() < until:
                at = len(sent) % len(data)
                sent += data[at : at + os.write(fd, data[at:])]
    finally:
        signal.signal(signal.SIGUSR1, before)
    os.close(fd)
    assert job.read("stdout") == sent


def test_rm_r_of_an_exec_with_blocked_writers(mount):
    """A blocked write must not hold a lock that unlink or another writer needs (fuse.md 1.4)."""
    e = mount.new()
    e.spec(["sleep", unique_seconds()])
    script = f"exec cat /dev/zero > {e / 'stdin'}"
    with child("sh", "-c", script, stderr=subprocess.DEVNULL) as first:
        blocked(first.pid)
        with child("sh", "-c", f"exec cat /dev/zero >> {e / 'stdin'}", stderr=subprocess.DEVNULL) as second:
            blocked(second.pid)
            with child("sh", "-c", script, stderr=subprocess.DEVNULL) as third:
                blocked(third.pid)
                call(["stat", e / "stdin"])
                call(["ls", "-la", e.path])
                call(["rm", "-r", e.path])
                for writer in (first, second, third):
                    # EPIPE comes with SIGPIPE from a pipe alone: cat sees the error and exits 1.
                    assert writer.wait(5) != 0
                    assert process_state(writer.pid) is None


def test_unlink_touch_and_open_beside_a_blocked_writer(mount, job):
    job.spec(["sleep", unique_seconds()])
    with child("sh", "-c", f"exec cat /dev/zero > {job / 'stdin'}") as writer:
        blocked(writer.pid)
        call(["touch", job / "stdin"])
        os.close(os.open(job / "stdin", os.O_WRONLY | os.O_TRUNC))
        os.close(os.open(job / "stdin", APPEND))
        call(["rm", "-f", job / "stdin"])
        blocked(writer.pid)


# ---- the command that takes no more ----


def test_epipe_when_the_command_has_ended(mount, job):
    job.spec(["true"])
    assert job.result() == "0"
    with raises(errno.EPIPE):
        job.append("stdin", b"x")


def test_epipe_when_the_command_has_closed_its_input(mount, target, job):
    if target.can("input-closed"):
        job.spec(["sh", "-c", "exec 0<&-; echo closed; exec sleep 1000"])
    else:
        job.spec(["sh", "-c", "exec 0<&-; echo closed"])
    with job.lines() as out:
        assert line_of(out) == b"closed\n"
    if not target.can("input-closed"):
        assert job.result() == "0"

    def refused():
        try:
            job.append("stdin", b"x" * 65536)
        except OSError as error:
            assert error.errno == errno.EPIPE
            return True
        return False

    wait_for(refused, "EPIPE")


@pytest.mark.needs("unread-input")
def test_a_blocked_writer_gets_epipe_at_the_end(mount, job):
    job.spec(["sh", "-c", "trap 'exit 5' USR1; echo up; while :; do sleep .05; done"])
    job.wait_up().close()
    with child("sh", "-c", f"exec cat /dev/zero > {job / 'stdin'}", stderr=subprocess.PIPE) as writer:
        blocked(writer.pid)
        job.ctl("signal USR1")
        _, err = writer.communicate(timeout=10)
        assert writer.returncode != 0 and b"Broken pipe" in err
    assert job.result() == "5"


@pytest.mark.needs("unread-input")
def test_a_command_that_reads_a_little_and_ends(mount, job):
    job.spec(["head", "-c", "5"])
    with child("sh", "-c", f"exec cat /dev/zero > {job / 'stdin'}", stderr=subprocess.DEVNULL) as writer:
        assert writer.wait(10) != 0
    assert job.read("stdout") == bytes(5)
    assert job.result() == "0"


def test_many_writers_interleave_but_lose_nothing(mount, job):
    job.spec(["sort", "-n"])
    script = "i=0; while [ $i -lt 100 ]; do echo $(($1 * 100 + i)) >> $0; i=$((i+1)); done"
    writers = [subprocess.Popen(["sh", "-c", script, job / "stdin", str(n)]) for n in range(8)]
    for writer in writers:
        assert writer.wait(30) == 0
    job.ctl("eof")
    assert job.read("stdout") == b"".join(b"%d\n" % i for i in range(800))


# ---- both ways at once ----


def amount(target):
    return (200 if target.can("throughput") else 20) << 20


def pattern(size):
    """Bytes that show a loss, a repetition and an exchange."""
    block = b"".join(b"%07d\n" % i for i in range(1 << 17))
    return block * (size // len(block))


@pytest.mark.deadline(120)
def test_200_megabytes_through_cat_by_two_processes(mount, target, job, tmp_path):
    size = amount(target)
    right = hashlib.sha256(pattern(size)).hexdigest()
    (tmp_path / "data").write_bytes(pattern(size))
    job.spec(["cat"])
    with child("sha256sum", job / "stdout", stdout=subprocess.PIPE) as reader, child(
        "sh", "-c", f"exec cat {tmp_path / 'data'} > {job / 'stdin'}"
    ) as writer:
        assert writer.wait(100) == 0
        assert reader.communicate(timeout=100)[0].split()[0].decode() == right
    assert job.result() == "0"
    (tmp_path / "data").unlink()
