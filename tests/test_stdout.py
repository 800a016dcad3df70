"""stdout and stderr as streams: growing, read by many, bounded in memory, exact."""

import errno
import hashlib
import os
import signal
import subprocess
import threading

import pytest

from harness import blocked, call, child, line_of, rss, sanitized, wait_for
from test_tree import raises


def test_a_read_blocks_until_there_is_a_byte(mount, job):
    job.spec(["sh", "-c", "read x; echo $x"])
    with child("cat", job / "stdout", stdout=subprocess.PIPE) as cat:
        blocked(cat.pid)
        job.append("stdin", b"now\n")
        assert cat.communicate(timeout=10)[0] == b"now\n"


def test_a_read_before_the_start_blocks_too(mount, job):
    with child("cat", job / "stdout", stdout=subprocess.PIPE) as cat:
        blocked(cat.pid)
        job.spec(["echo", "started"])
        assert cat.communicate(timeout=10)[0] == b"started\n"


def test_a_read_returns_at_once_with_what_there_is(mount, job):
    job.spec(["cat"])
    with job.lines() as out:
        for i in range(20):
            job.append("stdin", b"%d\n" % i)
            assert out.read(1 << 20) == b"%d\n" % i


def test_the_end_is_a_read_of_nothing_and_stays_so(mount, job):
    job.spec(["printf", "abc"])
    with job.lines() as out:
        assert out.read(100) == b"abc"
        assert out.read(100) == b""
        assert out.read(100) == b""


def test_every_open_starts_at_the_first_byte(mount, job):
    job.spec(["seq", "1", "50000"])
    right = b"".join(b"%d\n" % i for i in range(1, 50001))
    for _ in range(3):
        assert job.read("stdout") == right
    assert job.result() == "0"
    assert job.read("stdout") == right


def test_many_readers_at_once(mount, job):
    job.spec(["sh", "-c", "read go; seq 1 100000"])
    right = hashlib.sha256(b"".join(b"%d\n" % i for i in range(1, 100001))).hexdigest()
    readers = [
        subprocess.Popen(["sha256sum", job / "stdout"], stdout=subprocess.PIPE) for _ in range(8)
    ]
    try:
        job.append("stdin", b"\n")
        for reader in readers:
            out, _ = reader.communicate(timeout=30)
            assert out.split()[0].decode() == right
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()


def test_a_reader_that_died_loses_nothing(mount, job):
    job.spec(["sh", "-c", "echo one; read x; echo two"])
    with child("cat", job / "stdout", stdout=subprocess.PIPE) as cat:
        assert line_of(cat.stdout) == b"one\n"
        blocked(cat.pid)
        cat.kill()
        cat.wait()
    job.append("stdin", b"\n")
    assert job.read("stdout") == b"one\ntwo\n"


def test_size_is_the_bytes_so_far(mount, job):
    assert job.size() == 0
    job.spec(["cat"])
    total = 0
    for n in (1, 1000, 100_000):
        job.append("stdin", b"x" * n)
        total += n
        wait_for(lambda: job.size() == total, f"size {total}")
    found = os.stat(job / "stdout")
    assert found.st_blocks == -(-total // 512)
    assert found.st_blksize >= 65536
    job.ctl("eof")
    assert job.result() == "0"
    assert job.size() == total
    assert job.size("stderr") == 0


def test_any_offset_can_be_read(mount, job):
    job.spec(["seq", "-f", "%07g", "1", "20000"])
    assert job.result() == "0"
    fd = os.open(job / "stdout", os.O_RDONLY)
    try:
        for line in (0, 1, 777, 19_999, 12_345):
            assert os.pread(fd, 8, line * 8) == b"%07d\n" % (line + 1)
        assert os.lseek(fd, -8, os.SEEK_END) == 8 * 19_999
        assert os.read(fd, 100) == b"0020000\n"
        assert os.pread(fd, 10, 8 * 20_000) == b""
        assert os.pread(fd, 10, 1 << 40) == b""
    finally:
        os.close(fd)


def test_a_read_past_the_end_of_a_growing_stream_waits_for_its_byte(mount, job):
    job.spec(["cat"])
    with child("dd", f"if={job / 'stdout'}", "bs=1", "skip=5", "count=2", "status=none",
               stdout=subprocess.PIPE) as dd:
        job.append("stdin", b"0123")
        job.wait_size(4)
        job.append("stdin", b"4567")
        assert dd.communicate(timeout=10)[0] == b"56"


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("name", ["stdout", "stderr", "exit"])
def test_a_blocked_reader_can_be_interrupted(mount, job, signo, name):
    job.spec(["cat"])
    with child("cat", job / name, stdout=subprocess.DEVNULL) as cat:
        blocked(cat.pid)
        cat.send_signal(signo)
        assert cat.wait(5) == -signo
    job.append("stdin", b"alive")
    job.wait_size(5)


def test_a_stopped_reader_goes_on(mount, job):
    job.spec(["cat"])
    with child("cat", job / "stdout", stdout=subprocess.PIPE) as cat:
        blocked(cat.pid)
        cat.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, cat.pid, os.WSTOPPED | os.WNOWAIT)
        job.write("stdin", b"meanwhile")
        cat.send_signal(signal.SIGCONT)
        assert cat.communicate(timeout=10)[0] == b"meanwhile"


