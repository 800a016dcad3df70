"""Input on its way to a sandbox: in order, one call at a time, and nothing is sent twice on a guess."""

import errno
import os
import time

import pytest

import harness
from harness import unique, wait_for
from test_e2b_faults import faulty, start_meanwhile  # noqa: F401: a fixture

LIMIT = {"code": 429, "message": "Rate limit exceeded"}


def seen(faulty, e):
    """What the peer knows of the input of a command."""
    pid = e.status()["pid"]
    return next(c for c in faulty.peer.sandbox(faulty.id)["commands"] if c["pid"] == pid)


def test_input_is_put_together_while_a_call_is_under_way(faulty):
    faulty.peer.set(delays={"SendInput": 300})
    with faulty.mount.new() as e:
        e.spec({"cmd": ["cat"]})
        for i in range(500):
            e.append("stdin", b"%d\n" % i)
        wanted = b"".join(b"%d\n" % i for i in range(500))
        e.wait_size(len(wanted))
        at_peer = seen(faulty, e)
        assert at_peer["inputs"] <= 20 and at_peer["inputPeak"] == 1
        e.ctl("eof")
        assert e.result() == "0" and e.read("stdout") == wanted


def test_chunks_are_at_most_64_kib_and_one_at_a_time(faulty):
    with faulty.mount.new() as e:
        e.spec({"cmd": ["sh", "-c", "cat; sleep 1000"]})
        data = os.urandom(3_000_000)
        e.append("stdin", data)
        e.ctl("eof")
        e.wait_size(len(data))
        at_peer = seen(faulty, e)
        assert at_peer["inputLargest"] == 64 << 10 and at_peer["inputPeak"] == 1
        with open(e / "stdout", "rb") as f:
            assert f.read(len(data)) == data


def test_input_before_the_start_is_answered(faulty):
    """It waits for the number of the command, which the answer tells."""
    mark = unique()
    faulty.plan(mark, wait=2000)
    e = faulty.mount.new()
    pid = start_meanwhile(e, "cat", mark)
    wait_for(lambda: e.status()["state"] == "starting", "the start to be under way")
    e.write("stdin", b"early\n")
    os.waitpid(pid, 0)
    assert e.result() == "0" and e.read("stdout") == b"early\n"


def test_an_uncertain_input_is_not_repeated(faulty):
    with faulty.mount.new() as e:
        e.spec({"cmd": ["cat"]})
        e.append("stdin", b"first\n")
        e.wait_size(6)
        faulty.peer.plan(call="SendInput", fault="reset", run=True)
        with pytest.raises(OSError) as caught:
            for _ in range(1000):
                e.append("stdin", b"second\n")
                time.sleep(0.01)
        assert caught.value.errno == errno.EIO
        fd = os.open(e / "stdout", os.O_RDONLY | os.O_NONBLOCK)
        assert os.read(fd, 1 << 16).count(b"second\n") <= 1
        os.close(fd)
        assert e.status()["state"] == "running"
        e.ctl("kill")
        assert e.result() == "killed"


def test_a_slow_answer_to_input_is_no_error(faulty):
    faulty.peer.set(delays={"SendInput": 3000})
    assert faulty.mount.run({"cmd": ["cat"]}, b"slow\n") == ("0", b"slow\n", b"")


def test_closing_input_is_tried_again(faulty):
    faulty.peer.plan(call="CloseStdin", fault="reset", times=2)
    assert faulty.mount.run({"cmd": ["cat"]}, b"x\n") == ("0", b"x\n", b"")


def test_a_sandbox_too_old_to_close_input(peer, faulty, tmp_path):
    peer.set(sandbox=faulty.id, version="0.5.1")
    with harness.Mount(faulty.mount.target, tmp_path / "old") as mount, mount.new() as e:
        e.spec({"cmd": ["cat"]})
        e.append("stdin", b"x\n")
        e.wait_size(2)
        e.ctl("eof")
        wait_for(lambda: "0.5.1" in (e.status()["error"] or ""), "the refusal of the end of input")
        assert e.status()["state"] == "running"


@pytest.mark.parametrize("status", [429, 409])
@pytest.mark.parametrize("call", ["SendInput", "CloseStdin"])
def test_what_was_put_off_is_sent_when_the_time_has_come(faulty, call, status):
    """Somebody before envd refused it, so it has not arrived: it is sent again, not before."""
    faulty.peer.plan(
        call=call, fault="answer", times=2, status=status, body=LIMIT, headers={"retry-after": "1"}
    )
    since = time.monotonic()
    assert faulty.mount.run({"cmd": ["cat"]}, b"x\n" * 100_000) == ("0", b"x\n" * 100_000, b"")
    assert time.monotonic() - since >= 2
    assert faulty.peer.state()["spoiled"] == 2


def test_a_limit_of_envds_own_is_not_taken_for_a_proxys(faulty):
    """With a code of its own it may come from behind the pipe."""
    answer = {"code": "resource_exhausted", "message": "too much"}
    faulty.peer.plan(call="SendInput", fault="answer", status=429, body=answer)
    with faulty.mount.new() as e:
        e.spec({"cmd": ["cat"]})
        e.append("stdin", b"x\n")
        wait_for(lambda: "too much" in (e.status()["error"] or ""), "the refusal to be told")
        with pytest.raises(OSError) as caught:
            e.append("stdin", b"x\n")
        assert caught.value.errno == errno.EIO


def test_a_kill_while_input_is_put_off(faulty):
    faulty.peer.plan(
        call="SendInput", fault="answer", times=9, status=429, body=LIMIT, headers={"retry-after": "60"}
    )
    e = faulty.mount.new()
    e.spec({"cmd": ["cat"]})
    e.append("stdin", b"x\n")
    wait_for(lambda: faulty.peer.state()["spoiled"] == 1, "the refusal")
    e.ctl("kill")
    assert e.result() == "killed" and e.read("stdout") == b""
    faulty.over(e)
