"""A mount under test: starting it, using it, looking at its daemon, ending it whatever happened.

Nothing in here waits for luck: wait_for() asks for a condition until a generous deadline, and
a call that hangs in the mount is cut off by aborting the connection (abort()), so that
a hang is a failed test and never a stuck run.
"""

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import time
import uuid

import targets

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SPAWNFS_BUILD", ROOT / "build")).resolve()
SPAWNFS = BUILD / "spawnfs"
# How much longer everything may take: with sanitizers, and with other tests beside (run.py).
SLOW = float(os.environ.get("SPAWNFS_SLOW", "1"))
CONNECTIONS = pathlib.Path("/sys/fs/fuse/connections")

# Every live mount: what the watchdog aborts when a test hangs.
mounts = set()


class Hung(Exception):
    """A call did not return before its deadline."""


def wait_for(condition, what, seconds=10.0, every=0.005):
    """Returns the first true value of condition(), or fails with `what` after `seconds`.

    what: a text, or a function that makes it.
    """
    deadline = time.monotonic() + seconds * SLOW
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            what = what() if callable(what) else what
            raise AssertionError(f"not within {seconds * SLOW:g} s: {what}")
        time.sleep(every)
        every = min(every * 1.5, 0.1)


@contextlib.contextmanager
def alone_in(directory):
    """While it makes what is kept in the directory, pytests of other targets wait."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def sanitized():
    """Whether the daemon is built with AddressSanitizer, which takes more memory."""
    return b"__asan_init" in SPAWNFS.read_bytes()


def unique(prefix="mark"):
    return f"{prefix}-{uuid.uuid4().hex[:16]}"


def unique_seconds():
    """An argument of sleep(1) that no other process on the machine has."""
    return f"86399.{uuid.uuid4().int % 10**12:012d}"


# ---- processes of this machine ----


def process_state(pid):
    """The letter of /proc/PID/stat (proc(5)): R, S, D, Z...; None when it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def parents():
    """Maps each pid to its parent and state."""
    table = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat", errors="replace") as f:
                    state, ppid = f.read().rsplit(")", 1)[1].split()[:2]
                table[int(entry.name)] = (int(ppid), state)
            except OSError:
                continue
    return table


