"""Start: where the program is found, what the command is given, and what it must not inherit."""

import errno
import json
import os
import time

import pytest

from harness import SLOW, unique
from test_tree import raises


def output(mount, spec):
    """What a command that must succeed wrote to stdout."""
    result, out, err = mount.run(spec)
    assert (result, err) == ("0", b"")
    return out


def environment(mount, **keys):
    lines = output(mount, {"cmd": ["env", "-0"], **keys}).split(b"\0")
    return dict(line.split(b"=", 1) for line in lines if line)


def test_arguments_are_passed_as_they_are(mount):
    arguments = ["a b", "", "$HOME", "*", "'", '"', "\\", "\n", "-n", "é", "`x`", ";", "a\tb", "~", " "]
    spec = {"cmd": ["printf", "%s\\0", *arguments]}
    assert output(mount, spec) == b"".join(a.encode() + b"\0" for a in arguments)


def test_every_byte_in_argv(mount, target):
    """Each of 1 to 255, one by one and all together; a NUL cannot be in an argument."""
    every = [chr(i) for i in range(1, 128)] + [os.fsdecode(bytes([i])) for i in range(128, 256)]
    spec = {"cmd": ["printf", "%s\\0", *every, "".join(every)]}
    if not target.can("non-utf8"):
        with mount.new() as e, pytest.raises(OSError) as caught:
            e.spec(escape_controls(spec))
        assert caught.value.errno in (errno.EOPNOTSUPP, errno.EINVAL)
        spec = {"cmd": ["printf", "%s\\0", *every[:127], "".join(every[:127])]}
        every = every[:127]
    raw = [a.encode(errors="surrogateescape") for a in every]
    assert output(mount, escape_controls(spec)) == b"\0".join([*raw, b"".join(raw), b""])


def escape_controls(spec):
    """JSON in which control bytes are escaped and bytes above 127 stand as they are."""
    return json.dumps(spec, ensure_ascii=False).encode(errors="surrogateescape")


def test_every_byte_in_env(mount, target):
    value = "".join(chr(i) for i in range(1, 128))
    if target.can("non-utf8"):
        value += os.fsdecode(bytes(range(128, 256)))
    found = environment(mount, env={"EVERY": value, "EMPTY": "", "A": "1\n2'\"$x"})
    assert found[b"EVERY"] == value.encode(errors="surrogateescape")
    assert found[b"EMPTY"] == b""
    assert found[b"A"] == b"1\n2'\"$x"


def test_env_is_laid_over_the_targets_own(mount):
    before = environment(mount)
    assert b"PATH" in before
    after = environment(mount, env={"ADDED": "x", "LANG": "C"})
    assert after[b"ADDED"] == b"x" and after[b"LANG"] == b"C"
    assert set(before) <= set(after)


def test_env_integers(mount):
    values = {"A": 0, "B": 7, "C": -1, "D": 9007199254740991}
    found = environment(mount, env=values)
    assert {k: found[k.encode()].decode() for k in values} == {k: str(v) for k, v in values.items()}


@pytest.mark.parametrize("off", [None, False])
def test_env_unset(mount, off):
    assert b"HOME" in environment(mount, env={"HOME": "/"})
    found = environment(mount, env={"HOME": off, "NEVER_THERE": off, "KEPT": "1"})
    assert b"HOME" not in found and b"NEVER_THERE" not in found
    assert found[b"KEPT"] == b"1"


def test_unset_is_not_empty(mount):
    script = 'echo "${HOME-unset}" "${EMPTY-unset}"'
    assert output(mount, {"cmd": script, "env": {"HOME": False, "EMPTY": ""}}) == b"unset \n"


def make_program(mount, directory, name, body, mode=0o755):
    """Puts a file onto the target, through the target itself."""
    script = 'mkdir -p "$1" && printf "%s" "$3" > "$1/$2" && chmod "$4" "$1/$2"'
    assert output(mount, ["sh", "-c", script, "sh", directory, name, body, oct(mode)[2:]]) == b""


