"""A printed line is one row, whatever is in it."""

from hypothesis import given
from hypothesis import strategies as st

from gpuplan.domain.deployment import ContainerRole, Member
from gpuplan.present.document import Role, text_of
from gpuplan.present.log_text import clock, label_column, log_line, member_label, said_line

MEMBER = Member(host="h100-b", container="c", role=ContainerRole.FOLLOWER, rank=1, server=2, state="running")


def test_a_row_is_who_when_what() -> None:
    assert member_label(MEMBER) == "h100-b/follower1-2"
    row = log_line("h1", "2026-11-22T01:00:06.250000000Z", "text", column=4, times=True)
    assert text_of((row,)) == "h1    01:00:06.250  text"
    assert text_of((log_line("h1", "", "text", column=0, times=False),)) == "text"
    assert clock("odd") == "odd"
    assert label_column([MEMBER]) == len("h100-b/follower1-2")
    assert label_column([]) == 0


def test_levels_are_told_by_role() -> None:
    roles = [
        log_line("", "", text, column=0, times=False)[-1].role
        for text in (
            "ERROR 11-22 bad",
            "WARNING slow",
            "INFO fine",
            "(pid=1) Traceback (most recent call last)",
        )
    ]
    assert roles == [Role.BAD, Role.WARNING, Role.PLAIN, Role.BAD]


def test_what_was_searched_for_is_marked() -> None:
    row = log_line("", "", "a Needle, a needle", column=0, times=False, found="needle")
    assert [span.text for span in row if span.role is Role.COMMAND] == ["Needle", "needle"]
    row = log_line("", "", "a Needle, a needle", column=0, times=False, found="Needle", sensitive=True)
    assert [span.text for span in row if span.role is Role.COMMAND] == ["Needle"]


@given(st.text(), st.text(min_size=1, max_size=3))
def test_any_text_is_one_harmless_row(text: str, found: str) -> None:
    row = log_line(text, text, text, column=10, times=True, found=found)
    assert all(span.text.isprintable() for span in row)
    assert said_line(text)[0].text.isprintable()
