"""The tree: names, modes, what may be made, removed and renamed."""

import errno
import os
import shutil
import stat
import subprocess

import pytest

from harness import call, child, unique

FILES = {"spec", "stdin", "stdout", "stderr", "exit", "status", "ctl", "owner", "log"}
MODES = {
    "spec": 0o600,
    "stdin": 0o200,
    "stdout": 0o400,
    "stderr": 0o400,
    "exit": 0o400,
    "status": 0o400,
    "ctl": 0o200,
}


def raises(number):
    """A context in which an OSError with this errno must come."""

    class Check:
        def __enter__(self):
            return self

        def __exit__(self, kind, value, trace):
            assert kind is not None, f"no error; {errno.errorcode[number]} was due"
            if not issubclass(kind, OSError):
                return False
            assert value.errno == number, f"{value}; {errno.errorcode[number]} was due"
            self.error = value
            return True

    return Check()


def test_ls_of_an_empty_mount_shows_only_its_own_directory(mount):
    assert os.listdir(mount.path) == [".spawnfs"]


def test_mkdir_makes_an_exec_with_its_files(mount, job):
    assert job.name in os.listdir(mount.path)
    names = set(os.listdir(job))
    assert {"spec", "stdin", "stdout", "stderr", "exit", "status", "ctl", "owner"} <= names <= FILES


@pytest.mark.parametrize("name, mode", MODES.items())
def test_modes_and_owner_of_the_files(job, name, mode):
    found = os.stat(job / name)
    assert stat.S_ISREG(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == mode
    assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())


