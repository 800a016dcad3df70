"""spec: its forms, how it may arrive, what is refused and how that is told."""

import contextlib
import errno
import json
import os
import time

import pytest

from harness import call, encode, unique, wait_for
from test_tree import raises


def refused(job, text, number, *words):
    """Writing text as a spec fails, status says why in these words, and nothing has started."""
    with raises(number):
        job.spec(text)
    status = job.status()
    assert status["state"] == "new"
    for word in words:
        assert word.lower() in status["error"].lower(), status["error"]
    # A spec that was refused may be written again.
    job.spec(["echo", "again"])
    assert job.read("stdout") == b"again\n"
    assert job.result() == "0"
    assert not job.status()["error"]


FORMS = {
    "object": ('{"cmd":["printf","%s","a b"]}', b"a b"),
    "string": ('{"cmd":"printf %s \'a b\'"}', b"a b"),
    "array": ('["printf","%s","a b"]', b"a b"),
    "text": ("printf %s 'a b'", b"a b"),
    "newline": ("printf %s 'a b'\n", b"a b"),
    "lines": ("printf a\nprintf ' '\nprintf b\n", b"a b"),
    "white space": ('\n \t\r{ "cmd" :\n["printf" , "a b" ] }\n\n', b"a b"),
    "escapes": ('{"cmd":["printf","%s","\\u0061\\u00e9\\ud83d\\ude00\\n\\\\\\""]}', "aé😀\n\\\"".encode()),
    # Not JSON, but what dash's echo makes of an escape.
    "line ends in strings": ('["printf","%s","a\nb"]', b"a\nb"),
    "brackets in strings": ('["printf","%s","}{][\\"}]"]', b'}{]["}]'),
}


@pytest.mark.parametrize("text, output", FORMS.values(), ids=FORMS)
def test_forms(job, text, output):
    job.spec(text)
    assert job.read("stdout") == output
    assert job.result() == "0"


@pytest.mark.parametrize("text, output", FORMS.values(), ids=FORMS)
def test_forms_byte_by_byte(job, text, output):
    fd = os.open(job / "spec", os.O_WRONLY)
    for byte in encode(text):
        assert os.write(fd, bytes([byte])) == 1
    os.close(fd)
    assert job.read("stdout") == output


def test_json_starts_with_its_last_bracket_and_not_with_close(job):
    fd = os.open(job / "spec", os.O_WRONLY)
    try:
        os.write(fd, b'{"cmd":["echo",')
        assert job.status()["state"] == "new"
        os.write(fd, b'"hi"]')
        assert job.status()["state"] == "new"
        os.write(fd, b"}")
        assert job.status()["state"] != "new"
        assert job.read("stdout") == b"hi\n"
    finally:
        os.close(fd)


def test_text_starts_with_the_last_close(job):
    fd = os.open(job / "spec", os.O_WRONLY)
    os.write(fd, b"echo ")
    second = os.dup(fd)
    os.write(fd, b"hi\n")
    os.close(fd)
    assert job.status()["state"] == "new"
    os.close(second)
    assert job.read("stdout") == b"hi\n"


@pytest.mark.parametrize(
    "command",
    [
        "echo 'echo hi' > {}",
        "printf 'echo hi' > {}",
        """echo '{{"cmd":["echo","hi"]}}' > {}""",
        """printf '{{"cmd":\n["echo",\n"hi"]\n}}\n' > {}""",
        """cat > {} <<'END'\n{{\n"cmd": ["echo",\n\t"hi"]\n}}\nEND""",
        """echo '["echo","hi"]' | tee {} > /dev/null""",
        """echo '["echo","hi"]' | dd of={} status=none""",
        """echo '["echo","hi"]' > "$T/f"; cp "$T/f" {}""",
    ],
)
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_shell_idioms(job, tmp_path, command, shell):
    call([shell, "-c", command.format(job / "spec")], env={**os.environ, "T": str(tmp_path)})
    assert job.read("stdout") == b"hi\n"


