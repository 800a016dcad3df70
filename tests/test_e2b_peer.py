"""The test envd is a fair stand-in: the real SDK drives it, and it has the ways of a real one.

What a real envd 0.6.13 does was observed on the wire; each test here is one such observation.
"""

import concurrent.futures
import os
import re
import time

import pytest

import connect_client
import e2b_peer
import harness
from connect_client import Envd, Result


@pytest.fixture
def envd(peer):
    sandbox = peer.create()
    yield Envd(peer, sandbox)
    peer.reset()
    peer.api("DELETE", f"/sandboxes/{sandbox['sandboxID']}")


CHECKS = re.findall(r"^\t(\w+): .*=>", (e2b_peer.FOLDER / "sdk.mjs").read_text(), re.MULTILINE)


@pytest.mark.parametrize("check", CHECKS)
def test_the_real_sdk(peer, check):
    if check == "refused":
        answer = {"code": 429, "message": "Rate limit exceeded"}
        peer.plan(
            call="POST /v2/sandboxes",
            skip=1,
            times=4,
            **{"fault": "answer", "status": 429, "body": answer, "headers": {"retry-after": "1"}},
        )
    harness.call([e2b_peer.NODE, e2b_peer.FOLDER / "sdk.mjs", check], env={**os.environ, **peer.env})


def command(envd, pid):
    """What the peer knows of a running command."""
    return next(c for c in envd.peer.sandbox(envd.id)["commands"] if c["pid"] == pid)


# ---- starting ----


def test_argv_is_exact_and_the_pid_is_the_command(envd):
    result = envd.run("/bin/sh", "-c", 'echo $$; printf "<%s>" "$@"', "sh", "a b", "", "$x'\"")
    pid, text = result.output["stdout"].split(b"\n")
    assert text == b"<a b><><$x'\">"
    stream = envd.start("/bin/sh", "-c", "echo $$")
    assert stream.next()[1]["pid"] == int(Result(stream).output["stdout"])


def test_events_of_exit_zero(envd):
    """Text compared as JSON: exitCode 0 and an empty error are absent."""
    stream = envd.start("true")
    assert stream.status == 200
    assert stream.response.getheader("content-type") == "application/connect+json"
    assert list(stream)[1:] == [("end", {"exited": True, "status": "exit status 0"})]
    assert stream.trailer == {}


@pytest.mark.parametrize(
    "argv, code, text",
    [
        (["no-such-command"], 127, b"nice: "),
        (["/etc/passwd"], 126, b"nice: "),
        (["-c"], 125, b"invalid option"),
    ],
)
def test_a_command_that_cannot_run_is_an_exit_status(envd, argv, code, text):
    result = envd.run(*argv)
    assert result.names[0] == "start" and result.end["exitCode"] == code
    assert text in result.output["stderr"] and result.output["stdout"] == b""


def test_end_of_a_failure(envd):
    expected = {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}
    assert envd.shell("exit 3").end == expected


@pytest.mark.parametrize("name, text", [("SEGV", "segmentation fault"), ("KILL", "killed")])
def test_end_by_a_signal_of_its_own(envd, name, text):
    end = envd.shell(f"ulimit -c 0; kill -{name} $$").end
    assert end == {"exitCode": -1, "status": f"signal: {text}", "error": f"signal: {text}"}


def test_refusals_of_a_start_come_as_a_trailer(envd):
    missing = envd.start("true", config={"cwd": "/no/such"})
    assert missing.status == 200 and missing.code() == "invalid_argument"
    basic = {"Authorization": "Basic bm8tc3VjaC11c2VyOg=="}  # no-such-user:
    assert envd.start("true", headers=basic).code() == "unauthenticated"


def test_a_user_whose_home_is_missing_needs_a_cwd(envd):
    nobody = {"Authorization": "Basic bm9ib2R5Og=="}  # nobody:
    assert envd.start("true", headers=nobody).code() == "invalid_argument"
    result = envd.run("id", "-un", headers=nobody, config={"cwd": "/"})
    assert result.output["stdout"] == b"nobody\n"


