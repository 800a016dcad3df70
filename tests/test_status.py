"""status: JSON, never blocking, true at each moment."""

import datetime
import json
import os
import threading
import time

from harness import unique, unique_seconds, wait_for

STREAM_KEYS = {"first", "next"}


def test_of_a_new_exec(mount, job):
    status = job.status()
    assert status["state"] == "new"
    for key in ("result", "code", "signal", "error", "started", "ended"):
        assert status[key] is None, key
    assert not status["pid"]
    assert status["target"] == mount.target.address


def test_keys(mount, job):
    job.spec(["cat"])
    status = job.status()
    assert {
        "state", "result", "code", "signal", "error", "pid", "target", "started", "ended",
        "stdin", "stdout", "stderr", "remote",
    } <= set(status)
    for stream in ("stdout", "stderr"):
        assert STREAM_KEYS <= set(status[stream])


def test_of_a_running_command(mount, target, job):
    before = time.time()
    job.spec(["cat"])
    job.wait_state("running")
    status = job.status()
    assert status["remote"] == "running"
    assert status["result"] is None and status["ended"] is None
    if target.can("pid"):
        assert isinstance(status["pid"], int) and status["pid"] > 1
    started = datetime.datetime.fromisoformat(status["started"].replace("Z", "+00:00"))
    assert before - 5 < started.timestamp() < time.time() + 5


def test_the_pid_is_the_commands(mount, target, job):
    job.spec(["sh", "-c", "echo $$; exec sleep 1000"])
    with job.lines() as out:
        pid = int(out.read(100))
    if target.can("pid"):
        assert job.status()["pid"] == pid


def test_of_a_finished_command(mount, job):
    job.spec(["sh", "-c", "echo out; echo error >&2; exit 3"])
    assert job.result() == "3"
    status = job.status()
    assert (status["state"], status["result"], status["code"]) == ("done", "3", 3)
    assert status["signal"] is None and status["error"] is None
    assert status["stdout"]["first"] == 0 and status["stdout"]["next"] == 4
    assert status["stderr"]["next"] == 6
    assert status["ended"] >= status["started"]
    wait_for(lambda: job.status()["remote"] == "gone", "remote: gone")


def test_of_a_signal(mount, target, job):
    job.spec(["sh", "-c", "kill -s SEGV $$"])
    job.result()
    status = job.status()
    if target.can("signal-result"):
        assert (status["result"], status["signal"], status["code"]) == ("signal SEGV", "SEGV", None)


def test_of_a_kill(mount, job):
    job.spec(["sleep", unique_seconds()])
    job.ctl("kill")
    assert job.result() == "killed"
    assert job.status()["result"] == "killed"
    assert job.status()["code"] is None


def test_bytes_of_each_stream(mount, job):
    job.spec(["cat"])
    job.append("stdin", b"x" * 1000)
    job.wait_size(1000)
    status = job.status()
    assert status["stdout"]["next"] == 1000
    assert status["stdin"]["next"] == 1000


def test_it_agrees_with_exit_and_size_at_every_moment(mount, job):
    """`done` in status means that exit does not block; the sizes never go back."""
    job.spec(["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do seq 1 2000; done; exit 3"])
    last = 0
    while True:
        status = job.status()
        assert status["stdout"]["next"] >= last
        last = status["stdout"]["next"]
        if status["state"] == "done":
            break
        assert status["result"] is None
    fd = os.open(job / "exit", os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(fd, 100) == b"3\n"
    os.close(fd)
    assert job.size() == last


def test_it_never_blocks(mount, job):
    job.spec({"cmd": ["yes"], "retain": "64K"})
    worst = []

    def look():
        for _ in range(50):
            began = time.monotonic()
            job.status()
            worst.append(time.monotonic() - began)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(worst) == 100 and max(worst) < 2


def test_it_is_read_as_one_piece(mount, job):
    """A handle shows the moment of its first read, however it is read."""
    job.spec(["cat"])
    with open(job / "status", "rb", buffering=0) as f:
        text = f.read(20)
        job.append("stdin", b"x" * 100_000)
        job.ctl("eof")
        job.result()
        while piece := f.read(7):
            text += piece
    json.loads(text)


def test_a_new_look_through_the_same_handle(mount, job):
    """pread from the start takes a new picture: a monitor may keep its handle."""
    with open(job / "status", "rb", buffering=0) as f:
        assert json.loads(os.pread(f.fileno(), 1 << 16, 0))["state"] == "new"
        job.spec(["true"])
        job.result()
        assert json.loads(os.pread(f.fileno(), 1 << 16, 0))["state"] == "done"


def test_it_is_json_whatever_the_bytes(mount, job):
    """A name, a directory and an argument with strange bytes still make valid JSON."""
    with mount.new("\x01\"\\\n\udcff") as e:
        try:
            e.spec({"cmd": ["pwd"], "cwd": '/no/"such\\\n'})
        except OSError:
            pass
        assert e.status()["error"]


def test_secrets_are_in_none_of_the_files(mount, job):
    secret = unique("secret")
    job.spec({"cmd": ["printenv", "TOKEN"], "env": {"TOKEN": secret}})
    assert job.read("stdout") == secret.encode() + b"\n"
    for path in (job / "spec", job / "status"):
        text = path.read_text()
        assert secret not in text
    for name in os.listdir(mount.path / ".spawnfs"):
        if name != "events":
            assert secret.encode() not in mount.info(name)
    assert secret not in mount.stderr()
