"""The rows S4.1 to S4.12, scheduling: where a model goes, what makes room for it, and what is said where nothing does."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuplan.cli.app import run
from gpuplan.deploying.diagnose import diagnose
from gpuplan.deploying.diagnosis import MemberEvidence
from gpuplan.deploying.idleness import weighed
from gpuplan.deploying.observed import Container, container_of, grouped
from gpuplan.deploying.spec_hash import spec_hash
from gpuplan.deploying.state_rules import Health, deployment_of
from gpuplan.domain import labels
from gpuplan.domain.deployment import ENDED, DeploymentSpec, Load
from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.domain.idle import Moment, Outcome, Why
from gpuplan.domain.plan import Candidate, Plan, StrategyName, StrategyResult, Verdict
from gpuplan.domain.workload import Placement, Workload
from gpuplan.errors import ExitCode, NoHostError
from gpuplan.operations.capacity_queue import MOST_WAITING, QueueFull, Turn
from gpuplan.operations.deploy_replace import same_running
from gpuplan.operations.deployed import Existing, Generation
from gpuplan.operations.memory_back import ENOUGH, MOST_SECONDS, Owed, await_memory
from gpuplan.planning.emptied import emptied
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import supply_of
from gpuplan.planning.planner import candidate_of
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.strategies import single_gpu, single_host
from gpuplan.planning.usable import MOST_DEPLOYMENTS, MOST_UNTRUSTED
from gpuplan.present.findings import word
from gpuplan.units import GIB
from tests.fleets import CARDS, CONFIGS, gpu, host, of, planned, profile
from tests.unit.deploying.shapes import PAIRS

SMALL = "Qwen__Qwen3-4B"
LARGE = "Qwen__Qwen3-32B"
H100 = int(CARDS["H100"][1] * GIB)


def best_of(made: Plan) -> Candidate:
    best = candidate_of(made)
    assert best is not None, [word(fact).headline for result in made.strategies for fact in result.facts]
    return best


def places(candidate: Candidate) -> list[tuple[str, int]]:
    return [(place.host, card.index) for place in candidate.placement for card in place.gpus]


def ours(
    index: int, deployment: str, *, claim: float = 10, loading: bool = False, state: str = "running"
) -> OurContainer:
    uuid = f"GPU-{index}"
    return OurContainer(
        id=f"{deployment}-{index}",
        name=f"gpuplan-{deployment}-0",
        deployment=deployment,
        state=state,
        gpus=(uuid,),
        claims=((uuid, int(claim * GIB)),),
        loading=loading,
    )


def running(made: Host, *containers: OurContainer) -> Host:
    """The host with containers of ours on the GPUs they name."""
    gpus = tuple(replace(card, uuid=f"GPU-{card.index}") for card in made.gpus)
    return replace(made, gpus=gpus, facts=HostFacts(docker=Docker(containers=containers)))


def allocatable(made: Host) -> dict[int, int]:
    return {offer.index: offer.allocatable_bytes for offer in supply_of(Fleet(hosts=(made,))).offers}


def snapshot(directory: Path, *hosts: Mapping[str, Any]) -> str:
    """A fleet as it is written by hand."""
    document = {"schema_version": 1, "taken_at": "2026-11-21T02:00:00Z", "hosts": list(hosts)}
    path = directory / "fleet.json"
    path.write_text(json.dumps(document))
    return str(path)


def by_hand(name: str, card: str, count: int) -> dict[str, Any]:
    full, size, _ = CARDS[card]
    gpus = [{"index": i, "name": full, "memory": {"total_bytes": int(size * GIB)}} for i in range(count)]
    return {"name": name, "gpus": gpus}


# -- S4.1: the best full fit --------------------------------------------


def test_s4_1_the_gpu_with_most_free_is_taken_and_one_before_many() -> None:
    made = planned(LARGE, host("h1", "H100", 4, free={0: 77.5, 1: 79.19, 2: 78.5, 3: 40.0}))
    assert places(best_of(made)) == [("h1", 1)]
    single = of(made, StrategyName.SINGLE_GPU)
    assert [places(item) for item in single.candidates] == [[("h1", 1)], [("h1", 2)], [("h1", 0)]]
    assert of(made, StrategyName.SINGLE_HOST).verdict is Verdict.FITS
    assert made.recommended == (StrategyName.SINGLE_GPU, 0)


def test_s4_1_then_as_many_of_the_vendor_as_it_takes_and_never_of_two() -> None:
    pair = host("h1", "L40S", 2)
    assert places(best_of(planned(LARGE, pair))) == [("h1", 0), ("h1", 1)]
    radeon = Gpu(index=1, name="AMD Radeon PRO W7900", vendor="amd", backend="rocm", total_bytes=48 * GIB)
    mixed = replace(pair, gpus=(pair.gpus[0], radeon))
    made = planned(LARGE, mixed)
    assert made.recommended is None
    assert not [item for result in made.strategies for item in result.candidates]


@pytest.mark.parametrize(("strategy", "cards"), [(single_gpu, 1), (single_host, 8)])
def test_s4_1_concurrency_is_counted_down_and_the_plan_says_what_it_reached(
    strategy: Any, cards: int
) -> None:
    """What is told to fit fits when it is asked for, and one request more does not."""
    fleet = Fleet(hosts=(host("h1", "H100", cards),))

    def asked(concurrency: int) -> StrategyResult:
        workload = Workload(context=8192, concurrency=concurrency)
        request = PlanRequest(fleet=fleet, profile=profile(LARGE), workload=workload, utilization=0.92)
        found: StrategyResult = strategy.evaluate(Judge(request), supply_of(fleet))
        return found

    refused = asked(500)
    assert refused.verdict is Verdict.NO_FIT
    (fact,) = refused.facts
    assert fact.code == "GP205"
    reached = fact.figures["reached"]
    assert 1 < reached < 500
    assert f"counted down from 500, {reached} of these requests fit at once" in word(fact).because[0]
    assert asked(reached).verdict is Verdict.FITS
    assert asked(reached + 1).verdict is Verdict.NO_FIT


def test_s4_1_down_to_one_before_a_placement_is_given_up() -> None:
    made = planned(LARGE, host("h1", "H100", 1), context=32768, concurrency=4)
    (fact,) = of(made, StrategyName.SINGLE_GPU).facts
    assert fact.figures["reached"] == 0
    assert "not even one of these requests fits" in word(fact).because[0]
    one = planned(LARGE, host("h1", "H100", 1), context=24576, concurrency=4)
    (fact,) = of(one, StrategyName.SINGLE_GPU).facts
    assert fact.figures["reached"] == 1


def test_s4_1_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = snapshot(tmp_path, by_hand("h1", "4090", 1))
    words = ["plan", "Qwen/Qwen3-4B", "--snapshot", fleet, "--context", "8k", "--concurrency", "64"]
    assert run(words) == ExitCode.NO_FIT
    printed = " ".join(capsys.readouterr().out.split())
    (reached,) = re.findall(r"--concurrency (\d+): as many requests as the KV cache holds", printed)
    assert f"counted down from 64, {reached} of these requests fit at once" in printed


# -- S4.2: spread -------------------------------------------------------


def test_s4_2_spread_goes_to_the_emptiest_and_apart_binpack_to_the_fullest_and_together() -> None:
    hosts = (host("h1", "H100", 2, free={0: 78.0, 1: 77.5}), host("h2", "H100", 2))

    def chosen(placement: Placement, **workload: Any) -> list[tuple[str, int]]:
        return places(best_of(planned(SMALL, *hosts, placement=placement, **workload)))

    assert chosen(Placement.SPREAD) == [("h2", 0)]
    assert chosen(Placement.BINPACK) == [("h1", 1)]
    assert {name for name, _ in chosen(Placement.SPREAD, replicas=2)} == {"h1", "h2"}
    assert {name for name, _ in chosen(Placement.BINPACK, replicas=2)} == {"h1"}


def test_s4_2_without_the_single_gpu_preference_a_model_is_spread_over_several() -> None:
    """The preference is switched off by naming the strategies that may be recommended."""
    fleet = (host("h1", "H100", 4),)
    assert places(best_of(planned(SMALL, *fleet))) == [("h1", 0)]
    spread = planned(SMALL, *fleet, strategies=("single_host",))
    assert spread.recommended == (StrategyName.SINGLE_HOST, 0)
    assert len(places(best_of(spread))) == 2


# -- S4.3: a partial fit ------------------------------------------------


def test_s4_3_where_nothing_fits_whole_most_is_held_and_the_rest_is_in_ram() -> None:
    made = planned(LARGE, host("h1", "4090", 1, ram=400), host("h2", "L40S", 1, ram=200))
    assert made.recommended == (StrategyName.OFFLOAD, 0)
    result = of(made, StrategyName.OFFLOAD)
    most, less = result.candidates
    assert (places(most), places(less)) == ([("h2", 0)], [("h1", 0)])
    kept = [item.placement[0].cpu_offload_gib for item in (most, less)]
    assert 0 < kept[0] < kept[1]
    at = most.vllm_args.index("--cpu-offload-gb")
    assert most.vllm_args[at + 1] == str(kept[0])
    assert most.placement[0].ram_claim_bytes >= kept[0] * GIB
    (cost,) = [fact for fact in most.facts if fact.code == "GP220"]
    assert f"{kept[0]} GiB of weights" in word(cost).headline
    assert "every step reads over the bus" in word(cost).headline


@pytest.mark.parametrize("ram", [8, None])
def test_s4_3_the_rest_must_fit_into_free_ram(ram: float | None) -> None:
    made = planned(LARGE, host("h1", "L40S", 1, ram=ram))
    assert made.recommended is None
    (fact,) = of(made, StrategyName.OFFLOAD).facts
    assert fact.code == "GP221"
    assert fact.figures["gap_bytes"] > 0


def test_s4_3_what_fits_whole_is_not_offloaded() -> None:
    result = of(planned(LARGE, host("h1", "H100", 1, ram=400)), StrategyName.OFFLOAD)
    assert (result.verdict, result.candidates) == (Verdict.SKIPPED, ())


# -- S4.4: free memory --------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "claim", "used", "left"),
    [
        (79.19, 60, None, 19.19),  # the report lags: ours has not taken yet what it will
        (15.0, 60, 60.0, 15.0),  # somebody else is there, too
        (19.19, 60, 60.0, 19.19),  # both agree
        (69.19, 60, 10.0, 19.19),  # half way
        (5.0, 60, 70.0, 5.0),  # ours takes more than predicted
    ],
)
def test_s4_4_free_is_the_smaller_of_report_and_prediction(
    reported: float, claim: float, used: float | None, left: float
) -> None:
    made = running(host("h1", "H100", 1, free={0: reported}), ours(0, "chat", claim=claim, loading=False))
    process = GpuProcess(pid=7, used_bytes=int((used or 0.01) * GIB), container="gpuplan-chat-0")
    made = replace(made, gpus=(replace(made.gpus[0], processes=(process,)),))
    assert allocatable(made)[0] == pytest.approx(left * GIB, abs=0.02 * GIB)


def test_s4_4_a_plan_books_on_what_is_left() -> None:
    taken = running(host("h1", "H100", 2, free={0: 79.19, 1: 79.19}), ours(0, "chat", claim=60))
    made = planned(SMALL, taken)
    assert places(best_of(made)) == [("h1", 1)]
    (fact,) = of(made, StrategyName.SINGLE_GPU).facts
    assert fact.code == "GP201"
    assert "chat" in " ".join(word(fact).because)


# -- S4.5: while others load --------------------------------------------


def test_s4_5_a_gpu_on_which_one_is_loading_is_left_out_until_it_serves() -> None:
    pair = host("h1", "H100", 2, free={0: 79.0, 1: 79.0})
    small = "--gpu-memory-utilization 0.5"
    loading = planned(SMALL, running(pair, ours(0, "chat", loading=True)), arguments=small)
    assert {at for item in of(loading, StrategyName.SINGLE_GPU).candidates for at in places(item)} == {
        ("h1", 1)
    }
    (fact,) = [fact for fact in loading.facts if fact.code == "GP404"]
    assert word(fact).headline == "h1 GPU 0: left out while deployment chat is loading"
    serving = planned(SMALL, running(pair, ours(0, "chat")), arguments=small)
    assert {at for item in of(serving, StrategyName.SINGLE_GPU).candidates for at in places(item)} == {
        ("h1", 0),
        ("h1", 1),
    }


def test_s4_5_when_all_are_loading_the_plan_says_what_to_wait_for() -> None:
    made = running(host("h1", "H100", 2), ours(0, "chat", loading=True), ours(1, "code", loading=True))
    with pytest.raises(NoHostError, match="not loading: 0 hosts with 0 GPUs") as caught:
        planned(SMALL, made)
    assert caught.value.hint == (
        "plan again when chat and code have loaded on h1:0, h1:1 (gpuplan status chat), "
        "or deploy with --wait-for-capacity 30m, which waits for it"
    )
    # what waiting is for: with nobody there it fits, so it is tried again until it does
    assert places(best_of(planned(SMALL, *emptied(Fleet(hosts=(made,))).hosts))) == [("h1", 0)]


# -- S4.6: eviction -----------------------------------------------------


def beside(*who: tuple[str, int | None, int | None]) -> Host:
    """A host with a card for each: name, requests in flight, keep-alive; each has taken nearly all of its card."""
    containers = [
        replace(ours(at, name, claim=70), running_requests=requests, keep_alive_seconds=keep_alive)
        for at, (name, requests, keep_alive) in enumerate(who)
    ]
    return running(host("h1", "H100", len(who), free=dict.fromkeys(range(len(who)), 9.0)), *containers)


def to_stop(made: Plan) -> list[str]:
    (candidate,) = of(made, StrategyName.EVICT).candidates
    return [one.deployment for one in candidate.evicts]


@pytest.mark.parametrize(
    ("who", "stopped"),
    [
        ((("busy", 3, 60), ("idle", 0, 3600)), "idle"),
        ((("long", 0, 3600), ("short", 0, 60)), "short"),
        ((("for good", 0, None), ("an hour", 0, 3600)), "an hour"),
        ((("pinned", 0, -1), ("busy", 9, 3600)), "busy"),
        ((("silent", None, 60), ("idle", 0, 3600)), "idle"),
        ((("silent", None, 60), ("busy", 1, 60)), "silent"),
    ],
)
def test_s4_6_the_idle_one_is_named_first_then_the_shortest_keep_alive_never_a_pinned_one(
    who: tuple[tuple[str, int | None, int | None], ...], stopped: str
) -> None:
    made = planned(SMALL, beside(*who))
    assert to_stop(made) == [stopped]
    (fact,) = [fact for fact in of(made, StrategyName.EVICT).candidates[0].facts if fact.code == "GP230"]
    assert word(fact).headline == f"{stopped} must be stopped first"


def test_s4_6_only_who_asks_for_it_is_given_it_and_then_it_is_confirmed() -> None:
    fleet = beside(("busy", 3, 60), ("idle", 0, 3600))
    offered = planned(SMALL, fleet)
    assert offered.recommended is None
    (fact,) = [fact for fact in of(offered, StrategyName.EVICT).candidates[0].facts if fact.code == "GP230"]
    assert "--strategy evict asks before it stops anything" in (word(fact).hint or "")
    asked = planned(SMALL, fleet, strategies=("evict",))
    assert asked.recommended == (StrategyName.EVICT, 0)
    assert [one.deployment for one in best_of(asked).evicts] == ["idle"]


def test_s4_6_where_all_are_pinned_or_strangers_nobody_is_named() -> None:
    made = planned(SMALL, beside(("a", 0, -1), ("b", 0, -1)))
    result = of(made, StrategyName.EVICT)
    assert (result.verdict, result.candidates) == (Verdict.NO_FIT, ())
    stranger = host("h1", "H100", 1, free={0: 9.0})
    process = GpuProcess(pid=7, name="train.py", used_bytes=70 * GIB, user="alice")
    stranger = replace(stranger, gpus=(replace(stranger.gpus[0], processes=(process,)),))
    none_of_ours = of(planned(SMALL, stranger), StrategyName.EVICT)
    assert (none_of_ours.verdict, none_of_ours.candidates) == (Verdict.SKIPPED, ())


# -- S4.7: memory comes back --------------------------------------------


class Readings:
    """A GPU that is read again and again; the last reading stays."""

    def __init__(self, *free: float) -> None:
        self.free = list(free)
        self.read = 0

    def __call__(self, hosts: Sequence[str]) -> dict[str, Sequence[Gpu]]:
        self.read += 1
        now = self.free.pop(0) if len(self.free) > 1 else self.free[0]
        return {"h1": (replace(gpu(0, "H100", now), uuid="GPU-0"),)}


def test_s4_7_after_a_stop_four_fifths_of_the_memory_are_awaited() -> None:
    due = Owed(host="h1", uuid="GPU-0", index=0, free_before=9 * GIB, held=70 * GIB)
    enough = 9 + 70 * ENOUGH
    paused: list[float] = []
    slow = Readings(9, 30, enough - 1, enough, 79)
    assert await_memory(slow, [due], pause=paused.append) == ()
    assert (slow.read, len(paused)) == (4, 3)
    assert ENOUGH == 0.8
    assert MOST_SECONDS <= 30


def test_s4_7_memory_that_does_not_come_back_is_told_not_awaited_for_ever() -> None:
    due = Owed(host="h1", uuid="GPU-0", index=0, free_before=9 * GIB, held=70 * GIB)
    (fact,) = await_memory(Readings(20), [due], seconds=0, pause=lambda _: None)
    assert (fact.code, dict(fact.subject)) == ("GP854", {"host": "h1", "gpu": 0})
    assert "20.00 GiB" in " ".join((word(fact).headline, *word(fact).because))


# -- S4.8: keep-alive ---------------------------------------------------

QUIET = Load(running=0, waiting=0, requests=7, tokens=700)


def served(keep_alive: str) -> Container:
    members = [{"host": "h1", "container": "c", "role": "single", "rank": 0, "server": 0}]
    given = {
        labels.MANAGED: "true",
        labels.DEPLOYMENT: "chat",
        labels.ROLE: "single",
        labels.SERVER: "0",
        labels.GENERATION: "g1",
        labels.MEMBERS: json.dumps(members),
        labels.ENDPOINT: "http://10.0.0.1:40000",
        labels.KEEP_ALIVE: keep_alive,
    }
    state = {"Status": "running", "StartedAt": "2026-11-22T01:00:00Z"}
    return container_of("h1", {"Id": "i", "Name": "/c", "State": state, "Config": {"Labels": given}})


def swept(keep_alive: str, later: float, load: Load = QUIET) -> tuple[Outcome, Why]:
    """What a sweep makes of a deployment that was seen idle so many seconds ago."""
    (group,) = grouped((served(keep_alive),), frozenset({"h1"}))
    deployment = deployment_of(group, health={0: Health(status=200)}, loads=[load])
    first = Moment(wall=1e9, steady=0.0)
    _, sighting = weighed(group, deployment, {0: QUIET}, None, first, None)
    now = Moment(wall=1e9 + later, steady=later)
    judgement, _ = weighed(group, deployment, {0: load}, sighting, now, None)
    return judgement.outcome, judgement.why


@pytest.mark.parametrize(
    ("keep_alive", "later", "load", "outcome", "why"),
    [
        ("600", 599, QUIET, Outcome.KEPT, Why.NOT_YET),
        ("600", 600, QUIET, Outcome.WOULD_BE_STOPPED, Why.IDLE),
        ("-1", 10**7, QUIET, Outcome.KEPT, Why.NEVER),
        ("600", 10**6, replace(QUIET, running=1), Outcome.KEPT, Why.IN_FLIGHT),
        ("600", 10**6, replace(QUIET, waiting=1), Outcome.KEPT, Why.IN_FLIGHT),
        ("600", 10**6, replace(QUIET, requests=8), Outcome.KEPT, Why.FIRST_SEEN),
    ],
)
def test_s4_8_one_that_idled_past_its_keep_alive_is_stopped(
    keep_alive: str, later: float, load: Load, outcome: Outcome, why: Why
) -> None:
    assert swept(keep_alive, later, load) == (outcome, why)


# -- S4.9: reuse --------------------------------------------------------


def hashed(spec: DeploymentSpec) -> str:
    return spec_hash(spec, image_ids=dict.fromkeys(spec.hosts, "sha256:aa"), secrets_digest="")


def existing(spec: DeploymentSpec, status: str = "running") -> Existing:
    """What hosts tell of a deployment with this specification."""
    found = []
    for one in spec.containers:
        document = {
            "Id": one.name,
            "Name": f"/{one.name}",
            "State": {"Status": status},
            "Config": {
                "Labels": {**dict(one.labels), labels.SPEC_HASH: hashed(spec), labels.GENERATION: "g"}
            },
        }
        found.append(container_of(one.host, document))
    return Existing(generations=(Generation(id="g", spec_hash=hashed(spec), containers=tuple(found)),))


def test_s4_9_the_same_asked_again_is_reused_and_a_changed_one_is_not() -> None:
    shape = PAIRS["tensor"]
    there = existing(shape.spec())
    reused = same_running(there, hashed(shape.spec()))
    assert reused is not None
    assert reused.id == "g"
    changed = replace(shape, arguments=("--max-num-seqs 8",)).spec()
    assert same_running(there, hashed(changed)) is None
    assert same_running(existing(shape.spec(), "exited"), hashed(shape.spec())) is None


# -- S4.10: limits ------------------------------------------------------


def test_s4_10_three_deployments_fill_a_gpu() -> None:
    assert (MOST_DEPLOYMENTS, MOST_UNTRUSTED) == (3, 1)
    two, three = ("a", "b"), ("a", "b", "c")
    lone = host("h1", "H100", 1, free={0: 79.0})
    some = "--gpu-memory-utilization 0.5"
    taken = planned(SMALL, running(lone, *(ours(0, name, claim=1) for name in two)), arguments=some)
    assert places(best_of(taken)) == [("h1", 0)]
    with pytest.raises(NoHostError, match="room for a deployment: 0 hosts with 0 GPUs") as caught:
        planned(SMALL, running(lone, *(ours(0, name, claim=1) for name in three)), arguments=some)
    assert "stop one of a, b, c if it is no longer needed (gpuplan stop a)" in str(caught.value.hint)
    beside = host("h1", "H100", 2, free={0: 79.0, 1: 79.0})
    made = planned(SMALL, running(beside, *(ours(0, name, claim=1) for name in three)), arguments=some)
    (fact,) = [fact for fact in made.facts if fact.code == "GP405"]
    assert word(fact).headline == "h1 GPU 0: left out, 3 deployments on it already (a, b, c)"


@pytest.mark.parametrize("doubtful", [{"unified": True}, {"free_bytes": None}])
def test_s4_10_one_where_what_is_free_cannot_be_trusted(doubtful: dict[str, Any]) -> None:
    made = running(host("h1", "H100", 1, free={0: 79.0}), ours(0, "chat", claim=1))
    made = replace(made, gpus=(replace(made.gpus[0], **doubtful),))
    with pytest.raises(NoHostError, match="room for a deployment: 0 hosts") as caught:
        planned(SMALL, made, arguments="--gpu-memory-utilization 0.5")
    assert "stop one of chat" in str(caught.value.hint)


def test_s4_10_so_many_wait_for_room_and_the_next_is_told_it_is_busy(tmp_path: Path) -> None:
    queue = tmp_path / "queue.json"
    waiting = [Turn(queue, f"model-{number}", alive=lambda _: True) for number in range(MOST_WAITING)]
    standing = [turn.tell(looked=0.0, fits=False) for turn in waiting]
    assert [one.place for one in standing] == list(range(1, MOST_WAITING + 1))
    with pytest.raises(QueueFull, match=f"busy: nothing fits now, and {MOST_WAITING} deploys wait") as caught:
        Turn(queue, "late", alive=lambda _: True).tell(looked=0.0, fits=False)
    assert "model-0 (pid " in caught.value.message
    assert caught.value.hint == "try again later, or make room: gpuplan status shows what runs"
    with waiting[0]:
        pass
    assert Turn(queue, "late", alive=lambda _: True).tell(looked=0.0, fits=False).place == MOST_WAITING


# -- S4.11: parallel slots ----------------------------------------------


def needed(made: Plan) -> int:
    memory = best_of(made).memory
    assert memory is not None
    return memory.kv_needed_bytes


def test_s4_11_the_context_is_multiplied_by_the_parallel_slots() -> None:
    one, four = (planned(SMALL, host("h1", "H100", 1), context=8192, concurrency=n) for n in (1, 4))
    assert needed(four) == 4 * needed(one) > 0


def test_s4_11_embedding_models_have_one_slot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = snapshot(tmp_path, by_hand("h1", "H100", 1))
    model = str(CONFIGS / f"{SMALL}.json")

    def asked(*more: str) -> dict[str, Any]:
        assert run(["plan", model, "--snapshot", fleet, "--context", "8k", "-o", "json", *more]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    def kv_needed(document: dict[str, Any]) -> int:
        single = next(one for one in document["strategies"] if one["strategy"] == "single_gpu")
        return int(single["candidates"][0]["memory"]["per_gpu"][0]["kv_needed_bytes"])

    embedding = ("--category", "embedding")
    one, many = asked(*embedding), asked(*embedding, "--concurrency", "16")
    assert kv_needed(one) == kv_needed(many) > 0
    assert kv_needed(asked("--concurrency", "16")) == 16 * kv_needed(one)
    told = next(finding for finding in many["findings"] if finding["code"] == "GP331")
    assert told["headline"] == "planned for one request at once, not 16: the model answers each in one pass"
    assert not [finding for finding in one["findings"] if finding["code"] == "GP331"]


# -- S4.12: a load that fails -------------------------------------------


def test_s4_12_a_failed_load_is_told_with_the_version_to_use() -> None:
    line = "Value error, Model architectures ['FooForCausalLM'] are not supported for now."
    ended = MemberEvidence(host="h1", container="c", state="exited", exit_code=1, lines=((1.0, line),))
    found = word(diagnose([ended], None).facts()[0])
    assert "does not support the model's architecture" in found.headline
    assert "FooForCausalLM" in found.headline
    assert found.hint == "use a newer release: --vllm-version X.Y.Z or --image"


@pytest.mark.parametrize("state", sorted(ENDED))
def test_s4_12_what_it_claimed_is_free_again(state: str) -> None:
    made = host("h1", "H100", 1, free={0: 79.19})
    held = allocatable(running(made, ours(0, "chat", claim=60)))
    assert held == {0: H100 - 60 * GIB}
    loading = running(made, ours(0, "chat", claim=60, loading=True))
    assert allocatable(loading) == {}
    assert allocatable(running(made, ours(0, "chat", claim=60, state=state, loading=True))) == {0: H100}
