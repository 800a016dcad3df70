"""The forms of the target, who the daemon is at E2B, and what it asks of a sandbox."""

import contextlib
import errno
import os
import pathlib
import subprocess
import time

import pytest

import e2b_peer
import harness
from harness import Mount, unique, unique_seconds, wait_for
from targets import Target


def at(peer, address, env=None, **fields):
    return Target(address=address, env=peer.env if env is None else env, name="e2b", **fields)


def refused(peer, tmp_path, address, *options, env=None):
    """What spawnfs says when it does not mount."""
    arguments = [part for option in options for part in ("-o", option)]
    base = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")}
    done = subprocess.run(
        [harness.SPAWNFS, "-f", *arguments, address, tmp_path],
        env={**base, **(peer.env if env is None else env)},
        capture_output=True,
        text=True,
        timeout=30 * harness.SLOW,
        check=False,
    )
    assert done.returncode != 0
    return done.stderr


# ---- attaching ----


def test_attaching_only_extends(peer, tmp_path):
    long, short = peer.create(timeout=3000), peer.create(timeout=60)
    for sandbox in (long, short):
        id = sandbox["sandboxID"]
        with Mount(at(peer, f"e2b:{id}"), tmp_path / id) as mount:
            mount.run(["true"])
        assert peer.sandbox(id), "it was there before, and stays"
    assert peer.sandbox(long["sandboxID"])["ttl"] > 2900
    assert 200 < peer.sandbox(short["sandboxID"])["ttl"] <= 300


def test_an_option_sets_the_time_to_live(peer, tmp_path):
    id = peer.create(timeout=3000)["sandboxID"]
    with Mount(at(peer, f"e2b:{id}", options=["ttl=100"]), tmp_path / "m") as mount, mount.new() as e:
        e.spec(["sleep", "1000"])
        wait_for(lambda: peer.sandbox(id)["ttl"] <= 100, "the time to live to be set")


def test_a_sandbox_that_is_not_there(peer, tmp_path):
    assert "doesn't exist" in refused(peer, tmp_path, "e2b:inosuchsandbox")


def test_a_paused_sandbox_is_resumed(peer, tmp_path):
    id = peer.create()["sandboxID"]
    peer.api("POST", f"/sandboxes/{id}/pause", {})
    with Mount(at(peer, f"e2b:{id}"), tmp_path / "m") as mount:
        assert mount.run(["echo", "hi"]) == ("0", b"hi\n", b"")


def test_two_mounts_of_one_sandbox(peer, tmp_path):
    """What the one kills, and its end, is nothing to the other."""
    id = peer.create()["sandboxID"]
    with Mount(at(peer, f"e2b:{id}"), tmp_path / "one") as one:
        with one.new() as staying:
            staying.spec({"cmd": ["cat"]})
            with Mount(at(peer, f"e2b:{id}"), tmp_path / "two") as two:
                mine, left = two.new(), two.new()
                for e in (mine, left):
                    e.spec({"cmd": ["sh", "-c", "sleep 1000 & cat"]})
                mine.remove()
                wait_for(lambda: len(peer.sandbox(id)["commands"]) <= 3, "the first to be killed")
            wait_for(lambda: len(peer.sandbox(id)["commands"]) == 1, "the other mount's to be killed")
            staying.write("stdin", b"here\n")
            assert (staying.read("stdout"), staying.result()) == (b"here\n", "0")


# ---- new ----


def new_ids(peer, before):
    return {s["id"] for s in peer.state()["sandboxes"]} - before


def test_a_new_sandbox_lives_as_long_as_the_mount(peer, tmp_path):
    before = new_ids(peer, set())
    with Mount(at(peer, "e2b:new?template=base&timeout=60"), tmp_path / "m") as mount:
        (id,) = new_ids(peer, before)
        assert peer.sandbox(id)["ttl"] <= 60 and peer.sandbox(id)["secure"]
        assert mount.run(["echo", "hi"]) == ("0", b"hi\n", b"")
    assert peer.sandbox(id) is None


