"""Fixtures and deadlines; what a mount is stands in harness.py, the targets in targets.py."""

import contextlib
import faulthandler
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

import e2b_peer
import harness
import targets

DEADLINE_SECONDS = 30


def pytest_addoption(parser):
    parser.addoption("--target", action="append", help="only this target; may be repeated")
    parser.addoption(
        "--part",
        choices=["common", "own", "seconds", "minutes"],
        help="only the tests of all targets, the target's own, or those of these that wait for long",
    )
    parser.addoption("--share", help="what this target has to do when all are run (run.py)")


def pytest_configure(config):
    config.addinivalue_line("markers", "deadline(seconds): how long the test may take")
    config.addinivalue_line("markers", "waits(unit='seconds'): takes long and computes little")
    config.addinivalue_line("markers", "needs(nature): not for targets that lack it (LACKS)")
    if not harness.SPAWNFS.exists():
        raise pytest.UsageError(f"{harness.SPAWNFS} is missing: run `ninja -C build` first")
    for name in wanted(config):
        if name not in targets.registry:
            raise pytest.UsageError(f"no target {name}; there are {', '.join(targets.registry)}")


def wanted(config):
    """The names of the targets to run on."""
    share = config.getoption("--share")
    return [share] if share else config.getoption("--target") or list(targets.registry)


def module_target(path):
    """The target that tests/test_NAME_*.py belongs to; None for a conformance module."""
    words = path.stem.split("_")
    return words[1] if len(words) > 2 and words[1] in targets.registry else None


def of_variants(path):
    return path.stem in targets.VARIANT_MODULES


def pytest_generate_tests(metafunc):
    if "target" not in metafunc.fixturenames:
        return
    path = pathlib.Path(metafunc.module.__file__)
    own = module_target(path)
    needs = {m.args[0] for m in metafunc.definition.iter_markers("needs")}
    assert needs <= targets.LACKS.keys(), needs
    names = [
        name
        for name in ([own] if own else targets.registry)
        if not needs & targets.registry[name].lacks
        and (
            name == own
            or not targets.registry[name].variant
            or metafunc.config.getoption("--target")
            or of_variants(path)
        )
    ]
    # An empty list would be a test that is skipped; what is not wanted is deselected below.
    names = [name for name in names if name in wanted(metafunc.config)] or names
    metafunc.parametrize("target", names, indirect=True, scope="session")


def target_of(item):
    """The name of the target that it runs on; what needs none runs with local's."""
    callspec = getattr(item, "callspec", None)
    return callspec and callspec.params.get("target") or module_target(item.path) or "local"


def part_of(item):
    if not module_target(item.path):
        return "common"
    waits = item.get_closest_marker("waits")
    return (waits.args or ["seconds"])[0] if waits else "own"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    names = wanted(config)
    part = config.getoption("--part")
    items[:] = [i for i in items if target_of(i) in names and part in (None, part_of(i))]
    items.sort(key=lambda item: item.path.name == "test_silent.py")


# ---- the end: ^C lets a test end, so that what it has started is stopped ----

INTERRUPTED_SECONDS = 10


def pytest_sessionstart(session):
    def interrupt(*_):
        if session.shouldstop:
            raise KeyboardInterrupt
        session.shouldstop = "interrupted"
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        if left > INTERRUPTED_SECONDS:
            signal.setitimer(signal.ITIMER_REAL, INTERRUPTED_SECONDS)

    signal.signal(signal.SIGINT, interrupt)


# ---- deadlines: an alarm for the test, and a watchdog for the calls it cannot interrupt ----


def on_alarm(*_):
    raise harness.Hung("the test's deadline passed here")


def abort_all():
    faulthandler.dump_traceback(sys.__stderr__)
    for mount in harness.mounts - spared:
        harness.abort(mount.path)


@contextlib.contextmanager
def deadline(seconds):
    seconds *= harness.SLOW
    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    watchdog = threading.Timer(seconds + 5, abort_all)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# More than any daemon under test may ever need: one that runs away must not take the machine along.
MEMORY_MAX = 4 << 30


def watch_memory(ended):
    while not ended.wait(0.5):
        for mount in list(harness.mounts):
            with contextlib.suppress(OSError, AttributeError):
                if harness.rss(mount.pid) > MEMORY_MAX:
                    mount.daemon.kill()


