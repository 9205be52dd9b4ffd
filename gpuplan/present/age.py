"""How old a picture of the fleet is, in words."""

from datetime import UTC, datetime, timedelta

FRESH = timedelta(hours=1)
"""Memory and processes of a fleet change by the minute; after this time a picture of it is called stale."""


def age_note(taken_at: str, now: datetime) -> str:
    """One sentence on a snapshot's age, with the way out where it is stale. `now` carries its time zone."""
    taken = _moment(taken_at)
    if taken is None:
        return f"the snapshot does not say when it was taken: taken_at {taken_at[:40]!r} is not ISO 8601"
    age = now - taken
    if age < -timedelta(minutes=1):
        return f"the snapshot was taken at {taken_at}, which is still to come: one of the clocks is wrong"
    words = f"the snapshot is {_span(age)} old (taken at {taken_at})"
    if age <= FRESH:
        return words
    return f"{words}: stale, memory may be held by others now; `gpuplan probe --save FILE` takes a new one"


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _span(age: timedelta) -> str:
    seconds = max(0, round(age.total_seconds()))
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
