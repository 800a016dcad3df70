"""docker:image=IMAGE on Podman: what stands in test_docker_image.py of Docker, with the other engine."""

import pytest

import engine
import targets
from test_docker_image import (  # noqa: F401
    check_limits_of_the_container,
    image,
    test_a_child_does_not_outlive_the_leader,
    test_a_daemon_that_is_killed_leaves_no_command,
    test_a_kill_right_behind_the_start,
    test_a_live_daemons_containers_are_left_alone,
    test_a_signal_reaches_the_group,
    test_a_user_that_is_not_there,
    test_an_image_that_is_not_there,
    test_each_exec_has_its_own,
    test_entrypoint_of_the_image_is_not_in_the_way,
    test_removal_kills,
    test_what_a_killed_daemon_left_is_removed_by_the_next,
)


@pytest.fixture(scope="module")
def target():
    with engine.running(engine.Podman) as own:
        yield targets.container_target(own, f"docker:{own.container()}", name="docker")


def test_a_command(image):
    mount = image()
    spec = {"cmd": 'cat; pwd; echo "$A"; echo err >&2; exit 7', "cwd": "/etc", "env": {"A": "\n'"}}
    assert mount.run(spec, b"in\n") == ("7", b"in\n/etc\n\n'\n", b"err\n")
    assert mount.run(["nosuch"])[::2] == ("127", b"spawnfs: nosuch: command not found\n")
    assert mount.run(["sh", "-c", "kill -KILL $$"])[0] == "137"


def test_limits(image):
    """No nofile: with one, Podman leaves out its other defaults, and root here may not set them."""
    check_limits_of_the_container(image())
