"""What a sweep tells: every reason has words, only changes where only they are wanted, and its JSON."""

from dataclasses import replace

import jsonschema
import pytest

from gpuplan.cli.schema import schema_of
from gpuplan.domain.deployment import Load
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host, HostFailure, HostStatus
from gpuplan.domain.idle import Judgement, Outcome, Why
from gpuplan.present.document import text_of, width_of
from gpuplan.present.plan_document import plain
from gpuplan.present.sweep_document import sweep_document, swept_document
from gpuplan.present.sweep_text import changes_text, reason, sweep_text

BASE = Judgement(
    name="qwen3-32b",
    outcome=Outcome.KEPT,
    why=Why.NOT_YET,
    keep_alive_seconds=3600,
    idle_seconds=1200,
    load=Load(running=0, waiting=0),
)
STOPPED = replace(BASE, name="old", outcome=Outcome.STOPPED, why=Why.IDLE, idle_seconds=4000)
LEFT = Fact(
    code="GP856",
    severity=Severity.ERROR,
    subject={"deployment": "old", "host": "a", "container": "gpuplan-old"},
    figures={"why": "it hangs"},
)
SILENT = Host(
    name="b",
    address="10.0.0.2",
    status=HostStatus.UNREACHABLE,
    failure=HostFailure(stage="connect", detail="no route"),
)


@pytest.mark.parametrize("why", Why)
@pytest.mark.parametrize("columns", [80, 120])
def test_every_reason_has_words(why: Why, columns: int) -> None:
    judgement = replace(BASE, why=why, detail="gpu-a {0} [x]")
    assert reason(judgement).strip()
    shown = text_of(sweep_text([(judgement, ())], (), 1, columns))
    assert max(map(width_of, shown.splitlines())) <= columns


def test_how_long_it_has_is_told() -> None:
    assert reason(BASE) == "idle for 20 min of 60 min: 40 min to go"
    busy = replace(BASE, why=Why.IN_FLIGHT, load=Load(running=1, waiting=2))
    assert reason(busy).startswith("1 request in flight, 2 waiting")


def test_all_is_told_and_counted() -> None:
    shown = text_of(sweep_text([(BASE, ()), (STOPPED, ())], (SILENT,), 1, 80))
    assert "1 kept, 1 stopped; 1 host did not answer" in shown
    assert "no route" in shown
    assert "nothing is deployed on 2 hosts" in text_of(sweep_text([], (), 2, 80))


def test_only_changes_where_only_they_are_wanted() -> None:
    unknown = replace(BASE, outcome=Outcome.UNKNOWN, why=Why.SILENT)
    assert changes_text([(BASE, ()), (unknown, ())], 80) == ()
    left = replace(STOPPED, outcome=Outcome.LEFT)
    shown = text_of(changes_text([(BASE, ()), (left, (LEFT,))], 80))
    assert "old  not stopped" in shown
    assert "[GP856]" in shown
    assert "qwen3" not in shown


def test_json_agrees_with_its_schema() -> None:
    never = replace(BASE, why=Why.NEVER, keep_alive_seconds=-1, idle_seconds=None, load=Load())
    rows = [swept_document(never), swept_document(STOPPED, [("a", "gpuplan-old")], [LEFT], ["/x.log"])]
    document = plain(sweep_document(rows, [SILENT], dry_run=False, complete=False))
    jsonschema.validate(document, schema_of("sweep"))
    first, second = document["deployments"]
    assert (first["outcome"], first["why"], first["remaining_seconds"]) == ("kept", "never", None)
    assert second["removed"] == [{"host": "a", "container": "gpuplan-old"}]
    assert second["remaining_seconds"] == 0
    assert document["silent_hosts"] == [{"name": "b", "stage": "connect", "detail": "no route"}]
