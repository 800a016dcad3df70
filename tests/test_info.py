""".spawnfs: what a mount says about itself."""

import json
import os
import re
import subprocess

import pytest

from harness import SPAWNFS, unique


def test_the_files(mount):
    names = set(os.listdir(mount.path / ".spawnfs"))
    assert {"version", "config", "capabilities", "README"} <= names
    for name in ("version", "config", "capabilities", "README"):
        found = os.stat(mount.path / ".spawnfs" / name)
        text = mount.info(name)
        assert text.endswith(b"\n")
        assert found.st_size in (0, len(text))
        assert not found.st_mode & 0o222


def test_any_part_can_be_read_first(mount):
    """Who wants the end goes there first: tail, dd skip=, Python's seek."""
    for name in ("version", "config", "capabilities", "README"):
        text = mount.info(name)
        with open(mount.path / ".spawnfs" / name, "rb", buffering=0) as f:
            assert os.pread(f.fileno(), 100, len(text) - 5) == text[-5:]
            assert os.pread(f.fileno(), 100, len(text)) == b""
            assert f.read() == text


def test_version_is_the_programs_own(mount):
    text = mount.info("version").decode().strip()
    assert re.search(r"\d+\.\d+\.\d+", text)
    told = subprocess.run([SPAWNFS, "--version"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"\d+\.\d+\.\d+", told).group() in text


def test_config_is_json_and_says_what_the_mount_uses(mounted):
    mount = mounted("retain=3M", "spool_memory=128K")
    config = json.loads(mount.info("config"))
    assert config["target"] == mount.target.address
    text = json.dumps(config)
    assert str(3 << 20) in text and str(128 << 10) in text


def test_config_shows_no_secret(mounted, target):
    secret = unique("secret")
    mount = mounted(env={"SOME_TOKEN": secret})
    for name in ("version", "config", "capabilities", "README"):
        text = mount.info(name).decode()
        assert secret not in text
        for key, value in target.env.items():
            if "KEY" in key or "TOKEN" in key or "PASS" in key:
                assert value not in text, key


def test_capabilities_are_json_and_true(mount, target):
    capabilities = json.loads(mount.info("capabilities"))
    keys = {key for key, able in capabilities["spec"].items() if able}
    assert {"cmd", "env", "cwd", "stderr", "stdin", "retain"} <= keys
    assert not keys & set(target.refuses)


def test_readme_explains_the_files(mount):
    text = mount.info("README").decode()
    for word in ("spec", "stdin", "stdout", "exit", "rmdir"):
        assert word in text


def test_they_cannot_be_written(mount):
    for name in ("version", "config", "capabilities", "README"):
        with pytest.raises(OSError):
            os.open(mount.path / ".spawnfs" / name, os.O_WRONLY)
        with pytest.raises(OSError):
            os.unlink(mount.path / ".spawnfs" / name)
        assert mount.info(name)


def test_grep_through_the_whole_mount_ends_when_nothing_runs(mount, job):
    job.spec(["echo", "needle"])
    job.result()
    done = subprocess.run(
        ["grep", "-r", "--exclude-dir=.spawnfs", "needle", mount.path],
        capture_output=True, timeout=30,
    )
    assert b"stdout" in done.stdout
