"""Answers that are not what was asked for: each call believes only what it was truly told."""

import errno
import os
import subprocess

import pytest

import e2b_peer
import harness
from harness import Mount, unique, wait_for
from targets import Target
from test_e2b_faults import HTML, faulty, is_kept_while_paused  # noqa: F401: a fixture

pytestmark = pytest.mark.waits

PAGE = {"fault": "answer", "status": 200, "body": HTML, "headers": {"content-type": "text/html"}}


# ---- Start ----

# envd: "start event channel closed before sending start event" is `unknown`, and the command runs.
NO_WORD = ["unknown", "internal", "canceled", "deadline_exceeded", "unavailable", "aborted",
           "data_loss", "of_the_future", None]  # fmt: skip
REFUSALS = ["invalid_argument", "unauthenticated", "permission_denied", "not_found",
            "resource_exhausted", "unimplemented", "failed_precondition", "out_of_range",
            "already_exists"]  # fmt: skip


def trailer(code):
    text = f'"code":"{code}",' if code else ""
    return {"flags": 2, "payload": f'{{"error":{{{text}"message":"so it says"}}}}', "last": True}


@pytest.mark.parametrize("code", NO_WORD)
def test_a_trailer_that_does_not_say_that_nothing_ran(faulty, code):
    """In place of the first event; the command runs all the same."""
    e, mark = faulty.start("echo x; sleep 1000", fault="replace", at="start", **trailer(code))
    assert e.result() == "lost stream_closed"
    assert "so it says" in e.status()["error"]
    faulty.gone(mark)
    faulty.over(e)


@pytest.mark.parametrize("code", REFUSALS)
def test_a_trailer_that_refuses(faulty, code):
    mark = unique()
    faulty.plan(mark, fault="replace", at="start", **trailer(code))
    with faulty.mount.new() as e:
        with pytest.raises(OSError):
            e.spec({"cmd": ["echo", mark]})
        assert e.result().startswith("failed E")
        assert "so it says" in e.status()["error"]


@pytest.mark.parametrize("status", [202, 204, 408])
def test_a_status_that_does_not_say_that_nothing_ran(faulty, status):
    """408 is what Envoy says of a request that it has passed on, when the answer does not come."""
    e, mark = faulty.start("sleep 1000", fault="answer", run=True, status=status, body="")
    assert e.result() == "lost stream_closed"
    assert f"HTTP {status}" in e.status()["error"]
    faulty.gone(mark)
    faulty.over(e)


@pytest.mark.parametrize("json", [False, True], ids=["proto", "json"])
def test_output_before_the_first_event_is_not_dropped_in_silence(faulty, json):
    faulty.use_json(json)
    e, mark = faulty.start(
        "echo x; sleep 1000", fault="prepend", at="start", event={"data": {"stdout": "bG9zdA=="}}
    )
    assert e.result() == "lost stream_closed"
    faulty.gone(mark)
    faulty.over(e)


@pytest.mark.parametrize("json", [False, True], ids=["proto", "json"])
def test_an_end_without_a_beginning(faulty, json):
    faulty.use_json(json)
    e, mark = faulty.start("echo x; exit 0", fault="drop", at="start")
    assert e.result() == "lost stream_closed"
    assert e.read("stdout") == b""
    faulty.over(e)


# ---- input ----


@pytest.mark.parametrize("json", [False, True], ids=["proto", "json"])
def test_a_page_is_no_word_that_input_arrived(faulty, json):
    faulty.use_json(json)
    faulty.peer.plan(call="SendInput", **PAGE)
    with faulty.mount.new() as e:
        e.spec({"cmd": ["cat"]})
        e.append("stdin", b"x\n")
        wait_for(lambda: "text/html" in (e.status()["error"] or ""), "the page to be told")
        with pytest.raises(OSError) as caught:
            e.append("stdin", b"y\n")
        assert caught.value.errno == errno.EIO
        e.ctl("eof")
        assert e.status()["state"] == "running", "what may have lost input sees no end of it"


@pytest.mark.parametrize("json", [False, True], ids=["proto", "json"])
def test_a_page_is_no_word_that_input_ended(faulty, json):
    faulty.use_json(json)
    faulty.peer.plan(call="CloseStdin", times=2, **PAGE)
    assert faulty.mount.run({"cmd": ["cat"]}, b"x\n") == ("0", b"x\n", b"")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 502, 503, 504])
def test_a_refusal_of_input_ends_it_but_not_the_command(faulty, status):
    """What arrived is not known, so no more is sent, and what is cut is not told as whole."""
    faulty.peer.plan(call="SendInput", fault="answer", status=status, body="so it says")
    with faulty.mount.new() as e:
        e.spec({"cmd": ["sh", "-c", "cat; echo end"]})
        e.write("stdin", b"x\n")  # its close is the end of input
        wait_for(lambda: f"HTTP {status}" in (e.status()["error"] or ""), "the refusal to be told")
        with pytest.raises(OSError) as caught:
            e.append("stdin", b"y\n")
        assert caught.value.errno == errno.EIO
        assert faulty.peer.calls("CloseStdin") == 0
        assert e.status()["state"] == "running" and e.size() == 0