@pytest.fixture(scope="session", autouse=True)
def memory_watch():
    ended = threading.Event()
    threading.Thread(target=watch_memory, args=(ended,), daemon=True).start()
    yield
    ended.set()


def seconds_of(item):
    marker = item.get_closest_marker("deadline")
    return marker.args[0] if marker else DEADLINE_SECONDS


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    with deadline(seconds_of(item)):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    with deadline(90):
        yield


# ---- fixtures ----


running = {}  # name: Target
services = contextlib.ExitStack()  # what they need, until the session ends


def run_target(name):
    if name not in running:
        running[name] = services.enter_context(targets.running(name))
    return running[name]


@pytest.hookimpl(hookwrapper=True)
def pytest_sessionfinish():
    """The targets end last: after -x or ^C mounts of them are taken down only in here."""
    yield
    running.clear()
    with deadline(120):
        services.close()


@pytest.fixture(scope="session")
def target(request):
    return run_target(request.param)


spared = set()  # mounts that are not aborted for the sake of a test on another


@pytest.fixture(scope="session", autouse=True)
def silences(request, tmp_path_factory):
    """A command that is silent for long on each target, when test_silent.py is to be run."""
    items = [i for i in request.session.items if i.path.name == "test_silent.py"]
    with contextlib.ExitStack() as stack:
        silences = {}
        for item in items:
            name = item.callspec.params["target"]
            place = tmp_path_factory.mktemp("silent") / "m"
            mount = stack.enter_context(harness.Mount(run_target(name), place))
            spared.add(mount)
            e = mount.new()
            e.spec(f"sleep {item.module.SILENCE_SECONDS}; echo silence is over")
            silences[name] = e
        yield silences


@pytest.fixture
def silent(silences, target):
    found = silences[target.name]
    spared.discard(found.mount)
    return found


@pytest.fixture(scope="module")
def shared_mount(target, tmp_path_factory):
    with harness.Mount(target, tmp_path_factory.mktemp("shared") / "m") as mount:
        yield mount
        mount.check_settled()


@pytest.fixture
def mount(shared_mount):
    """The module's mount, empty before and after the test."""
    assert shared_mount.daemon.poll() is None, f"the daemon died: {shared_mount.stderr()}"
    allowed = len(shared_mount.allowed)
    yield shared_mount
    shared_mount.remove_all()
    shared_mount.check_stderr()
    del shared_mount.allowed[allowed:]


@pytest.fixture
def job(mount):
    """An exec directory on the module's mount."""
    with mount.new() as e:
        yield e


@pytest.fixture
def mounted(target, tmp_path):
    """Makes mounts of the test's own: mounted("retain=1M") starts one."""
    with contextlib.ExitStack() as stack:
        count = 0

        def make(*options, **kwargs):
            nonlocal count
            count += 1
            return stack.enter_context(
                harness.Mount(target, tmp_path / f"m{count}", options, **kwargs)
            )

        yield make


@pytest.fixture(scope="module")
def peer():
    """The module's stand-in for E2B."""
    with e2b_peer.Peer() as running:
        yield running


@pytest.fixture(scope="session")
def clients():
    """The small readers of tests/clients, compiled once into the build directory."""
    place = harness.BUILD / "clients"
    with harness.alone_in(place):
        compile_clients(place)
    return place


def compile_clients(place):
    source = harness.ROOT / "tests" / "clients"

    def newer(made, of):
        return not made.exists() or made.stat().st_mtime < of.stat().st_mtime

    def compile_with(command, **kwargs):
        subprocess.run([str(a) for a in command], check=True, timeout=300, **kwargs)

    if newer(place / "reader_c", source / "reader.c"):
        compile_with(["cc", "-O1", "-Wall", "-Werror", "-o", place / "reader_c", source / "reader.c"])
    if newer(place / "reader_go", source / "reader.go"):
        environment = {
            **os.environ,
            "GO111MODULE": "off",
            "GOCACHE": str(place / "go-cache"),
            "GOFLAGS": "",
            "GOTOOLCHAIN": "local",
        }
        compile_with(
            ["go", "build", "-o", place / "reader_go", source / "reader.go"], env=environment
        )
    if newer(place / "Reader.class", source / "Reader.java"):
        compile_with(["javac", "-d", place, source / "Reader.java"])
