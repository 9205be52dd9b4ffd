"""Memory of real vLLM start-ups against what the engine printed: every bound of `tests/benchmarks/accuracy.py`."""

from pathlib import Path

import pytest

from tests.benchmarks.accuracy import BOUNDS, Bound, logged_starts
from tests.benchmarks.starts import COLLECTED, PUBLISHED, Start
from tests.tools import write_accuracy

LEAST = {PUBLISHED: 90, COLLECTED: 40}


@pytest.mark.parametrize("sample", LEAST)
def test_enough_starts_are_compared(sample: str) -> None:
    assert sum(start.corpus == sample for start in logged_starts()) >= LEAST[sample]


@pytest.mark.parametrize(
    ("sample", "bound"),
    [(sample, bound) for sample, bounds in BOUNDS.items() for bound in bounds],
    ids=lambda value: value.name if isinstance(value, Bound) else str(value),
)
def test_bound_is_kept(sample: str, bound: Bound) -> None:
    value = bound.value([start for start in logged_starts() if start.corpus == sample])
    assert bound.kept(value), value


def test_an_excuse_names_a_wrong_answer() -> None:
    """Excuses that are not needed any more would hide the next fault."""
    needless = [
        (start.name, what) for start in logged_starts() for what in start.excused if not _wrong(start, what)
    ]
    assert not needless


def _wrong(start: Start, what: str) -> bool:
    if what == "verdict":
        return start.verdict not in (None, "right") or start.check_right is False
    return abs(start.errors[what]) > 0.5


def test_the_page_is_current() -> None:
    """`python -m tests.tools.write_accuracy` writes it anew."""
    assert write_accuracy.PAGE.read_text(encoding="utf-8") == write_accuracy.page()
    readme = Path(write_accuracy.README).read_text(encoding="utf-8")
    assert write_accuracy.readme_with(readme, write_accuracy.summary()) == readme
