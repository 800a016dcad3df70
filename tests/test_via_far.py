"""via: a far side that no process of this one can reach but by the prefix, as kubectl's."""

import contextlib
import os
import pathlib
import shlex
import shutil

import pytest

import harness
import targets
from harness import line_of, unique_seconds, wait_for
from test_via_prefix import behind, check_basics, check_kill, check_signals
from via_far import CLIENT, Far


@pytest.fixture
def far(tmp_path):
    with Far(tmp_path) as far:
        yield far


def guards(mount=None):
    """The guards on the far sides of the test (docs/via.md), as {client: pids there}; or a mount's."""
    found = {}
    for pid in set(targets.local_processes("SPAWNFS_EXEC=guard-")) & set(harness.descendants(os.getpid())):
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            for word in words:
                if word.startswith(CLIENT.encode()):
                    found.setdefault(int(word.split(b"=")[1]), []).append(pid)
    if mount:
        below = harness.descendants(mount.pid)
        return {client: pids for client, pids in found.items() if client in below}
    return found


def clients(mount):
    """The client processes of the mount's execs, by their pids: not its guard's."""
    found = []
    for pid in set(harness.descendants(mount.pid)) - set(guards()):
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"exec" in words and words[1:2] and words[1].endswith(b"via_far.py"):
                found.append(pid)
    return found


@pytest.mark.parametrize("options", [[], ["--kubectl"]])
def test_the_far_side(far, behind, options):
    mount = behind(far.prefix(*options))
    check_basics(mount)
    check_kill(mount, targets.local_processes)


def test_every_byte_of_a_long_stream(far, behind):
    mount = behind(far.prefix())
    data = os.urandom(3 << 20)
    assert mount.run(["cat"], data) == ("0", data, b"")
    assert mount.run(["sh", "-c", "cat >&2"], data) == ("0", b"", data)


def test_signals(far, behind):
    check_signals(behind(far.prefix()))


def test_the_end_of_the_client_is_no_end_of_the_command(far, behind):
    """A lost transport is `lost`, never a status; and what it leaves behind is killed."""
    mount = behind(far.prefix())
    mount.allow("lost")
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sh", "-c", f"echo up; setsid sleep {mark} & sleep {mark}"])
        with e.lines() as out:
            assert line_of(out) == b"up\n"
            [client] = clients(mount)
            harness.kill(client)
            assert e.result() == "lost stream_closed"
            assert out.read() == b""
        assert "killed by signal 9" in e.status()["error"]
        wait_for(lambda: not targets.local_processes(mark), "the command to be gone")
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


@pytest.mark.parametrize("after", [33, 100, 5000])
def test_a_client_that_dies_in_mid_stream(far, behind, after):
    """With status 0, too: only the supervisor's word counts."""
    mount = behind(wrapper_for_first_call(far, after))
    mount.allow("lost")
    with mount.new() as e:
        try:
            e.spec(["seq", "1", "100000"])
        except OSError:
            assert e.result().startswith("failed ")
            return
        assert e.result() == "lost stream_closed"
        out = e.read("stdout")
        whole = b"".join(b"%d\n" % i for i in range(1, 100_001))
        assert whole.startswith(out) and len(out) < len(whole)
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


def wrapper_for_first_call(far, after):
    """The first call's client dies after so many bytes of stdout; later ones live."""
    flag = f"{far.socket}.flag"
    script = (f'if mkdir {flag} 2>/dev/null; then exec {far.prefix(f"--die-after={after}")} "$@"; fi; '
              f'exec {far.prefix()} "$@"')
    return shlex.join(["sh", "-c", script, "sh"])


