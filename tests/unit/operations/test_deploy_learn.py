"""After a deploy, what its members printed is compared with the plan and kept; nothing of that stops a deploy."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuplan.domain import labels
from gpuplan.domain.calibration import Quantity
from gpuplan.domain.deployment import SecretValues
from gpuplan.domain.events import At, Remark
from gpuplan.domain.fact import Fact
from gpuplan.domain.memory import RankMemory
from gpuplan.operations.deploy_learn import learn_from_run, question_of_plan
from gpuplan.operations.deploy_prepare import Prepared, look
from gpuplan.operations.deploy_request import DeployRequest
from gpuplan.operations.deploy_run import Patience, Run, Teller
from gpuplan.operations.deploy_same import as_it_runs
from gpuplan.operations.deploy_watch import Watch
from gpuplan.operations.deployed import Existing
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions
from gpuplan.planning.estimate import estimate
from gpuplan.sources import calibration_store
from gpuplan.units import GIB

ROOT = Path(__file__).parents[3]
MODEL = str(ROOT / "tests/data/configs/Qwen__Qwen3-32B.json")


def prepare(*words: str, **changes: object) -> Prepared:
    fleet = FleetOptions(
        environ=os.environ, cwd=ROOT, inventory=ROOT / "inventory.example.yaml", no_probe=True
    )
    serving = replace(ServingOptions(context="8192", engine_args=words), **changes)  # type: ignore[arg-type]
    return look(DeployRequest(reference=MODEL, fleet=fleet, serving=serving))


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return {"XDG_STATE_HOME": str(tmp_path)}


def predicted(prepared: Prepared) -> RankMemory:
    memory = prepared.candidate.memory
    assert memory is not None
    return memory.ranks[0]


def printed(prepared: Prepared, less: float) -> tuple[str, ...]:
    """The log of a start that left so many GiB less for the cache than planned."""
    rank = predicted(prepared)
    loaded = (rank.weights.bytes + rank.weights_extra.bytes) / GIB
    cache = rank.kv_cache_bytes / GIB - less
    return (
        "(APIServer pid=1) INFO 01-01 00:00:00 [u.py:1] vLLM API server version 0.33.0",
        f"(Worker pid=2) INFO 01-01 00:00:01 [x.py:1] Model loading took {loaded:.2f} GiB and 1.0 seconds",
        f"(Worker pid=2) INFO 01-01 00:00:01 [x.py:1] Available KV cache memory: {cache:.2f} GiB",
    )


def learned(prepared: Prepared, lines: tuple[str, ...], environ: dict[str, str]) -> list[Fact]:
    """The remarks of a run whose members printed these lines."""
    told: list[At] = []
    run = Run(
        opened=cast("Any", None),
        spec=prepared.spec,
        spec_hash="",
        generation="",
        secrets=SecretValues(),
        tell=Teller(told.append),
        patience=Patience(),
    )
    watch = Watch(run)
    for spec in prepared.spec.containers:
        heard = tuple(SimpleNamespace(at="", text=line) for line in lines)
        watch.ears[spec.host, spec.name] = cast("Any", SimpleNamespace(spec=spec, lines=heard))
    learn_from_run(run, watch, prepared, environ)
    return [at.event.fact for at in told if isinstance(at.event, Remark)]


def test_the_next_plan_of_the_same_is_what_was_printed(environ: dict[str, str]) -> None:
    before = prepare()
    (fact,) = learned(before, printed(before, 0.3), environ)
    assert fact.code == "GP880"
    assert fact.figures["what"] == "KV cache"
    assert fact.figures["predicted_bytes"] - fact.figures["printed_bytes"] == pytest.approx(
        0.3 * GIB, abs=0.02 * GIB
    )
    after = prepare()
    assert predicted(before).kv_cache_bytes - predicted(after).kv_cache_bytes == pytest.approx(
        0.3 * GIB, abs=0.03 * GIB
    )
    assert predicted(after).activation.starts == (fact.figures["lesson"],)
    ignored = prepare(no_calibration=True)
    assert predicted(ignored) == predicted(before)


def test_a_start_is_predicted_without_what_was_learned_before(environ: dict[str, str]) -> None:
    first = prepare()
    learned(first, printed(first, 0.3), environ)
    again = prepare()
    (fact,) = learned(
        again, (*printed(again, 0.0), "(Worker pid=2) INFO 01-02 00:00:00 [x.py:1] again"), environ
    )
    assert (
        fact.figures["predicted_bytes"] == predicted(again).kv_cache_bytes != predicted(first).kv_cache_bytes
    )
    newest = calibration_store.load(environ).lessons[0].stages[0].of(Quantity.KV_CACHE)
    assert newest is not None
    assert newest.predicted == predicted(first).kv_cache_bytes


def test_the_question_is_the_one_that_was_planned() -> None:
    prepared = prepare()
    question = question_of_plan(prepared)
    assert question is not None
    assert estimate(question).ranks[0] == predicted(prepared)


def test_a_claim_teaches_nothing(environ: dict[str, str]) -> None:
    prepared = prepare(vram_claim="40GiB")
    assert question_of_plan(prepared) is None
    assert learned(prepared, (), environ) == []


def test_a_start_that_printed_nothing_teaches_nothing(environ: dict[str, str]) -> None:
    assert learned(prepare(), ("it says nothing of use",), environ) == []
    assert not calibration_store.lessons_file(environ).exists()


def test_what_cannot_be_kept_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "gpuplan").write_text("")
    prepared = prepare()
    (fact,) = learned(prepared, printed(prepared, 0.3), {"XDG_STATE_HOME": str(tmp_path)})
    assert (fact.code, fact.severity.value) == ("GP881", "warning")


def running(prepared: Prepared, context: int) -> Existing:
    """The deployment as it was started, serving requests of this length."""
    first = prepared.spec.containers[0]
    given = dict(first.labels)
    given[labels.PREDICTED] = json.dumps({**json.loads(given[labels.PREDICTED]), "max_model_len": context})
    container = SimpleNamespace(labels=given)
    return cast("Existing", SimpleNamespace(label=container.labels))


def test_the_same_asked_for_again_keeps_the_context_it_runs_with() -> None:
    prepared = prepare(context=None)
    longest = prepared.candidate.memory
    assert longest is not None
    context = longest.max_model_len - 16
    kept = as_it_runs(prepared.wanted, running(prepared, context), prepared.request.fleet)
    assert kept.workload.context == context


def test_another_request_is_planned_afresh() -> None:
    prepared = prepare(context=None)
    there = running(prepared, 4096)
    for other in (prepare("--max-num-seqs", "17", context=None), prepare(context="8192")):
        assert as_it_runs(other.wanted, there, other.request.fleet) == other.wanted
    too_long = running(prepared, 10**7)
    assert as_it_runs(prepared.wanted, too_long, prepared.request.fleet) == prepared.wanted
