"""The targets that the conformance suite runs on: one entry each.

To add a target, write a generator below and mark it with @target("NAME"):

    @target("docker")
    def docker():
        engine = start_engine()               # whatever the target needs
        yield Target(
            address="docker:c1",              # TARGET on spawnfs's command line
            options=["docker_host=unix:///..."],
            env={"SOME_TOKEN": "..."},        # laid over the daemon's environment
            cannot={"utf8-only"},             # see CANNOT
        )
        engine.stop()                         # after the last test on it

The generator runs once in a session, when the first test needs the target, and
what stands after its `yield` runs at the end. Longer peers belong into a module of their own
(tests/peer_docker.py) that the entry calls. An entry may yield more than one mount's worth: each
test module mounts `address` anew, so a target must allow many mounts at once.

A test in a conformance module (every tests/test_*.py that is not test_NAME_*.py) runs
on each target and uses only the mount and `target`. Tests that make sense on one target
alone stand in tests/test_NAME_*.py, where NAME is the target's, and run on that target only.

Run a part of it:   scripts/test --target local --target docker tests/test_exit.py
"""

import contextlib
import dataclasses
import os
import tempfile
import time
import typing

import e2b_peer
import sshd

# What a target may be unable to do; a test then checks that it is refused as
# the contract says, never that nothing happens.
CANNOT = {
    "non-utf8",  # argv, env and cwd that are not UTF-8 are refused with EOPNOTSUPP or EINVAL
    "pid",  # status has no pid
    "path",  # PATH of the spec does not decide where cmd[0] is found
    "signals",  # only some signals can be sent
    "umask",  # the command's umask is the target's own
    "signal-result",  # a death by a signal can only be told as 128+N
    "input-closed",  # that a command closed its input is only known at its end
    "streams-apart",  # a stream that is held back holds the other, too
    "throughput",  # moving 200 MB takes longer than a test may: 20 MB do
}

# What a target is by nature without: tests of it, marked needs(), are not for that target.
LACKS = {
    "files": "what one exec writes to the target's disk is there for the next",
    "children": "a child can outlive the leader",
    "unread-input": "no output is lost when a command ends with input unread",
    "early-end": "the leader's end is known while a child holds its output open",
}


def contents(path):
    with open(path, "rb", buffering=0) as f:
        return f.read()


def words_of(process):
    """argv and environment of a process of /proc; both are empty for a moment in its execve(2)."""
    for _ in range(10):
        argv, environment = contents(f"{process}/cmdline"), contents(f"{process}/environ")
        if argv and environment:
            break
        try:
            os.readlink(f"{process}/exe")
        except OSError:  # a zombie, or a thread of the kernel
            break
        time.sleep(0.001)
    return argv + b"\0" + environment


def local_processes(mark: str) -> list[int]:
    """The pids on this machine whose argv or environment holds `mark`, zombies not counted."""
    found = []
    needle = os.fsencode(mark)
    own = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == own:
            continue
        try:
            if needle in words_of(f"/proc/{name}"):
                found.append(int(name))
        except OSError:
            continue  # it ended while we looked
    return found


@dataclasses.dataclass
class Target:
    # TARGET on the command line.
    address: str
    # -o options that every mount of it gets.
    options: typing.Sequence[str] = ()
    # Environment of the daemon, laid over the test's own.
    env: typing.Mapping[str, str] = dataclasses.field(default_factory=dict)
    # What it cannot do, out of CANNOT.
    cannot: typing.Collection[str] = ()
    # Spec keys that it must refuse with EOPNOTSUPP.
    refuses: typing.Collection[str] = ("pty", "limits", "user", "timeout", "sandbox")
    # Finds the processes on the target whose argv or environment holds a string.
    processes: typing.Callable[[str], list] = local_processes
    # How many execs a test of many makes on it at the most: 1000 unless each one is slow.
    many: int = 1000
    # How long a removal may take until the processes are gone, in seconds.
    kill_seconds: float = 5
    # Lines the daemon may log in any test, as regular expressions.
    noise: typing.Sequence[str] = ()
    # Set by the registry.
    name: str = ""
    # What the target's own tests need of it besides.
    engine: typing.Any = None

    def can(self, ability: str) -> bool:
        assert ability in CANNOT, ability
        return ability not in self.cannot


