"""Case 22: nothing here has a default time limit (agentscope-java#2974, E2B#1074).

The commands start with the session and are asked at its end, so that the three minutes cost
little; this module runs last (conftest.py).
"""

import datetime

import pytest

SILENCE_SECONDS = 180


@pytest.mark.deadline(SILENCE_SECONDS + 60)
def test_a_command_that_is_silent_for_three_minutes_lives(silent):
    assert silent.read("stdout") == b"silence is over\n"
    assert silent.result() == "0"
    status = silent.status()
    started, ended = (
        datetime.datetime.fromisoformat(status[key].replace("Z", "+00:00"))
        for key in ("started", "ended")
    )
    assert (ended - started).total_seconds() >= SILENCE_SECONDS - 1
