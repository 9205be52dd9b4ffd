"""Knobs that change which GPUs can be taken, or how the model lies on them: each is planned again as a whole."""

from collections.abc import Iterator
from dataclasses import replace

from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, Host
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import StrategyName
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.planning.allocatable import ours_by_gpu, ours_on, use_of
from gpuplan.planning.passing_shares import shares_below
from gpuplan.planning.released import released
from gpuplan.planning.remedies.case import Case
from gpuplan.planning.remedies.engine_knobs import share_step
from gpuplan.planning.remedies.ladder import Apply, Ladder, Step, argument, ladder_of, with_arguments
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.strategies.evict import Busy, Running, deployments

MOST_DEPLOYMENTS = 8
MOST_PROCESSES = 6
MOST_SIBLINGS = 4


def utilization_down(case: Case) -> Iterator[Ladder]:
    """Smaller shares of each GPU at which one more passes the start-up check, the largest first."""
    asked = case.request.utilization
    if asked is None or case.claim_only or "GP201" not in case.codes:
        return
    own = case.strategy is StrategyName.MANUAL
    shares = shares_below(case.request, case.supply, asked, own=own)
    yield ladder_of("gpu_memory_utilization", tuple(share_step(share, asked) for share in shares), each=True)


def dtype(case: Case) -> Iterator[Ladder]:
    """float16 where a card has no bfloat16."""
    if "GP111" not in case.codes or case.arguments.dtype != "auto":
        return

    def apply(request: PlanRequest) -> PlanRequest:
        changed = with_arguments(request, dtype="float16")
        return replace(changed, profile=replace(request.profile, dtype="float16"))

    yield ladder_of("dtype", (replace(argument("dtype", "float16", {}, 0.5), apply=apply),))


def experts(case: Case) -> Iterator[Ladder]:
    """Whole experts on each rank (`--enable-expert-parallel`)."""
    if case.request.profile.expert_count and not case.arguments.enable_expert_parallel:
        figures = {"experts": case.request.profile.expert_count}
        yield ladder_of("expert_parallel", (argument("enable_expert_parallel", True, figures, 0.4),))


def siblings(case: Case) -> Iterator[Ladder]:
    """The model's lighter variants, the heaviest of them first."""
    profile = case.request.profile
    weights = rank_weights(profile, Split()).parameters if profile.layer_order else 0
    found = []
    for sibling in case.request.siblings():
        lighter = rank_weights(sibling, Split()).parameters
        if not weights or lighter < weights:
            found.append((-lighter, sibling.name, sibling))
    for lighter, name, sibling in sorted(found, key=lambda item: item[:2])[:MOST_SIBLINGS]:
        share = 1 + lighter / weights if weights else 0.0
        yield ladder_of(
            "sibling",
            (
                Step(
                    change={"model": name},
                    figures={
                        "quantization": sibling.quantization or sibling.dtype,
                        "weights_bytes": -lighter,
                        "asked_bytes": weights,
                    },
                    size=2.0 + share,
                    apply=_model(sibling),
                ),
            ),
        )


def _model(sibling: ModelProfile) -> Apply:
    return lambda request: replace(request, profile=sibling, model_path=sibling.name)


def stopping(case: Case) -> Iterator[Ladder]:
    """Each of our deployments gone, in the order in which they would be evicted; never one that is pinned or starting."""
    fleet = case.request.fleet
    stoppable = [one for one in deployments(fleet) if one.stoppable]
    for one in stoppable[:MOST_DEPLOYMENTS]:
        yield ladder_of("stop", (_stop(case, one),))


def _stop(case: Case, running: Running) -> Step:
    kept = {host.host for host in case.supply.hosts} | set(running.hosts)
    places = tuple(
        f"{host.name}:{gpu.index}"
        for host in case.request.fleet.hosts
        if host.name in running.hosts and host.facts.docker is not None
        for gpu in host.gpus
        if any(share.container.deployment == running.name for share in ours_on(gpu, ours_by_gpu(host)))
    )
    figures = {"deployment": running.name, "places": places, "requests": running.requests}
    return Step(
        change={"stop": running.name},
        figures=figures,
        size=3.0 + 0.1 * len(places) + (0.4 if running.busy is Busy.IN_FLIGHT else 0.0),
        apply=lambda request: replace(request, fleet=released(_only(request.fleet, kept), running.name)),
    )


def _only(fleet: Fleet, names: set[str]) -> Fleet:
    hosts = tuple(host for host in fleet.hosts if host.name in names)
    return fleet if len(hosts) == len(fleet.hosts) else replace(fleet, hosts=hosts)


def ending(case: Case) -> Iterator[Ladder]:
    """Each process that is not ours and holds memory on a usable GPU, the largest first: named, never touched."""
    names = {host.host for host in case.supply.hosts}
    found: list[tuple[int, str, int, list[tuple[Gpu, GpuProcess]]]] = []
    for host in case.request.fleet.hosts:
        if host.name not in names:
            continue
        by_pid: dict[int, list[tuple[Gpu, GpuProcess]]] = {}
        for gpu in host.gpus:
            for process in _others(host, gpu):
                by_pid.setdefault(process.pid, []).append((gpu, process))
        for pid, held in by_pid.items():
            found.append((-sum(one.used_bytes or 0 for _, one in held), host.name, pid, held))
    for used, name, pid, held in sorted(found, key=lambda item: item[:3])[:MOST_PROCESSES]:
        _, process = held[0]
        figures = {
            "pid": pid,
            "host": name,
            "gpus": tuple(sorted(gpu.index for gpu, _ in held)),
            "user": process.user,
            "process": process.name,
            "container": process.container,
            "bytes": -used,
        }
        yield ladder_of(
            "process",
            (
                Step(
                    change={"process": f"{name}:{pid}"},
                    figures=figures,
                    size=3.5 + 0.1 * len(held),
                    apply=_ending(names, name, pid),
                ),
            ),
        )


def _ending(kept: set[str], host: str, pid: int) -> Apply:
    return lambda request: replace(request, fleet=without_process(_only(request.fleet, kept), host, pid))


def _others(host: Host, gpu: Gpu) -> tuple[GpuProcess, ...]:
    """Processes on a GPU that are in none of our containers, of known size."""
    if gpu.total_bytes is None or gpu.free_bytes is None or not gpu.processes or gpu.excluded:
        return ()
    ours = ours_on(gpu, ours_by_gpu(host) if host.facts.docker is not None else {})
    use = use_of(gpu.processes, ours, total=gpu.total_bytes, free=gpu.free_bytes)
    return tuple(process for process in use.others if process.used_bytes)


def without_process(fleet: Fleet, host: str, pid: int) -> Fleet:
    """The fleet once a process of a host has ended: what it holds is free on every GPU it is on."""
    return replace(
        fleet,
        hosts=tuple(
            replace(one, gpus=tuple(_ended(gpu, pid) for gpu in one.gpus)) if one.name == host else one
            for one in fleet.hosts
        ),
    )


def _ended(gpu: Gpu, pid: int) -> Gpu:
    back = sum(process.used_bytes or 0 for process in gpu.processes if process.pid == pid)
    if not back or gpu.free_bytes is None or gpu.total_bytes is None:
        return gpu
    left = tuple(process for process in gpu.processes if process.pid != pid)
    return replace(gpu, processes=left, free_bytes=min(gpu.total_bytes, gpu.free_bytes + back))
