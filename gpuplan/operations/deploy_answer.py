"""From started containers to servers that answer: watched until they serve, asked once, and compared with the plan."""

from dataclasses import replace

from gpuplan.deploying import timestamps
from gpuplan.domain.deployment import Actual
from gpuplan.domain.events import Phase
from gpuplan.engine.startup_log import actual_of
from gpuplan.operations.deploy_prepare import Prepared
from gpuplan.operations.deploy_ready import answer_once
from gpuplan.operations.deploy_run import Run
from gpuplan.operations.deploy_watch import Watch

TOKENLESS = "skip_tokenizer_init"


def serve_and_answer(run: Run, watch: Watch, prepared: Prepared) -> Actual:
    """Every server answers a real request afterwards. Raises Halted."""
    watch.until_served()
    run.tell.phase(Phase.ANSWER, "one real request to be answered", run.patience.answer)
    tokenless = bool(prepared.workload.engine.values.get(TOKENLESS))
    for server in run.spec.servers:
        answer_once(run, server, prepared.category, tokenless=tokenless)
    return actual(run, watch)


def actual(run: Run, watch: Watch) -> Actual:
    """What the engine printed of itself, and what its GPUs report now."""
    lines = {
        f"{host}/{name}": tuple((timestamps.seconds(line.at), line.text) for line in ear.lines)
        for (host, name), ear in watch.ears.items()
    }
    ours = {(one.host, gpu) for one in run.spec.containers for gpu in one.gpus}
    fleet = run.opened.read_again(run.spec.hosts)
    used = tuple(
        (host.name, gpu.index, gpu.total_bytes - gpu.free_bytes)
        for host in fleet.hosts
        for gpu in host.gpus
        if (host.name, gpu.uuid) in ours and gpu.total_bytes is not None and gpu.free_bytes is not None
    )
    return replace(actual_of(lines), used_bytes=used)
