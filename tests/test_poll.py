"""O_NONBLOCK, poll, select and epoll: EAGAIN and readiness tell the same truth."""

import errno
import os
import select
import subprocess
import time

import pytest

from harness import SLOW, child, wait_for
from test_stdin import amount, pattern
from test_tree import raises

READ = os.O_RDONLY | os.O_NONBLOCK
WRITE = os.O_WRONLY | os.O_NONBLOCK
SECOND = int(1000 * SLOW)


@pytest.fixture
def opened():
    fds = []

    def open_(path, flags):
        fds.append(os.open(path, flags))
        return fds[-1]

    yield open_
    for fd in fds:
        os.close(fd)


def polled(fd, events=select.POLLIN, timeout=0):
    poll = select.poll()
    poll.register(fd, events)
    found = poll.poll(timeout)
    return found[0][1] if found else 0


@pytest.mark.parametrize("name", ["stdout", "stderr", "exit"])
def test_nothing_to_read_is_eagain_and_not_ready(mount, job, opened, name):
    fd = opened(job / name, READ)
    for start in (False, True):
        if start:
            job.spec(["cat"])
        with raises(errno.EAGAIN):
            os.read(fd, 10)
        assert not polled(fd) & select.POLLIN
        assert select.select([fd], [], [], 0) == ([], [], [])


def test_ready_when_there_is_a_byte_and_at_the_end(mount, job, opened):
    fd = opened(job / "stdout", READ)
    job.spec(["cat"])
    job.append("stdin", b"abc")
    assert polled(fd, timeout=10 * SECOND) & select.POLLIN
    assert os.read(fd, 10) == b"abc"
    assert not polled(fd) & select.POLLIN
    job.ctl("eof")
    assert polled(fd, timeout=10 * SECOND) & select.POLLIN
    assert os.read(fd, 10) == b""
    assert polled(fd) & select.POLLIN


def test_exit_is_ready_when_it_is_told(mount, job, opened):
    fd = opened(job / "exit", READ)
    job.spec(["cat"])
    assert not polled(fd) & select.POLLIN
    job.ctl("eof")
    assert polled(fd, timeout=10 * SECOND) & select.POLLIN
    assert os.read(fd, 100) == b"0\n"
    assert os.read(fd, 100) == b""


def test_o_nonblock_by_fcntl(mount, job):
    job.spec(["cat"])
    with open(job / "stdout", "rb", buffering=0) as f:
        os.set_blocking(f.fileno(), False)
        assert f.read(10) is None
        job.append("stdin", b"x")
        assert polled(f.fileno(), timeout=10 * SECOND)
        assert f.read(10) == b"x"


def test_poll_waits_in_the_kernel_and_wakes(mount, job, opened):
    fd = opened(job / "stdout", READ)
    job.spec(["cat"])
    script = f"sleep .2; echo x >> {job / 'stdin'}"
    with child("sh", "-c", script):
        began = time.monotonic()
        assert polled(fd, timeout=10 * SECOND) & select.POLLIN
        assert 0.1 < time.monotonic() - began < 5 * SLOW
        assert os.read(fd, 10) == b"x\n"


@pytest.mark.parametrize("edge", [0, select.EPOLLET])
def test_epoll(mount, job, opened, edge):
    fd = opened(job / "stdout", READ)
    job.spec(["cat"])
    with select.epoll() as epoll:
        epoll.register(fd, select.EPOLLIN | edge)
        assert epoll.poll(0) == []
        for i in range(20):
            job.append("stdin", b"%d\n" % i)
            assert epoll.poll(10 * SLOW), f"no event for line {i}"
            assert os.read(fd, 100) == b"%d\n" % i
            with raises(errno.EAGAIN):
                os.read(fd, 100)
        assert epoll.poll(0.05) == []
        if not edge:
            job.append("stdin", b"level")
            for _ in range(3):
                assert epoll.poll(10 * SLOW)
            assert os.read(fd, 100) == b"level"
        job.ctl("eof")
        assert epoll.poll(10 * SLOW)
        assert os.read(fd, 100) == b""


def test_edge_triggered_reports_each_new_byte_even_unread(mount, job, opened):
    fd = opened(job / "stdout", READ)
    job.spec(["cat"])
    with select.epoll() as epoll:
        epoll.register(fd, select.EPOLLIN | select.EPOLLET)
        for _ in range(3):
            job.append("stdin", b"x")
            assert epoll.poll(10 * SLOW)
    job.wait_size(3)
    assert os.read(fd, 10) == b"xxx"


