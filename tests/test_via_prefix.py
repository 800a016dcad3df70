"""via: behind prefixes of every kind: noisy, slow, mixing, with codes of their own, or leading nowhere."""

import contextlib
import errno
import json
import os
import pathlib
import shlex
import shutil
import subprocess

import pytest

import harness
import targets
from harness import line_of, unique, unique_seconds, wait_for


@pytest.fixture
def behind(tmp_path):
    """Mounts via:PREFIX."""
    with contextlib.ExitStack() as stack:
        count = 0

        def mount(prefix, *options):
            nonlocal count
            count += 1
            target = targets.Target(address=f"via:{prefix}", name="via", **targets.VIA)
            return stack.enter_context(harness.Mount(target, tmp_path / f"m{count}", options))

        yield mount


def wrapper(script):
    """A prefix that is a shell script with the rest of the command as its arguments."""
    return shlex.join(["sh", "-c", script, "sh"])


EVERY = bytes(range(1, 256))


def check_basics(mount):
    """What must hold whatever the prefix does."""
    assert mount.run({"cmd": ["sh", "-c", "cat; echo err >&2; exit 7"]}, b"in\0put\n") == (
        "7", b"in\0put\n", b"err\n")
    arguments = [os.fsdecode(EVERY), "", " a  b", "\n", "-n", "'\"$x"]
    raw = b"\0".join([os.fsencode(a) for a in arguments] + [b""])
    assert mount.run({"cmd": ["printf", "%s\\0", *arguments]}) == ("0", raw, b"")
    spec = {"cmd": ["sh", "-c", "printf %s \"$A\"; pwd; echo ${HOME-none}; echo e >&2"],
            "env": {"A": "1\n2'\"$x", "HOME": None}, "cwd": "/tmp", "stderr": "merged"}
    assert mount.run(spec) == ("0", b"1\n2'\"$x/tmp\nnone\ne\n", b"")
    assert mount.run(["nosuch"])[0] == "127"
    assert mount.run(["/etc"])[0] == "126"
    assert mount.run({"cmd": ["cat"], "stdin": "none"}) == ("0", b"", b"")
    assert mount.run(["sh", "-c", "exit 255"])[0] == "255"
    assert mount.run(["sh", "-c", "exit 137"])[0] == "137"
    for name in ("KILL", "TERM", "SEGV", "HUP", "USR1"):
        assert mount.run(["sh", "-c", f"kill -s {name} $$"]) == (f"signal {name}", b"", b"")
    with mount.new() as e, pytest.raises(OSError) as caught:
        e.spec({"cmd": ["true"], "cwd": "/no/such"})
    assert caught.value.errno == errno.ENOENT


def check_kill(mount, processes):
    mark = unique_seconds()
    e = mount.new()
    e.spec(["sh", "-c", f"setsid sleep {mark} & env -i sleep {mark} & (sleep {mark} &) ; echo up; "
                        f"trap '' TERM INT HUP; sleep {mark}; wait; echo over"])
    with e.lines() as out:
        assert harness.line_of(out) == b"up\n"
        wait_for(lambda: len(processes(mark)) >= 4, "the tree to grow")
        os.rmdir(e.path)
        wait_for(lambda: not processes(mark), "the tree to be gone")
        assert out.read() == b""


def check_signals(mount):
    with mount.new() as e:
        e.spec("trap 'echo got; exit 7' INT; echo up; while :; do sleep 0.05; done")
        with e.lines() as out:
            assert harness.line_of(out) == b"up\n"
            e.ctl("signal INT")
            assert harness.line_of(out) == b"got\n"
        assert e.result() == "7"


PREFIXES = {
    "env": "env",
    "nice": "nice -n 1",
    "noise before": wrapper('echo noise >&2; printf "no newline" >&2; exec "$@"'),
    "banner on stdout": wrapper('echo Welcome; exec "$@"'),
    "noise after": wrapper('"$@"; code=$?; echo bye >&2; exit $code'),
    "noise after on stdout": wrapper('"$@"; code=$?; echo bye; exit $code'),
    "own codes": wrapper('"$@"; exit 42'),
    "killed by itself": wrapper('"$@"; kill -KILL $$'),
    "slow": wrapper('sleep 0.5; exec "$@"'),
    "traced": wrapper('set -x; exec "$@"'),
    "shell options": "env SHELLOPTS=xtrace:nounset:noglob:errexit bash -c '\"$@\"' bash",
    "unshare": "unshare --pid --fork --mount-proc",
    "unshare without proc": "unshare --pid --fork --kill-child",
    "chroot": "chroot /",
    "setpriv": "setpriv --no-new-privs",
    "ten wrappers": "env " * 10,
}


