"""The daemon itself on local:: how it starts, ends, and what it leaves."""

import ctypes
import errno
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from harness import (
    SLOW, SPAWNFS, Mount, blocked, call, child, descendants, detach, kill, local_marks, mount_entry, process_state,
    sanitized, threads, unique, wait_for,
)
from test_kill import TREES, gone, grow, sigkill
from test_tree import raises


@pytest.mark.parametrize("tree", TREES)
def test_sigkill_of_the_daemon_kills_the_commands(mounted, tree):
    sigkill(mounted(), tree)


def test_sigkill_of_the_daemon_frees_its_callers(mounted):
    mount = mounted()
    mount.broken = True
    e = mount.new()
    e.spec(["cat"])
    with child("cat", e / "exit", stderr=subprocess.DEVNULL) as reader:
        blocked(reader.pid)
        mount.daemon.kill()
        assert reader.wait(5 * SLOW) != 0
    with raises(errno.ENOTCONN):
        os.listdir(mount.path)


def test_a_stale_mount_is_replaced(mounted, target):
    dead = mounted()
    dead.broken = True
    dead.daemon.kill()
    dead.wait_daemon()
    with raises(errno.ENOTCONN):
        os.listdir(dead.path)
    with Mount(target, dead.path) as mount:
        mount.allow("stale|dead|not connected")
        assert mount.run(["echo", "again"]) == ("0", b"again\n", b"")
    assert not mount_entry(dead.path)


def background(target, path, *arguments, env=None):
    """Runs spawnfs without -f: its exit status and output."""
    path.mkdir(exist_ok=True)
    return subprocess.run(
        [SPAWNFS, *arguments, target.address, path],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30 * SLOW,
        env={**os.environ, **(env or {})},
    )


def test_in_the_background_it_returns_once_the_mount_answers(target, tmp_path):
    mark = unique("spawnfs-test")
    place = tmp_path / "m"
    try:
        for _ in range(5):
            done = background(target, place, env={"SPAWNFS_TEST": mark})
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
            os.mkdir(place / "a")
            (place / "a" / "spec").write_text('["cat"]')
            assert local_marks(mark)
            assert subprocess.run(["umount", place]).returncode == 0
            wait_for(lambda: not local_marks(mark), "the daemon and its command to end")
    finally:
        detach(place)
        for pid in local_marks(mark):
            kill(pid)


def test_in_the_background_it_keeps_nothing_of_its_starter(target, tmp_path):
    """A pipe it would hold open keeps `$(spawnfs ...)` and ssh from returning; a cwd, an unmount."""
    mark = unique("spawnfs-test")
    place = tmp_path / "m"
    place.mkdir()
    try:
        done = subprocess.run(
            ["sh", "-c", f"x=$({SPAWNFS} {target.address} {place} 2>&1); echo \"<$x>\""],
            capture_output=True, text=True, timeout=20 * SLOW, cwd=tmp_path,
            env={**os.environ, "SPAWNFS_TEST": mark},
        )
        assert done.stdout == "<>\n"
        for pid in local_marks(mark):
            assert os.readlink(f"/proc/{pid}/cwd") == "/"
            for n in "012":
                assert os.readlink(f"/proc/{pid}/fd/{n}") == "/dev/null"
    finally:
        detach(place)
        wait_for(lambda: not local_marks(mark), "the daemon to end")