@pytest.fixture
def place(mount):
    path = f"/tmp/{unique('spawnfs-test')}"
    yield path
    output(mount, ["rm", "-rf", path])


@pytest.mark.needs("files")
def test_the_program_is_found_in_the_path_that_the_command_has(mount, target, place):
    name = unique("program")
    make_program(mount, place, name, "#!/bin/sh\necho found $*\n")
    result, out, err = mount.run({"cmd": [name]})
    assert (result, out) == ("127", b"") and name.encode() in err
    path = environment(mount)[b"PATH"].decode()
    if target.can("path"):
        spec = {"cmd": [name, "x"], "env": {"PATH": f"/nowhere:{place}:{path}"}}
        assert output(mount, spec) == b"found x\n"
        # The first that can be run is taken.
        assert mount.run({"cmd": ["ls"], "env": {"PATH": "/nowhere"}})[0] == "127"


@pytest.mark.needs("files")
def test_a_path_with_a_slash_is_not_searched_for(mount, place):
    make_program(mount, place, "tool", "#!/bin/sh\necho here\n")
    assert output(mount, {"cmd": [f"{place}/tool"]}) == b"here\n"
    assert output(mount, {"cmd": ["./tool"], "cwd": place}) == b"here\n"


def test_a_program_that_is_missing(mount):
    for name in (unique("nosuch"), f"/nowhere/{unique()}", "/etc/hostname/x"):
        result, out, err = mount.run([name, "argument"])
        assert (result, out) == ("127", b"")
        assert name.encode() in err and err.count(b"\n") == 1, err


@pytest.mark.needs("files")
def test_a_program_that_cannot_be_run(mount, place):
    make_program(mount, place, "data", "#!/bin/sh\necho no\n", 0o644)
    for name in (f"{place}/data", "/etc"):
        result, out, err = mount.run([name])
        assert (result, out) == ("126", b"")
        assert name.encode() in err and err.count(b"\n") == 1, err


def test_a_name_too_long_to_be_a_program(mount):
    result, out, _ = mount.run(["x" * 5000])
    assert result in ("126", "127") and out == b""


def test_126_and_127_of_a_shell_command_are_the_shells(mount):
    result, out, err = mount.run(unique("nosuch"))
    assert (result, out) == ("127", b"") and b"not found" in err
    result, out, err = mount.run("/etc")
    assert (result, out) == ("126", b"") and err


def test_an_interpreter_that_is_missing(mount, place):
    make_program(mount, place, "script", "#!/nowhere/interpreter\n")
    result, out, err = mount.run([f"{place}/script"])
    assert result in ("126", "127") and out == b"" and err


def test_arguments_too_long_for_the_kernel(mount):
    """E2BIG of execve(2) is not the spec's size: the command did not run, and says so."""
    with mount.new() as e:
        try:
            e.spec({"cmd": ["echo", "x" * 200_000]})
        except OSError as error:
            assert error.errno == errno.E2BIG
            assert e.status()["error"]
        else:
            assert e.result() == "126"
            assert e.read("stderr") and e.read("stdout") == b""


@pytest.mark.needs("files")
def test_cwd(mount, place):
    make_program(mount, place, "x", "")
    assert output(mount, {"cmd": ["pwd"], "cwd": place}) == place.encode() + b"\n"
    assert output(mount, {"cmd": ["pwd"], "cwd": "/"}) == b"/\n"
    assert output(mount, {"cmd": "pwd", "cwd": "/tmp"}) == b"/tmp\n"


@pytest.mark.parametrize("cwd", ["/no/such/place", "/etc/hostname"])
def test_cwd_that_is_no_directory(mount, job, cwd):
    number = errno.ENOENT if cwd.startswith("/no/") else errno.ENOTDIR
    with pytest.raises(OSError) as caught:
        job.spec({"cmd": ["pwd"], "cwd": cwd})
    assert caught.value.errno in (number, errno.ENOENT)
    status = job.status()
    assert cwd in status["error"], status
    assert job.result().startswith("failed ")
    assert job.read("stdout") == b""