@pytest.mark.parametrize("name", PREFIXES)
def test_prefix(behind, name):
    mount = behind(PREFIXES[name])
    check_basics(mount)
    check_kill(mount, targets.local_processes)


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_each_shell(behind, shell):
    """What stands at /bin/sh there."""
    sandbox = f"bwrap --bind / / --dev /dev --proc /proc --ro-bind /usr/bin/{shell} /usr/bin/sh"
    mount = behind(sandbox)
    check_basics(mount)
    check_kill(mount, targets.local_processes)
    mount.broken = True  # the sandboxes have copies of the mount


@pytest.mark.parametrize("noise", ["", "; echo bye"])
def test_a_child_that_writes_while_the_far_side_looks(behind, tmp_path, noise):
    """And is gone before it has looked: its line is output, what the prefix says afterwards is not."""
    slow = tmp_path / "grep"
    slow.write_text('#!/bin/sh\nsleep 1\nexec /usr/bin/grep "$@"\n')
    slow.chmod(0o755)
    mount = behind(wrapper(f'PATH={tmp_path}:$PATH; "$@"{noise}'), "drain_quiet=10", "drain_limit=20")
    script = "(sleep 0.3; echo late; echo err >&2) & echo early"
    assert mount.run(["sh", "-c", script]) == ("0", b"early\nlate\n", b"err\n")


def test_noise_on_stderr_all_the_time(behind):
    script = 'while :; do echo noise; sleep 0.01; done >&2 & exec "$@"'
    mount = behind(wrapper(script))
    result, out, err = mount.run(["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.05; done; exit 5"])
    assert (result, out) == ("5", b"1\n2\n3\n")
    assert err.replace(b"noise\n", b"") == b""


@pytest.fixture(scope="module")
def busybox_root(tmp_path_factory):
    """A root with nothing but busybox."""
    root = tmp_path_factory.mktemp("busybox")
    for name in ("bin", "tmp", "etc", "dev", "proc"):
        (root / name).mkdir()
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    for name in subprocess.check_output(["busybox", "--list"], text=True).split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    return root


def test_busybox_alone(behind, busybox_root):
    sandbox = f"bwrap --bind {busybox_root} / --dev /dev --proc /proc --unshare-pid"
    mount = behind(f"{sandbox} --die-with-parent")
    check_basics(mount)
    check_kill(mount, targets.local_processes)


@pytest.fixture
def sandbox(busybox_root):
    """A live sandbox with busybox alone: the prefix that leads into it, always the same one."""
    read, write = os.pipe()
    command = ["bwrap", "--bind", busybox_root, "/", "--dev", "/dev", "--proc", "/proc",
               "--unshare-pid", "--die-with-parent", "--info-fd", str(write), "sleep", unique_seconds()]
    process = subprocess.Popen([str(c) for c in command], pass_fds=[write])
    os.close(write)
    with open(read) as f:
        pid = json.load(f)["child-pid"]
    try:
        yield f"nsenter -t {pid} -m -p -r -w"
    finally:
        process.kill()
        process.wait()


def test_a_live_sandbox(sandbox, behind):
    """A place that each call leads to: killed and signalled by other calls, with busybox alone."""
    mount = behind(sandbox)
    check_basics(mount)
    check_kill(mount, targets.local_processes)
    check_signals(mount)


@pytest.mark.parametrize("prefix, said", [
    ("nosuch-program-at-all", "command not found"),
    ("false", "status 1"),
    ("true", "status 0"),
    (wrapper("echo Error: no such pod >&2; exit 1"), "no such pod"),
    (wrapper("echo to stdout; exit 3"), "to stdout"),
    (wrapper("kill -TERM $$"), "signal 15"),
    ("chroot /proc", "No such file"),
])
def test_a_prefix_that_leads_nowhere(behind, prefix, said):
    mount = behind(prefix)
    with mount.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec(["echo", "x"])
        assert caught.value.errno == errno.ENXIO
        assert said in e.status()["error"]
        assert e.result() == "failed ENXIO"
        assert e.read("stdout") == e.read("stderr") == b""


def test_a_prefix_that_mixes_the_streams(behind):
    mount = behind(wrapper('exec "$@" 2>&1'))
    with mount.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec(["echo", "x"])
        assert caught.value.errno == errno.EOPNOTSUPP
        assert "mixes stderr into stdout" in e.status()["error"]


@pytest.mark.parametrize("prefix, said", [
    ("", "no command prefix"),
    ("ssh $HOST", "$"),
    ("a | b", "|"),
    ("'open", "single quotes"),
])
def test_prefixes_that_are_refused_at_the_mount(tmp_path, prefix, said):
    done = subprocess.run([harness.SPAWNFS, "-f", f"via:{prefix}", tmp_path], capture_output=True,
                          text=True, timeout=30)
    assert done.returncode != 0 and said in done.stderr, done


@pytest.mark.parametrize("env", [{"a.b": "1"}, {"1A": "x"}, {"SPAWNFS_EXEC": "x"}])
def test_variables_that_a_shell_cannot_set(behind, env):
    mount = behind("env")
    with mount.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec({"cmd": ["env"], "env": env})
        assert caught.value.errno == errno.EOPNOTSUPP
        assert next(iter(env)) in e.status()["error"]
        e.spec(["true"])
        assert e.result() == "0"


