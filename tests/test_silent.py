"""Case 22: nothing here has a default time limit (agentscope-java#2974, E2B#1074).

The commands start with the session and are asked at its end, so that the three minutes cost
little; this module runs last (conftest.py).
"""

import time

import pytest

SILENCE_SECONDS = 180


@pytest.mark.deadline(SILENCE_SECONDS + 60)
def test_a_command_that_is_silent_for_three_minutes_lives(silent):
    e, since = silent
    assert e.status()["state"] == "running"
    assert e.read("stdout") == b"silence is over\n"
    assert time.monotonic() - since >= SILENCE_SECONDS - 1
    assert e.result() == "0"
