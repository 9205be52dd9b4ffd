"""What a deploy teaches: its members' logs compared with the plan, and kept for the next one. It never stops a deploy."""

import time
from collections.abc import Mapping
from dataclasses import replace

from gpuplan.deploying import timestamps
from gpuplan.domain.calibration import Quantity
from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.events import Remark
from gpuplan.domain.fact import Fact, Severity
from gpuplan.engine.arguments import parse, without_command
from gpuplan.engine.startup_log import LogLine
from gpuplan.errors import GpuplanError
from gpuplan.operations.deploy_prepare import Prepared
from gpuplan.operations.deploy_run import Run
from gpuplan.operations.deploy_watch import Watch
from gpuplan.operations.learn import learn_from_lines
from gpuplan.planning.judge import Judge
from gpuplan.planning.learned import Learned
from gpuplan.planning.offers import supply_of
from gpuplan.planning.question import Question

LEARNED = "GP880"
NOT_KEPT = "GP881"


def learn_from_run(run: Run, watch: Watch, prepared: Prepared, environ: Mapping[str, str]) -> None:
    """Learn from every server of a run, whether it serves or failed, and say in one remark what was learned."""
    question = question_of_plan(prepared)
    if question is None:
        return
    found = [
        learn_from_lines(
            _lines(watch, server.number),
            origin=f"deployment {run.spec.name}",
            at=time.time(),
            environ=environ,
            question=question,
        )
        for server in run.spec.servers
    ]
    kept = [one for one in found if one.lesson is not None]
    if kept:
        run.tell(Remark(fact=_fact(run.spec, kept[0])))


def _lines(watch: Watch, server: int) -> dict[str, tuple[LogLine, ...]]:
    return {
        f"{host}/{name}": tuple((timestamps.seconds(line.at), line.text) for line in ear.lines)
        for (host, name), ear in watch.ears.items()
        if ear.spec.server == server
    }


def question_of_plan(prepared: Prepared) -> Question | None:
    """The estimator's question behind what is started; None where only a claim is known, or a card is gone."""
    request, candidate = prepared.request, prepared.candidate
    memory = candidate.memory
    if memory is None:
        return None
    devices = {(offer.host, offer.index): offer.device for offer in supply_of(request.fleet).offers}
    shape = replace(candidate.parallelism, data=1)
    places = [(host.host, gpu.index) for host in candidate.placement for gpu in host.gpus][: shape.world_size]
    if len(places) < shape.world_size or any(place not in devices for place in places):
        return None
    question = Judge(request).question(shape, tuple(devices[place] for place in places))
    share = question.utilization
    if share is None:
        share = _share(prepared)
    return replace(question, utilization=share, context=memory.max_model_len)


def _share(prepared: Prepared) -> float | None:
    """The share of a card the engine is given where none was asked for."""
    words = without_command(prepared.candidate.vllm_args)
    try:
        return parse(words, version=prepared.request.version).gpu_memory_utilization
    except GpuplanError:
        return None


def _fact(spec: DeploymentSpec, learned: Learned) -> Fact:
    """What is said of it: the figure that was planned, with whatever was known by then, beside the printed one."""
    if learned.unwritten is not None:
        return not_kept(spec.name, learned.unwritten)
    told = learned.of(Quantity.KV_CACHE) or learned.of(Quantity.LOADING)
    cached = told is not None and told.quantity is Quantity.KV_CACHE
    planned = spec.predicted.kv_cache_bytes if cached else spec.predicted.weights_bytes
    return Fact(
        code=LEARNED,
        severity=Severity.INFO,
        subject={"deployment": spec.name},
        figures={
            "what": "KV cache" if cached else "loading",
            "predicted_bytes": told.predicted if told is not None and planned is None else planned,
            "printed_bytes": None if told is None else told.actual,
            "lesson": None if learned.lesson is None else learned.lesson.id,
        },
    )


def not_kept(deployment: str, why: str) -> Fact:
    """What was learned of a deployment or a trial could not be written down."""
    return Fact(
        code=NOT_KEPT, severity=Severity.WARNING, subject={"deployment": deployment}, figures={"why": why}
    )