def test_a_new_sandbox_that_is_kept(peer, tmp_path):
    before = new_ids(peer, set())
    with Mount(at(peer, "e2b:new?keep=1"), tmp_path / "m") as mount:
        mount.run(["true"])
    (id,) = new_ids(peer, before)
    assert peer.sandbox(id)


WRONG = ["e2b:new?timeout=1", "e2b:new?template=", "e2b:new?what=1", "e2b:../x", "e2b:a/b", "e2b:a b"]


@pytest.mark.parametrize("address", WRONG)
def test_a_target_that_is_not_one(peer, tmp_path, address):
    before = peer.state()["calls"]
    assert "e2b: target" in refused(peer, tmp_path, address)
    assert peer.state()["calls"] == before


def test_a_template_that_is_not_there(peer, tmp_path):
    assert "nosuch" in refused(peer, tmp_path, "e2b:new?template=nosuch")


# ---- many sandboxes ----


def test_each_spec_names_its_sandbox(peer, tmp_path):
    ids = [peer.create()["sandboxID"] for _ in range(20)]
    with Mount(at(peer, "e2b:"), tmp_path / "m") as mount:
        for id in ids:
            result = mount.run({"cmd": "echo $E2B_SANDBOX_ID", "sandbox": id})
            assert result == ("0", id.encode() + b"\n", b"")
        for wrong, number in (
            ({"cmd": ["true"]}, errno.EINVAL),
            ({"cmd": ["true"], "sandbox": "../x"}, errno.EINVAL),
            ({"cmd": ["true"], "sandbox": "inosuch"}, errno.ENXIO),
        ):
            with mount.new() as e, pytest.raises(OSError) as caught:
                e.spec(wrong)
            assert caught.value.errno == number
            mount.allow("refused")


# ---- who we are ----


def test_credentials_from_a_file(peer, tmp_path):
    id = peer.create()["sandboxID"]
    file = tmp_path / "credentials"
    lines = [f'export {k}="{v}"' for k, v in peer.env.items()]
    file.write_text("# of the test\n\n" + "\n".join(lines) + "\n")
    file.chmod(0o600)
    there = at(peer, f"e2b:{id}", env={}, options=[f"credentials={file}"])
    with Mount(there, tmp_path / "m") as mount:
        assert mount.run(["echo", "hi"]) == ("0", b"hi\n", b"")


def test_an_access_token_instead_of_a_key(peer, tmp_path):
    id = peer.create()["sandboxID"]
    env = {**peer.env, "E2B_ACCESS_TOKEN": peer.env["E2B_API_KEY"]}
    del env["E2B_API_KEY"]
    with Mount(at(peer, f"e2b:{id}", env=env), tmp_path / "m") as mount:
        assert mount.run(["echo", "hi"]) == ("0", b"hi\n", b"")


def test_a_token_of_the_sandbox_is_enough(peer, tmp_path):
    """Without a key nobody can be asked for it, and nothing is extended."""
    sandbox = peer.create(timeout=100)
    env = {"E2B_SANDBOX_URL": peer.url, "E2B_ENVD_ACCESS_TOKEN": sandbox["envdAccessToken"]}
    with Mount(at(peer, f"e2b:{sandbox['sandboxID']}", env=env), tmp_path / "m") as mount:
        assert mount.run(["echo", "hi"]) == ("0", b"hi\n", b"")
    assert peer.sandbox(sandbox["sandboxID"])["ttl"] <= 100


def test_a_credentials_file_that_others_may_read(peer, tmp_path):
    file = tmp_path / "credentials"
    file.write_text(f"E2B_API_KEY={e2b_peer.KEY}\n")
    file.chmod(0o640)
    said = refused(peer, tmp_path / "m", "e2b:x", f"credentials={file}")
    assert "chmod 600" in said and e2b_peer.KEY not in said


def test_a_credentials_file_of_somebody_else(peer, tmp_path):
    file = tmp_path / "credentials"
    file.write_text(f"E2B_API_KEY={e2b_peer.KEY}\n")
    file.chmod(0o600)
    os.chown(file, 1234, -1)
    said = refused(peer, tmp_path / "m", "e2b:x", f"credentials={file}")
    assert str(file) in said and e2b_peer.KEY not in said


