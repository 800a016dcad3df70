"""docker: over TCP with TLS, as the docker command is told to: DOCKER_HOST, DOCKER_CERT_PATH,
DOCKER_TLS_VERIFY."""

import dataclasses
import hashlib
import os
import socket
import subprocess
import time

import pytest

import engine
from harness import Mount, unique_seconds, wait_for
from test_docker_exec import refused_mount
from test_kill import gone


def openssl(place, *arguments):
    subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)


def certificates(place):
    """An authority, the engine's certificate and a client's, all made here."""
    place.mkdir()
    openssl(place, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ca",
            "-keyout", "ca-key.pem", "-out", "ca.pem")
    for name, subject in (("server", "localhost"), ("client", "client")):
        (place / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl(place, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={subject}",
                "-keyout", f"{name}-key.pem", "-out", f"{name}.csr")
        openssl(place, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca-key.pem",
                "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")
    user = place / "user"
    user.mkdir()
    for made, named in (("ca.pem", "ca.pem"), ("client.pem", "cert.pem"), ("client-key.pem", "key.pem")):
        (user / named).write_bytes((place / made).read_bytes())
    return place


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class SecureDocker(engine.Docker):
    def more(self):
        made = certificates(self.place / "certificates")
        self.port = free_port()
        return [
            f"--host=tcp://127.0.0.1:{self.port}",
            "--tlsverify",
            f"--tlscacert={made}/ca.pem",
            f"--tlscert={made}/server.pem",
            f"--tlskey={made}/server-key.pem",
        ]


@pytest.fixture(scope="module")
def secure():
    with engine.running(SecureDocker) as own:
        own.name = own.container()
        own.env = {
            "DOCKER_HOST": f"tcp://localhost:{own.port}",
            "DOCKER_TLS_VERIFY": "1",
            "DOCKER_CERT_PATH": f"{own.place}/certificates/user",
        }
        yield own


@pytest.fixture
def mount(target, secure, tmp_path):
    of = dataclasses.replace(target, address=f"docker:{secure.name}", options=(), env=secure.env)
    with Mount(of, tmp_path / "m") as mount:
        yield mount


def test_a_command(mount):
    assert mount.run("cat; echo err >&2; exit 3", b"in\n") == ("3", b"in\n", b"err\n")
    assert mount.run(["nosuch"])[0] == "127"


def test_much_both_ways(mount):
    data = os.urandom(1 << 20) * 8
    result, out, err = mount.run(["cat"], data)
    assert (result, err) == ("0", b"")
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()


def test_the_end_of_input_alone(mount):
    with mount.new() as e:
        e.spec("cat; sleep 0.5; echo after")
        e.append("stdin", b"before\n")
        e.wait_size(7)
        e.ctl("eof")
        assert e.read("stdout") == b"before\nafter\n"
        assert e.result() == "0"


def test_kill(mount):
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sh", "-c", f"setsid sleep {mark} & sleep {mark}"])
        wait_for(lambda: len(mount.target.processes(mark)) >= 2, "the tree")
    gone(mount, mark)


def test_the_tail(target, secure, tmp_path):
    of = dataclasses.replace(target, address=f"docker:{secure.name}", options=(), env=secure.env)
    with Mount(of, tmp_path / "m", ["retain=64K", "spool_memory=64K"]) as mount, mount.new() as e:
        e.spec(["head", "-c", "1500000", "/dev/zero"])
        time.sleep(3)
        assert e.read("stdout") == bytes(1_500_000)
        assert e.result() == "0"


def test_an_engine_of_another_authority(target, secure, tmp_path):
    other = certificates(tmp_path / "other")
    said = refused_mount(target, tmp_path, f"docker:{secure.name}",
                         env={**secure.env, "DOCKER_CERT_PATH": f"{other}/user"})
    assert "cannot reach the engine" in said


def test_no_certificate_of_ours(target, secure, tmp_path):
    only_ca = tmp_path / "only-ca"
    only_ca.mkdir()
    (only_ca / "ca.pem").write_bytes((secure.place / "certificates/ca.pem").read_bytes())
    said = refused_mount(target, tmp_path, f"docker:{secure.name}",
                         env={**secure.env, "DOCKER_CERT_PATH": str(only_ca)})
    assert "cannot reach the engine" in said
    said = refused_mount(target, tmp_path, f"docker:{secure.name}",
                         env={**secure.env, "DOCKER_CERT_PATH": "/nowhere"})
    assert "/nowhere/ca.pem" in said


def test_tls_is_never_left_out(target, secure, tmp_path):
    """A port that speaks no TLS gets nothing of ours in the clear."""
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", 0))
        plain.listen()
        plain.settimeout(20)
        seen = []
        import threading

        def accept():
            connection = plain.accept()[0]
            seen.append(connection.recv(65536))
            connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        port = plain.getsockname()[1]
        said = refused_mount(target, tmp_path, f"docker:{secure.name}",
                             env={**secure.env, "DOCKER_HOST": f"tcp://localhost:{port}"})
        thread.join()
    assert "cannot reach the engine" in said
    assert seen and seen[0][:1] == b"\x16" and b"HTTP" not in seen[0]