def descendants(pid):
    """Every process below pid, as {pid: state}."""
    table, found = parents(), {}
    grown = True
    while grown:
        grown = False
        for child, (parent, state) in table.items():
            if child not in found and (parent == pid or parent in found):
                found[child] = state
                grown = True
    return found


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def names_of_open_files(pid):
    names = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # it has been closed
            names.append(os.readlink(entry.path))
    return names


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def rss(pid):
    """Resident bytes, shared memory that the process maps included."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text).group(1)) * 1024


def kill(pid, signo=signal.SIGKILL):
    assert isinstance(pid, int) and pid > 1, pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signo)


# ---- mounts ----


def mount_entry(path):
    """(connection number, type) of the mount at path, or None."""
    path = str(path)
    found = None
    for line in pathlib.Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        left, right = line.split(" - ")
        fields = left.split()
        point = re.sub(r"\\(\d{3})", lambda m: chr(int(m.group(1), 8)), fields[4])
        if point == path:
            found = int(fields[2].split(":")[1]), right.split()[0]
    return found


def abort(path):
    """Cuts the connection of the fuse mount at path: every caller in it gets ECONNABORTED."""
    entry = mount_entry(path)
    if not entry or not entry[1].startswith("fuse"):
        return
    if not CONNECTIONS.exists() or not os.listdir(CONNECTIONS):
        subprocess.run(["mount", "-t", "fusectl", "fusectl", CONNECTIONS], check=False)
    with contextlib.suppress(OSError):
        (CONNECTIONS / str(entry[0]) / "abort").write_text("1")


def detach(path):
    abort(path)
    while mount_entry(path):
        if subprocess.run(["umount", "-l", path], capture_output=True).returncode:
            break


class Mount:
    """A running spawnfs. Use it as a context manager; leaving it checks and ends it."""

    program = SPAWNFS
    # What the daemon may say without a test having asked for it.
    QUIET = re.compile(r"^spawnfs: (info|debug): ")

    def __init__(self, target, path, options=(), env=None, wrap=(), arguments=()):
        self.target = target
        self.path = pathlib.Path(path)
        # Of two options of one name the later one counts.
        self.options = [f"shutdown={5 * SLOW:g}", *target.options, *options]
        self.mark = unique("spawnfs-test")
        self.env = {**os.environ, **target.env, "SPAWNFS_TEST": self.mark, **(env or {})}
        self.wrap = list(wrap)
        self.arguments = list(arguments)
        self.daemon = None
        self.allowed = [re.compile(p) for p in target.noise]
        self.stderr_path = self.path.parent / (self.path.name + ".stderr")
        self.seen = 0  # bytes of stderr that were checked
        self.broken = False  # a test killed the daemon, or means to
        self.count = 0

    def command(self):
        command = [*self.wrap, self.program, "-f"]
        for option in self.options:
            command += ["-o", option]
        return [*command, *self.arguments, self.target.address, self.path]

    def start(self):
        self.path.mkdir(exist_ok=True)
        with open(self.stderr_path, "ab") as stderr:
            self.daemon = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=self.env
            )
        mounts.add(self)
        self.pidfd = os.pidfd_open(self.daemon.pid)

        def up():
            assert self.daemon.poll() is None, f"spawnfs ended: {self.stderr()}"
            try:
                return mount_entry(self.path) and (self.path / ".spawnfs" / "version").read_bytes()
            except OSError:  # a dead mount that is about to be replaced
                return None

        wait_for(up, "the mount to appear", 20, every=0.001)
        self.files = open_files(self.pid) if not self.wrap else None
        return self

    @property
    def pid(self):
        return self.daemon.pid

    def stderr(self):
        return self.stderr_path.read_text(errors="backslashreplace")

    def allow(self, *patterns):
        """The daemon may log lines that match, from here on."""
        self.allowed += [re.compile(p) for p in patterns]

    def check_stderr(self):
        with open(self.stderr_path, "rb") as f:
            f.seek(self.seen)
            new = f.read()
        self.seen += len(new)
        lines = new.decode(errors="backslashreplace").splitlines()
        bad = [
            line
            for line in lines
            if not self.QUIET.match(line) and not any(p.search(line) for p in self.allowed)
        ]
        assert not bad, "unexpected on the daemon's stderr:\n" + "\n".join(lines)

    # ---- execs ----

    def new(self, name=None, mode=0o700):
        if name is None:
            self.count += 1
            name = f"exec{self.count}"
        os.mkdir(self.path / name, mode)
        return Exec(self, name)

    def run(self, spec, stdin=None):
        """A whole exec: (line of exit, stdout, stderr); its directory is removed."""
        with self.new() as e:
            e.spec(spec)
            if stdin is not None:
                e.write("stdin", stdin)
            out = e.read("stdout")
            return e.result(), out, e.read("stderr")

    def info(self, name):
        return (self.path / ".spawnfs" / name).read_bytes()

    def remove_all(self):
        for name in os.listdir(self.path):
            if name != ".spawnfs":
                os.rmdir(self.path / name)

    def check_settled(self):
        """With no exec left: no descriptor more than at the start, no zombie, one thread."""
        if self.target.name != "local" or self.wrap:
            return
        wait_for(
            lambda: open_files(self.pid) <= self.files,
            lambda: f"{self.files} descriptors, as at the start: {names_of_open_files(self.pid)}",
        )
        wait_for(
            lambda: "Z" not in descendants(self.pid).values(), "the daemon to reap its zombies"
        )

    # ---- the end ----

    def wait_daemon(self, seconds=15):
        """Waits for the daemon's end; its status as subprocess gives it, None when it hangs."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(seconds * SLOW * 1000):
            return None
        return self.daemon.wait()

    def left(self):
        return [p for p in self.target.processes(self.mark) if p != self.pid]

    def unmount(self):
        """fusermount3 -u or umount; returns what it printed, "" when it worked."""
        done = subprocess.run(["umount", self.path], capture_output=True, text=True, timeout=20 * SLOW)
        return done.stderr if done.returncode else ""

    def stop(self):
        """Unmounts, and puts right whatever is left; then says what was wrong."""
        faults = []
        if self.daemon is None:
            return
        try:
            if not self.broken and self.daemon.poll() is not None:
                faults.append(f"the daemon ended by itself: {self.daemon.returncode}")
            if mount_entry(self.path) and not self.broken:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    why = self.unmount()
                    if why:
                        faults.append(f"umount: {why}")
                    else:
                        status = self.wait_daemon()
                        if status:
                            faults.append(f"the daemon's exit status was {status}")
            elif self.daemon.poll() is None and self.broken:
                self.daemon.terminate()
                self.wait_daemon(5)
            if mount_entry(self.path):
                if not self.broken:
                    faults.append("the mount had to be detached")
                detach(self.path)
                self.wait_daemon(5)
            if self.daemon.poll() is None:
                faults.append("the daemon had to be killed")
                self.daemon.kill()
                self.wait_daemon(5)
        finally:
            mounts.discard(self)
            os.close(self.pidfd)
        try:
            wait_for(lambda: not self.left(), "", 2)
        except AssertionError:
            for pid in self.left():
                with contextlib.suppress(OSError):
                    command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                    faults.append(f"a process was left: {pid} {command!r}")
                if self.target.name == "local":
                    kill(pid)
        try:
            self.check_stderr()
        except AssertionError as e:
            faults.append(str(e))
        assert not faults, "; ".join(faults)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        try:
            self.stop()
        except AssertionError:
            if kind is None:
                raise
            print("and at the end of the mount:", *self.stderr().splitlines()[-20:], sep="\n")


