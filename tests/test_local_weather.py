"""Bad weather: what is short or missing is said in a sentence, nothing is lost, nothing half-mounted."""

import errno
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import textwrap

import pytest

from harness import SLOW, SPAWNFS, Mount, mount_entry, open_files, small_disk, wait_for
from test_local_usage import refused, spawnfs
from test_stdout import counted
from test_tree import raises


# ---- the mountpoint ----


def test_a_mountpoint_that_is_missing(tmp_path):
    place = tmp_path / "nosuch"
    refused(spawnfs("-f", "local:", place), str(place), "mkdir")
    refused(spawnfs("local:", place), str(place))
    assert not place.exists()


def test_a_mountpoint_that_is_a_file(tmp_path):
    place = tmp_path / "file"
    place.write_text("kept")
    refused(spawnfs("-f", "local:", place), str(place), "directory")
    assert place.read_text() == "kept" and not mount_entry(place)


def test_a_mountpoint_that_is_mounted_already(mounted):
    mount = mounted()
    with mount.new() as e:
        e.spec(["cat"])
        refused(spawnfs("-f", "local:", mount.path), str(mount.path), "mounted")
        refused(spawnfs("local:", mount.path), str(mount.path))
        e.write("stdin", b"unharmed")
        assert e.read("stdout") == b"unharmed"


def test_a_mountpoint_inside_a_mount(mounted):
    mount = mounted()
    with mount.new() as e:
        done = spawnfs("-f", "local:", e / "stdout")
        assert done.returncode > 0 and done.stderr.startswith("spawnfs: ")


def test_a_failure_in_the_background_is_in_the_exit_status(tmp_path):
    assert spawnfs("local:", tmp_path / "nosuch").returncode > 0
    assert spawnfs("-o", "nosuch", "local:", tmp_path).returncode > 0


# ---- /dev/fuse ----


def in_namespace(script, *arguments):
    """Runs a shell script as root of a mount namespace of its own, with $1... the arguments."""
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", *map(str, arguments)],
        capture_output=True, text=True, timeout=60 * SLOW,
    )


HIDE = "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; "


def test_dev_fuse_absent(tmp_path):
    done = in_namespace(HIDE + 'exec "$1" -f local: "$2"', SPAWNFS, tmp_path)
    refused(done, "/dev/fuse", "modprobe")


def test_dev_fuse_that_is_something_else(tmp_path):
    done = in_namespace(
        HIDE + 'mknod /dev/fuse c 10 300; exec "$1" local: "$2"', SPAWNFS, tmp_path
    )
    refused(done, "/dev/fuse")


def test_dev_fuse_without_permission(tmp_path):
    with public_directory() as place:
        program = shutil.copy(SPAWNFS, place)
        point = place / "m"
        point.mkdir()
        os.chown(point, 65534, 65534)
        done = in_namespace(
            HIDE + "mknod -m 600 /dev/fuse c 10 229;"
            'exec setpriv --reuid=65534 --regid=65534 --clear-groups "$1" -f local: "$2"',
            program, point,
        )
        refused(done, "/dev/fuse", "chmod")


@pytest.mark.parametrize(
    "before, options, words",
    [
        ("", [], ["no write access"]),
        ("", ["-o", "allow_other"], ["user_allow_other"]),
        ("mount --bind /dev/null /usr/bin/fusermount3; ", [], ["install fuse3"]),
    ],
    ids=["not his", "allow_other", "no fusermount3"],
)
def test_what_fusermount3_refuses(tmp_path, before, options, words):
    """It says why on stderr itself, and is the only one who knows."""
    with public_directory() as place:
        program = shutil.copy(SPAWNFS, place)
        point = place / "m"
        point.mkdir()
        if options:
            os.chown(point, 65534, 65534)
        done = in_namespace(
            HIDE + "mknod -m 666 /dev/fuse c 10 229; " + before +
            'program=$1; point=$2; shift 2; exec setpriv --reuid=65534 --regid=65534 --clear-groups '
            '"$program" "$@" -f local: "$point"',
            program, point, *options,
        )
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 1 and last.startswith(f"spawnfs: error: cannot mount on {point}: fusermount3")
        for word in words:
            assert word in done.stderr, done.stderr