@pytest.mark.deadline(60)
def test_one_thread_waits_for_many(mount, target, opened):
    jobs = {}
    count = min(50, target.many)
    with select.epoll() as epoll:
        for i in range(count):
            e = mount.new()
            fd = opened(e / "exit", READ)
            jobs[fd] = e
            epoll.register(fd, select.EPOLLIN)
            e.spec(["sh", "-c", f"read x; exit {i}"])
        for e in jobs.values():
            e.append("stdin", b"\n")
        results = []
        while jobs:
            events = epoll.poll(10 * SLOW)
            assert events
            for fd, _ in events:
                results.append(int(os.read(fd, 10)))
                epoll.unregister(fd)
                jobs.pop(fd).remove()
    assert sorted(results) == list(range(count))


def test_stdin_is_writable_until_it_is_full(mount, job, opened):
    fd = opened(job / "stdin", WRITE)
    job.spec(["sh", "-c", "trap 'exec cat' USR1; echo up; while :; do sleep .05; done"])
    job.wait_up().close()
    assert polled(fd, select.POLLOUT, 10 * SECOND) & select.POLLOUT
    total = 0

    def full():
        nonlocal total
        try:
            while True:
                total += os.write(fd, b"x" * 65536)
        except BlockingIOError:
            return not polled(fd, select.POLLOUT, 200)

    wait_for(full, "stdin to be full and not writable", every=0.05)
    job.ctl("signal USR1")
    assert polled(fd, select.POLLOUT, 10 * SECOND) & select.POLLOUT
    assert os.write(fd, b"y") == 1
    job.wait_size(len(b"up\n") + total + 1)


def test_a_partial_write_is_told(mount, job, opened):
    fd = opened(job / "stdin", WRITE)
    job.spec(["cat"])
    n = os.write(fd, b"x" * (1 << 20))
    assert 0 < n <= 1 << 20
    job.wait_size(n)
    assert job.size() == n


def test_stdin_of_an_ended_command_is_ready_and_fails(mount, job, opened):
    fd = opened(job / "stdin", os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
    job.spec(["true"])
    assert job.result() == "0"
    assert polled(fd, select.POLLOUT, 10 * SECOND)
    with raises(errno.EPIPE):
        os.write(fd, b"x")


@pytest.mark.parametrize("mode", ["poll", "select", "epoll", "edge"])
def test_c_readers(mount, job, clients, mode):
    job.spec(["sh", "-c", "for i in 1 2 3 4 5; do seq 1 5000; sleep .05; done"])
    with child(clients / "reader_c", mode, job / "stdout", stdout=subprocess.PIPE) as reader:
        out, _ = reader.communicate(timeout=20)
        assert reader.returncode == 0
    assert out == b"".join(b"%d\n" % i for i in range(1, 5001)) * 5


@pytest.mark.deadline(120)
@pytest.mark.parametrize("wait", ["poll", "edge"])
def test_200_megabytes_through_cat_by_one_thread(mount, target, job, opened, wait):
    """One program that writes and reads: it must never wait for one side alone."""
    # What differs is when it is woken: for that less is enough.
    size = amount(target) if wait == "poll" else 20 << 20
    data = pattern(1 << 20)
    writer, reader = opened(job / "stdin", WRITE), opened(job / "stdout", READ)
    job.spec({"cmd": ["cat"], "retain": "4M"})
    sent = got = 0
    with select.epoll() as epoll:
        edge = select.EPOLLET if wait == "edge" else 0
        epoll.register(writer, select.EPOLLOUT | edge)
        epoll.register(reader, select.EPOLLIN | edge)
        ended = False
        while not ended:
            moved = False
            if sent < size:
                try:
                    at = sent % len(data)
                    sent += os.write(writer, memoryview(data)[at : at + min(1 << 20, size - sent)])
                    moved = True
                except BlockingIOError:
                    pass
                if sent == size:
                    epoll.unregister(writer)
                    job.ctl("eof")
            try:
                while piece := os.read(reader, 1 << 20):
                    at = got % len(data)
                    right = data[at : at + len(piece)]
                    right += data[: len(piece) - len(right)]
                    assert piece == right, f"wrong bytes at {got}"
                    got += len(piece)
                    moved = True
                ended = True
            except BlockingIOError:
                pass
            if not moved and not ended:
                assert epoll.poll(20 * SLOW), f"stuck: {sent} bytes written, {got} read"
    assert got == size
    assert job.result() == "0"