def test_environment(envd):
    result = envd.run("env", "-0", config={"envs": {"A": "1\n2", "HOME": "/h", "E": ""}})
    found = dict(v.split("=", 1) for v in result.output["stdout"].decode().split("\0")[:-1])
    assert found["A"] == "1\n2" and found["E"] == "" and found["HOME"] == "/h"
    assert found["USER"] == found["LOGNAME"] == "root" and found["E2B_SANDBOX_ID"] == envd.id
    assert not {"TERM", "LANG", "SHELL", "E2B_API_KEY"} & set(found)


def test_a_home_of_its_own(peer, envd):
    """A login shell in the peer depends on nothing that the machine's users have."""
    said = envd.run("/bin/bash", "-l", "-c", "cd ~; pwd", config={"cwd": "/"}).output["stdout"]
    assert said.decode() == peer.home + "\n"
    assert envd.shell("pwd").output["stdout"] == said


def test_all_commands_share_a_group_unless_setsid(envd):
    group = b"ps -o pgid= -p $$ | tr -d ' '"
    first, second = (envd.shell(group.decode()).output["stdout"] for _ in range(2))
    assert first == second
    stream = envd.start("/usr/bin/setsid", "/bin/sh", "-c", group.decode())
    pid = stream.next()[1]["pid"]
    assert int(Result(stream).output["stdout"]) == pid


# ---- stdin ----


def test_input_arrives_and_ends(envd):
    pid, stream = envd.begin("cat", stdin=True)
    assert envd.send(pid, b"one ") == (200, {})
    assert envd.send(pid, b"two") == (200, {})
    assert envd.on("CloseStdin", pid) == (200, {})
    assert Result(stream).output["stdout"] == b"one two"


def test_a_large_input_is_taken_whole_by_a_reader(envd):
    pid, stream = envd.begin("wc", "-c")
    assert envd.send(pid, bytes(5_000_000)) == (200, {})
    envd.on("CloseStdin", pid)
    assert Result(stream).output["stdout"] == b"5000000\n"


def test_without_stdin(envd):
    pid, stream = envd.begin("sleep", "86399", stdin=False)
    status, error = envd.send(pid, b"x")
    assert (status, error["code"]) == (500, "internal")
    assert "stdin not enabled or closed" in error["message"]
    assert envd.on("CloseStdin", pid) == (200, {})
    stream.close()


def test_input_after_the_command_closed_its_own(envd):
    pid, stream = envd.begin("/bin/sh", "-c", "exec <&-; echo closed; exec sleep 86399")
    assert stream.next()[0] == "data"
    status, error = envd.send(pid, b"x")
    assert (status, error["code"]) == (500, "internal") and error["message"].endswith("broken pipe")
    stream.close()


def test_a_full_pipe_blocks_input_and_its_end_but_no_signal(envd):
    pid, stream = envd.begin("sleep", "86399")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        sent = pool.submit(envd.send, pid, bytes(200_000))
        harness.wait_for(lambda: command(envd, pid)["inputCalls"] == 1, "the write to begin")
        closed = pool.submit(envd.on, "CloseStdin", pid)
        done, _ = concurrent.futures.wait([sent, closed], timeout=0.5)
        assert not done
        assert envd.on("SendSignal", pid, signal="SIGNAL_SIGKILL") == (200, {})
        assert sent.result()[0] == 500
        closed.result()
    assert Result(stream).end["exitCode"] == -1


def test_calls_that_ask_for_nothing_known(envd):
    pid, stream = envd.begin("sleep", "86399")
    assert envd.call("SendInput", {"process": {"pid": pid}})[0] == 501
    assert envd.on("SendSignal", pid, signal="SIGNAL_SIGINT")[0] == 501
    assert envd.on("SendSignal", pid, signal=2)[0] == 501
    stream.close()


def test_stream_input(envd):
    pid, stream = envd.begin("cat")
    messages = [
        {"start": {"process": {"pid": pid}}},
        {"data": {"input": {"stdin": "b25lIA=="}}},
        {"keepalive": {}},
        {"data": {"input": {"stdin": "dHdv"}}},
    ]
    answer = envd.stream("StreamInput", *messages)
    assert answer.envelope() == (connect_client.MESSAGE, b"{}")
    assert answer.envelope() == (connect_client.END_OF_STREAM, b"{}")
    envd.on("CloseStdin", pid)
    assert Result(stream).output["stdout"] == b"one two"


