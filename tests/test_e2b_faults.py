"""What goes wrong between the daemon and a sandbox: each fault has one right outcome.

Nothing is made up (no exit status without one), nothing is run twice, and no command is left
running that was told to be over.
"""

import errno
import os
import time

import pytest

import harness
from harness import unique, wait_for
from targets import Target

GONE = {"sandboxId": "x", "message": "The sandbox was not found", "code": 502}
HTML = "<html><head><title>502</title></head><body>Bad Gateway</body></html>"


class Faulty:
    """A mount on a sandbox of its own, and the faults to come for its commands."""

    def __init__(self, peer, mount, sandbox):
        self.peer = peer
        self.mount = mount
        self.id = sandbox["sandboxID"]

    def plan(self, mark, **plan):
        self.peer.plan(**{"call": "Start", "match": mark, **plan})

    def start(self, script, **plan):
        """An exec whose Start meets a fault; (exec, its mark)."""
        mark = unique()
        if plan:
            self.plan(mark, **plan)
        e = self.mount.new()
        e.spec({"cmd": ["/bin/sh", "-c", script, mark]})
        return e, mark

    def use_json(self, json):
        """Faults are for the stream that counts, not for the refusal of the other codec."""
        self.peer.set(sandbox=self.id, jsonOnly=json)
        self.mount.run({"cmd": ["true"]})

    def commands(self, mark):
        sandbox = self.peer.sandbox(self.id)
        return [c for c in sandbox["commands"] if mark in c["args"]] if sandbox else []

    def gone(self, mark):
        """No process of the command is left, in the peer's eyes and in the daemon's."""
        wait_for(lambda: not self.commands(mark), "the peer to know no such command")
        wait_for(lambda: not self.mount.target.processes(mark), "the command to be killed")

    def over(self, e):
        wait_for(lambda: e.status()["remote"] == "gone", "the daemon to see that it is gone")


@pytest.fixture
def faulty(peer, target, tmp_path):
    sandbox = peer.create()
    there = Target(address=f"e2b:{sandbox['sandboxID']}", env=peer.env, noise=[".*"])
    there.name = "e2b"
    with harness.Mount(there, tmp_path / "m", ["log_level=debug"]) as mount:
        yield Faulty(peer, mount, sandbox)
    peer.reset()
    peer.api("DELETE", f"/sandboxes/{sandbox['sandboxID']}")


# ---- a refusal instead of the stream ----

NAMES = {400: "EINVAL", 401: "EACCES", 403: "EACCES", 404: "ENXIO", 409: "EBUSY", 429: "EUSERS"}
BODIES = ({"code": 0, "message": "so it says"}, "so it says", HTML)
REFUSALS = [(status, body, name) for status, name in NAMES.items() for body in BODIES] + [
    (502, GONE, "ENXIO"),
    (502, {"code": 502, "message": "The sandbox is running but port is not open"}, "EHOSTUNREACH"),
]


@pytest.mark.parametrize("status,body,name", REFUSALS)
def test_an_http_refusal(faulty, status, body, name):
    mark = unique()
    faulty.plan(mark, fault="answer", status=status, body=body, headers={"retry-after": "7"})
    with faulty.mount.new() as e:
        with pytest.raises(OSError) as caught:
            e.spec({"cmd": ["echo", mark]})
        assert errno.errorcode[caught.value.errno] == name
        assert e.result() == f"failed {name}"
        error = e.status()["error"]
        assert f"HTTP {status}" in error and "<" not in error and "7 s" in error
        message = body["message"] if isinstance(body, dict) else body
        assert message == HTML or message in error
        assert e.read("stdout") == b""


GATEWAYS = [(status, body) for status in (500, 502, 503, 504) for body in BODIES] + [
    (500, {"code": "internal", "message": "it broke"})
]


def test_a_gateways_word_is_no_proof_that_nothing_ran(faulty):
    """It may have passed the request on before: "failed" would say that it never started."""
    for count, (status, body) in enumerate(GATEWAYS, 1):
        e, mark = faulty.start("true", fault="answer", status=status, body=body)
        assert e.result() == "lost stream_closed"
        error = e.status()["error"]
        assert f"HTTP {status}" in error and "<" not in error
        message = body["message"] if isinstance(body, dict) else body
        assert message == HTML or message in error
        assert faulty.peer.calls("List") == faulty.peer.state()["spoiled"] == count


