"""Docker's time stamps to the nanosecond."""

import pytest

from gpuplan.deploying.timestamps import nanoseconds, seconds, stamp_of


@pytest.mark.parametrize(
    ("stamp", "exact"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:00.123456789Z", 123_456_789),
        ("1970-01-01T02:00:00+02:00", 0),
        ("2026-13-01T00:00:00Z", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_stamps_are_read(stamp: str, exact: int | None) -> None:
    assert nanoseconds(stamp) == exact
    assert seconds(stamp) == (None if exact is None else exact / 10**9)


def test_a_stamp_comes_back_as_it_was() -> None:
    stamp = "2026-11-22T01:20:00.123456789Z"
    assert stamp_of(nanoseconds(stamp) or 0) == stamp