def test_a_credentials_file_with_another_line(peer, tmp_path):
    file = tmp_path / "credentials"
    file.write_text("SECRET_OF_SOMETHING_ELSE\n")
    file.chmod(0o600)
    said = refused(peer, tmp_path / "m", "e2b:x", f"credentials={file}")
    assert "line 1" in said and "SECRET" not in said


def test_a_wrong_key(peer, tmp_path):
    wrong = "e2b_" + "1" * 40
    (tmp_path / "m").mkdir()
    said = refused(peer, tmp_path / "m", "e2b:x", env={**peer.env, "E2B_API_KEY": wrong})
    assert "401" in said and "E2B_API_KEY" in said and wrong not in said


def test_a_new_sandbox_without_a_key(peer, tmp_path):
    assert "E2B_API_KEY" in refused(peer, tmp_path, "e2b:new", env={"E2B_API_URL": peer.url})


@pytest.mark.deadline(120)
def test_no_secret_is_told(peer, tmp_path):
    """Not at any level of the log, in status, in .spawnfs or in the daemon's argv."""
    sandbox = peer.create()
    value = unique("secret")
    there = at(peer, f"e2b:{sandbox['sandboxID']}", options=["log_level=debug"], noise=[".*"])
    with Mount(there, tmp_path / "m") as mount, mount.new() as e:
        e.spec({"cmd": ["sh", "-c", 'test "$A"; sleep 100'], "env": {"A": value}})
        command = peer.sandbox(sandbox["sandboxID"])["commands"][0]
        assert command["envs"]["A"] == value and value not in str(command["args"])
        told = ""
        for call in ("Start", "SendInput", "CloseStdin"):
            for fault in ({"fault": "answer", "status": 401, "body": "no"}, {"fault": "reset"}):
                peer.plan(call=call, match="cat" if call == "Start" else "", **fault)
                with mount.new() as failing, contextlib.suppress(OSError):
                    failing.spec({"cmd": ["cat"], "env": {"A": value}, "timeout": 5})
                    failing.write("stdin", value.encode())
                    failing.result()
                    told += (failing / "status").read_text() + (failing / "spec").read_text()
                peer.test("reset", {})
        peer.plan(call="Start", match="k:", fault="reset")
        e.ctl("kill")
        e.result()
        told += mount.stderr() + (e / "status").read_text() + (e / "spec").read_text()
        told += "".join(p.read_text() for p in (mount.path / ".spawnfs").rglob("*") if p.is_file())
        assert "HTTP 401" in told, "there was something to tell"
        told += pathlib.Path(f"/proc/{mount.pid}/cmdline").read_text()
        for secret in (value, e2b_peer.KEY, sandbox["envdAccessToken"]):
            assert secret not in told


# ---- what is asked for ----


def test_what_the_sandbox_sets_can_be_unset(peer, tmp_path):
    with Mount(at(peer, f"e2b:{peer.create()['sandboxID']}"), tmp_path / "m") as mount:
        off = {"E2B_SANDBOX_ID": False, "USER": None, "E2B_TEMPLATE_ID": "mine"}
        _, out, _ = mount.run({"cmd": ["env", "-0"], "env": off})
        names = dict(line.split(b"=", 1) for line in out.split(b"\0")[:-1])
        assert b"E2B_SANDBOX_ID" not in names and b"USER" not in names
        assert names[b"E2B_TEMPLATE_ID"] == b"mine" and names[b"E2B_SANDBOX"] == b"true"


def test_no_time_limit_is_ever_sent_for_a_command(peer, tmp_path):
    """envd's kills the leader only and tells no result; the spec's own is kept by the daemon."""
    id = peer.create()["sandboxID"]
    with Mount(at(peer, f"e2b:{id}"), tmp_path / "m") as mount, mount.new() as e:
        e.spec({"cmd": ["sleep", "1000"], "timeout": 1})
        (command,) = (c for c in peer.sandbox(id)["commands"] if c["tag"] != "spawnfs-helper")
        assert command["limit"] == 0
        assert e.result() == "timeout"
        wait_for(lambda: not peer.sandbox(id)["processes"], "it to be killed")