def test_a_relative_mountpoint(target, tmp_path):
    (tmp_path / "m").mkdir()
    done = subprocess.run(
        [SPAWNFS, target.address, "m"], cwd=tmp_path, timeout=30, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0
    try:
        assert os.listdir(tmp_path / "m") == [".spawnfs"]
    finally:
        assert subprocess.run(["umount", tmp_path / "m"]).returncode == 0


def test_as_mount_calls_it(target, tmp_path):
    """mount(8) runs the helper with no PATH but the shell's own, so that is where the program must be:
    here in a mount name space of the test's own."""
    place = tmp_path / "m"
    place.mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spawnfs").symlink_to(SPAWNFS)
    script = """
        mount --bind "$1/bin" /usr/local/sbin
        mount -t fuse.spawnfs "$2" "$1/m" -o rw,nosuid,nodev,noatime,retain=1M
        grep " $1/m fuse.spawnfs " /proc/self/mounts
        ls -A "$1/m"
        cat "$1/m/.spawnfs/config"
        umount "$1/m"
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, "sh", tmp_path, target.address],
        capture_output=True, text=True, timeout=30 * SLOW,
    )
    assert done.returncode == 0, done.stderr
    assert "\n.spawnfs\n" in done.stdout
    assert str(1 << 20) in done.stdout


def test_fusermount3_ends_it(mounted):
    mount = mounted()
    mark = grow(mount.new(), "one")
    subprocess.run(["fusermount3", "-u", mount.path], check=True, timeout=20)
    mount.broken = True
    assert mount.wait_daemon() == 0
    gone(mount, mark)


def test_a_lazy_unmount_ends_it_when_the_last_file_is_closed(mounted):
    mount = mounted()
    mount.broken = True
    e = mount.new()
    e.spec(["echo", "x"])
    assert e.result() == "0"
    with open(e / "stdout", "rb", buffering=0) as f:
        subprocess.run(["umount", "-l", mount.path], check=True)
        assert f.read(10) == b"x\n"
        assert mount.daemon.poll() is None
    assert mount.wait_daemon() == 0


@pytest.fixture
def elsewhere(target, tmp_path):
    """A daemon whose mount has places to go to: (the daemon, the directory of its mountpoint)."""
    above = tmp_path / "a b\\c"
    (above / "m").mkdir(parents=True)
    daemon = subprocess.Popen([SPAWNFS, "-f", target.address, above / "m"], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: os.path.ismount(above / "m"), "the mount")
        yield daemon, above
    finally:
        daemon.kill()
        daemon.communicate()
        for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
            place = line.split()[1].encode().decode("unicode_escape")
            if place.startswith(f"{tmp_path}/"):
                detach(place)


def mounted_below(path):
    """Mountpoints and kinds of what is mounted below a directory."""
    lines = (line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines())
    return [(place.encode().decode("unicode_escape"), kind) for _, place, kind, *_ in lines
            if place.startswith(str(path))]


def end(daemon):
    daemon.terminate()
    _, said = daemon.communicate(timeout=20 * SLOW)
    return daemon.returncode, said


def test_an_unmount_after_a_directory_above_was_renamed(elsewhere, tmp_path):
    """What is mounted at the old path then is another's."""
    daemon, above = elsewhere
    above.rename(tmp_path / "new\tname")
    (above / "m").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "another", above / "m"], check=True)
    assert end(daemon) == (0, "")
    assert mounted_below(tmp_path) == [(f"{above}/m", "tmpfs")]


def test_an_unmount_of_all_places(elsewhere, tmp_path):
    daemon, above = elsewhere
    (tmp_path / "bound").mkdir()
    subprocess.run(["mount", "--bind", above / "m", tmp_path / "bound"], check=True)
    assert end(daemon) == (0, "")
    assert mounted_below(tmp_path) == []


def test_an_unmount_below_another_mount(elsewhere, tmp_path):
    daemon, above = elsewhere
    subprocess.run(["mount", "-t", "tmpfs", "another", above / "m"], check=True)
    status, said = end(daemon)
    assert status == 0 and "something else is mounted over it" in said
    assert mounted_below(tmp_path) == [(f"{above}/m", "fuse.spawnfs"), (f"{above}/m", "tmpfs")]


def test_an_unmount_that_comes_late_to_hear_of_its_own(mounted):
    """The kernel has given the number of its file system to another's mount meanwhile."""
    for _ in range(50):  # it may be a mount of another test
        late = mounted()
        late.broken = True
        number = os.stat(late.path).st_dev
        late.daemon.send_signal(signal.SIGSTOP)
        # umount(8) would ask the daemon about it.
        assert ctypes.CDLL(None).umount2(os.fsencode(late.path), 0) == 0
        other = mounted()
        late.daemon.send_signal(signal.SIGCONT)
        assert late.wait_daemon() == 0
        assert other.run(["echo", "here"]) == ("0", b"here\n", b"")
        if os.stat(other.path).st_dev == number:
            return
    pytest.fail("the number was never given to the next mount")


def test_a_busy_unmount_harms_nothing(mounted):
    mount = mounted()
    with mount.new() as e:
        e.spec(["cat"])
        with open(e / "stdout", "rb"):
            assert "busy" in mount.unmount()
        e.write("stdin", b"x")
        assert e.read("stdout") == b"x"


def test_an_aborted_connection_ends_the_daemon_and_its_commands(mounted):
    mount = mounted()
    mount.broken = True
    mark = grow(mount.new(), "double fork")
    number = mount_entry(mount.path)[0]
    pathlib.Path(f"/sys/fs/fuse/connections/{number}/abort").write_text("1")
    assert mount.wait_daemon() is not None
    gone(mount, mark)