def test_a_spec_of_one_mebibyte(job):
    argument = "x" * 100_000  # the kernel's own limit for one argument is 128 KiB
    spec = {"cmd": ["sh", "-c", 'printf %s "$*" | wc -c', "sh", *[argument] * 10]}
    assert len(encode(spec)) > 1_000_000
    job.spec(spec)
    assert job.read("stdout").strip() == b"1000009"
    assert job.result() == "0"


def test_a_large_spec_byte_by_byte_is_linear(job):
    """Looking at the whole text after each byte would take minutes."""
    text = encode({"cmd": ["echo", "hi"], "env": {"A": "{[" * 20_000}})
    began = time.monotonic()
    fd = os.open(job / "spec", os.O_WRONLY)
    for i in range(0, len(text)):
        os.write(fd, text[i : i + 1])
    os.close(fd)
    assert job.read("stdout") == b"hi\n"
    assert time.monotonic() - began < 25


def test_a_spec_over_the_limit(job):
    with raises(errno.E2BIG):
        job.spec({"cmd": ["true"], "env": {"A": "x" * (3 << 20)}})
    assert job.status()["state"] == "new"
    assert job.status()["error"]
    job.spec(["echo", "small"])
    assert job.read("stdout") == b"small\n"


REFUSED = {
    "bad json": ('{"cmd":[true,]}', ""),
    "bare word": ('{"cmd":tru}', ""),
    "trailing": ('{"cmd":["true"]} x', ""),
    "two values": ('{"cmd":["true"]}{"cmd":["true"]}', ""),
    "unknown key": ('{"cmd":["true"],"comand":1}', "comand"),
    "case matters": ('{"Cmd":["true"]}', "Cmd"),
    "duplicate key": ('{"cmd":["true"],"cwd":"/","cwd":"/tmp"}', "cwd"),
    "duplicate by escape": ('{"cmd":["true"],"c\\u006dd":["false"]}', "cmd"),
    "duplicate variable": ('{"cmd":["true"],"env":{"A":"1","A":"2"}}', "A"),
    "no cmd": ("{}", "cmd"),
    "cmd empty": ('{"cmd":[]}', "cmd"),
    "cmd empty string": ('{"cmd":""}', "cmd"),
    "cmd empty name": ('{"cmd":[""]}', "cmd"),
    "cmd number": ('{"cmd":1}', "cmd"),
    "cmd null": ('{"cmd":null}', "cmd"),
    "cmd of numbers": ('{"cmd":["echo",1]}', "cmd"),
    "cmd nested": ('{"cmd":["echo",["x"]]}', "cmd"),
    "array empty": ("[]", "cmd"),
    "array of numbers": ("[1]", "cmd"),
    "escaped nul in cmd": ('{"cmd":["echo","a\\u0000b"]}', ""),
    "raw nul": (b'{"cmd":["echo","a\0b"]}', ""),
    "env array": ('{"cmd":["true"],"env":["A=1"]}', "env"),
    "env true": ('{"cmd":["true"],"env":{"A":true}}', "A"),
    "env fraction": ('{"cmd":["true"],"env":{"A":1.5}}', "A"),
    "env object": ('{"cmd":["true"],"env":{"A":{}}}', "A"),
    "env nul": ('{"cmd":["true"],"env":{"A":"x\\u0000"}}', "A"),
    "env name with =": ('{"cmd":["true"],"env":{"A=B":"x"}}', "A=B"),
    "env name empty": ('{"cmd":["true"],"env":{"":"x"}}', "env"),
    "cwd number": ('{"cmd":["true"],"cwd":1}', "cwd"),
    "cwd empty": ('{"cmd":["true"],"cwd":""}', "cwd"),
    "stderr": ('{"cmd":["true"],"stderr":"both"}', "stderr"),
    "stderr null": ('{"cmd":["true"],"stderr":null}', "stderr"),
    "stdin": ('{"cmd":["true"],"stdin":"maybe"}', "stdin"),
    "stdin bool": ('{"cmd":["true"],"stdin":true}', "stdin"),
    "retain": ('{"cmd":["true"],"retain":"lots"}', "retain"),
    "retain negative": ('{"cmd":["true"],"retain":-1}', "retain"),
    "deep": ("[" * 100_000, ""),
    "lone surrogate": ('{"cmd":["echo","\\ud800"]}', ""),
    "comment": ('{"cmd":["true"]/*x*/}', ""),
    "single quotes": ("{'cmd':['true']}", ""),
}


