"""The command line: help, version, and what is wrong with it said in one sentence."""

import re
import subprocess

import pytest

from harness import ROOT, SLOW, SPAWNFS


def spawnfs(*arguments, **kwargs):
    return subprocess.run(
        [SPAWNFS, *map(str, arguments)], capture_output=True, text=True, timeout=20 * SLOW,
        stdin=subprocess.DEVNULL, **kwargs,
    )


def refused(done, *words):
    """It failed with one sentence on stderr that has these words, and mounted nothing."""
    assert done.returncode not in (0, None) and done.returncode > 0
    assert done.stdout == ""
    assert done.stderr.startswith("spawnfs: "), done.stderr
    for word in words:
        assert word.lower() in done.stderr.lower(), done.stderr
    assert len(done.stderr.splitlines()) <= 3, done.stderr


def test_help():
    for option in ("--help", "-h"):
        done = spawnfs(option)
        assert done.returncode == 0 and done.stderr == ""
        for word in ("TARGET", "MOUNTPOINT", "-f", "-o", "local:", "retain"):
            assert word in done.stdout, word


def test_every_option_of_the_help_is_taken(target, tmp_path):
    """Each OPTION=VALUE that --help names is known to the parser: a bad value is what it complains of."""
    names = re.findall(r"^ {6}([a-z_]+) ", spawnfs("--help").stdout, re.M)
    assert len(names) > 8
    for name in names:
        done = spawnfs("-f", "-o", f"{name}=\x01", "nosuch:", tmp_path)
        assert "unknown option" not in done.stderr, (name, done.stderr)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_that_cannot_be_written_is_no_success(option):
    with open("/dev/full", "w") as full:
        done = subprocess.run([SPAWNFS, option], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "No space left" in done.stderr


def test_version():
    for option in ("--version", "-V"):
        done = spawnfs(option)
        assert done.returncode == 0 and re.match(r"spawnfs \d+\.\d+\.\d+", done.stdout)


@pytest.mark.parametrize("arguments", [(), ("local:",), ("-f", "local:"), ("local:", "a", "b")])
def test_wrong_number_of_arguments(arguments):
    refused(spawnfs(*arguments), "TARGET")


def test_an_unknown_option(tmp_path):
    refused(spawnfs("--nosuch", "local:", tmp_path), "nosuch")
    refused(spawnfs("-o", "nosuch", "local:", tmp_path), "nosuch", "--help")
    refused(spawnfs("-o", "nosuch=1", "local:", tmp_path), "nosuch")
    refused(spawnfs("local:", tmp_path, "-o"))


SIZE = "bytes"
BAD_VALUES = {
    "retain=much": SIZE,
    "retain=-1": SIZE,
    "retain=": SIZE,
    "retain": SIZE,
    "retain=1Q": SIZE,
    "retain=1K": "at least 65536",
    "retain=99999999999999999999": SIZE,
    "retain=2T": "at most 1099511627776",
    "spool_memory=2T": "at most",
    "spec_bytes=16777217": "at most 16777216",
    "stdin_queue=17M": "at most 16777216",
    "execs=5000000000": "at most",
    "spool_memory=1e3": SIZE,
    "execs=0": "at least 1",
    "kill_give_up=0": "at least 0.001",
    "drain_quiet=soon": "seconds",
    "shutdown=1e10": "1e9",
    "umask=999": "octal",
    "spool=": "path",
    "allow_other=1": "no value",
    "log_level=loud": "warning",
}


@pytest.mark.parametrize("option", BAD_VALUES)
def test_a_bad_value_is_told_what_was_expected(tmp_path, option):
    refused(spawnfs("-f", "-o", option, "local:", tmp_path), option.split("=")[0], BAD_VALUES[option])


@pytest.mark.parametrize("address", ["nosuch:", "nosuch", "", "local", "LOCAL:", ":"])
def test_an_unknown_target(tmp_path, address):
    refused(spawnfs("-f", address, tmp_path), "target")


def test_an_address_that_local_does_not_have(tmp_path):
    refused(spawnfs("-f", "local:nosuch", tmp_path), "local:")


def test_the_man_page_names_every_option():
    pages = list((ROOT / "docs").glob("spawnfs.1*"))
    assert pages, "no man page in docs"
    text = pages[0].read_text().replace("\\-", "-").replace("\\_", "_")
    for name in re.findall(r"^ {6}([a-z_]+) ", spawnfs("--help").stdout, re.M):
        assert name in text, name


def test_a_current_directory_that_was_removed(tmp_path):
    """Commands would run somewhere else than who mounts believes."""
    gone, place = tmp_path / "gone", tmp_path / "m"
    gone.mkdir()
    place.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$0" local: "$1"', SPAWNFS, place],
        cwd=gone, capture_output=True, text=True, timeout=20 * SLOW, stdin=subprocess.DEVNULL,
    )
    refused(done, "current directory", "change to")