def test_one_thread_and_no_more_with_blocked_callers(mounted):
    mount = mounted()
    before = threads(mount.pid)
    assert before <= 2
    readers = []
    try:
        for _ in range(20):
            e = mount.new()
            e.spec(["cat"])
            readers += [
                subprocess.Popen(["cat", e / name], stdout=subprocess.DEVNULL)
                for name in ("stdout", "stderr", "exit")
            ]
        for reader in readers:
            blocked(reader.pid)
        assert threads(mount.pid) == before
    finally:
        mount.remove_all()
        for reader in readers:
            reader.wait(10)


def test_no_caller_is_ever_in_uninterruptible_sleep(mounted):
    """Blocked readers, writers, a removal and a listing side by side; none waits for another."""
    mount = mounted()
    e = mount.new()
    e.spec(["sleep", "1000"])
    callers = [
        subprocess.Popen(["sh", "-c", script.format(e.path)], stderr=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL)
        for script in (
            "exec cat {}/stdout", "exec cat {}/exit", "exec cat /dev/zero > {}/stdin",
            "exec cat /dev/zero >> {}/stdin", "exec cat {}/stderr", "exec cat {}/stdout",
        )
    ]
    try:
        for caller in callers:
            blocked(caller.pid)
        for command in (["ls", "-la", e.path], ["stat", e / "stdin"], ["touch", e / "stdin"],
                        ["cat", e / "status"], ["mkdir", mount.path / "new"], ["ls", mount.path]):
            subprocess.run(command, check=True, timeout=10, stdout=subprocess.DEVNULL)
        for caller in callers:
            blocked(caller.pid)
        subprocess.run(["rm", "-r", e.path], check=True, timeout=10)
        for caller in callers:
            caller.wait(10)
    finally:
        for caller in callers:
            caller.kill()
            caller.wait(10)


def test_limits_of_the_command_are_those_the_daemon_was_given(mounted):
    """Whatever the daemon does to itself (no core dumps, more descriptors) ends with itself."""
    mount = mounted()
    with mount.new() as e:
        e.spec(["cat", "/proc/self/limits"])
        assert e.read("stdout") == pathlib.Path("/proc/self/limits").read_bytes()


def test_no_core_dump_of_the_daemon(mounted):
    """A core dump would hold env values; the kernel makes none of a process with limit 0 or
    that is not dumpable, whose /proc files then belong to root whoever runs it."""
    mount = mounted()
    limits = pathlib.Path(f"/proc/{mount.pid}/limits").read_text()
    core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4] == "0"


