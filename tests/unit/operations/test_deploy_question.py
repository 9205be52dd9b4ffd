"""What a deploy takes of a plan: others are stopped only where somebody allowed it and nothing else fits (S4.6)."""

import os
from pathlib import Path

import pytest

from gpuplan.domain.fleet import Basis, Fleet, Gpu, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.errors import NoHostError
from gpuplan.operations.deploy_question import chosen, question_on, require_ever, unchanged
from gpuplan.operations.deploy_request import DeployRequest, Wanted, read_wanted
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.stopped import FleetChanged, NeverFits, NothingFits, UnaskedEviction
from gpuplan.units import GIB

ROOT = Path(__file__).parents[3]
CARD = "NVIDIA H100 80GB HBM3"


def host(name: str, held: int, *, loading: bool = False, keep_alive: int | None = 600) -> Host:
    """One H100 of which a deployment of ours holds so many GiB; 0: nobody."""
    uuid = f"GPU-{name}"
    ours = OurContainer(
        id=name.ljust(64, "0"),
        name=f"gpuplan-on-{name}-s0n0",
        deployment=f"on-{name}",
        state="running",
        role="single",
        gpus=(uuid,),
        claims=((uuid, held * GIB),),
        loading=loading,
        running_requests=0,
        keep_alive_seconds=keep_alive,
    )
    gpu = Gpu(
        index=0,
        name=CARD,
        uuid=uuid,
        total_bytes=79 * GIB,
        free_bytes=(79 - held) * GIB,
        compute_capability="9.0",
    )
    facts = HostFacts(docker=Docker(containers=(ours,) if held else ()))
    return Host(name=name, gpus=(gpu,), facts=facts, ram_total_bytes=512 * GIB, ram_available_bytes=400 * GIB)


def fleet(*hosts: Host) -> Fleet:
    return Fleet(hosts=hosts, basis=Basis.MEASURED)


def wanted(model: str = "Qwen/Qwen3-4B", *strategies: str) -> Wanted:
    options = FleetOptions(environ=os.environ, cwd=ROOT, inventory=ROOT / "inventory.example.yaml")
    serving = ServingOptions(strategies=strategies, context="8k")
    return read_wanted(DeployRequest(reference=model, fleet=options, serving=serving))


def test_nobody_is_stopped_unless_that_was_asked_for() -> None:
    full = fleet(host("a", 70))
    with pytest.raises(UnaskedEviction, match="stopping on-a would make room") as refused:
        chosen(wanted(), question_on(full, wanted(), "new"), None)
    assert refused.value.hint is not None
    assert "--strategy evict" in refused.value.hint
    asking = wanted("Qwen/Qwen3-4B", "evict")
    candidate = chosen(asking, question_on(full, asking, "new"), None)
    (eviction,) = candidate.evicts
    assert (eviction.deployment, eviction.running_requests, eviction.keep_alive_seconds) == ("on-a", 0, 600)
    after = question_on(full, asking, "new", candidate.evicts)
    assert unchanged(candidate, after).evicts == candidate.evicts, "judged again, it still says whom it stops"
    with pytest.raises(FleetChanged):
        unchanged(candidate, question_on(full, asking, "new"))


def test_where_it_fits_beside_the_others_they_run_on() -> None:
    asking = wanted("Qwen/Qwen3-4B", "evict")
    candidate = chosen(asking, question_on(fleet(host("a", 70), host("b", 0)), asking, "new"), None)
    assert candidate.evicts == ()
    assert [one.host for one in candidate.placement] == ["b"]


def test_a_pinned_one_is_never_stopped() -> None:
    asking = wanted("Qwen/Qwen3-4B", "evict")
    pinned = fleet(host("a", 70, keep_alive=-1))
    with pytest.raises(NothingFits):
        chosen(asking, question_on(pinned, asking, "new"), None)


def test_what_fits_an_empty_fleet_is_worth_waiting_for() -> None:
    loading = fleet(host("a", 70, loading=True))
    with pytest.raises(NoHostError):
        chosen(wanted(), question_on(loading, wanted(), "new"), None)
    for full in (loading, fleet(host("a", 70)), fleet(host("a", 70, keep_alive=-1))):
        require_ever(full, wanted())
        require_ever(full, wanted("Qwen/Qwen3-4B", "evict"))
    with pytest.raises(NeverFits) as never:
        require_ever(fleet(host("a", 70)), wanted("Qwen/Qwen3-235B-A22B", "single_gpu"))
    assert never.value.plan.recommended is None
