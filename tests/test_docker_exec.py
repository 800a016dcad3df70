"""docker:CONTAINER: what only a container engine does, and how it is put right."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from harness import SPAWNFS, Mount, kill, process_state, unique, unique_seconds, wait_for
from test_kill import gone
from test_stdout import stays
from test_tree import raises


@pytest.fixture
def container(target):
    """Makes containers of the test's own, gone after it."""
    made = []

    def make(*args, **kwargs):
        made.append(target.engine.container(*args, **kwargs))
        return made[-1]

    yield make
    for name in made:
        target.engine.kill_container(name)


@pytest.fixture
def in_container(target, tmp_path):
    """Mounts a container: in_container(name, options...)."""
    import dataclasses

    mounts = []

    def make(name, *options, wrap=(), **kwargs):
        at = tmp_path / f"c{len(mounts)}"
        of = dataclasses.replace(target, address=f"docker:{name}", **kwargs)
        mounts.append(Mount(of, at, options, wrap=wrap).start())
        return mounts[-1]

    yield make
    for mount in mounts:
        mount.stop()


def refused_mount(target, tmp_path, address, *options, env=None):
    """Mounting fails; the sentence it says."""
    command = [SPAWNFS, "-f"]
    for option in options:
        command += ["-o", option]
    done = subprocess.run(
        [*command, address, tmp_path], capture_output=True, timeout=60, text=True,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# ---- mounting ----


def test_a_container_that_is_not_there(target, tmp_path):
    said = refused_mount(target, tmp_path, "docker:nosuch", *target.options)
    assert "nosuch" in said and "No such container" in said


def test_a_container_that_does_not_run(target, tmp_path, container):
    name = container()
    target.engine.client("stop", "-t", "0", name)
    said = refused_mount(target, tmp_path, f"docker:{name}", *target.options)
    assert f"{name} does not run" in said


def test_an_engine_that_is_not_there(target, tmp_path):
    said = refused_mount(target, tmp_path, "docker:c1", "docker_host=unix:///nowhere/docker.sock")
    assert "/nowhere/docker.sock" in said and "is the engine running?" in said
    said = refused_mount(target, tmp_path, "docker:c1", env={"DOCKER_HOST": "tcp://127.0.0.1:1"})
    assert "Connection refused" in said


@pytest.mark.parametrize(
    "address, options",
    [
        ("docker:", ()),
        ("docker:a/b", ()),
        ("docker:image=", ()),
        ("docker:image=a b", ()),
        ("docker:c1", ["docker_host=ssh://host"]),
        ("docker:c1", ["docker_host=tcp://"]),
        ("docker:c1", ["docker_network=none"]),
        ("docker:c1", ["nosuch=1"]),
    ],
)
def test_usage(target, tmp_path, address, options):
    assert "docker" in refused_mount(target, tmp_path, address, *options)


def test_the_environment_names_the_engine(target, tmp_path):
    import dataclasses

    of = dataclasses.replace(target, options=(), env={"DOCKER_HOST": target.engine.host})
    with Mount(of, tmp_path / "m") as mount:
        assert mount.run(["echo", "x"]) == ("0", b"x\n", b"")


# ---- the far side ----


def test_busybox(container, in_container):
    """A root with nothing but a static busybox."""
    mount = in_container(container("busybox:test"))
    assert mount.run({"cmd": ["sh", "-c", 'echo "$A" >&2; cat'], "env": {"A": "é\n"}}, b"in")[1:] == (
        b"in",
        "é\n\n".encode(),
    )
    assert mount.run(["nosuch"])[0] == "127"
    with mount.new() as e:
        mark = unique_seconds()
        e.spec(["sh", "-c", f"setsid sleep {mark} & setsid sh -c 'sleep {mark} & sleep {mark}' & wait"])
        wait_for(lambda: len(mount.target.processes(mark)) >= 4, "the tree")
        os.rmdir(e)
        gone(mount, mark)


def test_user(mount):
    out = mount.run({"cmd": ["id", "-un"], "user": "user"})
    assert out == ("0", b"user\n", b"")
    assert mount.run({"cmd": ["id", "-u"], "user": "1:1"})[1] == b"1\n"
    with mount.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec({"cmd": ["id"], "user": "nosuch"})
        assert caught.value.errno == errno.ENOENT
        assert "nosuch" in e.status()["error"]
        assert e.read("stdout") == b"" and e.read("stderr") == b""


def test_what_another_user_started_dies_too(mount):
    """Root in a container may not look into another user's processes."""
    mark = unique_seconds()
    with mount.new() as e:
        e.spec({"cmd": ["sh", "-c", f"setsid sh -c 'sleep {mark} & exit' & sleep {mark}"], "user": "user"})
        wait_for(lambda: len(mount.target.processes(mark)) >= 2, "the tree")
        e.ctl("kill")
        assert e.result() == "killed"
        gone(mount, mark)
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


def test_the_engine_never_sees_a_secret_in_a_command(target, mount):
    secret = unique("secret")
    engine = target.engine
    began = int(time.time())
    assert mount.run({"cmd": 'test -n "$TOKEN"', "env": {"TOKEN": secret}})[0] == "0"
    status, events = engine.api("GET", f"/v1.41/events?since={began}&until={int(time.time()) + 1}")
    assert status == 200 and b"exec_create" in (events if isinstance(events, bytes) else json.dumps(events).encode())
    assert secret.encode() not in (events if isinstance(events, bytes) else json.dumps(events).encode())
    log = (engine.place / "log").read_text()
    assert secret not in log


@pytest.mark.parametrize("name", ["SPAWNFS_EXEC", "spawnfs_n"])
def test_a_name_of_our_own_is_refused(mount, name):
    """Without its mark a command would be believed dead while it runs."""
    with mount.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec({"cmd": ["true"], "env": {name: "x"}})
        assert caught.value.errno == errno.EOPNOTSUPP
        assert name in e.status()["error"]


def test_a_container_whose_shells_have_a_time_limit(target, container, in_container):
    """bash gives up reading after TMOUT seconds: the helper would take that for the end."""
    name = container(options=["--env=TMOUT=1"])
    target.engine.client("exec", name, "ln", "-sf", "bash", "/usr/bin/sh")
    mount = in_container(name)
    assert mount.run("sleep 2.5; echo $TMOUT; cat; exit 3", b"in") == ("3", b"1\nin", b"")


# ---- the tail ----


def digest(data):
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [100_000, 600_000, 1_200_000, 1_500_000, 5_000_000])
def test_the_tail_waits_for_a_slow_reader(mounted, size):
    """The engine cuts a stream 2 s after the end of its process."""
    mount = mounted("retain=64K", "spool_memory=64K")
    with mount.new() as e:
        e.spec(["sh", "-c", f"head -c {size} /dev/urandom | tee /tmp/tail.{size} | cat"])
        time.sleep(4)
        if size <= 100_000:
            assert e.status()["state"] in ("draining", "done"), "all of it was taken"
        out = e.read("stdout")
        assert e.result() == "0"
        assert len(out) == size
    assert mount.run(["sha256sum", f"/tmp/tail.{size}"])[1].split()[0].decode() == digest(out)