@pytest.mark.deadline(60)
def test_names_of_many_owned_execs_are_forgotten(mounted):
    """More names than a pipe holds go at once with their owner; none is still seen afterwards."""
    mount = mounted()
    names = [f"{i:04}" + "x" * 251 for i in range(1500)]
    script = """import os, sys
for name in sys.stdin.read().split():
    os.mkdir(name)
    os.open(name + "/owner", os.O_RDONLY)
print("up", flush=True)
os.kill(os.getpid(), 19)
"""
    with child(
        "prlimit", "--nofile=10000", sys.executable, "-c", script,
        cwd=mount.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as owner:
        owner.stdin.write("\n".join(names).encode())
        owner.stdin.close()
        assert owner.stdout.readline() == b"up\n"
        assert all(os.path.exists(mount.path / name) for name in names)
    wait_for(lambda: os.listdir(mount.path) == [".spawnfs"], "the execs to be removed", 20)
    wait_for(
        lambda: not any(os.path.exists(mount.path / name) for name in names),
        lambda: f"{sum(os.path.exists(mount.path / name) for name in names)} names to be forgotten",
    )


def test_two_mounts_do_not_know_each_other(mounted):
    one, two = mounted(), mounted()
    with one.new("same") as a, two.new("same") as b:
        a.spec(["cat"])
        b.spec(["cat"])
        a.write("stdin", b"a")
        b.write("stdin", b"b")
        assert (a.read("stdout"), b.read("stdout")) == (b"a", b"b")


SLOW_MOUNT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)
{
	int (*real)(const char *, const char *, const char *, unsigned long, const void *) =
		dlsym(RTLD_NEXT, "mount");
	int ret = real(source, target, type, flags, data);

	usleep(500000);
	return ret;
}
"""


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_as_soon_as_it_is_mounted_leaves_no_dead_mount(tmp_path, signo):
    (tmp_path / "slow.c").write_text(SLOW_MOUNT)
    call(["cc", "-shared", "-fPIC", "-o", tmp_path / "slow.so", tmp_path / "slow.c"])
    environment = {
        **os.environ,
        "LD_PRELOAD": str(tmp_path / "slow.so"),
        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0",
    }
    place = tmp_path / "m"
    place.mkdir()
    with child(SPAWNFS, "-f", "local:", place, env=environment) as daemon:
        try:
            wait_for(lambda: mount_entry(place), "the mount", every=0.001)
            daemon.send_signal(signo)
            assert daemon.wait(10 * SLOW) == 0
            assert not mount_entry(place)
        finally:
            detach(place)


def test_a_mount_inside_a_mounts_command_is_possible(mounted, target, tmp_path):
    """A command of one mount may start a mount of its own; the end of the first ends it."""
    outer = mounted()
    inner = tmp_path / "inner"
    inner.mkdir()
    e = outer.new()
    e.spec([str(SPAWNFS), "-f", target.address, str(inner)])
    wait_for(lambda: mount_entry(inner), "the inner mount")
    try:
        e.ctl("signal TERM")
        assert e.result() == "0"
        assert not mount_entry(inner)
    finally:
        detach(inner)


def test_log_lines_hold_no_spec_at_any_level(mounted):
    secret, argument = unique("secret"), unique("argument")
    mount = mounted("log_level=debug")
    result, out, _ = mount.run({"cmd": ["printenv", "TOKEN", argument], "env": {"TOKEN": secret}})
    assert out.startswith(secret.encode())
    assert secret not in mount.stderr()


@pytest.mark.parametrize("level", ["warning", "info"])
def test_a_log_line_is_one_line_whatever_the_name(mounted, level):
    """Whoever may make an exec names it: no name is a line of its own, or moves a terminal."""
    mount = mounted(f"log_level={level}", "shutdown=1")
    e = mount.new("a\nspawnfs: error: made up\x1b[31m\r\x07")
    with raises(errno.ENOENT):
        e.spec({"cmd": ["true"], "cwd": "/no/such\nplace"})
    lines = mount.stderr().splitlines()
    assert any("made up" in line for line in lines) == (level == "info")
    for line in lines:
        assert line.startswith(("spawnfs: info: ", "spawnfs: debug: ")) and line.isprintable(), lines


@pytest.mark.parametrize("name", ["sp ace", "new\nline", 'quo"te', "\udcff\udcfe", "\u4e16"], ids=ascii)
def test_config_is_json_whatever_the_bytes_of_a_path(mounted, tmp_path, name):
    """A spool's, since what is mounted on such a name would be in every process's list of mounts."""
    (tmp_path / name).mkdir()
    config = json.loads(mounted(f"spool={tmp_path / name}").info("config"))
    assert config["spool"].startswith(f"{tmp_path}/")


def test_the_daemon_survives_signals_that_mean_nothing(mounted):
    mount = mounted()
    for signo in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH, signal.SIGURG, signal.SIGCONT):
        os.kill(mount.pid, signo)
    assert mount.run(["echo", "x"])[1] == b"x\n"


def test_a_stopped_daemon_goes_on(mounted):
    mount = mounted()
    with mount.new() as e:
        e.spec(["cat"])
        os.kill(mount.pid, signal.SIGSTOP)
        with child("sh", "-c", f"echo x > {e / 'stdin'}") as writer:
            wait_for(lambda: process_state(mount.pid) == "T", "the daemon to stop")
            os.kill(mount.pid, signal.SIGCONT)
            assert writer.wait(10) == 0
        assert e.read("stdout") == b"x\n"


def test_started_with_closed_descriptors(target, tmp_path):
    """Whatever starts it may have closed them; its own descriptors must not take their places."""
    place = tmp_path / "m"
    place.mkdir()
    script = 'exec <&- >&- 2>&-; exec "$0" "$1" "$2"'
    subprocess.run(["sh", "-c", script, SPAWNFS, target.address, place], check=True, timeout=30 * SLOW)
    try:
        (place / "a").mkdir()
        (place / "a" / "spec").write_text('["sh","-c","echo out; echo err >&2; cat"]')
        (place / "a" / "stdin").write_text("in\n")
        assert (place / "a" / "stdout").read_text() == "out\nin\n"
        assert (place / "a" / "stderr").read_text() == "err\n"
    finally:
        subprocess.run(["fusermount3", "-u", place], check=True)


def memory(pid):
    """Private bytes: what the process itself has allocated."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Private_Dirty")) * 1024


def test_a_thousand_execs_leave_no_memory(mounted):
    mount = mounted()
    for _ in range(50):
        assert mount.run(["echo", "x"])[:2] == ("0", b"x\n")
    mount.check_settled()
    before = memory(mount.pid)
    for _ in range(1000):
        assert mount.run(["echo", "x"])[:2] == ("0", b"x\n")
    mount.check_settled()
    # 1000 execs that were kept would be 400 KiB and more.
    slack = 64 << 20 if sanitized() else 128 << 10
    assert memory(mount.pid) - before < slack
    assert len(descendants(mount.pid)) <= 2
