"""Docker's time stamps, `2026-11-01T12:00:00.123456789Z`: compared to the nanosecond, so that no line changes place."""

import re
from datetime import UTC, datetime

_FORM = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)")


def nanoseconds(stamp: str) -> int | None:
    """Since 1970, UTC; None for what is no time stamp."""
    match = _FORM.fullmatch(stamp)
    if match is None:
        return None
    try:
        whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    except ValueError:
        return None
    return int(whole.timestamp()) * 10**9 + int((match[2] or "").ljust(9, "0"))


def seconds(stamp: str) -> float | None:
    """Since 1970, UTC; None for what is no time stamp."""
    exact = nanoseconds(stamp)
    return None if exact is None else exact / 10**9


def stamp_of(exact: int) -> str:
    """`2026-11-01T12:00:00.123456789Z` for nanoseconds since 1970."""
    whole, rest = divmod(exact, 10**9)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
