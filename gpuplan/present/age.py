"""How old a picture of the fleet is, in words."""

from datetime import UTC, datetime, timedelta

FRESH = timedelta(hours=1)
"""Memory and processes of a fleet change by the minute; after this time a picture of it is called stale."""


def age_note(taken_at: str, now: datetime) -> str:
    """One sentence on a snapshot's age, with the way out where it is stale. `now` carries its time zone."""
    taken = moment(taken_at)
    if taken is None:
        return f"the snapshot does not say when it was taken: taken_at {taken_at[:40]!r} is not ISO 8601"
    age = now - taken
    if age < -timedelta(minutes=1):
        return f"the snapshot was taken at {taken_at}, which is still to come: one of the clocks is wrong"
    words = f"the snapshot is {_span(age)} old (taken at {taken_at})"
    if age <= FRESH:
        return words
    return f"{words}: stale, memory may be held by others now; `gpuplan probe --save FILE` takes a new one"


def ago(then: datetime, now: datetime) -> str:
    """`2 s ago`, `3 h ago`; both carry their time zone. A moment to come is now."""
    return f"{_span(now - then)} ago"


def clock_time(then: datetime) -> str:
    """`2026-11-21 02:00:00 UTC`."""
    return f"{then.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def moment(text: str) -> datetime | None:
    """An ISO 8601 time, of UTC where it names no zone; None: it is none."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def _span(age: timedelta) -> str:
    seconds = max(0, round(age.total_seconds()))
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