@pytest.mark.parametrize("script", ["sleep 1000", "echo ran"])
@pytest.mark.parametrize("lookup", [True, False], ids=["found", "not to be found"])
def test_a_refusal_of_a_command_that_runs_all_the_same(faulty, script, lookup):
    if not lookup:
        faulty.peer.plan(call="List", fault="answer", status=502, body="upstream reset")
    e, mark = faulty.start(script, fault="answer", run=True, status=502, body="upstream reset")
    assert e.result() == "lost stream_closed"
    faulty.gone(mark)
    faulty.over(e)


# ---- no answer ----


@pytest.mark.parametrize("fault", ["reset", "close"])
@pytest.mark.parametrize("run", [False, True])
def test_a_lost_answer_to_start(faulty, fault, run):
    """It may have run: it is not told as never started, not run again, and killed."""
    e, mark = faulty.start("echo x; sleep 1000", fault=fault, run=run)
    assert e.result() == "lost stream_closed"
    assert e.read("stdout") == b""
    faulty.gone(mark)
    faulty.over(e)
    assert faulty.peer.state()["spoiled"] == 1


def test_a_lost_start_is_found_by_its_tag(faulty):
    """It cleared its environment, and its number was in the lost answer: List alone has it."""
    seconds = harness.unique_seconds()
    others = [faulty.mount.new() for _ in range(3)]
    for e in others:
        e.spec(["cat"])
    faulty.peer.set(delays={"List": 1000})  # until it has cleared it
    faulty.plan(seconds, fault="reset", run=True)
    e = faulty.mount.new()
    e.spec({"cmd": ["env", "-i", "/bin/sh", "-c", f"sleep {seconds} & sleep {seconds} & wait"]})
    assert e.result() == "lost stream_closed"
    faulty.gone(seconds)
    faulty.over(e)
    assert faulty.peer.calls("List") == 1
    assert [e.status()["state"] for e in others] == ["running"] * 3


def test_a_late_answer_to_start(faulty):
    """Slow, but within its limit: nothing is asked again, nothing is lost."""
    e, mark = faulty.start("echo hello; exit 3", wait=4000)
    assert e.result() == "3" and e.read("stdout") == b"hello\n"
    assert faulty.peer.calls("List") == 0


def test_start_is_never_sent_twice(faulty, tmp_path):
    """Also not by the transport, when a kept connection turns out to be dead."""
    witness = tmp_path / "runs"
    witness.touch()
    faulty.mount.run(["true"])
    e, mark = faulty.start(f"echo run >> {witness}; sleep 1000", fault="reset", run=True)
    assert e.result() == "lost stream_closed"
    assert "ended without an answer" in e.status()["error"]
    faulty.gone(mark)
    time.sleep(0.2)
    assert witness.read_text() in ("", "run\n")


# ---- a stream that is cut or spoiled ----

LOST = {
    "cut in an envelope": dict(fault="cut", at="data"),
    "cut in the head": dict(fault="cut", at="data", bytes=3, how="clean"),
    "cut between": dict(fault="cut", at="data", bytes=0, how="close"),
    "clean end without end event": dict(fault="cut", at="data", bytes=0, how="clean"),
    "unknown flags": dict(fault="replace", at="data", flags=0x40),
    "compressed": dict(fault="replace", at="data", flags=1),
    "20 MiB": dict(fault="replace", at="data", length=20 << 20),
    "garbage": dict(fault="replace", at="data", payload="\x07\x07 no message {"),
    "wrong type": dict(fault="type", type="application/json"),
    "html": dict(fault="type", type="text/html"),
}


@pytest.mark.parametrize("json", [False, True], ids=["proto", "json"])
@pytest.mark.parametrize("name", LOST)
def test_a_spoiled_stream_is_a_loss_and_the_command_is_killed(faulty, name, json):
    faulty.use_json(json)
    e, mark = faulty.start("echo hello; sleep 1000", **LOST[name])
    assert e.result() == "lost stream_closed"
    assert e.status()["error"]
    faulty.gone(mark)
    faulty.over(e)
    assert e.read("stdout") in (b"", b"hello\n")


def test_an_end_that_does_not_come(faulty):
    """The trailer says success, but nobody said how it ended."""
    e, mark = faulty.start("echo hello; exit 3", fault="drop", at="end")
    assert e.result() == "lost stream_closed"
    assert e.read("stdout") == b"hello\n"


@pytest.mark.deadline(60)
def test_a_stream_that_stalls_after_the_end(faulty):
    """The command is over, and the open stream never says so."""
    e, mark = faulty.start("echo hello; exit 3", fault="stall", at="end")
    assert e.result() == "lost stream_closed"
    assert e.read("stdout") == b"hello\n"