def test_stderr_is_apart(mount):
    result, out, err = mount.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result, out, err) == ("3", b"out\n", b"err\n")


def test_stderr_merged_is_in_order(mount):
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done"
    result, out, err = mount.run({"cmd": script, "stderr": "merged"})
    assert result == "0" and err == b""
    assert out == b"".join(b"o%d\ne%d\n" % (i, i) for i in range(1, 10))


def test_stderr_passthrough_is_the_default(mount):
    script = "echo out; echo err >&2"
    assert mount.run({"cmd": script, "stderr": "passthrough"}) == mount.run(script)


def test_stderr_is_never_discarded(mount, job):
    job.spec(["sh", "-c", "seq 1 100000 >&2"])
    assert job.result() == "0"
    assert hashlib.sha256(job.read("stderr")).digest() == hashlib.sha256(
        b"".join(b"%d\n" % i for i in range(1, 100001))
    ).digest()
    assert job.read("stdout") == b""


def test_binary(mount, job):
    data = bytes(range(256)) * 4096
    job.spec(["cat"])
    job.write("stdin", data)
    assert job.read("stdout") == data
    assert mount.run(["head", "-c", "100000", "/dev/zero"])[1] == bytes(100000)


def test_a_character_in_two_pieces(mount):
    assert mount.run(r"printf '\342'; sleep .1; printf '\200\224'")[1] == b"\xe2\x80\x94"


def test_output_without_a_newline_arrives(mount, job):
    job.spec(["sh", "-c", "printf prompt; exec sleep 1000"])
    with job.lines() as out:
        assert out.read(100) == b"prompt"


def test_nothing_at_all(mount):
    assert mount.run(["true"]) == ("0", b"", b"")


def test_reads_of_every_size(mount, job):
    right = b"".join(b"%d\n" % i for i in range(1, 30001))
    job.spec(["seq", "1", "30000"])
    for size in (7, 511, 4096, 65537, 1 << 20, 1 << 23):
        with open(job / "stdout", "rb", buffering=0) as f:
            assert b"".join(iter(lambda: f.read(size), b"")) == right


# ---- bounded memory ----

SMALL = ("spool_memory=64K", "retain=256K")


def counted(path):
    """Reads counted lines to the end; (how many, whether all were right)."""
    n, rest = 0, b""
    with open(path, "rb", buffering=0) as f:
        while piece := f.read(1 << 20):
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            for line in lines:
                n += 1
                if line != b"%d" % n:
                    return n, False
    return n, not rest


def test_a_command_that_nobody_reads_is_held_back(mounted):
    mount = mounted(*SMALL)
    with mount.new() as e:
        e.spec(["seq", "1", "1000000"])
        stays(e)
        assert 200_000 <= e.size() <= 256 << 10
        assert e.status()["state"] == "running"
        assert counted(e / "stdout") == (1_000_000, True)
        assert e.result() == "0"


def stays(e, name="stdout"):
    """Waits until a stream has not grown for a while: the command is held back."""
    sizes = []

    def settled():
        sizes.append(e.size(name))
        return sizes[-1] and len(sizes) > 10 and len(set(sizes[-10:])) == 1

    wait_for(settled, f"{name} to stop growing", every=0.05)


def test_output_larger_than_memory_with_a_reader(mounted):
    mount = mounted(*SMALL)
    with mount.new() as e:
        e.spec(["seq", "1", "3000000"])
        assert counted(e / "stdout") == (3_000_000, True)
        assert e.result() == "0"
        if mount.target.name == "local":
            assert rss(mount.pid) < (64 << 20) * (8 if sanitized() else 1)


