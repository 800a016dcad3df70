"""docker:image=IMAGE: a container for each exec, and none left."""

import dataclasses
import errno
import json
import threading
import time

import pytest

from harness import Mount, unique_seconds, wait_for
from test_docker_exec import FILL, FILLED, bare_image, written
from test_kill import gone
from test_stdout import stays
from test_tree import raises


@pytest.fixture
def image(target, tmp_path):
    """Mounts an image: image(name, options...)."""
    mounts = []

    def make(name="debian:test", *options):
        at = tmp_path / f"i{len(mounts)}"
        of = dataclasses.replace(target, address=f"docker:image={name}", cannot={"signal-result"})
        mounts.append(Mount(of, at, ["docker_network=none", *options]).start())
        return mounts[-1]

    yield make
    for mount in mounts:
        mount.stop()


def left(target):
    """The containers that were made for commands."""
    found = target.engine.api("GET", "/v1.41/containers/json?all=1")[1]
    return [c for c in found if "spawnfs.owner" in c["Labels"]]


def test_each_exec_has_its_own(target, image):
    mount = image()
    assert mount.run("echo x > /tmp/x; cat /tmp/x") == ("0", b"x\n", b"")
    assert mount.run("cat /tmp/x")[0] == "1"
    wait_for(lambda: not left(target), "the containers to be removed")


def test_a_child_does_not_outlive_the_leader(target, image):
    mount = image()
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(f"setsid sleep {mark} > /dev/null 2>&1 < /dev/null & exit 3")
        assert e.result() == "3"
        gone(mount, mark)
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


def test_entrypoint_of_the_image_is_not_in_the_way(target, image):
    engine = target.engine
    engine.client("import", "--change", 'ENTRYPOINT ["/bin/false"]', "--change", "ENV FROM_IMAGE=1",
                  engine.busybox_tar(), "entry:test")
    mount = image("entry:test")
    assert mount.run('echo "$FROM_IMAGE"') == ("0", b"1\n", b"")


def test_an_image_whose_shells_have_a_time_limit(target, image, tmp_path):
    """bash gives up reading after TMOUT seconds: the container would end with its first process."""
    (tmp_path / "Dockerfile").write_text("FROM debian:test\nENV TMOUT=1\nRUN ln -sf bash /usr/bin/sh\n")
    target.engine.client("build", "-t", "tmout:test", tmp_path)
    assert image("tmout:test").run("sleep 2.5; echo $TMOUT; cat; exit 3", b"in") == ("3", b"1\nin", b"")


def test_removal_kills(target, image):
    mount = image()
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sh", "-c", f"setsid env -i sleep {mark} & sleep {mark}"])
        wait_for(lambda: len(mount.target.processes(mark)) >= 2, "the tree")
    gone(mount, mark)
    wait_for(lambda: not left(target), "the containers to be removed")


# ---- the tail ----