@pytest.mark.parametrize("text, word", REFUSED.values(), ids=REFUSED)
def test_refused_with_einval_and_a_sentence_that_names_the_key(job, text, word):
    refused(job, text, errno.EINVAL, word)


def test_an_unfinished_spec_is_an_error_at_close(job):
    fd = os.open(job / "spec", os.O_WRONLY)
    os.write(fd, b'{"cmd":["true"')
    with raises(errno.EINVAL):
        os.close(fd)
    assert job.status()["state"] == "new"
    assert job.status()["error"]
    job.spec(["echo", "again"])
    assert job.read("stdout") == b"again\n"


def test_a_nul_in_text_is_refused_at_once(job):
    refused(job, b"echo a\0b", errno.EINVAL, "NUL")


def test_white_space_alone_starts_nothing(job):
    with contextlib.suppress(OSError), open(job / "spec", "wb", buffering=0) as f:
        f.write(b" \n")
    assert job.status()["state"] == "new"


def test_the_sentence_never_quotes_a_value(job):
    secret = unique("secret")
    for text in (
        '{"cmd":["true"],"env":{"TOKEN":"%s\\u0000"}}',
        '{"cmd":["true"],"env":{"TOKEN":"%s"},"nosuch":1}',
        '{"cmd":["true"],"env":{"TOKEN":"%s","TOKEN":"x"}}',
        '{"cmd":["true"],"env":{"TOKEN":"%s" x}}',
    ):
        with raises(errno.EINVAL):
            job.spec(text % secret)
        assert secret not in (job / "status").read_text()
    assert secret not in job.mount.stderr()


def test_shells_see_the_error(job):
    for shell in ("sh", "bash"):
        script = f"""echo '{{"cmd":[]}}' > {job / 'spec'}"""
        with pytest.raises(AssertionError, match="[Ii]nvalid argument|I/O error"):
            call([shell, "-c", script])


def test_a_second_spec_is_busy(job):
    job.spec(["cat"])
    for _ in range(2):
        with raises(errno.EBUSY):
            job.spec(["echo", "second"])
    job.write("stdin", b"first")
    assert job.read("stdout") == b"first"
    assert job.result() == "0"
    with raises(errno.EBUSY):
        job.spec(["echo", "third"])
    assert job.result() == "0"


def test_white_space_after_the_value_in_the_same_open(job):
    fd = os.open(job / "spec", os.O_WRONLY)
    os.write(fd, b'["echo","x"]')
    assert os.write(fd, b"\n") == 1
    os.close(fd)
    assert job.read("stdout") == b"x\n"


def test_more_after_the_value_in_the_same_open(job):
    fd = os.open(job / "spec", os.O_WRONLY)
    os.write(fd, b'["echo","x"]')
    with pytest.raises(OSError):
        os.write(fd, b'["echo","y"]')
    os.close(fd)
    assert job.read("stdout") == b"x\n"


def test_read_back(job):
    assert job.read("spec") == b""
    secret = unique("secret")
    spec = {
        "cmd": ["sh", "-c", "exit 0"],
        "env": {"TOKEN": secret, "NUMBER": 7, "GONE": None, "OFF": False},
        "stderr": "merged",
        "stdin": "none",
    }
    job.spec(spec)
    text = job.read("spec")
    assert secret.encode() not in text
    shown = json.loads(text)
    assert shown["cmd"] == spec["cmd"]
    assert shown["env"]["TOKEN"] == shown["env"]["NUMBER"] == "[REDACTED]"
    assert shown["env"]["GONE"] is None
    assert shown["env"]["OFF"] in (None, False)
    assert shown["stderr"] == "merged" and shown["stdin"] == "none"
    assert os.stat(job / "spec").st_size == len(text)