def test_bytes_that_are_gone_are_enodata_and_never_a_gap(mounted):
    mount = mounted(*SMALL)
    with mount.new() as e:
        e.spec(["seq", "1", "500000"])
        assert counted(e / "stdout") == (500_000, True)
        assert e.result() == "0"
        total = e.size()
        status = e.status()["stdout"]
        assert status["next"] == total
        assert 0 < status["first"] <= total - (200 << 10)
        with open(e / "stdout", "rb", buffering=0) as f:
            with raises(errno.ENODATA):
                f.read(10)
            with raises(errno.ENODATA):
                os.pread(f.fileno(), 1, status["first"] - 1)
            tail = os.pread(f.fileno(), 1 << 20, status["first"])
        right = b"".join(b"%d\n" % i for i in range(1, 500_001))
        assert tail and right[status["first"] :].startswith(tail)


def test_an_open_reader_that_is_behind_keeps_its_bytes(mounted):
    mount = mounted(*SMALL)
    with mount.new() as e:
        e.spec(["seq", "1", "900000"])
        # Both open it before any byte can have been given up.
        with open(e / "stdout", "rb", buffering=0) as slow, open(e / "stdout", "rb") as other:
            first = slow.read(7)
            with child("cat", stdin=other, stdout=subprocess.DEVNULL) as fast:
                blocked(fast.pid)  # it has all there is; the slow reader holds the command back
                assert e.size() <= 300 << 10
                rest = b"".join(iter(lambda: slow.read(1 << 20), b""))
                assert fast.wait(20) == 0
        assert first + rest == b"".join(b"%d\n" % i for i in range(1, 900_001))


def test_a_reader_that_leaves_lets_the_command_go_on(mounted):
    mount = mounted(*SMALL)
    with mount.new() as e:
        e.spec(["seq", "1", "900000"])
        with open(e / "stdout", "rb", buffering=0) as slow, child(
            "cat", e / "stdout", stdout=subprocess.DEVNULL
        ) as fast:
            blocked(fast.pid)
            slow.read(7)
            slow.close()
            assert fast.wait(20) == 0
        assert e.result() == "0"


def test_retain_of_a_spec(mounted):
    mount = mounted("spool_memory=64K")
    with mount.new() as e:
        e.spec({"cmd": ["seq", "1", "900000"], "retain": "128K"})
        stays(e)
        assert e.size() <= 128 << 10
        assert counted(e / "stdout") == (900_000, True)
        assert e.status()["stdout"]["first"] > 0
    with mount.new() as e:
        e.spec({"cmd": ["seq", "1", "900000"], "retain": 8 << 20})
        assert e.result() == "0"
        assert counted(e / "stdout") == (900_000, True)
        assert counted(e / "stdout") == (900_000, True)


def test_one_held_back_stream_does_not_hold_the_other(mounted, target):
    mount = mounted(*SMALL)
    with mount.new() as e:
        e.spec(["sh", "-c", "yes & read x; echo err >&2; read x; kill $!; exit 4"])
        stays(e)
        e.append("stdin", b"\n")
        if target.can("streams-apart"):
            with e.lines("stderr") as err:
                assert line_of(err) == b"err\n"
        with mount.new() as other:
            other.spec(["echo", "unaffected"])
            assert other.read("stdout") == b"unaffected\n"


def test_two_hundred_blocked_readers(mount, job):
    job.spec(["cat"])
    seen = []

    def read():
        try:
            seen.append(job.read("stdout"))
        except OSError as error:
            seen.append(error)

    readers = [threading.Thread(target=read, daemon=True) for _ in range(200)]
    for reader in readers:
        reader.start()
    wait_for(
        lambda: open_readers() >= 200,
        lambda: f"200 readers, but {open_readers()}, and {seen} seen; {job.status()}",
    )
    job.write("stdin", b"for all")
    for reader in readers:
        reader.join(10)
    assert seen == [b"for all"] * 200


def open_readers():
    """Where many look a name up at once the kernel may call it deleted for one of them."""
    links = [safe_readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
    return sum(link.removesuffix(" (deleted)").endswith("/stdout") for link in links)


def safe_readlink(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def test_tail_and_head_of_a_growing_stream(mount, job):
    job.spec(["sh", "-c", "seq 1 10; read x; seq 11 20"])
    assert call(["head", "-n", "3", job / "stdout"]) == b"1\n2\n3\n"
    job.append("stdin", b"\n")
    assert job.result() == "0"  # tail looks back from the size it finds
    assert call(["tail", "-n", "2", job / "stdout"]) == b"19\n20\n"