@pytest.mark.parametrize("read_before", [0, 2_300_000])
def test_all_that_the_engine_holds_is_taken_without_a_reader(target, image, read_before):
    """Docker drops what is left in the pipes of a container's first process unseen."""
    mount = image("debian:test", "retain=64K", "spool_memory=64K")
    with mount.new() as e:
        e.spec(["perl", "-e", FILL, "one", "/dev/stderr", "20"])
        with open(e / "stdout", "rb", buffering=0) as f:
            before = b""
            while len(before) < read_before:
                before += f.read(read_before - len(before))
            assert e.result() == "0"
            out = before + b"".join(iter(lambda: f.read(1 << 20), b""))
        count = int(e.read("stderr"))
        assert len(out) == count and out == (FILLED * (count // len(FILLED) + 1))[:count]


# ---- signals ----


def test_a_signal_reaches_the_group(image):
    mount = image()
    with mount.new() as e:
        child = "trap 'echo child; exit' TERM; echo up; sleep 60 & wait"
        e.spec(f'trap "echo shell" TERM; sh -c "{child}" & wait; wait; exit 4')
        e.wait_size(3)
        e.ctl("signal TERM")
        assert e.result() == "4"
        assert sorted(e.read("stdout").split()) == [b"child", b"shell", b"up"]


# ---- without a shell ----


@pytest.fixture(scope="module")
def bare(target, tmp_path_factory):
    """An image of a few programs, no /bin/sh among them."""
    return bare_image(target.engine, tmp_path_factory.mktemp("bare"))


def test_an_image_without_a_shell(image, bare):
    mount = image(bare)
    assert "signals are refused" in json.loads(mount.info("capabilities"))["caveat"]
    assert mount.run(["cat"], b"through") == ("0", b"through", b"")
    result, out, err = mount.run(["nosuch"])
    assert (result, out) == ("127", b"") and b"nosuch" in err
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sleep", mark])
        with raises(errno.EOPNOTSUPP):
            e.ctl("signal TERM")
        e.ctl("kill")
        assert e.result() == "killed"
        gone(mount, mark)


def test_an_image_without_a_shell_and_a_slow_reader(image, bare):
    """Whether all of the output has come is then not known."""
    mount = image(bare, "retain=64K", "spool_memory=64K")
    mount.allow("output_cut")
    with mount.new() as e:
        e.spec(["cat"])
        e.append("stdin", bytes(1_000_000))
        stays(e)
        e.ctl("eof")
        assert e.result() == "lost output_cut"
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")
    with mount.new() as e:
        e.spec({"cmd": ["head", "-c", "600000", "/dev/zero"], "retain": "1M"})
        assert e.result() == "0"
        assert len(e.read("stdout")) == 600_000


# ---- ends ----


def test_a_daemon_that_is_killed_leaves_no_command(image):
    mount = image()
    mark = unique_seconds()
    mount.new().spec(["sh", "-c", f"setsid env -i sleep {mark} & sleep {mark}"])
    wait_for(lambda: len(mount.target.processes(mark)) >= 2, "the tree")
    mount.broken = True
    mount.daemon.kill()
    gone(mount, mark)


def test_a_kill_right_behind_the_start(image):
    """However far the start has come."""
    mount = image()
    mark = unique_seconds()
    for wait_ms in (0, 20, 60, 120, 200, 300, 450):
        e = mount.new()
        starter = threading.Thread(target=written, args=(e, ["sleep", mark]))
        starter.start()
        time.sleep(wait_ms / 1000)
        with open(e / "exit", "rb") as ended:
            e.ctl("kill")
            assert ended.read() in (b"killed\n", b"failed ECANCELED\n")
        starter.join()
        e.remove()
    gone(mount, mark)


def test_what_a_killed_daemon_left_is_removed_by_the_next(target, image):
    mount = image()
    mark = unique_seconds()
    mount.new().spec(["sleep", mark])
    wait_for(lambda: mount.target.processes(mark), "the command")
    mount.broken = True
    mount.daemon.kill()
    mount.daemon.wait()
    assert left(target)
    other = image()
    other.allow("removing the container")
    wait_for(lambda: not left(target), "the containers to be removed")
    gone(other, mark)
    assert other.run(["echo", "x"])[1] == b"x\n"


def test_a_live_daemons_containers_are_left_alone(target, image):
    mount = image()
    with mount.new() as e:
        e.spec(["cat"])
        image()
        e.append("stdin", b"still here\n")
        e.wait_size(11)
        e.ctl("eof")
        assert e.result() == "0"


def test_an_image_that_is_not_there(target, tmp_path):
    from test_docker_exec import refused_mount

    said = refused_mount(target, tmp_path, "docker:image=nosuch:1", *target.options)
    assert "nosuch:1" in said


def test_a_user_that_is_not_there(image):
    mount = image()
    with mount.new() as e, pytest.raises(OSError) as caught:
        e.spec({"cmd": ["id"], "user": "nosuch"})
    assert caught.value.errno == errno.ENOENT


def tried(mount, script, **limits):
    return mount.run({"cmd": script, "limits": limits})


def check_limits_of_the_container(mount):
    many = "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done; wait"
    result, _, err = tried(mount, many, pids=12)
    assert b"fork" in err.lower() and result != "0"
    # The kernel kills what takes more, and the engine says 137.
    large = "head -c 100m /dev/zero | tail -c 90m | wc -c"
    assert tried(mount, large, memory="20M")[1] in (b"", b"0\n")
    quota = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null"
    assert tried(mount, quota, cpu=0.5)[1].split()[0] == b"50000"


def test_limits(image):
    mount = image()
    assert tried(mount, "ulimit -n", nofile=123)[1] == b"123\n"
    check_limits_of_the_container(mount)


def test_limits_of_a_container_are_its_own(target, mount, job):
    with pytest.raises(OSError) as caught:
        job.spec({"cmd": ["true"], "limits": {"pids": 5}})
    assert caught.value.errno == errno.EOPNOTSUPP
