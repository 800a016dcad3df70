"""ssh: against a real sshd: login shells, sessions, broken connections, kills of every kind."""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

import pytest

import harness
import sshd
from harness import wait_for
from targets import Target, local_processes
from test_tree import raises

SHELLS = ["sh", "dash", "bash", "zsh", "fish", "csh"]
NOISE = [r"^spawnfs: warning: "]


@pytest.fixture(scope="module")
def server():
    with sshd.server(shells=[*SHELLS, "root"]) as s:
        yield s


@contextlib.contextmanager
def mounting(server, tmp_path, user="root", options=(), noise=()):
    target = Target(
        address=f"ssh:{server.users.names[user]}@there",
        options=[f"ssh_config={server.client_config}", *options],
        noise=noise,
    )
    target.name = "ssh"
    with harness.Mount(target, tmp_path / "m") as mount:
        yield mount


def masters(mount):
    """The ssh processes of a mount."""
    found = []
    for pid in harness.descendants(mount.pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/comm").read_text() == "ssh\n":
                found.append(pid)
    return found


def is_sleep(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n"


def started(pid):
    """When, in ticks: field 22 of proc(5). Numbers begin anew when they are used up."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


def helpers(server):
    """The helper shells of all mounts of a server: commands have become something else."""
    return [pid for pid in harness.descendants(server.process.pid) if pid in local_processes("spawnfs_line")]


def break_connection(mount):
    for pid in masters(mount):
        harness.kill(pid)


def check_that_the_host_kills(mount):
    """What runs there, when the daemon is killed."""
    seconds = harness.unique_seconds()
    e = mount.new()
    e.spec({"cmd": ["setsid", "sleep", seconds]})
    wait_for(lambda: local_processes(seconds), "the sleep to run")
    mount.broken = True
    mount.daemon.kill()
    wait_for(lambda: not local_processes(seconds), lambda: f"the host to kill it:\n{helpers_now()}")


def helpers_now():
    """What the helpers of this machine are doing."""
    table = subprocess.run(
        ["ps", "-ww", "-eo", "pid,ppid,stat,wchan:24,args"], capture_output=True, text=True, check=True,
        errors="replace",
    ).stdout
    return "\n".join(line[:160] for line in table.splitlines() if "spawnfs_line" in line)


EVERY = os.fsdecode(bytes(range(1, 256)))
SPECIAL = ["", " ", "a b", "'", '"', "\\", "\\n", "\n", "!", "!!", "$HOME", "`x`", "*", "~", "-n", "%s", EVERY]


def raw(spec):
    return json.dumps(spec, ensure_ascii=False).encode(errors="surrogateescape")


@pytest.mark.parametrize("shell", SHELLS)
def test_login_shells_pass_everything(server, tmp_path, shell):
    with mounting(server, tmp_path, shell) as m:
        result, out, err = m.run(raw({"cmd": ["printf", "%s\\0", *SPECIAL]}))
        assert (result, err) == ("0", b"")
        assert out == b"".join(os.fsencode(s) + b"\0" for s in SPECIAL)
        result, out, err = m.run(
            raw({"cmd": ["env", "-0"], "env": {"EVERY": EVERY, "EMPTY": "", "HOME": None}})
        )
        variables = dict(v.split(b"=", 1) for v in out.split(b"\0") if v)
        assert variables[b"EVERY"] == os.fsencode(EVERY)
        assert variables[b"EMPTY"] == b"" and b"HOME" not in variables
        directory = tmp_path / "it's a \"dir\"!\n\\"
        directory.mkdir()
        os.chmod(tmp_path, 0o755)
        for parent in tmp_path.parents:
            if str(parent).startswith("/tmp/pytest"):
                os.chmod(parent, 0o755)
        result, out, err = m.run({"cmd": ["pwd"], "cwd": str(directory)})
        assert (result, out, err) == ("0", os.fsencode(directory) + b"\n", b"")
        assert m.run({"cmd": ["cat"]}, stdin=bytes(range(256)) * 999)[1] == bytes(range(256)) * 999
        assert m.run({"cmd": ["sh", "-c", "exit 255"]})[0] == "255"
        assert m.run({"cmd": ["sh", "-c", "kill -SEGV $$"]})[0] == "signal SEGV"
        assert m.run({"cmd": ["nosuch"]})[::2] == ("127", b"spawnfs: nosuch: command not found\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_kill_takes_the_whole_tree(server, tmp_path, shell):
    seconds = [harness.unique_seconds() for _ in range(3)]
    script = f"sleep {seconds[0]} & setsid sleep {seconds[1]} & env -i sleep {seconds[2]} & wait"
    with mounting(server, tmp_path, shell) as m:
        with m.new() as e:
            e.spec({"cmd": ["sh", "-c", script]})
            for s in seconds:
                wait_for(lambda: local_processes(s), "the sleeps to run")
        for s in seconds:
            wait_for(lambda: not local_processes(s), "the sleeps to be gone")


RC = {"bash": ".bashrc", "zsh": ".zshenv", "fish": ".config/fish/config.fish", "csh": ".cshrc"}


@pytest.mark.parametrize("shell", RC)
def test_noise_of_a_login_shell_is_not_output(server, tmp_path, shell):
    rc = server.users.home(shell) / RC[shell]
    rc.parent.mkdir(parents=True, exist_ok=True)
    noise = "echo welcome\necho -n half a line\n"
    rc.write_text(noise + ("sh -c 'echo complaint >&2'\n"))
    try:
        with mounting(server, tmp_path, shell) as m:
            done = m.run({"cmd": ["sh", "-c", "echo out; echo err >&2"]})
            assert done == ("0", b"out\n", b"err\n")
            done = m.run({"cmd": ["sh", "-c", "echo out; echo err >&2"], "stderr": "merged"})
            assert done == ("0", b"out\nerr\n", b"")
    finally:
        rc.unlink()


def test_an_account_without_a_shell_is_refused(server, tmp_path):
    name = server.users.names["sh"]
    sshd.run("usermod", "-s", "/usr/sbin/nologin", name)
    try:
        with mounting(server, tmp_path, "sh", noise=NOISE) as m, m.new() as e:
            with pytest.raises(OSError) as caught:
                e.spec({"cmd": ["true"]})
            assert caught.value.errno == errno.EACCES
            assert "not available" in e.status()["error"]
    finally:
        sshd.run("usermod", "-s", sshd.SHELLS["sh"], name)


@pytest.mark.parametrize("sessions", [1, 2, 10])
def test_more_commands_than_sessions(tmp_path, sessions):
    with sshd.server([f"MaxSessions {sessions}"], ["root"]) as server:
        with mounting(server, tmp_path) as m:
            count = 24 if sessions == 10 else 5
            running = [m.new() for _ in range(count)]
            for e in running:
                e.spec({"cmd": ["cat"]})
            for i, e in enumerate(running):
                e.write("stdin", f"{i}\n".encode())
            for i, e in enumerate(running):
                assert (e.read("stdout"), e.result()) == (f"{i}\n".encode(), "0")
                e.remove()
            if sessions == 10:
                assert len(masters(m)) == 3
            assert m.run({"cmd": ["echo", "after"]})[1] == b"after\n"


def test_commands_without_a_helper_on_their_connection(tmp_path):
    """The one that there is kills for all, and when it is lost they are lost with it."""
    with sshd.server(["MaxSessions 1"], ["dash"]) as server:
        with mounting(server, tmp_path, "dash", noise=NOISE) as m:
            seconds = [harness.unique_seconds() for _ in range(3)]
            execs = [m.new() for _ in seconds]
            for e, s in zip(execs, seconds):
                e.spec(f"trap 'echo got' INT; echo up; setsid sleep {s} & wait; wait")
                e.wait_size(3)
                e.ctl("signal INT")
                e.wait_size(7)
            # The helper's connection is the oldest.
            harness.kill(min(masters(m), key=started))
            for e, s in zip(execs, seconds):
                assert e.result() == "lost connection_lost"
                wait_for(lambda: not local_processes(s), "the command to be killed")
                wait_for(lambda: e.status()["remote"] == "gone", "the kill to be known")
            assert m.run({"cmd": ["echo", "again"]}) == ("0", b"again\n", b"")
            check_that_the_host_kills(m)


@pytest.mark.parametrize("breaking", ["true", "! mkdir {place}/$PPID"])
def test_a_host_that_breaks_each_connection(tmp_path, breaking):
    """With its first session, or the second: the command is refused, and no login follows another."""
    place = tmp_path / "broken"
    breaks = f"[ -d {place} ] && {breaking} && echo x >> {place}/count && kill -9 $PPID"
    command = f'{breaks}; exec sh -c "$SSH_ORIGINAL_COMMAND"'.format(place=place)
    with sshd.server([f"ForceCommand {command}"], ["root"]) as server:
        with mounting(server, tmp_path, noise=NOISE) as m:
            place.mkdir()
            break_connection(m)
            wait_for(lambda: not masters(m), "the end of the connection")
            with m.new() as e:
                with pytest.raises(OSError) as caught:
                    e.spec(["true"])
                assert caught.value.errno == errno.EHOSTUNREACH
            assert 1 <= (place / "count").read_text().count("x") <= 5
            shutil.rmtree(place)

            def works():
                with contextlib.suppress(OSError):
                    return m.run({"cmd": ["echo", "again"]}) == ("0", b"again\n", b"")

            wait_for(works, "the host to be used again", 20)


def test_a_lost_connection_is_told_and_the_command_killed(server, tmp_path):
    seconds = harness.unique_seconds()
    with mounting(server, tmp_path, "dash", noise=NOISE) as m:
        with m.new() as e, m.new() as ended:
            ended.spec({"cmd": ["sh", "-c", "echo done; exit 3"]})
            assert ended.result() == "3"
            e.spec({"cmd": ["sh", "-c", f"echo here; trap '' HUP; setsid sleep {seconds}"]})
            e.wait_size(5)
            break_connection(m)
            assert e.result() == "lost connection_lost"
            assert e.read("stdout") == b"here\n"
            assert ended.result() == "3"
            wait_for(lambda: not local_processes(seconds), "the command to be killed")
            wait_for(lambda: e.status()["remote"] == "gone", "the kill to be known")
            # Made again, without being asked.
            assert m.run({"cmd": ["echo", "again"]}) == ("0", b"again\n", b"")


def test_a_dead_network_is_noticed(tmp_path):
    """The connection stands, and nothing answers on it: only ServerAlive tells."""
    options = ["ServerAliveInterval=1", "ServerAliveCountMax=2"]
    seconds = harness.unique_seconds()
    with sshd.server(shells=["root"]) as server:
        with mounting(server, tmp_path, options=options, noise=NOISE) as m, m.new() as e:
            e.spec({"cmd": ["sh", "-c", f"echo here; trap '' HUP; setsid sleep {seconds}"]})
            e.wait_size(5)
            sessions = [
                pid
                for pid in harness.descendants(server.process.pid)
                if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sshd\n"
            ]
            assert sessions
            for pid in sessions:
                harness.kill(pid, signal.SIGSTOP)
            try:
                assert e.result() == "lost connection_lost"
                assert e.read("stdout") == b"here\n"
                wait_for(lambda: not local_processes(seconds), "the command to be killed")
                assert m.run({"cmd": ["echo", "again"]}) == ("0", b"again\n", b"")
            finally:
                for pid in sessions:
                    harness.kill(pid, signal.SIGCONT)


def test_what_an_ended_command_left_is_killed_over_another_connection(server, tmp_path):
    """Its own session has ended, and then its connection."""
    seconds = [harness.unique_seconds() for _ in range(3)]
    with mounting(server, tmp_path, "dash", noise=NOISE) as m:
        execs = []
        for s in seconds:
            e = m.new()
            e.spec({"cmd": ["sh", "-c", f"setsid sleep {s} <&- >&- 2>&- & exit 0"]})
            assert e.result() == "0"
            wait_for(lambda: local_processes(s), "the child to run")
            execs.append(e)
        for pid in helpers(server):
            harness.kill(pid, signal.SIGSTOP)
        stopped = helpers(server)
        break_connection(m)
        assert m.run({"cmd": ["echo", "again"]}) == ("0", b"again\n", b"")
        for e in execs:
            e.remove()
        wait_for(lambda: not [s for s in seconds if local_processes(s)], "rmdir to kill the children")
        for pid in stopped:
            harness.kill(pid)


@contextlib.contextmanager
def helpers_stopped(server):
    """None of them kills when its connection breaks."""
    stopped = helpers(server)
    for pid in stopped:
        harness.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            harness.kill(pid)


@pytest.mark.deadline(90)
@pytest.mark.parametrize("begun", ["before", "after"])
def test_a_bare_child_of_a_leader_that_ends_with_its_connection(server, tmp_path, begun):
    """It kept the session, whose number may be another's by the next connection. What began when it
    was the command's is its; of what began later nobody can say, and so not that it is gone."""
    seconds = harness.unique_seconds()
    child = f"env -i sleep {seconds} <&- >&- 2>&- &"
    script = f"{child} sleep 0.3; echo up; read x;" if begun == "before" else f"echo up; read x; sleep 0.5; {child}"
    with mounting(server, tmp_path, "dash", noise=NOISE) as m, m.new() as e:
        e.spec({"cmd": ["sh", "-c", f"{script} exit"]})
        e.wait_size(3)
        with helpers_stopped(server):
            server.stop()
            break_connection(m)
            assert e.result() == "lost connection_lost"
            left = wait_for(lambda: [p for p in local_processes(seconds) if is_sleep(p)], "the child")
            wait_for(lambda: local_processes(seconds) == left, "the leader to end")
            server.start()
            if begun == "after":
                wait_for(lambda: "cannot be told from another's" in e.status()["error"], "the kill to fail", 30)
                assert (e.status()["remote"], local_processes(seconds)) == ("running", left)
                harness.kill(*left)
            wait_for(lambda: e.status()["remote"] == "gone", "remote: gone", 30)
            assert not local_processes(seconds)


def test_a_host_that_is_away_is_said_to_be_and_used_again(tmp_path):
    with sshd.server(shells=["root"]) as server:
        with mounting(server, tmp_path, noise=NOISE) as m:
            seconds = harness.unique_seconds()
            e = m.new()
            e.spec({"cmd": ["sleep", seconds]})
            # Without the helper nobody but a new connection can kill it.
            stopped = helpers(server)
            for pid in stopped:
                harness.kill(pid, signal.SIGSTOP)
            server.stop()
            break_connection(m)
            assert e.result() == "lost connection_lost"
            with m.new() as refused:
                with pytest.raises(OSError) as caught:
                    refused.spec({"cmd": ["true"]})
                assert caught.value.errno == errno.EHOSTUNREACH
                assert refused.result().startswith("failed ")
                assert "refused" in refused.status()["error"]
            assert local_processes(seconds)
            server.start()

            def works():
                with m.new() as e:
                    try:
                        e.spec({"cmd": ["true"]})
                    except OSError:
                        return False
                    return e.result() == "0"

            wait_for(works, "the host to be used again", 20)
            wait_for(lambda: e.status()["remote"] == "gone", "the old command to be known gone", 30)
            assert not local_processes(seconds)
            e.remove()
            for pid in stopped:
                harness.kill(pid)


def test_a_helper_that_was_killed_is_started_again(server, tmp_path):
    """Without one, nobody would kill when the daemon dies."""
    with mounting(server, tmp_path, noise=NOISE) as m:
        for pid in helpers(server):
            harness.kill(pid)
        wait_for(lambda: "ended by signal KILL" in m.stderr(), "the end of the helper to be told")
        check_that_the_host_kills(m)


def waiting_bytes(pid):
    """What a process has not read yet of its standard input, a pipe."""
    with open(f"/proc/{pid}/fd/0", "rb", buffering=0) as f:
        return struct.unpack("i", fcntl.ioctl(f, termios.FIONREAD, bytes(4)))[0]


def test_a_question_to_the_helper_is_no_reason_not_to_kill(server, tmp_path):
    """Nobody hears its answer to what the daemon asked before its death."""
    seconds = harness.unique_seconds()
    with mounting(server, tmp_path, noise=NOISE) as m:
        (helper,) = helpers(server)
        harness.kill(helper, signal.SIGSTOP)
        e = m.new()
        e.spec({"cmd": f"setsid sleep {seconds} <&- >&- 2>&- & exit 0"})
        assert e.result() == "0"
        wait_for(lambda: waiting_bytes(helper), "a question about what is left of it")
        wait_for(lambda: local_processes(seconds), "the sleep to run")
        m.broken = True
        m.daemon.kill()
        wait_for(lambda: not server.sessions(), "the end of the connection")
        harness.kill(helper, signal.SIGCONT)
        wait_for(lambda: not local_processes(seconds), lambda: f"the host to kill it:\n{helpers_now()}")


def test_a_host_without_proc(tmp_path):
    """What is killed there is not known to be gone, and never said to be."""
    hidden = 'unshare --mount sh -c \'mount -t tmpfs none /proc && exec sh -c "$SSH_ORIGINAL_COMMAND"\''
    seconds = harness.unique_seconds()
    with sshd.server([f"ForceCommand {hidden}"], ["root"]) as server:
        with mounting(server, tmp_path, noise=[*NOISE, "gave up killing"], options=["kill_give_up=1"]) as m:
            assert "cannot be known" in json.loads(m.info("capabilities"))["caveat"]
            ended = m.new()
            ended.spec({"cmd": ["sh", "-c", "echo out; exit 3"]})
            assert (ended.result(), ended.read("stdout")) == ("3", b"out\n")
            e = m.new()
            e.spec({"cmd": ["sleep", seconds]})
            e.ctl("kill")
            assert e.result() == "killed"
            wait_for(lambda: not local_processes(seconds), "the group to be killed")
            wait_for(lambda: "no readable /proc" in (e.status()["error"] or ""), "the sentence")
            wait_for(lambda: e.status()["remote"] == "unknown", "the kill to be given up")
            assert ended.status()["remote"] == "running"
            e.remove()
            ended.remove()


def test_the_host_kills_when_the_daemon_is_killed(server, tmp_path):
    with mounting(server, tmp_path, "dash") as m:
        check_that_the_host_kills(m)


def test_a_background_child_does_not_hold_the_result(server, tmp_path):
    seconds = harness.unique_seconds()
    with mounting(server, tmp_path, "dash") as m:
        with m.new() as e:
            e.spec({"cmd": ["sh", "-c", f"head -c 1000000 /dev/zero; sleep {seconds} & exit 4"]})
            assert e.result() == "4"
            assert len(e.read("stdout")) == 1000000
            assert local_processes(seconds)
        wait_for(lambda: not local_processes(seconds), "rmdir to kill the child")


def test_a_signal_that_the_server_does_not_name_is_no_made_up_result(server, tmp_path):
    with mounting(server, tmp_path, noise=NOISE) as m:
        for name in ("BUS", "SYS", "TRAP"):
            with m.new() as e:
                e.spec(["sh", "-c", f"echo out; kill -s {name} $$"])
                assert (e.result(), e.read("stdout")) == ("lost unknown_signal", b"out\n")
                assert name in e.status()["error"]
                wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


def test_a_silent_background_child_is_known_and_killed(server, tmp_path):
    seconds = harness.unique_seconds()
    with mounting(server, tmp_path, "dash") as m:
        with m.new() as e:
            e.spec({"cmd": ["sh", "-c", f"setsid sleep {seconds} <&- >&- 2>&- & exit 0"]})
            assert e.result() == "0"
            wait_for(lambda: local_processes(seconds), "the child to run")
            assert e.status()["remote"] == "running"
        wait_for(lambda: not local_processes(seconds), "rmdir to kill the child")


def test_a_child_of_the_session_is_killed_long_after_its_leader(server, tmp_path):
    """It has no mark, and by then the leader's number could be anybody's."""
    seconds = harness.unique_seconds()
    with mounting(server, tmp_path, "dash") as m:
        with m.new() as e:
            e.spec({"cmd": ["sh", "-c", f"env -i sleep {seconds} <&- >&- 2>&- & exit 0"]})
            assert e.result() == "0"
            time.sleep(6)  # what is tested is that the time does not matter
            assert local_processes(seconds) and e.status()["remote"] == "running"
        wait_for(lambda: not local_processes(seconds), "rmdir to kill the child")


def test_no_secret_in_any_argv(server, tmp_path):
    secret = harness.unique("secret")
    with mounting(server, tmp_path, "dash") as m, m.new() as e:
        e.spec({"cmd": ["sleep", "60"], "env": {"TOKEN": secret}})
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    command = pathlib.Path(entry.path, "cmdline").read_bytes()
                    assert secret.encode() not in command


def test_a_name_that_no_shell_can_set_is_refused(server, tmp_path):
    with mounting(server, tmp_path, "dash") as m, m.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec({"cmd": ["true"], "env": {"a.b": "x"}})
        assert caught.value.errno == errno.EOPNOTSUPP
        assert "a.b" in e.status()["error"]


@pytest.mark.parametrize("name", ["SPAWNFS_EXEC", "spawnfs_n"])
@pytest.mark.parametrize("value", ["x", None])
def test_a_name_of_our_own_is_refused(server, tmp_path, name, value):
    """Without its mark a command would be believed dead while it runs."""
    with mounting(server, tmp_path, "dash") as m, m.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec({"cmd": ["true"], "env": {name: value}})
        assert caught.value.errno == errno.EOPNOTSUPP
        assert name in e.status()["error"]


def test_field_separators_of_the_command(server, tmp_path):
    """They are no variable of the shells on the way."""
    with mounting(server, tmp_path, "dash") as m:
        for fields in (":", "", "0", "as"):
            with m.new() as e:
                e.spec({"cmd": "trap 'exit 7' INT; echo up; while :; do sleep 0.05; done", "env": {"IFS": fields}})
                with e.wait_up():
                    e.ctl("signal INT")
                assert e.result() == "7"


def test_a_host_whose_sessions_do_not_see_each_other(tmp_path):
    """Another session that finds nothing is no word that nothing is left: and nothing else could be."""
    apart = 'unshare --pid --fork --kill-child --mount-proc sh -c "$SSH_ORIGINAL_COMMAND"'
    with sshd.server([f"ForceCommand {apart}"], ["root"]) as server, mounting(server, tmp_path) as m:
        seconds = harness.unique_seconds()
        with m.new() as e:
            with raises(errno.EOPNOTSUPP):
                e.spec({"cmd": ["sleep", seconds]})
            assert "processes of its own" in e.status()["error"]
        assert not local_processes(seconds)


@pytest.mark.deadline(90)
def test_a_connection_that_leads_elsewhere(tmp_path):
    """As to another host of that name: what is not found there may live."""
    flag = tmp_path / "elsewhere"
    apart = f"[ ! -e {flag} ] || set -- unshare --pid --fork --kill-child --mount-proc"
    command = f'{apart}; exec "$@" sh -c "$SSH_ORIGINAL_COMMAND"'
    with sshd.server([f"ForceCommand {command}"], ["root"]) as server:
        with mounting(server, tmp_path, noise=NOISE) as m, m.new() as e:
            seconds = harness.unique_seconds()
            e.spec({"cmd": ["sleep", seconds]})
            wait_for(lambda: local_processes(seconds), "the sleep to run")
            with helpers_stopped(server):
                flag.touch()
                break_connection(m)
                assert e.result() == "lost connection_lost"
                wait_for(lambda: "leads to another machine" in e.status()["error"], "the kill to fail", 30)
                assert e.status()["remote"] == "running" and local_processes(seconds)
                flag.unlink()
                break_connection(m)
                wait_for(lambda: e.status()["remote"] == "gone", "remote: gone", 30)
                assert not local_processes(seconds)


WITH_BASH = "mount --bind /usr/bin/bash /usr/bin/sh && exec bash --posix"


def test_a_host_whose_shells_have_a_time_limit(tmp_path):
    """bash gives up reading after TMOUT seconds: the helper would take that for the end."""
    inside = f"unshare --mount /bin/sh -c '{WITH_BASH} -c \"$SSH_ORIGINAL_COMMAND\"'"
    with sshd.server([f"ForceCommand {inside}", "SetEnv TMOUT=1"], ["root"]) as server:
        with mounting(server, tmp_path) as m:
            assert m.run({"cmd": "sleep 2.5; echo $TMOUT; cat; exit 3"}, b"in") == ("3", b"1\nin", b"")
            assert m.run({"cmd": ["printenv", "LC_ALL"], "env": {"LC_ALL": "xx_YY"}}) == ("0", b"xx_YY\n", b"")


def test_a_process_whose_name_is_no_text(tmp_path):
    """It has no mark, and stands in a table that is read by a grep that knows UTF-8."""
    program = os.fsencode(tmp_path) + b"/\xff\xfe"
    shutil.copy("/bin/sleep", program)
    seconds = harness.unique_seconds()
    script = 'env -i setsid "$0" "$1" <&- >&- 2>&- & sleep 60'
    with sshd.server(["SetEnv LANG=C.UTF-8"], ["root"]) as server, mounting(server, tmp_path) as m:
        with m.new() as e:
            e.spec({"cmd": ["sh", "-c", script, os.fsdecode(program), seconds]})
            wait_for(lambda: local_processes(seconds), "the child to run")
            e.ctl("kill")
            assert e.result() == "killed"
            wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")
            assert not local_processes(seconds)


def check_that_it_works(mount):
    assert mount.run({"cmd": ["cat"]}, stdin=b"in") == ("0", b"in", b"")


def test_another_program_than_ssh(server, tmp_path):
    """And arguments of it, before all others."""
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\nexec ssh "$@"\n')
    program.chmod(0o755)
    with mounting(server, tmp_path, options=[f"ssh_command={program} -4", "ConnectTimeout=7"]) as m:
        check_that_it_works(m)
    for line in (tmp_path / "said").read_text().splitlines():
        # But for what asks how ssh would be without any.
        assert line.startswith("-4 ") and ("ConnectTimeout=7" in line or " -F none -G " in line)


def test_a_jump_host(server, tmp_path):
    gate = server.users.names["dash"]
    before = len(server.log.read_text())
    with mounting(server, tmp_path, options=[f"ProxyJump={gate}@there"]) as m:
        check_that_it_works(m)
        assert f"Accepted publickey for {gate}" in server.log.read_text()[before:]


def test_a_key_of_an_agent(server, tmp_path):
    agent = tmp_path / "agent"
    environment = {**os.environ, "SSH_AUTH_SOCK": str(agent)}
    config = tmp_path / "config"
    config.write_text(re.sub(r"\n +Identit.*", "", server.client_config.read_text()))
    target = Target(
        address=f"ssh:{server.users.names['root']}@there",
        options=[f"ssh_config={config}"],
        env={"SSH_AUTH_SOCK": str(agent)},
        name="ssh",
    )
    with harness.child("ssh-agent", "-D", "-a", agent, stdout=subprocess.DEVNULL):
        wait_for(agent.exists, "the agent")
        with pytest.raises(AssertionError, match="Permission denied"), harness.Mount(target, tmp_path / "n"):
            pass
        subprocess.run(["ssh-add", "-q", server.place / "user_key"], env=environment, check=True)
        with harness.Mount(target, tmp_path / "m") as m:
            check_that_it_works(m)


def test_a_certificate(tmp_path):
    """The server knows the authority alone."""
    for name in ("authority", "key"):
        sshd.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name)
    with sshd.server([f"TrustedUserCAKeys {tmp_path}/authority.pub"], ["root"]) as server:
        name = server.users.names["root"]
        (server.place / "authorized_keys").write_text("")
        sshd.run("ssh-keygen", "-q", "-s", tmp_path / "authority", "-I", "test", "-n", name, tmp_path / "key.pub")
        options = [f"IdentityFile={tmp_path}/key", f"CertificateFile={tmp_path}/key-cert.pub"]
        with mounting(server, tmp_path, options=options) as m:
            check_that_it_works(m)


def usage(*arguments):
    return subprocess.run(
        [harness.SPAWNFS, "-f", *arguments], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
    )


def test_what_is_wrong_is_said_at_the_mount(server, tmp_path):
    config = ["-F", server.client_config]
    place = tmp_path / "m"
    place.mkdir()
    for arguments, sentence in (
        (["ssh:", place], "not an address"),
        (["ssh:-oProxyCommand=x", place], "not an address"),
        (["-o", "nosuch=1", "ssh:there", place], "not an option of ssh"),
        ([*config, "ssh:nobody-of-that-name@there", place], "Permission denied"),
        ([*config, "-o", "NoSuchOption=1", "ssh:there", place], "does not accept"),
        ([*config, "-p", "1", "ssh:there", place], "refused"),
    ):
        done = usage(*arguments)
        assert done.returncode == 1 and re.search(sentence, done.stderr), (arguments, done.stderr)


AES = re.search(r"^(flags|Features)\s*:.*\baes\b", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
CHACHA, GCM = "chacha20-poly1305@openssh.com", "aes128-gcm@openssh.com"


@pytest.mark.parametrize("at_server, in_config, option, expected", [
    (None, None, None, GCM if AES else CHACHA),
    (None, "aes256-ctr", None, "aes256-ctr"),
    (None, "^aes256-gcm@openssh.com", None, "aes256-gcm@openssh.com"),
    (None, None, CHACHA, CHACHA),
    (CHACHA, None, None, CHACHA),
], ids=["nobody", "configuration", "configuration's order", "option", "server"])
def test_the_cipher_is_the_users_or_a_quick_one(tmp_path, at_server, in_config, option, expected):
    config = ["LogLevel DEBUG1"] + ([f"Ciphers {at_server}"] if at_server else [])
    with sshd.server(config, ["dash"]) as server:
        if in_config:
            server.write_client_config(f"  Ciphers {in_config}")
        with mounting(server, tmp_path, "dash", [f"Ciphers={option}"] if option else []) as m:
            assert m.run({"cmd": ["echo", "x"]}) == ("0", b"x\n", b"")
        assert set(re.findall(r"kex: .* cipher: (\S+)", server.log.read_text())) == {expected}


def test_nothing_is_left_of_a_mount(server, tmp_path, monkeypatch):
    """Of the directory for the connections' sockets least of all; its path must be short."""
    with tempfile.TemporaryDirectory() as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        with mounting(server, tmp_path, "dash") as m:
            assert m.run({"cmd": ["true"]})[0] == "0"
            assert not os.listdir(runtime)
            wait_for(lambda: len(masters(m)) == 1, "one connection")
    assert not [p for p in local_processes(str(server.client_config))]


class Terminal:
    """A mount command that has a terminal; what it says there, and answers to it."""

    def __init__(self, *arguments):
        self.said = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(harness.SPAWNFS, [harness.SPAWNFS, *map(str, arguments)])

    def expect(self, text, answer=None):
        def there():
            self.read(0.05)
            return text in self.said

        wait_for(there, f"{text} at the terminal, where stands {self.said}", 20)
        self.said = self.said.split(text, 1)[1]
        if answer is not None:
            os.write(self.fd, answer + b"\n")

    def read(self, seconds):
        """What is there, and comes in that time; true while the terminal is in use."""
        try:
            while select.select([self.fd], [], [], seconds)[0]:
                self.said += os.read(self.fd, 4096)
        except OSError:  # EIO: nobody has it open any more
            return False
        return True

    def close(self):
        harness.kill(self.pid)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


PASSWORD = "correct horse"


@pytest.fixture
def asking(tmp_path):
    """A host that is not known yet, and wants a password."""
    config = ["PasswordAuthentication yes", "PubkeyAuthentication no"]
    with sshd.server(config, ["dash"]) as server:
        # Of two values of a keyword the first counts.
        text = (server.place / "sshd_config").read_text().replace("PasswordAuthentication no\n", "")
        (server.place / "sshd_config").write_text(text)
        server.stop()
        server.start()
        name = server.users.names["dash"]
        crypted = subprocess.run(["openssl", "passwd", "-6", PASSWORD], capture_output=True, check=True, text=True)
        sshd.run("usermod", "-p", crypted.stdout.strip(), name)
        server.known_hosts.write_text("")
        server.write_client_config("  StrictHostKeyChecking ask")
        yield server


@pytest.mark.parametrize("foreground", [True, False])
def test_questions_reach_the_terminal_before_the_mount_and_never_after(asking, tmp_path, foreground):
    place = tmp_path / "m"
    place.mkdir()
    address = f"ssh:{asking.users.names['dash']}@there"
    terminal = Terminal(*(["-f"] if foreground else []), "-F", asking.client_config, address, place)
    try:
        terminal.expect(b"continue connecting (yes/no", b"yes")
        terminal.expect(b"password: ", b"wrong")
        terminal.expect(b"password: ", PASSWORD.encode())
        wait_for(lambda: harness.mount_entry(place), "the mount")
        (place / "e").mkdir()
        (place / "e" / "spec").write_text('["echo","in"]')
        assert (place / "e" / "stdout").read_text() == "in\n"
        assert PASSWORD.encode() not in terminal.said
        terminal.read(0.1)
        terminal.said = b""
        # Another connection would have to ask: the command is refused, with a sentence.
        asking.drop()

        def refused():
            (place / "f").mkdir()
            fd = os.open(place / "f" / "spec", os.O_WRONLY)
            try:
                os.write(fd, b'["true"]')
            except OSError as error:
                assert error.errno == errno.EACCES
                return "Permission denied" in json.loads((place / "f" / "status").read_text())["error"]
            finally:
                os.close(fd)
                (place / "f").rmdir()

        wait_for(refused, "the refusal", 20)
        terminal.read(0.2)
        lines = [line for line in terminal.said.splitlines() if not line.startswith(b"spawnfs: warning: ")]
        assert lines == []
    finally:
        harness.detach(place)
        terminal.close()


def test_a_refused_host_key_is_the_end_of_the_mount(asking, tmp_path):
    place = tmp_path / "m"
    place.mkdir()
    terminal = Terminal("-F", asking.client_config, "ssh:there", place)
    try:
        terminal.expect(b"continue connecting (yes/no", b"no")
        terminal.expect(b"Host key verification failed")
        wait_for(lambda: not terminal.read(0.05), "the command to end")
        assert not harness.mount_entry(place)
    finally:
        terminal.close()