def test_directories_are_private_to_their_maker(mount, job):
    found = os.stat(job)
    assert stat.S_ISDIR(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o700
    assert found.st_uid == os.getuid()


def test_inode_numbers_differ(job):
    numbers = [os.stat(job / name).st_ino for name in os.listdir(job)]
    assert len(set(numbers)) == len(numbers)


def test_mktemp(mount):
    path = call(["mktemp", "-d", "-p", mount.path]).decode().strip()
    assert os.path.isfile(os.path.join(path, "spec"))
    os.rmdir(path)


def test_ls_and_stat_and_find_work(mount, job):
    assert b"stdout" in call(["ls", "-la", job.path])
    assert b"regular" in call(["stat", job / "stdout"])
    assert str(job / "exit").encode() in call(["find", job.path])
    call(["df", mount.path])


def test_mkdir_of_a_name_that_is_there(mount, job):
    with raises(errno.EEXIST):
        os.mkdir(job.path)


@pytest.mark.parametrize(
    "name",
    ["a", "x" * 255, "with space", "ümläut", b"\xff\xfe", "-n", "new\nline", "..x", ".hidden", "*"],
    ids=repr,
)
def test_names(mount, name):
    path = os.path.join(os.fsencode(mount.path), os.fsencode(name))
    os.mkdir(path)
    assert os.fsencode(name) in os.listdir(os.fsencode(mount.path))
    assert os.listdir(path)
    os.rmdir(path)
    assert os.fsencode(name) not in os.listdir(os.fsencode(mount.path))


def test_a_name_of_256_bytes_is_too_long(mount):
    with raises(errno.ENAMETOOLONG):
        os.mkdir(mount.path / ("x" * 256))


def test_the_mounts_own_name_is_taken(mount):
    with raises(errno.EEXIST):
        os.mkdir(mount.path / ".spawnfs")
    with pytest.raises(OSError):
        os.rmdir(mount.path / ".spawnfs")
    assert os.listdir(mount.path / ".spawnfs")


def test_unknown_names_are_absent(mount, job):
    for path in (mount.path / unique(), job / "nosuch", mount.path / ".spawnfs" / "nosuch"):
        with raises(errno.ENOENT):
            os.stat(path)


def test_nothing_else_can_be_made(mount, job):
    for where in (mount.path, job.path):
        with pytest.raises(PermissionError):
            os.open(where / "new", os.O_CREAT | os.O_WRONLY)
    with pytest.raises(OSError):
        os.mkdir(job / "sub")
    with pytest.raises(OSError):
        os.symlink("x", mount.path / "link")
    with pytest.raises(OSError):
        os.link(job / "spec", mount.path / "hard")
    with pytest.raises(OSError):
        os.mkfifo(mount.path / "fifo")
    assert sorted(os.listdir(mount.path)) == sorted([".spawnfs", job.name])


def test_many_names_are_all_listed_once(mount):
    names = {f"n{i}" for i in range(3000)}
    for name in names:
        os.mkdir(mount.path / name)
    listed = os.listdir(mount.path)
    assert sorted(listed) == sorted(names | {".spawnfs"})
    for name in names:
        os.rmdir(mount.path / name)
    assert os.listdir(mount.path) == [".spawnfs"]


def test_removal_while_listing_skips_and_repeats_nothing(mount):
    names = {f"n{i}" for i in range(1000)}
    for name in names:
        os.mkdir(mount.path / name)
    seen = []
    with os.scandir(mount.path) as entries:
        for entry in entries:
            if entry.name != ".spawnfs":
                seen.append(entry.name)
                os.rmdir(entry.path)
    assert sorted(seen) == sorted(names)


def test_rmdir_works_with_files_inside(mount):
    e = mount.new()
    os.rmdir(e)
    assert e.name not in os.listdir(mount.path)
    with raises(errno.ENOENT):
        os.stat(e / "spec")


@pytest.mark.parametrize("command", [["rm", "-r"], ["rm", "-rf"], ["find", "-delete"], "rmtree"])
def test_rm_r(mount, command):
    e = mount.new()
    e.spec(["true"])
    if command == "rmtree":
        shutil.rmtree(e)
    elif command[0] == "find":
        call(["find", e.path, "-delete"])
    else:
        call([*command, e.path])
    assert e.name not in os.listdir(mount.path)


def test_a_removed_name_is_free_at_once(mount):
    for _ in range(min(mount.target.many, 50)):
        with mount.new("again") as e:
            e.spec(["echo", "x"])


def test_the_new_exec_of_an_old_name_is_a_new_exec(mount):
    old = mount.new("same")
    old.spec(["echo", "old"])
    with open(old / "stdout", "rb") as out:
        os.rmdir(old)
        new = mount.new("same")
        new.spec(["echo", "new"])
        assert new.read("stdout") == b"new\n"
        assert out.read() in (b"old\n", b"")  # it was killed, perhaps before it wrote


def test_unlink_only_hides_the_file(mount, job):
    job.spec(["cat"])
    os.unlink(job / "status")
    assert "status" not in os.listdir(job)
    with raises(errno.ENOENT):
        os.stat(job / "status")
    job.write("stdin", b"still here")
    assert job.read("stdout") == b"still here"
    assert job.result() == "0"


@pytest.mark.parametrize("tool", ["install -m 600", "cp --remove-destination", "mv"])
def test_a_hidden_file_is_shown_again_to_who_makes_it_anew(job, tmp_path, tool):
    """So do tools that never write into what is there."""
    (tmp_path / "spec").write_text('{"cmd": ["echo", "ran"]}')
    (tmp_path / "spec").chmod(0o600)
    call([*tool.split(), tmp_path / "spec", job / "spec"])
    assert job.read("stdout") == b"ran\n"
    assert "spec" in os.listdir(job)


def test_no_other_file_can_be_made(mount, job):
    os.unlink(job / "ctl")
    for path in (mount.path / "new", job / "new", mount.path / ".spawnfs" / "new"):
        with raises(errno.EACCES):
            open(path, "w").close()
    for path in (job / "new", job / "ctl", mount.path / "new"):
        with raises(errno.EPERM):
            os.mkfifo(path)
    with raises(errno.EEXIST):
        os.close(os.open(job / "stdin", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.close(os.open(job / "ctl", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    assert os.stat(job / "ctl").st_mode & 0o777 == 0o200


def test_mode_and_owner_can_be_set_to_what_they_are(job):
    now = os.stat(job / "spec")
    os.chmod(job / "spec", now.st_mode & 0o7777)
    os.chown(job / "spec", now.st_uid, now.st_gid)
    for change in (
        lambda: os.chmod(job / "spec", 0o644),
        lambda: os.chown(job / "spec", 1, -1),
        lambda: os.chown(job / "spec", -1, 1),
    ):
        with raises(errno.EPERM):
            change()
    assert os.stat(job / "spec") == now


def test_unlink_of_an_open_file_leaves_the_handle(mount, job):
    with open(job / "stdout", "rb") as out:
        os.unlink(job / "stdout")
        job.spec(["echo", "hi"])
        assert out.read() == b"hi\n"


def test_open_handles_outlive_the_directory(mount):
    e = mount.new()
    e.spec(["echo", "kept"])
    assert e.result() == "0"
    with open(e / "stdout", "rb") as out, open(e / "exit", "rb") as end, open(e / "status") as s:
        os.rmdir(e)
        assert out.read() == b"kept\n"
        assert end.read() == b"0\n"
        assert '"state"' in s.read()
        os.fstat(out.fileno())


def test_a_removed_exec_says_killed_to_open_readers(mount):
    e = mount.new()
    e.spec(["sh", "-c", "echo first; exec sleep 1000"])
    with open(e / "stdout", "rb") as out, open(e / "exit", "rb") as end:
        e.wait_size(6)
        os.rmdir(e)
        assert out.read() == b"first\n"
        assert end.read() == b"killed\n"


def test_a_removed_exec_that_never_started(mount):
    e = mount.new()
    with open(e / "stdout", "rb") as out, open(e / "exit", "rb") as end:
        os.rmdir(e)
        assert out.read() == b""
        assert end.read() == b"killed\n"


def test_a_spec_written_after_the_removal_starts_nothing(mount):
    e = mount.new()
    fd = os.open(e / "spec", os.O_WRONLY)
    try:
        os.rmdir(e)
        mark = unique()
        with pytest.raises(OSError):
            os.write(fd, b'{"cmd":["sleep","1000","%s"]}' % mark.encode())
        assert not mount.target.processes(mark)
    finally:
        os.close(fd)


def test_rename(mount, job):
    job.spec(["cat"])
    os.rename(job, mount.path / "renamed")
    try:
        assert "renamed" in os.listdir(mount.path)
        assert job.name not in os.listdir(mount.path)
        with open(mount.path / "renamed" / "stdin", "wb") as f:
            f.write(b"x")
        with open(mount.path / "renamed" / "stdout", "rb") as f:
            assert f.read() == b"x"
    finally:
        os.rmdir(mount.path / "renamed")


def test_rename_to_a_name_that_is_there_is_refused(mount, job):
    with mount.new() as other:
        with pytest.raises(OSError):
            os.rename(job, other)
        assert {job.name, other.name} <= set(os.listdir(mount.path))


def test_rename_of_anything_else_is_refused(mount, job):
    for old, new in (
        (job / "stdout", job / "out"),
        (job / "stdout", mount.path / "out"),
        (mount.path / ".spawnfs", mount.path / "info"),
        (job.path, mount.path / ".spawnfs"),
        (job.path, mount.path / ("x" * 256)),
    ):
        with pytest.raises(OSError):
            os.rename(old, new)
    assert job.name in os.listdir(mount.path)


def test_open_in_the_wrong_direction_is_refused_by_its_mode(job):
    """Root passes every mode check in the kernel: the daemon checks for itself."""
    for name in ("stdout", "stderr", "exit", "status"):
        with pytest.raises(OSError):
            os.open(job / name, os.O_WRONLY)
    # What reads everything, as grep -r does, finds nothing in stdin and does not block there.
    assert job.read("stdin") == b""


def test_touch_and_truncate_are_harmless(job):
    call(["touch", job / "spec"])
    call(["touch", job / "stdin"])
    assert job.status()["state"] == "new"
    job.spec(["cat"])
    call(["truncate", "-s", "0", job / "stdin"])
    job.write("stdin", b"x")
    assert job.read("stdout") == b"x"


def test_what_is_only_for_reading_is_not_cut(mount, job):
    """Root passes the kernel's check of the mode here, too."""
    job.spec(["echo", "kept"])
    assert job.result() == "0"
    for path in (job / "stdout", job / "exit", mount.path / ".spawnfs" / "version"):
        before = path.read_bytes()
        for size in (0, 1, 1000):
            with raises(errno.EACCES):
                os.truncate(path, size)
        assert path.read_bytes() == before and before


def test_a_shell_may_stand_in_the_directory(mount):
    e = mount.new()
    with child(
        "sh", "-c", "echo in; read x; ls; cat stdout", cwd=e.path,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as shell:
        assert shell.stdout.readline() == b"in\n"
        os.rmdir(e)
        _, err = shell.communicate(b"\n", timeout=10)
        assert shell.returncode == 1 and err
    assert e.name not in os.listdir(mount.path)


def test_nothing_starts_by_looking(mount, job):
    call(["ls", "-la", job.path])
    call(["stat", job / "spec"])
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
        os.close(os.open(job / "spec", flags))
    assert job.status()["state"] == "new"
    assert job.read("spec") == b""
