"""`--idle-for`: how a duration is written."""

import pytest

from gpuplan.units import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("45", 45), ("0", 0)]
)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-5", "1.5h", "10 m", "1w", "²", "9" * 30])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write for example 90s"):
        parse_duration(text)