BASH = "bwrap --bind / / --dev /dev --proc /proc --ro-bind /usr/bin/bash /usr/bin/sh"


@pytest.mark.parametrize("prefix", ["env", BASH])
def test_field_separators_of_the_command(behind, prefix):
    """They are no variable of the shells on the way."""
    mount = behind(prefix)
    for fields in (":", "", "0", "as"):
        assert mount.run({"cmd": ["printenv", "IFS"], "env": {"IFS": fields}}) == (
            "0", f"{fields}\n".encode(), b"")
        with mount.new() as e:
            e.spec({"cmd": "trap 'exit 7' INT; echo up; while :; do sleep 0.05; done", "env": {"IFS": fields}})
            with e.wait_up():
                e.ctl("signal INT")
            assert e.result() == "7"
    mount.broken = prefix == BASH


def test_a_far_side_whose_shells_have_a_time_limit(behind):
    """bash gives up reading after TMOUT seconds; nothing of ours may."""
    mount = behind(f"env TMOUT=1 {BASH}", "drain_quiet=10", "drain_limit=20")
    assert mount.run("sleep 2.5; echo $TMOUT; cat; exit 3", b"in") == ("3", b"1\nin", b"")
    assert mount.run("(sleep 2.5; echo late) & echo early") == ("0", b"early\nlate\n", b"")
    mount.broken = True


def test_a_variable_that_the_shell_there_keeps_for_itself(behind):
    mount = behind(BASH)
    with mount.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec({"cmd": ["env"], "env": {"UID": "7"}})
        assert caught.value.errno == errno.EINVAL and "UID" in e.status()["error"]
    mount.broken = True


def test_a_relative_prefix_is_of_the_directory_of_the_mount_command(tmp_path):
    (tmp_path / "run").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "run").chmod(0o755)
    target = targets.Target(address="via:./run", name="via", **targets.VIA)
    with harness.Mount(target, tmp_path / "m", wrap=["env", "-C", str(tmp_path)]) as mount:
        assert mount.run(["echo", "x"]) == ("0", b"x\n", b"")


def test_no_secret_in_an_argv(behind):
    """Neither on this side nor on the other, at any moment of a start."""
    secret = unique("secret")
    mount = behind(wrapper('sleep 0.2; "$@"'))
    seen = []

    def commands():
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    seen.append(pathlib.Path(entry.path, "cmdline").read_bytes())

    with mount.new() as e:
        e.spec({"cmd": ["sh", "-c", "echo $#; read x"], "env": {"SECRET": secret}})
        for _ in range(20):
            commands()
        e.write("stdin", b"\n")
        assert e.result() == "0"
        for name in ("spec", "status"):
            assert secret.encode() not in e.read(name)
    assert len(seen) > 20 and not any(secret.encode() in c for c in seen)


def test_removal_while_the_prefix_is_slow(behind):
    mark = unique_seconds()
    mount = behind(wrapper(f'sleep {mark}; exec "$@"'))

    def asleep():
        found = []
        for pid in targets.local_processes(mark):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\0%s\0" % mark.encode():
                    found.append(pid)
        return found

    e = mount.new()
    with harness.child("sh", "-c", f"""echo '["true"]' > {e / 'spec'}""", stderr=subprocess.DEVNULL) as writer:
        wait_for(asleep, "the prefix to run")
        os.rmdir(e.path)
        wait_for(lambda: not asleep(), "the prefix to be gone")
        assert writer.wait(10) != 0


@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
@pytest.mark.parametrize("part", ["waiter", "watcher"])
def test_a_part_of_the_far_side_is_killed(behind, shell, part):
    """The out-of-memory killer may take any process there: then there is no result, and no `0`."""
    mount = behind(shlex.join(["sh", "-c", f'shift; exec {shell} "$@"', "sh"]))
    mount.allow("lost")
    mark = unique_seconds()
    with mount.new() as e:
        # The leader's parent is the waiter; the watcher is the waiter's sibling.
        e.spec(["sh", "-c", f"echo $PPID; read x; exec sleep {mark}"])
        with e.lines() as out:
            waiter = int(line_of(out))
        parents = harness.parents()
        above = parents[waiter][0]
        [watcher] = [p for p, (parent, _) in parents.items() if parent == above and p != waiter]
        harness.kill({"waiter": waiter, "watcher": watcher}[part])
        e.write("stdin", b"go\n")
        if part == "watcher":
            # Its loss shows when the command is over.
            wait_for(lambda: targets.local_processes(mark), "the sleep to be there")
            [sleep] = targets.local_processes(mark)
            harness.kill(sleep)
        assert e.result() == "lost stream_closed"
        wait_for(lambda: not targets.local_processes(mark), "what it left to be killed")
        wait_for(lambda: e.status()["remote"] == "gone", "that to be known")