def test_a_kill_is_no_end_of_input(far, behind, tmp_path):
    """The command must not finish half a job because of its removal."""
    mount = behind(far.prefix())
    for i in range(10):
        seen = tmp_path / f"eof{i}"
        e = mount.new()
        e.spec(["sh", "-c", f"echo up; cat > /dev/null; echo end > {seen}"])
        with e.lines() as out:
            assert line_of(out) == b"up\n"
            os.rmdir(e.path)
            assert out.read() == b""
        wait_for(lambda: not clients(mount), "the clients to end")
        assert not seen.exists()


def test_a_process_whose_name_is_no_text(far, behind, tmp_path):
    """It has no mark, and stands in a table that is read by a grep that knows UTF-8."""
    program = os.fsencode(tmp_path) + b"/\xff\xfe"
    shutil.copy("/bin/sleep", program)
    mount = behind(f"{far.prefix()} env LANG=C.UTF-8")
    mark = unique_seconds()
    with mount.new() as e:
        e.spec({"cmd": ["sh", "-c", 'env -i "$0" "$1" <&- >&- 2>&- &', os.fsdecode(program), mark]})
        assert e.result() == "0"
        wait_for(lambda: targets.local_processes(mark), "the child to run")
        assert e.status()["remote"] == "running"
    wait_for(lambda: not targets.local_processes(mark), "rmdir to kill the child")


@pytest.mark.parametrize("then", ["exec sleep $0", "sleep 0.5; exec sleep $0 <&- >&- 2>&-"],
                         ids=["keeps it", "lets go"])
def test_a_bare_child_that_holds_the_output(far, behind, then):
    """As in test_kill.py, where the walk of another call is all that can find it."""
    mount = behind(far.prefix(), "drain_quiet=1", "drain_limit=1")
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sh", "-c", 'env -i sh -c "$0" $1 &', then, mark])
        assert e.result() == "0"
        wait_for(lambda: targets.local_processes(mark), "the child to be seen")
        e.wait_state("done")
        wait_for(lambda: not clients(mount), "the call to end")
    wait_for(lambda: not targets.local_processes(mark), "rmdir to kill the child")


def test_the_far_side_dies(behind, tmp_path):
    far = Far(tmp_path)
    mount = behind(far.prefix())
    mount.allow("lost", "kill failed", "gave up", "may still run", "still", "no guard stands")
    with mount.new() as e:
        e.spec(["sh", "-c", "echo up; sleep 1000"])
        with e.lines() as out:
            assert line_of(out) == b"up\n"
            far.close()
            assert e.result() == "lost stream_closed"
        # Nobody there can say that it is gone, so nobody here does.
        wait_for(lambda: "kill" in (e.status()["error"] or ""), "the failed kill to be told")
        assert e.status()["remote"] == "running"


def test_calls_that_lead_to_different_places(behind, tmp_path):
    """As behind a load balancer: what another machine says of its own processes proves nothing."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Far(tmp_path / "a") as a, Far(tmp_path / "b") as b:
        script = (f'if mkdir {tmp_path}/flag 2>/dev/null; then exec {a.prefix()} "$@"; fi; '
                  f'exec {b.prefix()} "$@"')
        mount = behind(shlex.join(["sh", "-c", script, "sh"]))
        mount.allow("kill failed", "gave up", "may still run", "still", "outlive")
        mark = unique_seconds()
        with mount.new() as e:
            e.spec(["sh", "-c", f"echo up; exec sleep {mark}"])
            with e.lines() as out:
                assert line_of(out) == b"up\n"
                e.ctl("kill")
                assert e.result() == "killed"
            assert "another place" in e.status()["error"]
            assert e.status()["remote"] == "running" and targets.local_processes(mark)


def test_the_daemons_death_ends_the_clients(far, behind):
    mount = behind(far.prefix())
    e = mount.new()
    e.spec(["sh", "-c", "echo up; cat"])
    with e.lines() as out:
        assert line_of(out) == b"up\n"
    [client] = clients(mount)
    mount.broken = True
    harness.kill(mount.pid)
    wait_for(lambda: harness.process_state(client) in (None, "Z"), "the client to be killed")