def test_the_result_of_a_failed_start_stays(mount, job):
    with pytest.raises(OSError):
        job.spec({"cmd": ["pwd"], "cwd": "/no/such/place"})
    first = job.result()
    with raises(errno.EBUSY):
        job.spec(["true"])
    assert job.result() == first


def test_no_descriptor_but_the_three_is_inherited(mount):
    # ls itself opens the directory as one more.
    out = output(mount, ["sh", "-c", "exec ls -l /proc/self/fd"]).decode()
    numbers = [line.split(" -> ")[0].split()[-1] for line in out.splitlines() if " -> " in line]
    assert numbers == ["0", "1", "2", "3"], out


@pytest.mark.deadline(60)
def test_many_starts_at_once_leak_no_descriptor_into_each_other(mount, target):
    jobs = [mount.new() for _ in range(min(50, target.many))]
    for e in jobs:
        e.spec(["sh", "-c", "ls /proc/self/fd; cat"])
    for e in jobs:
        e.write("stdin", b"")
        assert e.read("stdout") == b"0\n1\n2\n3\n"
        assert e.result() == "0"


def test_no_signal_is_blocked_or_ignored(mount):
    out = output(mount, ["grep", "-E", "^Sig(Blk|Ign|Cgt|Pnd):", "/proc/self/status"]).decode()
    sets = dict(line.split(":\t") for line in out.splitlines())
    assert int(sets["SigBlk"], 16) == 0, out
    assert int(sets["SigIgn"], 16) == 0, out


def test_a_broken_pipe_ends_a_command_as_it_does_in_a_shell(mount):
    assert mount.run(["sh", "-c", "yes | head -n 1; echo done"])[1] == b"y\ndone\n"


def test_umask(mount, target):
    out = output(mount, "umask").strip()
    if target.can("umask"):
        assert out == b"0022"


def test_the_command_has_a_session_of_its_own(mount):
    """Its process group is its own, so that a signal reaches it and nobody else."""
    out = output(mount, ["sh", "-c", "cut -d' ' -f5,6 /proc/$$/stat; echo $$"]).split()
    if out[0] != out[2]:
        # Behind a supervisor the group leader may be another, but never one with a terminal.
        assert output(mount, "cut -d' ' -f7 /proc/self/stat").strip() == b"0"


def test_no_terminal(mount):
    script = "for i in 0 1 2; do test -t $i && echo $i; done; : 2>/dev/null < /dev/tty && echo tty"
    result, out, _ = mount.run(script)
    assert out == b""


def test_a_short_exec_is_quick(mount):
    began = time.monotonic()
    for _ in range(20):
        assert output(mount, ["echo", "x"]) == b"x\n"
    assert time.monotonic() - began < 15 * SLOW


def test_a_command_inside_the_mount_does_not_stop_it(mount, target):
    """cwd and program may lie in the mount itself (fuse.md 8): no deadlock, whatever comes of it."""
    if target.name != "local":
        assert mount.run({"cmd": ["true"], "cwd": "/"})[0] == "0"
        return
    with mount.new() as e:
        e.spec({"cmd": ["pwd"], "cwd": str(e.path)})
        assert e.read("stdout") == os.fsencode(e.path) + b"\n"
    with mount.new() as e:
        e.spec({"cmd": [str(e.path / "spec")]})
        assert e.result() == "126"
    with mount.new() as e:
        e.spec({"cmd": ["ls"], "env": {"PATH": f"{e.path}:/usr/bin:/bin"}})
        assert e.result() == "0"
    with mount.new() as e:
        e.spec(f"cat < {e.path}/spec; ls {mount.path} > /dev/null")
        assert e.result() == "0"