class public_directory:
    """A directory that other users can reach, as pytest's own are not."""

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="spawnfs-test-"))
        self.path.chmod(0o755)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path)


# ---- a full disk ----


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", 4 << 10) as place:
        yield place


def test_a_full_disk_holds_the_command_back_and_loses_nothing(disk, target, tmp_path):
    filler = disk / "filler"
    filler.write_bytes(bytes(3 << 20))
    options = [f"spool={disk}", "spool_memory=64K", "retain=64M"]
    with Mount(target, tmp_path / "m", options) as mount:
        mount.allow("[Nn]o space left")
        with mount.new() as e:
            e.spec(["seq", "1", "400000"])  # 2.7 MB
            # Whoever looks is told which directory is full and what to do.
            wait_for(lambda: str(disk) in mount.stderr() + str(e.status()["error"]), "a sentence")
            sentence = mount.stderr() + str(e.status()["error"])
            assert re.search("no space left", sentence, re.I), sentence
            assert e.status()["state"] == "running"
            with mount.new() as other:
                other.spec(["echo", "small output needs no disk"])
                assert other.read("stdout") == b"small output needs no disk\n"
                assert other.result() == "0"
            filler.unlink()
            assert counted(e / "stdout") == (400_000, True)
            assert e.result() == "0"
            assert counted(e / "stdout") == (400_000, True)


def test_a_kill_works_while_the_disk_is_full(disk, target, tmp_path):
    (disk / "filler").write_bytes(bytes((4 << 20) - (64 << 10)))
    options = [f"spool={disk}", "spool_memory=64K", "retain=64M"]
    with Mount(target, tmp_path / "m", options) as mount:
        mount.allow("[Nn]o space left")
        with mount.new() as e:
            e.spec(["seq", "1", "300000"])
            wait_for(lambda: e.size() >= 64 << 10, "the first bytes")
            e.ctl("kill")
            assert e.result() == "killed"


def test_a_spool_directory_that_is_missing(tmp_path):
    done = spawnfs("-f", "-o", f"spool={tmp_path / 'nosuch'}", "local:", tmp_path)
    refused(done, str(tmp_path / "nosuch"))
    assert not mount_entry(tmp_path)


def test_the_spool_leaves_no_file(disk, target, tmp_path):
    with Mount(target, tmp_path / "m", [f"spool={disk}", "spool_memory=64K"]) as mount:
        with mount.new() as e:
            e.spec(["head", "-c", "1000000", "/dev/zero"])
            assert e.result() == "0"
            assert os.listdir(disk) == []
        wait_for(lambda: os.statvfs(disk).f_bfree == os.statvfs(disk).f_blocks,
                 "the space to be given back")


# ---- no more descriptors ----


def limit(pid, what, value):
    subprocess.run(["prlimit", f"--pid={pid}", f"--{what}={value}:"], check=True)


def test_no_more_descriptors(mounted):
    mount = mounted()
    mount.allow("[Tt]oo many open files")
    before = open_files(mount.pid)
    limit(mount.pid, "nofile", before + 30)
    jobs = []
    for _ in range(100):
        jobs.append(mount.new())
        try:
            jobs[-1].spec(["cat"])
        except OSError as error:
            assert error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN)
            break
    else:
        raise AssertionError("no limit was met")
    failed = jobs.pop()
    sentence = failed.status()["error"]
    assert re.search("descriptor|open files", sentence), sentence
    assert failed.status()["state"] in ("new", "done")
    # What runs goes on, and a removal makes room.
    assert len(jobs) >= 3
    for e in jobs:
        e.write("stdin", e.name.encode())
        assert e.read("stdout") == e.name.encode()
        assert e.result() == "0"
        e.remove()
    failed.remove()
    assert mount.run(["echo", "room again"])[1] == b"room again\n"


def test_too_many_execs_is_a_sentence_of_mkdir(mounted):
    mount = mounted("execs=5")
    jobs = [mount.new() for _ in range(5)]
    with raises(errno.ENOSPC):
        mount.new()
    jobs[0].remove()
    mount.new()


# ---- no more processes ----