# ---- the login shell ----


@pytest.fixture
def profile(peer):
    """Writes what the login shells of the sandbox read."""
    file = pathlib.Path(peer.home, ".bash_profile")
    yield file.write_text
    file.unlink()


def test_the_login_shell_is_asked_once(peer, profile, tmp_path):
    asked = tmp_path / "asked"
    profile(f"echo >> {asked}\n")
    with Mount(at(peer, f"e2b:{peer.create()['sandboxID']}"), tmp_path / "m") as mount:
        for _ in range(3):
            assert mount.run(["true"]) == ("0", b"", b"")
    assert asked.read_text() == "\n"


def test_the_path_of_the_login_shell_counts(peer, profile, tmp_path):
    (tmp_path / "own-tool").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "own-tool").chmod(0o755)
    profile(f"echo Welcome.; export PATH='{tmp_path}':$PATH; echo PATH=/nowhere\n")
    with Mount(at(peer, f"e2b:{peer.create()['sandboxID']}"), tmp_path / "m") as mount:
        assert mount.run(["own-tool"]) == ("0", b"mine\n", b"")
        spec = {"cmd": ["own-tool"], "env": {"PATH": "/usr/bin:/bin"}}
        assert mount.run(spec)[0] == "127"


@pytest.mark.waits
@pytest.mark.deadline(120)
def test_a_login_shell_that_hangs_keeps_no_command_from_running(peer, profile, tmp_path):
    """Its PATH is not known then; the command has a session of its own all the same."""
    profile("sleep 1000\n")
    id = peer.create()["sandboxID"]
    with Mount(at(peer, "e2b:"), tmp_path / "m") as mount:
        mount.allow("does not say its PATH|has no setsid")
        session = "ps -o sid= -p $$ | tr -d ' '; echo $$"
        result, out, _ = mount.run({"cmd": ["/bin/sh", "-c", session], "sandbox": id})
        assert result == "0"
        assert len(set(out.split())) == 1


def test_a_signal_to_a_command_that_shows_no_mark_yet(peer, profile, tmp_path):
    """In the midst of its execve(2), say: there is no group yet, and its environment is empty."""
    within, go_on = tmp_path / "within", tmp_path / "go-on"
    (tmp_path / "setsid").write_text(
        f"""#!/bin/sh
        exec env -i /bin/sh -c '
            > {within}
            until [ -e {go_on} ]; do sleep .02; done
            SPAWNFS_EXEC=$0 exec /usr/bin/setsid "$@"' "$SPAWNFS_EXEC" "$@"
        """
    )
    (tmp_path / "setsid").chmod(0o755)
    profile(f"export PATH='{tmp_path}':$PATH\n")
    with Mount(at(peer, f"e2b:{peer.create()['sandboxID']}"), tmp_path / "m") as mount, mount.new() as e:
        e.spec(["sleep", unique_seconds()])
        wait_for(within.exists, "the command to be on its way")
        starts = peer.calls("Start")
        e.ctl("signal TERM")
        wait_for(lambda: peer.calls("Start") > starts, "the signal to be sent")
        time.sleep(0.2)  # it has looked once
        go_on.touch()
        assert e.result() == "signal TERM"


def test_a_user_of_the_sandbox(peer, tmp_path):
    id = peer.create()["sandboxID"]
    with Mount(at(peer, f"e2b:{id}"), tmp_path / "m") as mount:
        spec = {"cmd": ["id", "-un"], "user": "nobody", "cwd": "/"}
        assert mount.run(spec) == ("0", b"nobody\n", b"")
        with mount.new() as e, pytest.raises(OSError) as caught:
            e.spec({"cmd": ["true"], "user": "nosuchuser"})
        assert caught.value.errno == errno.ENOENT
        with mount.new() as e:
            e.spec({"cmd": "sleep 1000 & sleep 1000", "user": "nobody", "cwd": "/"})
            wait_for(lambda: len(peer.sandbox(id)["processes"]) >= 3, "it to run")
        wait_for(lambda: not peer.sandbox(id)["processes"], "another user's processes to be killed")
        mount.allow("refused")