registry: dict[str, typing.Callable] = {}


# What a variant runs when no --target names it: a second way to the same backend's commands. What
# is above the backend has been seen on the first.
VARIANT_MODULES = {"test_cases", "test_exit", "test_kill", "test_start", "test_stdin", "test_stdout"}


def target(name, lacks=(), variant=False):
    def register(function):
        registry[name] = function
        function.variant = variant
        function.lacks = frozenset(lacks)
        assert function.lacks <= LACKS.keys()
        return function

    return register


@contextlib.contextmanager
def running(name):
    """What the target needs runs, and ends with the with statement."""
    with contextlib.contextmanager(registry[name])() as found:
        found.name = name
        yield found


@target("local")
def local():
    yield Target(address="local:")


@target("e2b")
def e2b():
    with e2b_peer.Peer() as peer:
        sandbox = peer.create()
        yield Target(
            address=f"e2b:{sandbox['sandboxID']}",
            env=peer.env,
            cannot={"non-utf8", "umask", "input-closed", "streams-apart"},
            refuses=("pty", "limits", "sandbox"),
        )


if os.environ.get("SPAWNFS_LIVE_E2B"):  # scripts/live-e2b: it costs money

    @target("e2b-live")
    def e2b_live():
        import e2b_live as live

        sandbox = live.Sandbox()
        try:
            yield Target(
                address=f"e2b:{sandbox.id}",
                cannot={"non-utf8", "umask", "input-closed", "streams-apart", "throughput"},
                refuses=("pty", "limits", "sandbox"),
                processes=sandbox.processes,
                many=100,
                kill_seconds=30,
            )
        finally:
            sandbox.delete()


# A shell says 128+N for these two signals alike, and nothing else says more.
VIA = {
    "cannot": {"input-closed", "signal-result"},
    "refuses": ("pty", "limits", "user", "sandbox"),
}


@target("via")
def via():
    yield Target(address="via:env", **VIA)


@target("via-bwrap", variant=True)
def via_bwrap():
    """Each call makes a PID name space of its own, which no second call can enter."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as tmp:
        # Not the whole of /: with a copy of the mount in the sandbox its umount ends nothing.
        sandbox = (
            "bwrap --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin "
            "--symlink usr/lib /lib --symlink usr/lib64 /lib64 --ro-bind /etc /etc "
            f"--bind {tmp} /tmp --chdir /tmp --dev /dev --proc /proc "
            "--unshare-pid --die-with-parent"
        )
        yield Target(address=f"via:{sandbox}", **VIA)


def container_target(engine, address, **kwargs):
    return Target(
        address=address,
        options=[f"docker_host={engine.host}"],
        cannot={"signal-result", "input-closed", "streams-apart"},
        refuses=("pty", "limits", "sandbox"),
        many=200,
        engine=engine,
        **kwargs,
    )


@target("docker", lacks=["early-end"])
def docker():
    import engine  # which needs the harness, which needs this module

    with engine.running(engine.Docker) as own:
        yield container_target(own, f"docker:{own.container()}")


@target("docker-image", lacks=["files", "children", "early-end"], variant=True)
def docker_image():
    """A container for each exec."""
    import engine

    with engine.running(engine.Docker) as own:
        found = container_target(own, "docker:image=debian:test")
        found.options.append("docker_network=none")
        found.many = 20
        found.refuses = ("pty", "sandbox")
        yield found


@target("podman", lacks=["children", "early-end", "unread-input"], variant=True)
def podman():
    import engine

    with engine.running(engine.Podman) as own:
        yield container_target(own, f"docker:{own.container()}")


@target("ssh")
def ssh():
    """A root login, since the tests' files are root's; other logins stand in test_ssh_*.py."""
    with sshd.server(shells=["root"]) as server:
        yield Target(
            address=f"ssh:{server.users.names['root']}@there",
            options=[f"ssh_config={server.client_config}"],
            cannot={"umask", "streams-apart"},
            refuses=("pty", "limits", "user", "sandbox"),
        )