@pytest.mark.deadline(60)
def test_a_stream_that_stalls_at_its_output(faulty):
    """What did not come is not made up, and neither is how it ended."""
    e, mark = faulty.start("echo hello; read x; exit 3", fault="stall", at="data")
    time.sleep(1)
    assert e.status()["state"] == "running", "silence is no fault"
    e.append("stdin", b"\n")
    assert e.result() == "lost stream_closed"
    assert e.read("stdout") == b""
    faulty.over(e)


@pytest.mark.waits
@pytest.mark.deadline(60)
def test_silence_is_not_a_fault(faulty):
    """Not even of a stream whose keepalives do not come."""
    e, mark = faulty.start("read x; exit 3", fault="drop", at="keepalive", times=9)
    time.sleep(25)
    assert e.status()["state"] == "running"
    e.append("stdin", b"\n")
    assert e.result() == "3"


WHOLE = {
    "no trailer": dict(fault="drop", at="trailer"),
    "half a trailer": dict(fault="cut", at="trailer", bytes=6),
    "reset after the end": dict(fault="cut", at="trailer", bytes=0, how="reset"),
    "end twice": dict(fault="repeat", at="end"),
    "data after the end": dict(fault="append", at="end", event={"data": {"stdout": "bGF0ZQ=="}}),
    "an envelope after the trailer": dict(fault="append", at="trailer", payload="{}"),
    "one byte at a time": dict(fault="drip", every=0),
    "an unknown event": dict(fault="append", at="start", event={}),
    "a keepalive": dict(fault="append", at="start", event={"keepalive": {}}),
    "start twice": dict(fault="repeat", at="start"),
}


@pytest.mark.parametrize("json", [False, True], ids=["proto", "json"])
@pytest.mark.parametrize("name", WHOLE)
def test_a_fault_that_does_not_matter(faulty, name, json):
    faulty.use_json(json)
    e, mark = faulty.start("echo hello; echo err >&2; exit 3", **WHOLE[name])
    assert e.result() == "3"
    assert (e.read("stdout"), e.read("stderr")) == (b"hello\n", b"err\n")
    faulty.over(e)


def test_output_twice_is_output_twice(faulty):
    """A repeated event is not told from two equal ones: bytes are never thrown away on a guess."""
    e, mark = faulty.start("echo hello", fault="repeat", at="data")
    assert e.read("stdout") == b"hello\nhello\n"
    assert e.result() == "0"


# ---- the codec ----


def test_a_sandbox_that_takes_json_only(faulty):
    faulty.peer.set(sandbox=faulty.id, jsonOnly=True)
    before = faulty.peer.calls("refused with 415")
    for _ in range(3):
        assert faulty.mount.run({"cmd": ["cat"]}, b"x" * 100_000) == ("0", b"x" * 100_000, b"")
        assert faulty.peer.calls("refused with 415") == before + 1, "it is asked once"


# ---- the sandbox goes ----


def test_a_sandbox_that_is_deleted_while_a_command_runs(faulty):
    e, mark = faulty.start("echo hello; sleep 1000")
    e.wait_size(6)
    faulty.peer.api("DELETE", f"/sandboxes/{faulty.id}")
    assert e.result() in ("lost stream_closed", "lost sandbox_gone")
    assert e.read("stdout") == b"hello\n"
    faulty.over(e)
    with faulty.mount.new() as other:
        with pytest.raises(OSError) as caught:
            other.spec(["true"])
        assert caught.value.errno == errno.ENXIO


def is_kept_while_paused(faulty, e, mark):
    faulty.peer.api("POST", f"/sandboxes/{faulty.id}/pause", {})
    assert e.result() == "lost stream_closed"
    wait_for(lambda: "paused" in (e.status()["error"] or ""), "the kill to say why it fails")
    assert e.status()["remote"] == "running"
    faulty.peer.api("POST", f"/sandboxes/{faulty.id}/connect", {"timeout": 300})
    faulty.gone(mark)
    faulty.over(e)


def test_a_paused_sandbox_is_not_gone(faulty):
    """Its processes will go on some day: a kill is not told to have worked."""
    e, mark = faulty.start("echo hello; sleep 1000")
    e.wait_size(6)
    is_kept_while_paused(faulty, e, mark)


# ---- looks at what is left ----