def encode(spec):
    """The text of a spec: bytes and str as they are, anything else as JSON.

    Bytes that are not UTF-8 stand in a str as os.fsdecode() makes them.
    """
    if isinstance(spec, bytes):
        return spec
    if not isinstance(spec, str):
        spec = json.dumps(spec, ensure_ascii=False)
    return spec.encode(errors="surrogateescape")


class Exec:
    """One exec directory."""

    def __init__(self, mount, name):
        self.mount = mount
        self.name = name
        self.path = mount.path / name

    def __truediv__(self, name):
        return self.path / name

    def __fspath__(self):
        return str(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(self.path)

    def spec(self, spec):
        try:
            self.write("spec", encode(spec))
        except OSError as error:
            with contextlib.suppress(OSError):
                error.strerror += f" ({self.status()['error']})"
            raise

    def write(self, name, data, flags=os.O_WRONLY | os.O_TRUNC):
        """Writes all of data through one open, as `>` does; errors are the write's own."""
        fd = os.open(self.path / name, flags)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def append(self, name, data):
        self.write(name, data, os.O_WRONLY | os.O_APPEND)

    def ctl(self, line):
        self.write("ctl", line.encode() + b"\n")

    def read(self, name):
        """To the end, blocking."""
        with open(self.path / name, "rb", buffering=0) as f:
            return b"".join(iter(lambda: f.read(1 << 20), b""))

    def result(self):
        """The line of exit, without its newline."""
        text = self.read("exit")
        assert text.endswith(b"\n") and text.count(b"\n") == 1, text
        return text[:-1].decode()

    def status(self):
        return json.loads((self.path / "status").read_bytes())

    def size(self, name="stdout"):
        return os.stat(self.path / name).st_size

    def wait_size(self, size, name="stdout"):
        wait_for(lambda: self.size(name) >= size, f"{size} bytes in {name}")

    def wait_state(self, *states):
        wait_for(lambda: self.status()["state"] in states, f"state {states}")

    def wait_up(self):
        """Waits until the command has said "up", as its first line; returns a reader of the rest."""
        stream = self.lines()
        line = line_of(stream)
        assert line == b"up\n", line
        return stream

    def lines(self, name="stdout"):
        """A reader that gives one line at a time."""
        return open(self.path / name, "rb", buffering=0)


def line_of(stream):
    """One line from an unbuffered file."""
    line = b""
    while not line.endswith(b"\n"):
        byte = stream.read(1)
        assert byte, f"the stream ended after {line!r}"
        line += byte
    return line


@contextlib.contextmanager
def child(*args, **kwargs):
    """A process of the test that is killed at the end, whatever it does."""
    process = subprocess.Popen([str(a) for a in args], **kwargs)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        try:
            process.wait(5 * SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{args} cannot be killed: state {process_state(process.pid)}"
            ) from None
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@contextlib.contextmanager
def small_disk(place, size):
    """A file system of so many KiB at a new directory; it can be remounted larger."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}K", "none", place], check=True)
    yield place
    wait_for(
        lambda: subprocess.run(["umount", place], stderr=subprocess.DEVNULL).returncode == 0,
        "the small disk to be free",
    )


def blocked(pid):
    """Waits until a process sleeps in a request to a mount; never uninterruptibly."""

    def parked():
        state = process_state(pid)
        assert state is not None, "the process ended instead of blocking"
        try:
            where = pathlib.Path(f"/proc/{pid}/wchan").read_text()
        except OSError:
            return False
        return state == "S" and ("request_wait" in where or "fuse" in where)

    wait_for(parked, f"process {pid} to block in the mount")


def call(command, **kwargs):
    """Runs a program to its end; returns its stdout; fails when it fails or hangs."""
    with child(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs) as process:
        try:
            out, err = process.communicate(timeout=30 * SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{command} hangs") from None
        assert process.returncode == 0, f"{command}: {process.returncode}, {err!r}"
        return out




def local_marks(mark):
    """The processes of this machine with a mark, whichever the target."""
    return targets.local_processes(mark)
