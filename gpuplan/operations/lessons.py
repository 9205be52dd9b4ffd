"""What was learned so far, as the planner takes it."""

from collections.abc import Mapping

from gpuplan.planning.likeness import NO_LESSONS, Lessons
from gpuplan.sources import calibration_store

_LAST: list[tuple[calibration_store.Stored, Lessons]] = []
"""What was made of the file the last time."""


def known_lessons(environ: Mapping[str, str]) -> Lessons:
    """Every lesson that can be read; sorted again only where the file has changed."""
    stored = calibration_store.load(environ)
    if not stored.lessons:
        return NO_LESSONS
    for last, lessons in _LAST:
        if last is stored:
            return lessons
    lessons = Lessons(all=stored.lessons)
    _LAST[:] = [(stored, lessons)]
    return lessons
