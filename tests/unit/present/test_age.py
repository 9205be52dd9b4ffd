"""A snapshot says how old it is."""

from datetime import UTC, datetime

import pytest

from gpuplan.present.age import age_note

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("taken_at", "words", "stale"),
    [
        ("2026-11-21T11:59:30Z", "30 s old", False),
        ("2026-11-21T11:01:00Z", "59 min old", False),
        ("2026-11-21T10:00:00Z", "2 h old", True),
        ("2026-11-18T12:00:00+00:00", "3 d old", True),
        ("2026-11-21T09:00:00", "3 h old", True),
        ("2026-11-22T12:00:00Z", "still to come", False),
        ("yesterday", "does not say when", False),
    ],
)
def test_the_age_and_whether_it_is_stale(taken_at: str, words: str, stale: bool) -> None:
    note = age_note(taken_at, NOW)
    assert words in note
    assert ("stale" in note) is stale