# Fills all there is between it and a reader. Ends when there has been no room for ARGV[2] looks in
# turn, and leaves its count of bytes in the file ARGV[1].
FILL = r"""
use Fcntl;
my $block = join "", map { sprintf "%07d\n", $_ } 0 .. 8191;
my @streams = $ARGV[0] eq "both" ? (*STDOUT, *STDERR) : (*STDOUT);
my @sent = map { 0 } @streams;
fcntl $_, F_SETFL, O_NONBLOCK | O_WRONLY for @streams;
for (my $still = 0; $still < $ARGV[2];) {
    $still++;
    for my $i (0 .. $#streams) {
        my $at = $sent[$i] % 65536;
        my $n = syswrite $streams[$i], $block, 65536 - $at, $at;
        if (defined $n) { $sent[$i] += $n; $still = 0; }
    }
    select undef, undef, undef, 0.04 if $still;
}
open my $file, ">", $ARGV[1];
print $file "@sent";
close $file;
"""
FILLED = b"".join(b"%07d\n" % i for i in range(8192))


def filled(mount, place, *streams):
    """Whether the streams have all that FILL has left."""
    counts = [int(n) for n in mount.run(["cat", place])[1].split()]
    assert len(counts) == len(streams)
    for count, data in zip(counts, streams):
        assert len(data) == count
        assert data == (FILLED * (count // len(FILLED) + 1))[:count]


@pytest.mark.parametrize("read_before", [0, 1_000_000, 2_300_000, 3_100_000])
def test_all_that_the_engine_holds_is_taken_without_a_reader(mounted, read_before):
    """It queues more or less, as the buffers fall."""
    mount = mounted("retain=64K", "spool_memory=64K")
    place = f"/tmp/{unique('fill')}"
    with mount.new() as e:
        e.spec(["perl", "-e", FILL, "one", place, "20"])
        with open(e / "stdout", "rb", buffering=0) as f:
            before = b""
            while len(before) < read_before:
                before += f.read(read_before - len(before))
            assert e.result() == "0"
            filled(mount, place, before + b"".join(iter(lambda: f.read(1 << 20), b"")))


def test_both_streams_are_taken_without_a_reader(mounted):
    mount = mounted("retain=64K", "spool_memory=64K")
    place = f"/tmp/{unique('fill')}"
    with mount.new() as e:
        e.spec(["perl", "-e", FILL, "both", place, "20"])
        assert e.result() == "0"
        filled(mount, place, e.read("stdout"), e.read("stderr"))


def test_what_may_have_been_cut_is_no_result(target, mounted):
    """The engine's two seconds pass while the daemon does not run."""
    mount = mounted("retain=64K", "spool_memory=64K")
    mount.allow("output_cut")
    place = f"/tmp/{unique('fill')}"
    with mount.new() as e:
        e.spec(["perl", "-e", FILL, "one", place, "100"])
        stays(e)
        leader = mount.target.processes(place)
        os.kill(mount.pid, signal.SIGSTOP)
        try:
            wait_for(lambda: not any(process_state(p) for p in leader), "the end of the command")
            time.sleep(2.5)
        finally:
            os.kill(mount.pid, signal.SIGCONT)
        assert e.result() == "lost output_cut"
        assert "lost the end of its output" in e.status()["error"]
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


# ---- losses ----


def test_the_container_is_stopped(target, container, in_container):
    name = container()
    mount = in_container(name)
    mount.allow("exec", "docker")
    with mount.new() as e:
        mark = unique_seconds()
        e.spec(["sh", "-c", f"echo before; sleep {mark}"])
        e.wait_size(7)
        target.engine.client("kill", name)
        # 137 where the engine still tells it; never 0.
        result = e.result()
        assert result.startswith("lost ") or result == "137", result
        assert e.read("stdout") == b"before\n"
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")
    with mount.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec(["true"])
        assert caught.value.errno == errno.ENXIO
        assert "not run" in e.status()["error"]
    target.engine.client("start", name)
    assert mount.run(["echo", "again"]) == ("0", b"again\n", b"")


def test_the_container_is_replaced_under_its_name(target, container, in_container):
    name = container()
    mount = in_container(name)
    mount.allow("exec", "docker")
    with mount.new() as e:
        e.spec(["sleep", unique_seconds()])
        target.engine.client("rm", "-f", name)
        assert e.result().startswith("lost ") or e.result() == "137"
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")
    target.engine.client("run", "-d", "--init", "--net=none", f"--name={name}", "busybox:test", "sleep", "infinity")
    wait_for(lambda: mount.run(["busybox", "true"])[0] == "0", "the new container")


def test_a_paused_container(target, container, in_container):
    name = container()
    mount = in_container(name)
    mount.allow("exec", "docker")
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sleep", mark])
        target.engine.client("pause", name)
        try:
            e.ctl("kill")
            assert e.result() == "killed"
            assert e.status()["remote"] == "running"
        finally:
            target.engine.client("unpause", name)
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone", 60)
        gone(mount, mark)


def test_the_helper_is_killed(target, container, in_container):
    """Somebody ends our shell in the container: another is made when one is needed."""
    name = container()
    mount = in_container(name)
    mount.allow("exec", "docker")
    helpers = target.engine.among(name, mount.target.processes("spawnfs_line"))
    assert helpers
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sleep", mark])
        for pid in helpers:
            kill(pid)
        time.sleep(0.2)
        e.ctl("kill")
        assert e.result() == "killed"
        gone(mount, mark)
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


def test_a_daemon_that_is_killed_leaves_nothing(mounted):
    mount = mounted()
    mark = unique_seconds()
    e = mount.new()
    e.spec(["sh", "-c", f"setsid sleep {mark} & sleep {mark}"])
    wait_for(lambda: len(mount.target.processes(mark)) >= 2, "the tree")
    mount.broken = True
    mount.daemon.kill()
    gone(mount, mark)


def test_a_daemon_that_is_killed_while_a_command_starts(mounted):
    """The engine runs it a while after it has answered: by then the helper may have come and gone."""
    marks = [unique_seconds() for _ in range(8)]
    for i, mark in enumerate(marks):
        mount = mounted()
        e = mount.new()
        mount.broken = True
        starter = threading.Thread(target=written, args=(e, ["setsid", "sleep", mark]))
        starter.start()
        time.sleep(0.02 * i)
        mount.daemon.kill()
        starter.join()
    time.sleep(3)  # for the slowest start
    for mark in marks:
        gone(mount, mark)


def written(e, spec):
    with contextlib.suppress(OSError):
        e.spec(spec)


# ---- without a shell ----


def bare_image(engine, place):
    """Makes an image of a few programs, no /bin/sh among them. Returns its name."""
    root = place / "root"
    (root / "bin").mkdir(parents=True)
    for name in ("proc", "dev", "tmp", "etc"):
        (root / name).mkdir()
    shutil.copy("/bin/busybox", root / "bin/one")
    for name in ("cat", "sleep", "env", "head", "setsid", "nohup"):
        (root / "bin" / name).symlink_to("one")
    subprocess.run(["tar", "-C", root, "-cf", place / "tar", "."], check=True)
    engine.client("import", place / "tar", "bare:test")
    return "bare:test"


BARE = {"cannot": {"non-utf8", "signal-result"}}


@pytest.fixture(scope="module")
def bare(target, tmp_path_factory):
    """The name of an image without a shell."""
    return bare_image(target.engine, tmp_path_factory.mktemp("bare"))


def test_a_container_without_a_shell(target, bare, in_container):
    """What can be done is done; what cannot is refused, and said."""
    engine = target.engine
    name = engine.container(bare)
    try:
        mount = in_container(name, **BARE)
        mount.allow("exec", "docker")
        assert "no /bin/sh" in json.loads(mount.info("capabilities"))["caveat"]
        assert mount.run(["cat"], b"through") == ("0", b"through", b"")
        result, out, err = mount.run(["nosuch"])
        assert (result, out) == ("127", b"") and b"nosuch" in err
        with mount.new() as e, pytest.raises(OSError) as caught:
            e.spec({"cmd": ["cat"], "cwd": "/nowhere"})
        assert caught.value.errno == errno.ENOENT
        assert b"A=b\n" in mount.run({"cmd": ["env"], "env": {"A": "b"}})[1]
        with mount.new() as e, pytest.raises(OSError) as caught:
            e.spec(b'{"cmd":["cat","\xff"]}')
        assert caught.value.errno == errno.EOPNOTSUPP
    finally:
        engine.kill_container(name)


def is_gone(e):
    return lambda: e.status()["remote"] == "gone"


def test_a_tree_without_a_shell_is_killed_from_this_machine(bare, container, in_container):
    mount = in_container(container(bare), **BARE)
    mark = unique_seconds()
    with mount.new() as e:
        # The leader goes, and its child has a session of its own.
        e.spec(["setsid", "sleep", mark])
        assert e.result() == "0"
        assert e.status()["remote"] == "running" and mount.target.processes(mark)
        e.ctl("kill")
        wait_for(is_gone(e), "remote: gone")
        gone(mount, mark)
    with mount.new() as e:
        e.spec(["sleep", mark])
        e.ctl("kill")
        assert e.result() == "killed"
        wait_for(is_gone(e), "remote: gone")
        gone(mount, mark)
    with mount.new() as e:
        e.spec(["env", "-i", "nohup", "sleep", mark])
        os.rmdir(e)
        gone(mount, mark)


def test_what_ends_without_a_shell_is_gone(bare, container, in_container):
    mount = in_container(container(bare), **BARE)
    with mount.new() as e:
        e.spec(["cat", "/nosuch"])
        assert e.result() == "1"
        wait_for(is_gone(e), "remote: gone")


def test_a_signal_without_a_shell(bare, container, in_container):
    mount = in_container(container(bare), **BARE)
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sleep", mark])
        e.ctl("signal TERM")
        assert e.result() == "143"
        wait_for(is_gone(e), "remote: gone")


def test_without_a_shell_and_out_of_sight_nothing_is_believed_dead(target, bare, container, in_container):
    """In another PID name space the engine's numbers stand for other processes, or none."""
    name = container(bare)
    mount = in_container(name, wrap=("unshare", "--pid", "--fork", "--kill-child"), **BARE)
    mount.allow("exec", "docker")
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sleep", mark])
        with raises(errno.EOPNOTSUPP):
            e.ctl("signal TERM")
        e.ctl("kill")
        assert e.result() == "killed"
        wait_for(lambda: "no /bin/sh" in (e.status()["error"] or ""), "the reason")
        assert e.status()["remote"] == "running" and mount.target.processes(mark)
        target.engine.client("kill", name)
        wait_for(is_gone(e), "remote: gone", 40)
