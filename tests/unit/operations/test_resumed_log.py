"""A log that is taken up again: each line once, whatever order it was written down in."""

from gpuplan.operations.resumed_log import ResumedLog
from gpuplan.remote.container_logs import LogLine, Output


def line(second: float, text: str) -> LogLine:
    return LogLine(at=f"2026-11-22T01:00:{second:012.9f}Z", text=text, stream=Output.STDOUT)


def test_lines_come_once_and_as_often_as_they_were_printed() -> None:
    log = ResumedLog()
    assert log.start is None
    first = [line(1, "one"), line(2.0, "same"), line(2.0, "same"), line(1.9, "late"), line(2.5, "two")]
    assert list(log.unseen(first)) == first
    assert log.start == "2026-11-22T01:00:01.500000000Z"
    again = [*first[1:], line(2.0, "same"), line(2.4, "very late"), line(2.5, "three")]
    assert [one.text for one in log.unseen(again)] == ["same", "very late", "three"]
    assert list(log.unseen(again)) == []


def test_a_line_that_was_not_given_was_not_seen() -> None:
    log = ResumedLog()
    lines = [line(1, "one"), line(1, "two")]
    assert next(log.unseen(lines)) == lines[0]
    assert list(log.unseen(lines)) == lines[1:]


def test_a_line_without_a_time_is_as_old_as_the_newest() -> None:
    log = ResumedLog()
    assert list(log.unseen([line(1, "one")]))
    bare = LogLine(at="", text="bare", stream=Output.STDOUT)
    assert log.time_of(bare) == log.time_of(line(1, "one"))