@pytest.mark.parametrize("status", [401, 404, 500, 502, 503])
def test_a_refusal_to_end_input_is_met_again(faulty, status):
    faulty.peer.plan(call="CloseStdin", times=2, fault="answer", status=status, body="so it says")
    assert faulty.mount.run({"cmd": ["cat"]}, b"x\n") == ("0", b"x\n", b"")
    assert faulty.peer.calls("CloseStdin") == 3


# ---- the control plane, at the mount ----


def refused(peer, tmp_path, address):
    done = subprocess.run(
        [harness.SPAWNFS, "-f", address, tmp_path],
        env={**os.environ, **peer.env},
        capture_output=True,
        text=True,
        timeout=30 * harness.SLOW,
        check=False,
    )
    assert done.returncode > 0
    assert e2b_peer.KEY not in done.stderr and "<" not in done.stderr
    return done.stderr


BODIES = ({"code": 1, "message": "so it says"}, "so it says", HTML)


@pytest.mark.parametrize("call", ["POST /sandboxes", "POST /sandboxes/ID/connect"])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429, 500, 502, 503, 504])
def test_a_refusal_of_the_control_plane(peer, tmp_path, call, status):
    address = "e2b:new" if call == "POST /sandboxes" else f"e2b:{peer.create()['sandboxID']}"
    for body in BODIES:
        peer.plan(call=call, fault="answer", status=status, body=body, headers={"retry-after": "7"})
        said = refused(peer, tmp_path, address)
        assert f"HTTP {status}" in said and "7 s" in said
        assert body == HTML or "so it says" in said
    peer.reset()


@pytest.mark.parametrize("call", ["POST /sandboxes", "POST /sandboxes/ID/connect"])
@pytest.mark.parametrize("answer", [HTML, "", "[]", "{", {"sandboxID": 1}], ids=range(5))
def test_an_answer_of_the_control_plane_that_says_nothing(peer, tmp_path, call, answer):
    address = "e2b:new" if call == "POST /sandboxes" else f"e2b:{peer.create()['sandboxID']}"
    if call != "POST /sandboxes" and isinstance(answer, dict):
        answer = "null"
    peer.plan(call=call, fault="answer", status=200, body=answer)
    assert "e2b: " in refused(peer, tmp_path, address)
    peer.reset()


@pytest.mark.parametrize("fault", ["reset", "close"])
@pytest.mark.parametrize("call", ["POST /sandboxes", "POST /sandboxes/ID/connect"])
def test_a_lost_answer_of_the_control_plane(peer, tmp_path, call, fault):
    address = "e2b:new" if call == "POST /sandboxes" else f"e2b:{peer.create()['sandboxID']}"
    peer.plan(call=call, fault=fault)
    assert peer.url in refused(peer, tmp_path, address)
    assert peer.calls(call) == 1, "nothing is made twice on a guess"
    peer.reset()


# ---- the sandbox's fate ----


@pytest.mark.parametrize("body", [HTML, "404 page not found", {"error": "no route"}])
def test_a_page_is_no_word_that_the_sandbox_is_gone(faulty, body):
    """Only the control plane's own 404 is; a command that is paused will go on some day."""
    e, mark = faulty.start("echo hello; sleep 1000")
    e.wait_size(6)
    faulty.peer.plan(call="GET /sandboxes/ID", times=1000, fault="answer", status=404, body=body)
    is_kept_while_paused(faulty, e, mark)


# ---- what a server says is shown, but does nothing to the one who reads it ----


def test_a_page_is_no_word_that_the_sandbox_was_deleted(peer, tmp_path):
    """It may go on, and cost money: that is said."""
    before = {s["id"] for s in peer.state()["sandboxes"]}
    there = Target(address="e2b:new?timeout=60", env=peer.env, noise=["not deleted"], name="e2b")
    with Mount(there, tmp_path / "m") as mount:
        (id,) = {s["id"] for s in peer.state()["sandboxes"]} - before
        peer.plan(call="DELETE /sandboxes/ID", fault="answer", status=404, body=HTML)
    assert f"sandbox {id} was not deleted" in mount.stderr()
    peer.reset()


def test_a_message_with_control_characters(peer, target, tmp_path):
    id = peer.create()["sandboxID"]
    message = "one\nspawnfs: error: made up\r\x1b[2J\x07 two"
    answer = {"fault": "answer", "status": 500, "body": {"code": 500, "message": message}}
    peer.plan(call="POST /sandboxes/ID/timeout", times=99, **answer)
    there = Target(address=f"e2b:{id}", env=peer.env, options=["ttl=100"], noise=["kept alive"], name="e2b")
    with Mount(there, tmp_path / "m") as mount:
        wait_for(lambda: "kept alive" in mount.stderr(), "the renewal to fail")
        told = (tmp_path / "m.stderr").read_bytes()
        assert b"one" in told and b"two" in told
        assert all(32 <= byte < 127 or byte == 10 for byte in told)
    peer.reset()
