"""An event is one line for people, at most a hundred columns, and one JSON object for scripts."""

import json
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.domain.deployment import ContainerRole, Member, State
from gpuplan.domain.events import (
    At,
    Event,
    Failed,
    MemberSeen,
    Milestone,
    Phase,
    PhaseDone,
    PhaseStarted,
    Remark,
    SpecDecided,
    StateChanged,
    Transfer,
    Undone,
)
from gpuplan.domain.fact import Fact, Severity
from gpuplan.present.document import width_of
from gpuplan.present.event_words import EVENT_NAMES, event_document, event_text
from gpuplan.present.numbers import span
from gpuplan.units import GIB, MIB
from tests.unit.deploying.specs import ray

TOKEN = "hf_" + "A" * 30
FACT = Fact(code="GP626", severity=Severity.ERROR, subject={"host": "h1"}, figures={})
LEADER = Member(host="h100-a", container="gpuplan-qwen3-n0", role=ContainerRole.LEADER, state="running")
PULL = Transfer(phase=Phase.IMAGE, host="h100-b", done_bytes=int(3.1 * GIB), total_bytes=int(9.8 * GIB))
SAID: list[tuple[Event, str | None]] = [
    (PULL, "h100-b     pulling 3.1 of 9.8 GiB (31 %)"),
    (replace(PULL, done_bytes=9 * MIB, total_bytes=None), "h100-b     pulling 9.0 MiB"),
    (replace(PULL, done_bytes=0, total_bytes=0), "h100-b     pulling 0.0 KiB"),
    (replace(PULL, about="from h100-a"), "h100-b     from h100-a 3.1 of 9.8 GiB (31 %)"),
    (replace(PULL, done_bytes=99 * GIB), "h100-b     pulling 9.8 of 9.8 GiB (100 %)"),
    (
        PhaseStarted(phase=Phase.LOCK, awaits="h1, h2 to be free of other deploys", deadline_seconds=90),
        "lock, waiting for h1, h2 to be free of other deploys (at most 90 s)",
    ),
    (PhaseDone(phase=Phase.LOAD, seconds=200), "load: done in 3 min 20 s"),
    (PhaseDone(phase=Phase.CONNECT, seconds=1), None),
    (MemberSeen(member=LEADER), "h100-a     gpuplan-qwen3-n0 (leader): running"),
    (
        MemberSeen(member=replace(LEADER, state="exited", exit_code=1)),
        "h100-a     gpuplan-qwen3-n0 (leader): exited with code 1",
    ),
    (
        MemberSeen(member=replace(LEADER, state="exited", exit_code=137, oom_killed=True)),
        "h100-a     gpuplan-qwen3-n0 (leader): exited, killed for memory",
    ),
    (
        MemberSeen(member=replace(LEADER, health="healthy")),
        "h100-a     gpuplan-qwen3-n0 (leader): running, healthy",
    ),
    (
        Milestone(host="h100-a", container="c", kind="weights", text=f"Loading\x1b[0m took 3 s {TOKEN}"),
        "h100-a     Loading�[0m took 3 s ***",
    ),
    (
        Milestone(host="h1", container="c", kind="starting", text="▄▄ ▄█ █ ▀▄▀ █ version 0.33.0"),
        "h1         version 0.33.0",
    ),
    (
        MemberSeen(member=replace(LEADER, health="starting")),
        "h100-a     gpuplan-qwen3-n0 (leader): running",
    ),
    (PhaseDone(phase=Phase.LOCK, seconds=0.2), None),
    (StateChanged(state=State.RUNNING), "running"),
    (StateChanged(state=State.ERROR, message="no GPU"), "error: no GPU"),
    (Undone(host="h1", container="n0", what="removed"), "h1         removed n0"),
    (Undone(host="h1", container="n0", what="restored"), "h1         runs again: n0"),
    (Undone(host="h1", container="n0", what="left", why="silent"), "h1         left behind: n0 (silent)"),
    (Failed(phase=Phase.LOAD, facts=()), "failed: no cause was found"),
    (
        SpecDecided(spec=ray(), spec_hash="h", generation="g"),
        "qwen3: Qwen/Qwen3-32B in 3 containers on h100-a, h100-b",
    ),
]


@pytest.mark.parametrize(("event", "words"), SAID)
def test_words(event: Event, words: str | None) -> None:
    assert event_text(At(at=0.0, event=event)) == words


def test_a_fact_is_its_headline() -> None:
    text = event_text(At(at=0.0, event=Remark(fact=FACT)))
    assert text is not None
    assert text.endswith("[GP626]")
    failed = event_text(At(at=0.0, event=Failed(phase=Phase.LOAD, facts=(FACT,))))
    assert failed is not None
    assert failed == f"failed: {text}"[:100]


@given(st.text(max_size=300), st.text(max_size=60))
def test_a_line_is_one_line_of_a_hundred_columns(text: str, host: str) -> None:
    for event in (
        Milestone(host=host, container="c", kind="x", text=text),
        StateChanged(state=State.ERROR, message=text),
        PhaseStarted(phase=Phase.LOAD, awaits=text),
        MemberSeen(member=replace(LEADER, host=host, message=text)),
    ):
        told = event_text(At(at=0.0, event=event))
        assert told is not None
        assert width_of(told) <= 100
        assert told.isprintable() or "\n" not in told


def test_a_line_fits_the_terminal_it_is_for() -> None:
    told = At(at=0.0, event=Milestone(host="h1", container="c", kind="x", text="long " * 50))
    assert [width_of(event_text(told, width) or "") for width in (80, 200)] == [80, 200]


@pytest.mark.parametrize("event", [event for event, _ in SAID])
def test_document(event: Event) -> None:
    document = json.loads(json.dumps(event_document(At(at=1794621600.25, event=event))))
    assert list(document)[:3] == ["schema_version", "event", "at"]
    assert document["schema_version"] == 1
    assert document["at"] == "2026-11-14T02:00:00.250Z"
    assert TOKEN not in json.dumps(document)


def test_every_event_has_a_name() -> None:
    assert set(EVENT_NAMES) == set(get_args(Event))


def test_fields_are_the_events_own() -> None:
    started = PhaseStarted(phase=Phase.LOCK, awaits="h1", deadline_seconds=9.5)
    document = event_document(At(at=0.0, event=started))
    assert document == {
        "schema_version": 1,
        "event": "phase_started",
        "at": "1970-01-01T00:00:00.000Z",
        "phase": "lock",
        "awaits": "h1",
        "deadline_seconds": 9.5,
    }
    failed = event_document(At(at=0.0, event=Failed(phase=Phase.LOAD, facts=(FACT,), logs=("/x",))))
    assert failed["findings"][0]["code"] == "GP626"
    assert failed["logs"] == ["/x"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min 59 s"),
        (9000, "2 h 30 min"),
    ],
)
def test_span(seconds: float, words: str) -> None:
    assert span(seconds) == words