def test_a_look_that_is_under_way_at_the_end(faulty):
    """The look for what is left has to wait for it, and is made all the same."""
    with faulty.mount.new() as e:
        e.spec({"cmd": ["/bin/sh", "-c", "read x; exit 3"]})
        before = faulty.peer.calls("Start")
        faulty.peer.set(delays={"Start": 1500})
        wait_for(lambda: faulty.peer.calls("Start") > before, "a look at the leader")
        faulty.peer.set(delays={})
        e.append("stdin", b"\n")
        assert e.result() == "3"
        faulty.over(e)


def test_a_lost_leader_without_its_mark(faulty):
    """It cleared its environment: it is found by its number, which is a child of envd's."""
    seconds = harness.unique_seconds()
    faulty.plan(seconds, fault="cut", at="data")
    e = faulty.mount.new()
    e.spec({"cmd": ["env", "-i", "/bin/sh", "-c", f"echo x; sleep {seconds} & sleep {seconds} & wait"]})
    assert e.result() == "lost stream_closed"
    faulty.over(e)
    assert not faulty.mount.target.processes(seconds)


# ---- kills ----

# The main thread ends, another one goes on: /proc shows a zombie.
HEARTBEAT = """
import ctypes, os, sys, threading, time
def beat():
    while True:
        os.utime(sys.argv[1])
        time.sleep(.02)
threading.Thread(target=beat).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_main_thread_has_ended(faulty, tmp_path):
    heart = tmp_path / "heart"
    heart.write_text("")
    begun = heart.stat().st_mtime_ns
    e = faulty.mount.new()
    e.spec({"cmd": ["/usr/bin/python3", "-c", HEARTBEAT, str(heart)]})
    wait_for(lambda: heart.stat().st_mtime_ns > begun + 500_000_000, "it to live for a while")
    assert e.status()["state"] == "running", "its end has not come"
    e.ctl("kill")
    assert e.result() == "killed"
    faulty.over(e)
    last = heart.stat().st_mtime_ns
    time.sleep(0.3)
    assert heart.stat().st_mtime_ns == last


# As if all were well, until it is to look into more than one.
ONE_FILE = 'case "$*" in *environ*environ* | *status*status*) {}; esac; exec /bin/grep "$@"'


@pytest.mark.parametrize("grep", ["exit 1", ONE_FILE.format("exit 2"), ONE_FILE.format("kill -9 $$")],
                         ids=["finds nothing", "fails", "is killed"])
def test_a_sandbox_that_cannot_be_looked_into(peer, faulty, tmp_path, grep):
    """Its grep finds nothing: that nothing was found is no word that nothing is there."""
    (tmp_path / "grep").write_text(f"#!/bin/sh\n{grep}\n")
    (tmp_path / "grep").chmod(0o755)
    peer.set(sandbox=faulty.id, envs={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    seconds = harness.unique_seconds()
    e = faulty.mount.new()
    e.spec({"cmd": ["sh", "-c", f"setsid sh -c 'echo up; exec sleep {seconds}' & wait"]})
    e.wait_size(3)
    e.ctl("kill")
    assert e.result() == "killed"
    wait_for(lambda: "needs grep" in (e.status()["error"] or ""), "the kill to say why it fails")
    assert e.status()["remote"] == "running" and faulty.mount.target.processes(seconds)
    peer.set(sandbox=faulty.id, envs={})
    faulty.over(e)
    assert not faulty.mount.target.processes(seconds)


def test_a_kill_whose_call_fails_is_tried_again(faulty):
    e, mark = faulty.start("echo hello; sleep 1000 & sleep 1000")
    e.wait_size(6)
    faulty.peer.plan(call="Start", match="k:", fault="reset", times=3)
    e.ctl("kill")
    assert e.result() == "killed"
    faulty.gone(mark)
    faulty.over(e)


def start_meanwhile(e, script, mark):
    """In a process of its own, whose pid it returns: the write of a spec waits for the answer."""
    pid = os.fork()
    if pid == 0:
        try:
            e.spec({"cmd": ["/bin/sh", "-c", script, mark]})
        finally:
            os._exit(0)
    return pid


def test_a_kill_before_the_answer_to_start(faulty):
    mark = unique()
    faulty.plan(mark, fault="stall", at="start")
    e = faulty.mount.new()
    pid = start_meanwhile(e, "sleep 1000", mark)
    wait_for(lambda: faulty.commands(mark), "the command to run, unknown to the daemon")
    e.ctl("kill")
    assert e.result() == "killed"
    faulty.gone(mark)
    harness.kill(pid)
    os.waitpid(pid, 0)