def test_a_sandbox_too_old_to_close_stdin(peer, envd):
    peer.set(sandbox=envd.id, version="0.5.1")
    pid, stream = envd.begin("cat")
    connection, response = envd.http(
        "POST", "/process.Process/CloseStdin", b"{}", content_type="application/json"
    )
    assert response.status == 404
    connection.close()
    stream.close()


# ---- output ----


def test_chunks_are_at_most_32_kib_and_nothing_is_lost(envd):
    result = envd.run("head", "-c", "1000000", "/dev/zero")
    assert result.output["stdout"] == bytes(1_000_000)
    assert max(result.sizes) <= 32 << 10


def test_output_that_nobody_hears_is_thrown_away(envd):
    pid, stream = envd.begin("/bin/sh", "-c", "echo early; read x; echo late; exit 4")
    assert stream.next()[0] == "data"
    stream.close()
    harness.wait_for(lambda: command(envd, pid)["listeners"] == 0, "the listener to go")
    again = envd.stream("Connect", {"process": {"pid": pid}})
    assert again.next() == ("start", {"pid": pid})
    envd.send(pid, b"\n")
    result = Result(again)
    assert result.output["stdout"] == b"late\n" and result.end["exitCode"] == 4


def test_a_listener_that_does_not_read_holds_the_command_back(envd):
    script = "head -c 50000000 /dev/zero; echo done >&2"
    slow = envd.start("/bin/sh", "-c", script)
    pid = slow.next()[1]["pid"]
    time.sleep(0.7)  # what must not happen has no event
    other = envd.stream("Connect", {"process": {"pid": pid}})
    assert other.next()[0] == "start"
    assert [c["pid"] for c in envd.list()] == [pid]
    other.close()
    assert len(Result(slow).output["stdout"]) == 50_000_000


def test_a_listener_that_does_not_read_holds_the_others_back(envd):
    slow = envd.start("/bin/sh", "-c", "read x; exec head -c 50000000 /dev/zero")
    pid = slow.next()[1]["pid"]
    other = envd.stream("Connect", {"process": {"pid": pid}})
    assert other.next()[0] == "start"
    envd.send(pid, b"\n")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        result = pool.submit(Result, other)
        done, _ = concurrent.futures.wait([result], timeout=1)
        assert not done
        assert len(Result(slow).output["stdout"]) == 50_000_000
        assert len(result.result().output["stdout"]) == 50_000_000


def test_keepalives_fill_the_quiet_until_both_streams_are_closed(envd):
    header = {"Keepalive_Ping_Interval": "1"}
    assert envd.run("sleep", "1.5", headers=header).names == ["start", "keepalive", "end"]
    closed = envd.shell("exec >&- 2>&-; exec sleep 1.5", headers=header)
    assert closed.names == ["start", "end"]


# ---- the end ----


def test_a_background_child_delays_the_end(envd):
    before = time.monotonic()
    pid, stream = envd.begin("/bin/sh", "-c", "sleep 1 & exit 7")
    harness.wait_for(lambda: state_of(envd, pid) == b"Z", "the leader to be a zombie")
    assert [c["pid"] for c in envd.list()] == [pid]
    assert Result(stream).end["exitCode"] == 7
    assert time.monotonic() - before > 0.9
    assert envd.list() == []


def state_of(envd, pid):
    found = envd.shell(f"ps -o stat= -p {pid}").output["stdout"]
    return found[:1]


def test_a_kill_of_the_zombie_leader_gives_its_true_exit_code(envd):
    pid, stream = envd.begin("/bin/sh", "-c", "sleep 86399.25 & exit 7")
    harness.wait_for(lambda: state_of(envd, pid) == b"Z", "the leader to be a zombie")
    assert envd.on("SendSignal", pid, signal="SIGNAL_SIGKILL") == (200, {})
    assert Result(stream).end["exitCode"] == 7


