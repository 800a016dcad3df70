"""The test envd's HTTP and control plane are as the real ones; and nothing outlives it.

What the commands in it do stands in test_e2b_peer.py.
"""

import contextlib
import http.client
import os
import struct
import subprocess

import pytest

import connect_client
import e2b_peer
import harness
from connect_client import Envd, envelope
from test_e2b_peer import envd  # noqa: F401: a fixture


# ---- HTTP ----


def status_of(envd, *arguments, **headers):
    connection, response = envd.http(*arguments, **headers)
    connection.close()
    return response


def test_plain_http_refusals(envd):
    rpc = "/process.Process/"
    assert status_of(envd, "GET", rpc + "Start").status == 405
    assert status_of(envd, "POST", rpc + "NoSuch", b"{}").status == 404
    unsupported = status_of(envd, "POST", rpc + "Start", b"x", content_type="text/plain")
    assert unsupported.status == 415 and "connect+json" in unsupported.getheader("accept-post")
    status, error = envd.call("SendInput", [])
    assert (status, error["code"]) == (400, "invalid_argument")


def test_health_and_metrics(envd):
    assert status_of(envd, "GET", "/health", x_access_token="wrong").status == 204
    assert status_of(envd, "GET", "/metrics").status == 200
    assert status_of(envd, "GET", "/metrics", x_access_token="wrong").status == 401


def test_the_access_token(envd):
    for name, kind in (("List", "json"), ("Start", "connect+json")):
        connection, response = envd.http(
            "POST",
            f"/process.Process/{name}",
            b"{}",
            **{"content_type": f"application/{kind}", "x_access_token": "wrong"},
        )
        assert response.status == 401 and b'"code":401' in response.read()
        connection.close()


def test_a_sandbox_that_is_gone(peer):
    gone = Envd(peer, {"sandboxID": "inosuch"})
    connection, response = gone.http("GET", "/health")
    assert response.status == 502 and b"The sandbox was not found" in response.read()
    connection.close()
    connection, response = gone.http("GET", "/health", user_agent="Mozilla/5.0")
    assert response.status == 502 and b"<html>" in response.read()
    connection.close()


def test_both_codecs_and_a_sandbox_that_has_only_json(peer, envd):
    """The bytes of Start(cmd=/bin/sh args=-c,exit 7) and of its answer, in binary."""
    config = b"".join(
        struct.pack("BB", tag, len(text)) + text
        for tag, text in ((0x0A, b"/bin/sh"), (0x12, b"-c"), (0x12, b"exit 7"))
    )
    request = envelope(struct.pack("BB", 0x0A, len(config)) + config)
    kind = "application/connect+proto"
    connection, response = envd.http("POST", "/process.Process/Start", request, content_type=kind)
    assert response.status == 200 and response.getheader("content-type") == kind
    body = response.read()
    end = bytes.fromhex("0a24 1a22 080e 1001 1a0d") + b"exit status 7" + b"\x22\x0dexit status 7"
    assert body.endswith(envelope(end) + envelope(b"{}", connect_client.END_OF_STREAM))
    connection.close()
    peer.set(sandbox=envd.id, jsonOnly=True)
    refused = status_of(envd, "POST", "/process.Process/Start", request, content_type=kind)
    assert refused.status == 415
    assert envd.run("true").end["exited"]


def test_tls_and_http2(tmp_path):
    certificates = e2b_peer.make_certificates(tmp_path)
    with e2b_peer.Peer(certificates=certificates) as peer:
        sandbox = peer.create(secure=False)
        headers = [f"e2b-sandbox-id: {sandbox['sandboxID']}", "e2b-sandbox-port: 49983"]
        (tmp_path / "body").write_bytes(envelope(b'{"process":{"cmd":"echo","args":["hi"]}}'))
        for version in ("2", "1.1"):
            out = harness.call(
                ["curl", "-sS", f"--http{version}", "--cacert", certificates[0]]
                + [word for h in headers for word in ("-H", h)]
                + ["-H", "content-type: application/connect+json", "-w", "%{http_version}"]
                + ["--data-binary", f"@{tmp_path}/body", f"{peer.url}/process.Process/Start"]
            )
            assert b'"stdout":"aGkK"' in out and out.endswith(version.encode())
        untrusting = subprocess.run(["curl", "-sS", peer.url], capture_output=True, check=False)
        assert b"certificate" in untrusting.stderr


# ---- the control plane ----


def test_create_connect_extend_and_delete(peer):
    sandbox = peer.create(secure=False, timeout=100)
    assert "envdAccessToken" not in sandbox and sandbox["envdVersion"] == "0.6.13"
    path = f"/sandboxes/{sandbox['sandboxID']}"

    def ttl():
        return peer.sandbox(sandbox["sandboxID"])["ttl"]

    assert peer.api("POST", path + "/connect", {"timeout": 10})[0] == 200
    assert 90 < ttl() <= 100  # only ever extended
    assert peer.api("POST", path + "/timeout", {"timeout": 20})[0] == 204
    assert 10 < ttl() <= 20
    assert peer.api("POST", path + "/refreshes", {"duration": 50})[0] == 204
    assert 40 < ttl() <= 50
    assert peer.api("GET", path)[1]["state"] == "running"
    assert peer.api("DELETE", path)[0] == 204
    status, error = peer.api("DELETE", path)
    assert (status, error["code"]) == (404, 404)


def test_api_refusals(peer):
    assert peer.request("POST", "/sandboxes", {"templateID": "base"})[0] == 401
    assert peer.api("POST", "/sandboxes", {"templateID": "nosuch"})[0] == 404
    assert peer.api("POST", "/sandboxes", {"templateID": "base", "timeout": 0})[0] == 400
    assert peer.api("POST", "/sandboxes", {})[0] == 400


def test_the_time_to_live_ends_everything_in_it(peer):
    sandbox = peer.create(timeout=1)
    envd = Envd(peer, sandbox)
    seconds = harness.unique_seconds()
    script = f"setsid sleep {seconds} & sleep {seconds}; :"
    pid, stream = envd.begin("/bin/sh", "-c", script)
    running = harness.wait_for(lambda: sleepers(seconds, 2), "both to run")
    with contextlib.suppress(ConnectionError, http.client.HTTPException):
        assert list(stream) == []
    assert stream.trailer is None  # cut, not ended
    harness.wait_for(lambda: not sleepers(seconds), f"{running} to be killed")
    assert peer.sandbox(envd.id) is None


def sleepers(seconds, count=1):
    """The pids on this machine of `sleep SECONDS`, when there are at least so many."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as f:
                if f.read() == b"sleep\0" + seconds.encode() + b"\0":
                    found.append(int(name))
    return found if len(found) >= count else []


def test_nothing_outlives_the_peer():
    seconds = harness.unique_seconds()
    with e2b_peer.Peer() as peer:
        envd = Envd(peer, peer.create())
        script = f"env -i setsid sleep {seconds} > /dev/null 2>&1 & exec sleep {seconds}"
        envd.begin("/bin/sh", "-c", script)
        harness.wait_for(lambda: sleepers(seconds, 2), "both to run")
    assert not sleepers(seconds)


def test_a_lost_peer_leaves_nothing():
    seconds = harness.unique_seconds()
    peer = e2b_peer.Peer().start()
    envd = Envd(peer, peer.create())
    pid, _ = envd.begin("sleep", seconds)
    (found,) = harness.wait_for(lambda: sleepers(seconds), "it to run")
    assert peer.host_pid(pid) == found
    peer.process.kill()
    harness.wait_for(lambda: not sleepers(seconds), "it to be killed")
    with pytest.raises(AssertionError):
        peer.stop()
