"""Faults that users of other systems reported, each as its kind.

The reference says where each was seen: a thread in the issues of that project.
"""

import concurrent.futures
import errno
import hashlib
import os
import time

import pytest

from harness import SLOW, call, descendants, line_of, open_files, rss, unique, unique_seconds, wait_for
from test_kill import gone
from test_stdout import stays
from test_tree import raises


def numbers(last):
    return b"".join(b"%d\n" % i for i in range(1, last + 1))


def test_1_a_background_child_keeps_the_pipes(mount, job):
    """moby#33039, kubernetes#44371"""
    job.spec('{"cmd":["sh","-c","sleep 60 & echo hi"]}')
    began = time.monotonic()
    assert job.result() == "0"
    assert time.monotonic() - began < 10 * SLOW
    assert job.read("stdout") == b"hi\n"


@pytest.mark.needs("children")
def test_2_output_of_the_leader_is_complete_and_a_late_line_has_its_rule(mounted):
    """snailbook FAQ, golang#60309"""
    mount = mounted("drain_quiet=2", "drain_limit=10")
    script = "head -c 1048576 /dev/zero; (sleep .2; echo late) &"
    for _ in range(3):
        with mount.new() as e:
            e.spec(["sh", "-c", script])
            assert e.result() == "0"
            # The line is not always the last: the leader may be slower than it is late.
            lines = e.read("stdout").split(b"late\n")
            assert len(lines) == 2 and b"".join(lines) == bytes(1 << 20)
    mount = mounted("drain_quiet=0.05", "drain_limit=0.1")
    with mount.new() as e:
        e.spec(["sh", "-c", script.replace(".2", "3")])
        assert e.result() == "0"
        assert e.read("stdout") == bytes(1 << 20)


def test_3_output_waits_for_its_reader(mount, job):
    """docker/cli#4338, moby#49655"""
    job.spec(["seq", "1", "300000"])
    assert job.result() == "0"
    time.sleep(5)  # the case itself: the reader comes this late
    got = hashlib.sha256(job.read("stdout")).hexdigest()
    assert got == hashlib.sha256(numbers(300_000)).hexdigest()


@pytest.mark.deadline(240)
def test_4_and_17_sixteen_at_a_time_leave_nothing(mounted, target):
    """moby#27289, podman#9096; kubernetes#81042, containerd#4255"""
    mount = mounted()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:

        def run(times):
            done = list(pool.map(lambda _: mount.run(["echo", "ok"]), range(times)))
            assert done == [("0", b"ok\n", b"")] * times

        run(20)
        before = open_files(mount.pid)
        run(target.many)
    mount.check_settled()
    # Connections to the target may be kept and be more by now, but never one for each exec.
    most = before + target.many // 2
    wait_for(lambda: open_files(mount.pid) < most, "the descriptors to be closed")
    wait_for(lambda: "Z" not in descendants(mount.pid).values(), "the zombies to be reaped")


def test_6_a_program_that_is_not_there(mount):
    """docker/cli#2025"""
    result, out, err = mount.run('{"cmd":["nosuch"]}')
    assert (result, out) == ("127", b"")
    assert b"nosuch" in err


def test_7_255_is_the_commands_own(mount):
    """stackrox#20127"""
    assert mount.run('{"cmd":["sh","-c","exit 255"]}')[0] == "255"


def test_8_input_arrives_whole(mount, job):
    """kubernetes#89899, java#685"""
    job.spec('{"cmd":["wc","-c"]}')
    call(["sh", "-c", f"head -c 1000000 /dev/zero > {job / 'stdin'}"])
    assert job.read("stdout").strip() == b"1000000"
    assert job.result() == "0"


def test_9_no_input_is_the_end_of_input(mount, job):
    """openai/codex#20919, daytona#3770"""
    job.spec('{"cmd":["cat"],"stdin":"none"}')
    assert job.result() == "0"