def test_read_back_of_a_refused_spec_shows_no_secret(job):
    secret = unique("secret")
    with raises(errno.EINVAL):
        job.spec('{"cmd":["true"],"env":{"A":"%s"},"x":1}' % secret)
    assert secret.encode() not in job.read("spec")


def test_keys_that_the_target_cannot_do(target, job):
    examples = {
        "pty": [True, {"rows": 24, "cols": 80}],
        "limits": [{"pids": 5}],
        "user": ["nobody"],
        "timeout": [5],
        "sandbox": ["sbx"],
    }
    for key in target.refuses:
        for value in examples[key]:
            refused_key(job, key, value)
    job.spec(["echo", "in the end"])
    assert job.read("stdout") == b"in the end\n"


def refused_key(job, key, value):
    with raises(errno.EOPNOTSUPP):
        job.spec({"cmd": ["true"], key: value})
    status = job.status()
    assert status["state"] == "new" and key in status["error"], status


def test_one_bad_character_in_the_middle(job):
    """A mutation of each byte never hangs, never crashes, and either runs or is refused."""
    good = b'{"cmd":["true","x"],"env":{"A":"b"}}'
    for i in range(len(good)):
        with job.mount.new() as e:
            text = good[:i] + b"]" + good[i + 1 :]
            try:
                with open(e / "spec", "wb", buffering=0) as f:
                    f.write(text)
            except OSError as error:
                assert error.errno in (errno.EINVAL, errno.EOPNOTSUPP), (text, error)
            assert e.status()["state"] in ("new", "starting", "running", "draining", "done")


def test_white_space_alone_is_told_in_status(job):
    """`echo "$UNSET" > spec` waits for a spec; who waits with it can see why."""
    job.spec("  \n")
    wait_for(lambda: "white space" in (job.status()["error"] or ""), "the sentence")
    job.spec(["true"])
    assert job.result() == "0" and job.status()["error"] is None


@pytest.mark.parametrize("again", ["open", "truncate"])
def test_the_rest_of_a_text_that_was_begun_anew_is_no_text(job, again):
    """Else the end of one writer's JSON would be run as a shell command."""
    first = os.open(job / "spec", os.O_WRONLY | os.O_TRUNC)
    os.write(first, b'{"cmd":["printf","%s","')
    if again == "open":
        os.close(os.open(job / "spec", os.O_WRONLY | os.O_TRUNC))
    else:
        os.truncate(job / "spec", 0)
    with raises(errno.EBUSY):
        os.write(first, b'echo MADE UP #"]}')
    assert "anew" in job.status()["error"]
    os.close(first)
    assert job.status()["state"] == "new"
    job.spec(["echo", "second"])
    assert job.read("stdout") == b"second\n" and job.result() == "0"


def test_the_rest_of_anothers_refused_text_is_no_text(job):
    first, second = (os.open(job / "spec", os.O_WRONLY | os.O_APPEND) for _ in range(2))
    os.write(first, b'{"cmd":')
    with raises(errno.EINVAL):
        os.write(second, b"]")
    with raises(errno.EBUSY):
        os.write(first, b'"echo MADE UP"}')
    os.close(first)
    os.close(second)
    assert job.status()["state"] == "new"


def test_a_reader_that_begins_in_the_middle(job):
    job.spec(["true", *["x%07d" % i for i in range(20000)]])
    whole = job.read("spec")
    with open(job / "spec", "rb", buffering=0) as f:
        assert os.pread(f.fileno(), 30, len(whole) - 30) == whole[-30:]