def test_signals_reach_the_leader_only(peer, envd):
    pid, stream = envd.begin("/bin/sh", "-c", "sleep 86399.125 & sleep 86399.125; :")
    harness.wait_for(lambda: len(peer.sandbox(envd.id)["processes"]) == 3, "three processes")
    envd.on("SendSignal", pid, signal="SIGNAL_SIGKILL")
    end = {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}
    assert Result(stream).end == end
    assert len(peer.sandbox(envd.id)["processes"]) == 2


def test_sigterm_may_cost_the_tail(peer, envd):
    """On a real one in some runs; with cutTail in every run."""
    script = 'trap "echo tail; exit 0" TERM; echo ready; while :; do sleep .05; done'
    tails = []
    for cut in (False, True):
        peer.set(sandbox=envd.id, cutTail=cut)
        pid, stream = envd.begin("/bin/sh", "-c", script)
        assert stream.next()[0] == "data"
        envd.on("SendSignal", pid, signal="SIGNAL_SIGTERM")
        result = Result(stream)
        assert result.end["exited"] is True and "exitCode" not in result.end
        tails.append(result.output["stdout"])
    assert tails[1] == b""


def test_the_deadline_kills_and_ends_the_stream_without_an_end_event(envd):
    pid, stream = envd.begin("sleep", "86399", headers={"Connect_Timeout_Ms": "300"})
    assert list(stream) == []
    assert stream.trailer["error"]["code"] == "deadline_exceeded"
    harness.wait_for(lambda: envd.list() == [], "the command to be killed")
    kept = Result(envd.stream("Connect", {"process": {"pid": pid}}))
    assert kept.names == ["start", "end"] and kept.end["exitCode"] == -1


def test_the_deadline_kills_though_nobody_listens(envd):
    pid, stream = envd.begin("sleep", "86399", headers={"Connect_Timeout_Ms": "1000"})
    stream.close()
    harness.wait_for(lambda: command(envd, pid)["listeners"] == 0, "the listener to go")
    assert [c["pid"] for c in envd.list()] == [pid]
    harness.wait_for(lambda: envd.list() == [], "the command to be killed")


def test_a_deadline_of_zero_leaves_the_command_running(envd):
    stream = envd.start("sleep", "86399", headers={"Connect_Timeout_Ms": "0"})
    assert stream.code() == "deadline_exceeded"
    assert len(envd.list()) == 1


def test_a_deadline_of_eleven_digits_starts_nothing(envd):
    stream = envd.start("sleep", "86399", headers={"Connect_Timeout_Ms": "12345678901"})
    assert stream.code() == "invalid_argument"
    assert envd.list() == []


def test_the_end_is_kept_for_a_while(peer, envd):
    peer.set(sandbox=envd.id, retainMs=500)
    stream = envd.start("/bin/sh", "-c", "echo x; exit 6")
    pid = stream.next()[1]["pid"]
    assert Result(stream).end["exitCode"] == 6
    kept = Result(envd.stream("Connect", {"process": {"pid": pid}}))
    assert kept.names == ["start", "end"] and kept.end["exitCode"] == 6
    for call in ("SendInput", "SendSignal", "CloseStdin"):
        status, error = envd.on(call, pid)
        assert (status, error["code"]) == (404, "not_found")

    def forgotten():
        stream = envd.stream("Connect", {"process": {"pid": pid}})
        return list(stream) == [] and stream.trailer["error"]["code"] == "not_found"

    harness.wait_for(forgotten, "the end to be forgotten")


def test_list_tells_config_and_tag_and_a_tag_selects_only_when_alone(envd):
    config = {"envs": {"A": "b"}, "cwd": "/tmp"}
    pid, first = envd.begin("sleep", "86399", tag="t1", config=config)
    assert envd.list() == [
        {"config": {"cmd": "sleep", "args": ["86399"], **config}, "pid": pid, "tag": "t1"}
    ]
    by_tag = {"process": {"tag": "t1"}}
    assert envd.stream("Connect", by_tag).next() == ("start", {"pid": pid})
    _, second = envd.begin("sleep", "86399", tag="t2")
    assert envd.stream("Connect", by_tag).code() == "not_found"
    first.close()
    second.close()
