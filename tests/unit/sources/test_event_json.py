"""What another process wrote of its deploy is read as the same events: they are worded alike."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from gpuplan.deploying.diagnose import diagnose
from gpuplan.deploying.diagnosis import MemberEvidence
from gpuplan.deploying.reduce import reduce
from gpuplan.domain.deployment import Actual, ContainerRole, Deployment, Load, Prediction, State
from gpuplan.domain.events import At, Event, Failed, Phase, Remark, SpecDecided
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Holding, Owner
from gpuplan.present.deployment_document import deployment_document
from gpuplan.present.event_words import EVENT_NAMES, event_document, event_text
from gpuplan.present.findings import word
from gpuplan.present.outcome_text import outcome_text
from gpuplan.sources.event_json import KNOWN, NotAnEvent, read_deployment, read_event, read_line
from tests.unit.deploying.specs import native, ray
from tests.unit.deploying.test_reduce import events
from tests.unit.present.test_event_words import LEADER, SAID

FAILURES = Path(__file__).parents[2] / "data" / "failure-lines.tsv"


def through_json(document: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(document))
    return read


def there_and_back(event: Event) -> At:
    return read_event(through_json(event_document(At(at=1794621600.25, event=event))))


def test_every_event_is_read() -> None:
    assert frozenset(EVENT_NAMES.values()) == KNOWN


@pytest.mark.parametrize("event", [event for event, _ in SAID])
def test_the_words_are_the_same(event: Event) -> None:
    at = At(at=1794621600.25, event=event)
    read = there_and_back(event)
    assert read.at == at.at
    assert type(read.event) is type(event)
    assert event_text(read) == event_text(at)


@given(events)
def test_any_event_comes_back(event: Event) -> None:
    at = At(at=12.5, event=event)
    assert event_text(there_and_back(event)) == event_text(at)


@pytest.mark.parametrize("spec", [native(), ray()])
def test_what_is_started_comes_back(spec: Any) -> None:
    read = there_and_back(SpecDecided(spec=spec, spec_hash="h", generation="g")).event
    assert isinstance(read, SpecDecided)
    assert [(one.host, one.name, one.role) for one in read.spec.containers] == [
        (one.host, one.name, one.role) for one in spec.containers
    ]
    assert [(one.host, one.port, one.endpoint) for one in read.spec.servers] == [
        (one.host, one.port, one.endpoint) for one in spec.servers
    ]
    assert reduce([At(at=0.0, event=read)]).endpoints == tuple(one.endpoint for one in spec.servers)


def facts() -> list[Fact]:
    """A fact of every class of failure, as a deploy meets them, and some of the order of operations."""
    found: list[Fact] = []
    for row in FAILURES.read_text().splitlines():
        evidence = MemberEvidence(
            host="h1",
            container="c",
            role=ContainerRole.SINGLE,
            state="exited",
            exit_code=1,
            finished_at=500.0,
            lines=((100.0, row.split("\t", 1)[1]),),
        )
        found += diagnose([evidence], Prediction(weights_bytes=10**9, kv_cache_bytes=10**9)).facts()[:1]
    subject = {"host": "h1", "deployment": "qwen", "gpus": (0, 1, 2, 3)}
    found.append(Fact(code="GP818", severity=Severity.ERROR, subject=subject, figures={"phase": Phase.LOAD}))
    found.append(
        Fact(code="GP815", severity=Severity.WARNING, subject={}, figures={"silent": ("h1: gone", "h2: off")})
    )
    found.append(
        Fact(
            code="GP302",
            severity=Severity.ERROR,
            subject=subject,
            figures={"need_bytes": 3, "have_bytes": 2, "gap_bytes": 1},
        )
    )
    return found


def test_findings_are_worded_the_same() -> None:
    told = facts()
    read = there_and_back(Failed(phase=Phase.LOAD, facts=tuple(told), logs=("/x", "/y"))).event
    assert isinstance(read, Failed)
    assert read.logs == ("/x", "/y")
    assert [(one.code, one.severity) for one in read.facts] == [(one.code, one.severity) for one in told]
    for before, after in zip(told, read.facts, strict=True):
        assert (word(after).headline, word(after).because, word(after).hint) == (
            word(before).headline,
            word(before).because,
            word(before).hint,
        )


def test_a_code_of_another_version_is_no_fault() -> None:
    fact = Fact(code="GP999", severity=Severity.INFO, subject={"host": "h"}, figures={"detail": "x"})
    read = there_and_back(Remark(fact=fact)).event
    assert isinstance(read, Remark)
    assert read.fact == fact


FULL = Deployment(
    name="qwen3",
    state=State.RUNNING,
    model="Qwen/Qwen3-32B",
    served_name="Qwen/Qwen3-32B",
    endpoint="http://10.0.0.11:40000",
    endpoints=("http://10.0.0.11:40000", "http://10.0.0.12:40000"),
    image="vllm/vllm-openai:v0.33.0",
    vllm_version="0.33.0",
    members=(
        replace(
            LEADER, gpus=("GPU-1",), gpu_indexes=(0, 1), health="healthy", started_at="2026-11-22T01:00:00Z"
        ),
        replace(LEADER, container="n1", state="exited", exit_code=137, oom_killed=True, message="gone"),
    ),
    predicted=Prediction(weights_bytes=5, max_concurrency=2.5, kv_cache_tokens=7),
    actual=Actual(weights_bytes=6, max_concurrency=2.25, used_bytes=(("h1", 0, 12),), load_seconds=3.5),
    load=Load(running=1, kv_cache_share=0.25),
    uptime_seconds=4,
    keep_alive_seconds=600,
    message="all is well",
)


@pytest.mark.parametrize("deployment", [FULL, Deployment(name="x", state=State.ERROR)])
def test_the_last_line(deployment: Deployment) -> None:
    line = json.dumps(deployment_document(deployment))
    read = read_line(line)
    assert read == deployment
    assert isinstance(read, Deployment)
    assert outcome_text(read, 100) == outcome_text(deployment, 100)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "3",
        '{"event": "phase_started"}',
        '{"event": "phase_started", "at": "yesterday", "phase": "lock", "awaits": "", "deadline_seconds": null}',
        '{"event": "phase_done", "at": "2026-11-14T02:00:00.250Z", "phase": "dance", "seconds": 1}',
        '{"event": "remark", "at": "2026-11-14T02:00:00.250Z", "finding": []}',
        '{"event": "member_seen", "at": "2026-11-14T02:00:00.250Z", "member": {"role": "leader"}}',
        '{"event": "deployment", "name": "x"}',
        '{"schema_version": 1, "strategies": []}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_event_is_refused(line: str | bytes) -> None:
    with pytest.raises(NotAnEvent):
        read_line(line)


def test_a_deployment_without_its_figures_is_refused() -> None:
    with pytest.raises(NotAnEvent):
        read_deployment({"event": "deployment", "state": "running"})


def test_who_holds_memory_is_read_as_it_was() -> None:
    held = (Holding(owner=Owner.PROCESS, bytes=7, name="python", user="ada", pid=4711),)
    figures = {"then_bytes": 9, "now_bytes": 2, "claim_bytes": 8, "held": held}
    fact = Fact(code="GP805", severity=Severity.ERROR, subject={"host": "h1", "gpu": 0}, figures=figures)
    event = Failed(phase=Phase.REPLACE, facts=(fact,))
    line = json.dumps(event_document(At(at=1.0, event=event)))
    assert read_line(line) == At(at=1.0, event=event)
    assert "ada" in str(word(fact))
