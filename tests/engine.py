"""Container engines of the tests' own: a dockerd and a Podman service, each with its own
state, socket and network-less containers, started and stopped here and touching no other.

Two images: "busybox" is a root with nothing but a static busybox; "debian" is a debootstrap
of the smallest variant, made once and kept in the build directory.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

import harness
import targets

CACHE = harness.BUILD / "cache"
MIRROR = os.environ.get("SPAWNFS_DEBIAN_MIRROR", "")


def run(*command, **kwargs):
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, **kwargs
    )
    assert done.returncode == 0, f"{command}: {done.stdout.decode(errors='replace')}"
    return done.stdout.decode().strip()


def busybox_root(place):
    """A root directory that a shell-less image can be made of, too: its programs are one."""
    for name in ("bin", "etc", "proc", "tmp", "dev", "root", "home", "nowhere/empty"):
        (place / name).mkdir(parents=True)
    (place / "tmp").chmod(0o1777)
    busybox = shutil.which("busybox")
    shutil.copy(busybox, place / "bin" / "busybox")
    for applet in run(busybox, "--list").split():
        with contextlib.suppress(FileExistsError):
            (place / "bin" / applet).symlink_to("busybox")
    (place / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home:/bin/sh\n")
    (place / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")


def debian_tar():
    """A tar of a minimal Debian 12; 30 s the first time."""
    made = CACHE / "debian-bookworm.tar"
    with harness.alone_in(CACHE):
        if not made.exists():
            make_debian_tar(made)
    return made


def make_debian_tar(made):
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        root = pathlib.Path(place) / "root"
        mirror = [MIRROR] if MIRROR else []
        # In a mount name space of its own: an interrupted debootstrap leaves /proc mounted.
        run("unshare", "--mount", "debootstrap", "--variant=minbase", "bookworm", root, *mirror)
        shutil.rmtree(root / "var/cache/apt")
        shutil.rmtree(root / "usr/share/doc")
        run("chroot", root, "useradd", "--create-home", "user")
        run("tar", "-C", root, "-cf", pathlib.Path(place) / "tar", ".")
        (pathlib.Path(place) / "tar").rename(made)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("engine", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Engine:
    """What Docker and Podman have in common. `client` is a command that talks to it."""

    program = ""

    def __init__(self):
        # Short, since the path of a Unix socket has at most 107 bytes.
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="sfs-", dir="/tmp"))
        self.socket = self.place / "api.sock"
        self.host = f"unix://{self.socket}"
        self.process = None
        self.count = 0

    def start(self):
        with open(self.place / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(c) for c in self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                # Podman's monitors write there: a file "oom", say.
                cwd=self.place,
            )
        harness.wait_for(self.answers, f"{self.program} to answer: {self.place}/log", 60)

    def environment(self):
        return dict(os.environ)

    def answers(self):
        assert self.process.poll() is None, (self.place / "log").read_text()
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.api("GET", "/_ping")[0] == 200
        return False

    def api(self, method, path, body=None):
        """(status, parsed answer) of a call of the Engine API."""
        connection = UnixConnection(self.socket)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(text)
        return answer.status, text

    def busybox_tar(self):
        made = self.place / "busybox.tar"
        if not made.exists():
            root = self.place / "busybox"
            root.mkdir()
            busybox_root(root)
            run("tar", "-C", root, "-cf", made, ".")
        return made

    def images(self):
        self.client("import", self.busybox_tar(), "busybox:test")
        self.client("import", debian_tar(), "debian:test")

    def client(self, *arguments):
        raise NotImplementedError

    def container(self, image="debian:test", *command, options=()):
        """A running container that does nothing; its name."""
        self.count += 1
        name = f"c{self.count}"
        command = command or ("sleep", "infinity")
        self.client("run", "-d", "--init", "--net=none", f"--name={name}", *options, image, *command)
        return name

    def among(self, name, pids):
        """Those of the pids that are in a container, which has a PID name space of its own."""

        def space(pid):
            with contextlib.suppress(OSError):  # it has ended
                return os.readlink(f"/proc/{pid}/ns/pid")

        status, container = self.api("GET", f"/v1.41/containers/{name}/json")
        assert status == 200, container
        own = space(container["State"]["Pid"])
        assert own and own != space("self")
        return [p for p in pids if space(p) == own]

    def kill_container(self, name):
        with contextlib.suppress(AssertionError):
            self.client("rm", "-f", name)

    def stop_process(self, signo=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signo)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)

    def stop(self):
        with contextlib.suppress(OSError, AssertionError, http.client.HTTPException):
            for container in self.api("GET", "/v1.41/containers/json?all=1")[1]:
                self.api("DELETE", f"/v1.41/containers/{container['Id']}?force=1&v=1")
        self.stop_process()
        # The monitors of ended execs wait for five minutes (podman), and a dockerd that was killed
        # leaves its shims: our directory is in their arguments.
        for pid in targets.local_processes(f"{self.place}/"):
            harness.kill(pid)
        for line in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
            point = line.split()[1]
            if point.startswith(f"{self.place}/"):
                subprocess.run(["umount", "-l", point], check=False)
        shutil.rmtree(self.place, ignore_errors=True)


class Docker(Engine):
    program = "dockerd"

    def command(self):
        return [
            "/usr/sbin/dockerd",
            f"--data-root={self.place}/data",
            f"--exec-root={self.place}/exec",
            f"--pidfile={self.place}/pid",
            f"--host={self.host}",
            *self.more(),
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
        ]

    def more(self):
        return ()

    def client(self, *arguments):
        return run("/usr/bin/docker", "-H", self.host, *arguments)


class Podman(Engine):
    program = "podman"

    def __init__(self):
        super().__init__()
        # Root here may lack CAP_SYS_RESOURCE: Podman's own limits are then more than it may set.
        (self.place / "containers.conf").write_text(
            '[containers]\ndefault_ulimits=["nofile=1024:1024","nproc=1024:1024"]\nnetns="none"\n'
            '[engine]\ncgroup_manager="cgroupfs"\nevents_logger="file"\nruntime="runc"\n'
        )

    def environment(self):
        return {**os.environ, "CONTAINERS_CONF": f"{self.place}/containers.conf"}

    def own(self):
        return ["podman", f"--root={self.place}/root", f"--runroot={self.place}/run"]

    def command(self):
        return [*self.own(), "system", "service", "--time=0", self.host]

    def client(self, *arguments):
        return run(*self.own(), *arguments, env=self.environment())


@contextlib.contextmanager
def running(kind):
    engine = kind()
    try:
        engine.start()
        engine.images()
        yield engine
    finally:
        engine.stop()