def test_10_input_can_be_added_to(mount, job):
    """earendil-works/pi#2645"""
    job.spec('{"cmd":["cat"]}')
    with job.lines() as out:
        for word in ("a", "b"):
            call(["sh", "-c", f"echo {word} >> {job / 'stdin'}"])
            assert line_of(out) == word.encode() + b"\n"
    assert job.status()["state"] == "running"
    call(["sh", "-c", f"echo eof > {job / 'ctl'}"])
    assert job.result() == "0"


def test_11_rmdir_ends_the_process(mount):
    """moby#35703, kubernetes#89031"""
    e, seconds = mount.new(), unique_seconds()
    e.spec(["sleep", seconds])
    wait_for(lambda: mount.target.processes(seconds), "the command to run")
    os.rmdir(e)
    gone(mount, seconds)


def test_12_rmdir_ends_the_children(mount):
    """E2B#1034, infra#3617"""
    e, first, second = mount.new(), unique_seconds(), unique_seconds()
    e.spec(["sh", "-c", f"sleep {first} & sleep {second} & wait"])
    wait_for(lambda: mount.target.processes(second), "the command to run")
    os.rmdir(e)
    gone(mount, first)
    gone(mount, second)


def test_13_rmdir_ends_what_does_not_want_to(mount):
    """raxol#895, elixir#9171"""
    e, mark = mount.new(), unique()
    e.spec(["sh", "-c", "trap '' TERM HUP; echo up; while :; do :; done", mark])
    e.wait_up().close()
    os.rmdir(e)
    gone(mount, mark)


def test_14_a_signal_can_be_answered(mount, job):
    """docker/cli#2607, daytona#2748"""
    job.spec(["sh", "-c", 'trap "echo got; exit 7" INT; echo up; while :; do sleep .1; done'])
    job.wait_up().close()
    call(["sh", "-c", f"echo signal INT > {job / 'ctl'}"])
    assert job.read("stdout") == b"up\ngot\n"
    assert job.result() == "7"


def test_15_env_values_are_exact(mount):
    """moby#12997, docker/cli#3446"""
    value = "1\n2'\"$x"
    out = mount.run({"cmd": ["env", "-0"], "env": {"A": value, "B": ""}})[1].split(b"\0")
    assert f"A={value}".encode() in out
    assert b"B=" in out


def test_16_a_cwd_that_is_missing(mount, job):
    """openwrt/docker#127"""
    with raises(errno.ENOENT):
        job.spec('{"cmd":["pwd"],"cwd":"/no/such"}')
    assert "/no/such" in job.status()["error"]
    assert job.result().startswith("failed")


def test_18_unread_output_is_bounded(mount, target, job):
    """moby#14460, coreos/bugs#908"""
    job.spec(["yes"])
    stays(job)
    if target.name == "local" and SLOW == 1:
        assert rss(mount.pid) < 64 << 20
    began = time.monotonic()
    assert mount.run(["echo", "unaffected"]) == ("0", b"unaffected\n", b"")
    assert time.monotonic() - began < 5 * SLOW
    began = time.monotonic()
    os.rmdir(job)
    assert time.monotonic() - began < 2 * SLOW


def test_19_a_secret_is_shown_nowhere(mount, job):
    """benchpress#199, E2B List"""
    secret = unique("secret")
    # The command itself has it in its environment, and takes it out of there at once.
    job.spec({"cmd": ["sh", "-c", "unset A; echo up; exec sleep 1000"], "env": {"A": secret}})
    job.wait_up().close()
    shown = [job / "spec", job / "status"]
    shown += [p for p in (mount.path / ".spawnfs").iterdir() if p.name != "events"]
    for path in shown:
        assert secret not in path.read_text(), path
    assert secret not in mount.stderr()
    assert secret.encode() not in call(["ps", "axww", "-o", "args"])


def test_20_a_character_in_two_pieces_stays_whole(mount):
    """E2B#505, opencode#15385"""
    script = r"printf '\342'; sleep .1; printf '\200\224'"
    assert mount.run(["sh", "-c", script])[1] == b"\xe2\x80\x94"


# 5 and 21, a transport that is cut: tests/test_NAME_*.py of each target that has a transport.
# 22, a command that is silent for three minutes: test_silent.py.
