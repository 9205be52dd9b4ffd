"""Parts that fold: what is seen, by keys that stay."""

from gpuplan.present.document import line, text_of, width_of
from gpuplan.present.folding import Part, fitted, rows_of

LEAF = Part(key=("a", "x"), lines=(line("    leaf"),))
SHUT = Part(key=("a", "b"), lines=(line("inner"), line("more")), below=(LEAF,))
TREE = (
    Part(key=("a",), lines=(line("outer"),), below=(SHUT,), is_open=True),
    Part(key=("z",), lines=(line("z"),)),
)


def _text(opened: dict[tuple[str, ...], bool]) -> str:
    return text_of(tuple(row.line for row in rows_of(TREE, opened)))


def test_what_is_folded_is_not_seen() -> None:
    assert _text({}) == "▾ outer\n  ▸ inner\n    more\nz"
    assert _text({("a", "b"): True}) == "▾ outer\n  ▾ inner\n    more\n    leaf\nz"
    assert _text({("a",): False}) == "▸ outer\nz"


def test_a_row_knows_its_part_and_whether_that_folds() -> None:
    rows = list(rows_of(TREE, {}))
    assert [row.key for row in rows] == [("a", "#0"), ("a", "b", "#0"), ("a", "b", "#1"), ("z", "#0")]
    assert [row.can_fold for row in rows] == [True, True, True, False]


def test_what_is_too_wide_is_broken_and_nothing_lost() -> None:
    wide = Part(key=("w",), lines=(line("漢" * 30 + "ab"),))
    rows = list(rows_of(fitted((wide,), 20), {}))
    assert all(sum(width_of(span.text) for span in row.line) <= 20 for row in rows)
    assert text_of(tuple(row.line for row in rows)).replace("\n", "").replace(" ", "") == "漢" * 30 + "ab"
