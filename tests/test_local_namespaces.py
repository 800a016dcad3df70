"""A mount that other mount namespaces have a copy of: its end here is its end."""

import os
import subprocess

import pytest

from harness import unique_seconds, wait_for


@pytest.fixture
def namespace():
    """Makes a mount namespace with copies of what is mounted now; each is ended with the test."""
    held = []

    def make():
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo up; read x"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        held.append(process)
        assert process.stdout.readline() == b"up\n"
        return process

    yield make
    for process in held:
        process.communicate()


@pytest.mark.parametrize("how", [["umount"], ["umount", "-l"], ["fusermount3", "-u"]])
def test_unmount_kills_although_a_copy_lives(mounted, namespace, how):
    mount = mounted()
    e = mount.new()
    mark = unique_seconds()
    e.spec(["sleep", mark])
    assert mount.target.processes(mark)
    namespace()
    subprocess.run([*how, mount.path], check=True)
    assert mount.wait_daemon() == 0
    wait_for(lambda: not mount.target.processes(mark), "the command to be killed")
    mount.broken = True


def test_other_mounts_come_and_go(mounted, tmp_path):
    mount = mounted()
    place = tmp_path / "other"
    place.mkdir()
    for _ in range(5):
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
        subprocess.run(["umount", place], check=True)
    assert mount.run(["echo", "still here"]) == ("0", b"still here\n", b"")


def test_a_bind_mount_is_the_mount_too(mounted, tmp_path):
    """The first place may be unmounted while another shows the same."""
    mount = mounted()
    place = tmp_path / "bound"
    place.mkdir()
    subprocess.run(["mount", "--bind", mount.path, place], check=True)
    try:
        os.mkdir(place / "e")
        subprocess.run(["umount", mount.path], check=True)
        (place / "e" / "spec").write_text("echo here")
        assert (place / "e" / "exit").read_text() == "0\n"
        assert (place / "e" / "stdout").read_text() == "here\n"
    finally:
        subprocess.run(["umount", place], check=True)
    assert mount.wait_daemon() == 0
    mount.broken = True
