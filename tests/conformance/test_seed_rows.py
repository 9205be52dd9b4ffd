"""Every row of the tables S3 (parallel configuration) and S4 (scheduling) has a test that names it: `test_s3_1_…`."""

import re
from pathlib import Path

import pytest

ROWS = {
    "S3": ("S3.1", "S3.2", "S3.3", "S3.4", "S3.5", "S3.6", "S3.7"),
    "S4": (
        "S4.1",
        "S4.2",
        "S4.3",
        "S4.4",
        "S4.5",
        "S4.6",
        "S4.7",
        "S4.8",
        "S4.9",
        "S4.10",
        "S4.11",
        "S4.12",
    ),
}
FILES = {"S3": "test_parallel_rows.py", "S4": "test_scheduler_rows.py"}
NAMED = re.compile(r"^def test_s(\d+)_(\d+)_\w+\(", re.MULTILINE)


def named(text: str) -> set[str]:
    """Rows that tests of a module name."""
    return {f"S{table}.{row}" for table, row in NAMED.findall(text)}


@pytest.mark.parametrize("table", ROWS)
def test_every_row_is_named_by_a_test(table: str) -> None:
    text = (Path(__file__).parent / FILES[table]).read_text(encoding="utf-8")
    missing = sorted(set(ROWS[table]) - named(text))
    assert not missing, f"no test names {', '.join(missing)}"
    assert named(text) <= set(ROWS[table]), "a test names a row that is not there"


def test_a_row_is_not_named_by_a_longer_number() -> None:
    assert named("def test_s4_10_limits() -> None:\n") == {"S4.10"}
