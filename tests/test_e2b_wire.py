"""What comes over the wire from a sandbox, and how a mount finds its way to one.

More of what goes wrong stands in test_e2b_faults.py. The peer carries out what was asked and
spoils its answer as planned (tests/peers/fault.mjs), in both codecs.
"""

import os
import subprocess

import pytest

import e2b_peer
import harness
import targets
from harness import Mount, wait_for


class Site:
    """A sandbox, a mount of it, and a text that is in the commands of this test alone."""

    def __init__(self, peer, mount, id):
        self.peer = peer
        self.mount = mount
        self.id = id
        self.mark = harness.unique()

    def script(self, text):
        return {"cmd": ["/bin/sh", "-c", f"{text}\n: {self.mark}"]}

    def plan(self, fault, **fields):
        """Spoils the Start of the next command of script()."""
        self.peer.plan(call="Start", match=self.mark, fault=fault, **fields)

    def is_usable(self):
        """Whatever happened to one command, the next is well."""
        assert self.mount.run({"cmd": ["echo", "well"]}) == ("0", b"well\n", b"")


@pytest.fixture(params=["proto", "json"])
def site(request, peer, tmp_path):
    id = peer.create()["sandboxID"]
    peer.set(sandbox=id, jsonOnly=request.param == "json")
    target = targets.Target(address=f"e2b:{id}", env=peer.env, name="e2b")
    with Mount(target, tmp_path / "m") as mount:
        mount.allow("^spawnfs: warning: ")
        yield Site(peer, mount, id)
    peer.reset()


# ---- trailers ----

TRAILERS = {
    "success": "{}",
    "canceled": '{"error":{"code":"canceled","message":"context canceled"}}',
    "no JSON": "<html>",
}


@pytest.mark.parametrize("trailer", TRAILERS)
def test_a_trailer_without_end_is_a_loss_and_the_command_is_killed(site, trailer):
    site.plan("replace", at="data", after=1, flags=2, payload=TRAILERS[trailer], last=True)
    with site.mount.new() as e:
        e.spec(site.script("echo one; read x; echo two; exec sleep 86399.5"))
        e.wait_size(4)
        e.append("stdin", b"\n")
        assert e.result() == "lost stream_closed"
        assert e.read("stdout") == b"one\n"
        assert e.status()["error"]
        wait_for(lambda: not site.peer.sandbox(site.id)["processes"], "it to be killed", 20)
    site.is_usable()


# ---- what comes after the end event ----

AFTER_THE_END = {
    "another end": {
        "fault": "append",
        "at": "end",
        "event": {"end": {"exited": True, "status": "exit status 0"}},
    },
    "unknown flags": {"fault": "append", "at": "end", "flags": 8, "payload": "x"},
    "bytes after the trailer": {"fault": "append", "at": "trailer", "payload": "junk"},
    "a trailer that is no JSON": {"fault": "replace", "at": "trailer", "payload": "junk"},
    "a stall": {"fault": "stall", "at": "trailer"},
}


@pytest.mark.parametrize("case", AFTER_THE_END)
def test_the_end_event_is_the_end(site, case):
    fields = dict(AFTER_THE_END[case])
    site.plan(fields.pop("fault"), **fields)
    assert site.mount.run(site.script("echo one; echo two >&2; exit 3")) == ("3", b"one\n", b"two\n")
    site.is_usable()