def test_no_more_processes():
    """As another user, since the kernel does not hold root to RLIMIT_NPROC."""
    script = """
        mknod -m 666 "$2/fuse" c 10 229
        mount --bind "$2/fuse" /dev/fuse
        cd /  # commands start where the daemon does, which must be open to that user
        exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
            "$1" -f local: "$2/m" &
            trap "kill $!" EXIT
            until test -e "$2/m/.spawnfs/version"; do sleep .02; done
            cd "$2/m"
            mkdir before no after
            echo "[\\"cat\\"]" > before/spec
            # What forks is the one child of the daemon.
            keeper=$(cat /proc/$!/task/$!/children)
            prlimit --pid $keeper --nproc=1:
            echo "[\\"true\\"]" > no/spec && exit 3
            cat no/status
            prlimit --pid $keeper --nproc=4000:
            echo "[\\"echo\\",\\"room again\\"]" > after/spec
            cat after/stdout after/exit
            echo unharmed > before/stdin
            cat before/stdout before/exit
            cd /
            fusermount3 -u "$2/m"
            trap - EXIT
            wait $!' sh "$1" "$2"
    """
    with public_directory() as place:
        program = shutil.copy(SPAWNFS, place)
        os.mkdir(place / "m")
        os.chown(place / "m", 65534, 65534)
        done = in_namespace(textwrap.dedent(script), program, place)
        assert done.returncode == 0, (done.stdout, done.stderr)
        status, rest = done.stdout.split("}\n", 1) if "}\n" in done.stdout else ("", done.stdout)
        assert re.search("process", status), done.stdout
        assert rest.endswith("room again\n0\nunharmed\n0\n"), done.stdout


# ---- not root ----


def test_an_unmount_as_another_user():
    """Also where the mountpoint has gone to: the kernel's word is taken for where that is."""
    script = """
        mknod -m 666 "$2/fuse" c 10 229
        mount --bind "$2/fuse" /dev/fuse
        cd /
        exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
            for name in a "b c"; do
                "$1" -f local: "$2/d/a/m" &
                until test -e "$2/d/a/m/.spawnfs/version"; do sleep .02; done
                test "$name" = a || mv "$2/d/a" "$2/d/$name"
                kill $!
                wait $!
                ls -A "$2/d/$name/m"
            done
            cat /proc/self/mounts' sh "$1" "$2"
    """
    with public_directory() as place:
        program = shutil.copy(SPAWNFS, place)
        os.makedirs(f"{place}/d/a/m")
        for directory in ("d", "d/a", "d/a/m"):
            os.chown(f"{place}/{directory}", 65534, 65534)
        done = in_namespace(textwrap.dedent(script), program, place)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert f"{place}/d" not in done.stdout


def as_nobody(*command):
    return subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *map(str, command)],
        capture_output=True, text=True, timeout=30 * SLOW,
    )


def test_who_may_only_read_owns_nothing(target):
    """Owners may end what they own: that is for those who may write to ctl."""
    with public_directory() as place, Mount(target, place / "m", ["allow_other", "umask=022"]) as mount:
        e = mount.new()
        e.spec("echo shown; exec sleep 1000")
        e.wait_size(6)
        done = as_nobody("sh", "-c", 'head -n 1 "$1/stdout"; exec 9< "$1/owner"', "sh", e.path)
        assert done.stdout == "shown\n" and "Permission denied" in done.stderr
        with mount.new() as own:
            os.close(os.open(own / "owner", os.O_RDONLY))
            wait_for(lambda: own.name not in os.listdir(mount.path), "a later close to be seen")
        assert e.status()["state"] == "running"


def test_who_may_write_may_own(target):
    with public_directory() as place, Mount(target, place / "m", ["allow_other", "umask=0"]) as mount:
        e = mount.new()
        assert as_nobody("sh", "-c", 'exec 9< "$1/owner"', "sh", e.path).returncode == 0
        wait_for(lambda: e.name not in os.listdir(mount.path), "the exec to be removed")


def test_another_user_cannot_look_in(mounted):
    done = as_nobody("ls", mounted().path)
    assert done.returncode != 0 and "Permission denied" in done.stderr
