"""A real sshd on loopback, with its own configuration and keys, and users with different login shells.

Nothing of it touches the machine's own sshd, ~/.ssh or known_hosts. The users are made for the
run and removed at its end.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

SHELLS = {
    "sh": "/bin/sh",
    "dash": "/bin/dash",
    "bash": "/bin/bash",
    "zsh": "/usr/bin/zsh",
    "fish": "/usr/bin/fish",
    "csh": "/bin/csh",
    # A second name of root, so that root's own login shell and its ~/.bashrc have no say.
    "root": "/bin/dash",
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(*command, check=True):
    return subprocess.run([str(c) for c in command], check=check, capture_output=True, text=True)


class Users:
    """One account for each login shell: names[shell]. Removed on leaving."""

    def __init__(self, place, shells=SHELLS):
        self.place = pathlib.Path(place)
        self.shells = shells
        self.names = {}

    def __enter__(self):
        for shell, program in self.shells.items():
            name = f"sfs-{uuid.uuid4().hex[:8]}-{shell}"
            home = self.place / f"home-{shell}"
            identity = ["--non-unique", "--uid", "0", "--gid", "root"] if shell == "root" else ["--gid", "nogroup"]
            run("useradd", "--no-user-group", *identity, "--create-home", "--skel", "/dev/null",
                "--home-dir", home, "--shell", program, name)
            self.names[shell] = name
            # Without PAM an account whose password is "!" is locked.
            run("usermod", "-p", "*", name)
        return self

    def home(self, shell):
        return self.place / f"home-{shell}"

    def __exit__(self, *_):
        for name in self.names.values():
            # Forced: to userdel the second name of root is always in use. Nothing is killed by that.
            run("userdel", "--force", name, check=False)
            assert run("getent", "passwd", name, check=False).returncode, f"{name} is left"


class Sshd:
    """A server. config: further lines of sshd_config. Use it as a context manager."""

    def __init__(self, place, config=(), port=None):
        self.place = pathlib.Path(place)
        self.config = list(config)
        self.port = port or free_port()
        self.process = None

    def __enter__(self):
        self.place.mkdir(parents=True, exist_ok=True)
        for key in ("host_key", "user_key"):
            if not (self.place / key).exists():
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.place / key)
        shutil.copy(self.place / "user_key.pub", self.place / "authorized_keys")
        os.chmod(self.place / "authorized_keys", 0o644)
        public = (self.place / "host_key.pub").read_text().split()
        self.known_hosts = self.place / "known_hosts"
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public[0]} {public[1]}\n")
        self.write_config()
        self.write_client_config()
        self.start()
        return self

    def write_config(self):
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.place}/host_key",
            f"AuthorizedKeysFile {self.place}/authorized_keys",
            f"PidFile {self.place}/pid",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "MaxStartups 100",
            "PerSourceMaxStartups none",
            *self.config,
        ]
        (self.place / "sshd_config").write_text("\n".join(lines) + "\n")

    def write_client_config(self, *lines):
        """The ssh_config that mounts of it are given, with the host `there`."""
        self.client_config = self.place / "ssh_config"
        self.client_config.write_text(
            "\n".join(
                [
                    "Host there",
                    "  HostName 127.0.0.1",
                    f"  Port {self.port}",
                    f"  IdentityFile {self.place}/user_key",
                    "  IdentitiesOnly yes",
                    f"  UserKnownHostsFile {self.known_hosts}",
                    "  GlobalKnownHostsFile /dev/null",
                    *lines,
                ]
            )
            + "\n"
        )

    def start(self):
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        self.log = self.place / "log"
        self.process = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-f", self.place / "sshd_config", "-E", self.log],
            stdin=subprocess.DEVNULL,
            # What a session runs must not look like a part of the test.
            env={"PATH": os.environ["PATH"]},
        )
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, "sshd does not answer"
            time.sleep(0.01)

    def sessions(self):
        """The pids of the server's processes, one or two for each connection; not the listener."""
        found, own = [], self.process.pid
        table = {}
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    stat = pathlib.Path(entry.path, "stat").read_text(errors="replace")
                    name = stat[stat.index("(") + 1 : stat.rindex(")")]
                    table[int(entry.name)] = (name, int(stat.rsplit(")", 1)[1].split()[1]))
        for pid, (name, _) in table.items():
            parent = pid
            while name == "sshd" and parent in table and parent != own:
                parent = table[parent][1]
            if name == "sshd" and parent == own and pid != own:
                found.append(pid)
        return found

    def drop(self):
        """Ends every connection at once, as a crash of the server would."""
        for pid in self.sessions():
            assert pid > 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self):
        """No more connections; those there are go on."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10)

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.drop()
        self.stop()


@contextlib.contextmanager
def server(config=(), shells=()):
    """A directory that every user can enter, an sshd in it, and users for some shells."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="spawnfs-sshd-"))
    os.chmod(place, 0o755)
    try:
        with Users(place, {s: SHELLS[s] for s in shells}) as users, Sshd(place, config) as sshd:
            sshd.users = users
            yield sshd
    finally:
        shutil.rmtree(place, ignore_errors=True)