# An envd that was upgraded in place tells of the ends of older commands in another way.
ENDS = {
    "a signal": ({"exitCode": 137, "status": "killed"}, "signal KILL"),
    "another signal": ({"exitCode": 139, "status": "segmentation fault"}, "signal SEGV"),
    "with a core": ({"exitCode": -1, "status": "signal: aborted (core dumped)"}, "signal ABRT"),
    "a real-time signal": ({"exitCode": -1, "status": "signal: signal 40"}, None),
    "an exit": ({"exitCode": 5, "exited": True, "status": "exited"}, "5"),
    "an exit like a signal": ({"exitCode": 137, "exited": True, "status": "exited"}, "137"),
    "no exit status": ({"exitCode": 256, "exited": True, "status": "exited"}, "lost unknown_end"),
    "an exit below all": ({"exitCode": -1, "exited": True, "status": "exited"}, "lost unknown_end"),
    "no word": ({"status": "wait4 error", "error": "wait4: no child processes"}, "lost unknown_end"),
    "a signal of the future": ({"exitCode": -1, "status": "signal: unheard of"}, "lost unknown_end"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_forms_of_an_end(site, case):
    end, result = ENDS[case]
    site.plan("append", at="data", event={"end": end})
    with site.mount.new() as e:
        e.spec(site.script("echo one"))
        assert e.result() == (result or e.result())
        assert e.result() != "0" and e.read("stdout") == b"one\n"


# ---- chunking ----


def test_a_response_in_packets_of_one_byte(site):
    site.plan("drip", every=0)
    text = bytes(range(256)) * 8
    octal = "".join(f"\\{byte:03o}" for byte in text)
    script = f"printf '{octal}'; sleep .05; echo x >&2; exit 9"
    assert site.mount.run(site.script(script)) == ("9", text, b"x\n")


def test_events_of_the_future_are_passed_over(request, site):
    """An unknown member of the event: in binary field 15, a string."""
    binary, text = "\x0a\x03\x7a\x01x", '{"event":{"later":{"a":1}},"more":[1,2]}'
    json = "json" in request.node.callspec.id
    site.plan("append", at="start", payload=text if json else binary)
    assert site.mount.run(site.script("echo one; exit 3")) == ("3", b"one\n", b"")


# ---- signals ----


def test_a_signal_costs_no_output(site):
    """envd's own SendSignal does: here in every run."""
    site.peer.set(sandbox=site.id, cutTail=True)
    script = 'trap "head -c 300000 /dev/zero; echo tail; exit 0" TERM; echo up; while :; do sleep .05; done'
    with site.mount.new() as e:
        e.spec(site.script(script))
        e.wait_size(3)
        e.ctl("signal TERM")
        assert e.result() == "0"
        assert e.read("stdout") == b"up\n" + bytes(300_000) + b"tail\n"


def test_signals_arrive_in_order(site):
    """Each goes by a call of its own, and the first of them may be slow."""
    script = """
        trap 'echo one' USR1; trap 'echo two' USR2; trap 'echo three; exit 0' TERM; echo up
        while :; do sleep .05; done
    """
    with site.mount.new() as e:
        e.spec(site.script(script))
        e.wait_size(3)
        site.peer.plan(call="Start", match="/dev/null && exit", wait=1500)
        for name in ("USR1", "USR2", "TERM"):
            e.ctl(f"signal {name}")
        wait_for(lambda: site.peer.state()["spoiled"], "the first to be late")
        assert e.result() == "0"
        assert e.read("stdout") == b"up\none\ntwo\nthree\n"


# ---- the sandbox ends ----


@pytest.mark.waits
@pytest.mark.deadline(90)
def test_a_killed_daemon_leaves_what_ends_by_itself(peer, tmp_path):
    """A sandbox of the mount's own has a time to live, which is renewed while the mount lives."""
    before = {s["id"] for s in peer.state()["sandboxes"]}
    target = targets.Target(address="e2b:new?template=base&timeout=15", env=peer.env, name="e2b")
    with Mount(target, tmp_path / "m") as mount:
        mount.broken = True
        (id,) = {s["id"] for s in peer.state()["sandboxes"]} - before
        assert mount.run({"cmd": ["sleep", "17"]}) == ("0", b"", b"")
        mount.new().spec({"cmd": ["sleep", "86399.5"]})
        wait_for(lambda: peer.sandbox(id)["processes"], "it to run")
        mount.daemon.kill()
        wait_for(lambda: peer.sandbox(id) is None, "the sandbox to end", 20)


# ---- no way there ----


def spawnfs(env, *arguments):
    environment = {**os.environ, **env}
    return subprocess.run(
        [harness.SPAWNFS, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30 * harness.SLOW,
        check=False,
    )


def test_a_control_plane_that_cannot_be_reached(peer, tmp_path):
    with e2b_peer.refusing_url() as url:
        done = spawnfs({**peer.env, "E2B_API_URL": url}, "-f", "e2b:inosuch", tmp_path)
    assert done.returncode != 0 and url in done.stderr
    assert e2b_peer.KEY not in done.stderr


def test_an_envd_that_cannot_be_reached(peer, tmp_path):
    sandbox = peer.create()
    with e2b_peer.refusing_url() as url:
        env = {**peer.env, "E2B_SANDBOX_URL": url}
        done = spawnfs(env, "-f", f"e2b:{sandbox['sandboxID']}", tmp_path)
    assert done.returncode != 0 and url in done.stderr
    assert sandbox["envdAccessToken"] not in done.stderr


def test_tls_is_verified_and_an_authority_can_be_given(tmp_path):
    certificates = e2b_peer.make_certificates(tmp_path)
    with e2b_peer.Peer(certificates=certificates) as peer:
        address = f"e2b:{peer.create()['sandboxID']}"
        (tmp_path / "place").mkdir()
        untrusting = spawnfs(peer.env, "-f", address, tmp_path / "place")
        assert untrusting.returncode != 0 and "certificate" in untrusting.stderr
        target = targets.Target(
            address=address, env=peer.env, options=[f"ca={certificates[0]}"], name="e2b"
        )
        with Mount(target, tmp_path / "m") as mount:
            assert mount.run({"cmd": ["cat"]}, stdin=bytes(500_000)) == ("0", bytes(500_000), b"")
            assert peer.state()["connections"]["total"] < 10  # HTTP/2: they share
