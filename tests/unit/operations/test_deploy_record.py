"""What a deploy told, kept as it happens."""

import json
from pathlib import Path

import pytest

from gpuplan.domain.events import At, Event, Phase, PhaseStarted, Transfer, Undone
from gpuplan.operations.deploy_record import Record
from gpuplan.present.event_words import event_document


def at(event: Event) -> At:
    return At(at=1.0, event=event)


def test_what_was_told_is_written_before_the_next_thing_happens(tmp_path: Path) -> None:
    record = Record(tmp_path / "tiny" / "g1", lambda _event: None, event_document)
    record(at(PhaseStarted(phase=Phase.LOCK, awaits="hosts")))
    record(at(Transfer(phase=Phase.IMAGE, host="a", done_bytes=1, total_bytes=2)))
    record(at(PhaseStarted(phase=Phase.CREATE, awaits="containers")))
    lines = (tmp_path / "tiny" / "g1" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["phase_started", "transfer", "phase_started"]


def test_a_reader_that_goes_away_is_told_of_once(tmp_path: Path) -> None:
    def gone(_event: At) -> None:
        raise BrokenPipeError

    record = Record(tmp_path, gone, event_document)
    with pytest.raises(BrokenPipeError):
        record(at(PhaseStarted(phase=Phase.LOCK, awaits="hosts")))
    record(at(PhaseStarted(phase=Phase.UNDO, awaits="containers")))
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 2


def test_what_was_cleared_away_before_is_not_taken_back(tmp_path: Path) -> None:
    record = Record(tmp_path, lambda _event: None, event_document)
    record(at(Undone(host="a", container="c1", what="removed")))
    assert record.taken_back == set()
    record(at(PhaseStarted(phase=Phase.UNDO, awaits="containers")))
    record(at(Undone(host="a", container="c2", what="removed")))
    record(at(Undone(host="b", container="c2", what="left", why="silent")))
    assert record.taken_back == {("a", "c2")}
    assert record.left == ("c2 on b",)
