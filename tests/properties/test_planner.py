"""What holds for every plan: ranks fit their cards, no card is used twice, more load never needs less, order is no input."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Candidate, Parallelism, Plan, Remedy, StrategyName, StrategyResult, Verdict
from gpuplan.domain.workload import NO_ARGUMENTS, Category
from gpuplan.engine.architectures import describe
from gpuplan.engine.divisibility import legal_tensor_sizes
from gpuplan.engine.versions import DEFAULT
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.operations.models import Model
from gpuplan.operations.plan import ServingOptions, plan_model, workload_of
from gpuplan.operations.question import changed
from gpuplan.planning.estimate import estimate
from gpuplan.planning.offers import Device
from gpuplan.planning.question import Question
from gpuplan.present.plan_document import plan_document
from gpuplan.units import GIB

CONFIGS = Path(__file__).parent.parent / "data" / "configs"
NAMES = ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "google/gemma-3-4b-it")
CARDS = (
    ("NVIDIA L4", 22, "8.9"),
    ("NVIDIA A100", 40, "8.0"),
    ("NVIDIA L40S", 44, "8.9"),
    ("NVIDIA H100", 79, "9.0"),
)
FEW = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@cache
def profile_of(name: str) -> ModelProfile:
    return describe(name, json.loads((CONFIGS / f"{name.replace('/', '__')}.json").read_text()))


@st.composite
def hosts(draw: st.DrawFn, index: int) -> Host:
    """A host of up to four cards of one kind or two, some partly taken."""
    kinds = draw(st.lists(st.sampled_from(CARDS), min_size=1, max_size=2, unique=True))
    taken = st.one_of(st.just(0), st.integers(0, 20 * GIB))
    gpus = []
    for position in range(draw(st.integers(1, 4))):
        name, gib, capability = draw(st.sampled_from(kinds))
        gpus.append(
            Gpu(
                index=position,
                name=name,
                compute_capability=capability,
                total_bytes=gib * GIB,
                free_bytes=gib * GIB - draw(taken),
            )
        )
    return Host(name=f"host-{index}", gpus=tuple(gpus), ram_total_bytes=64 * GIB)


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    return Fleet(hosts=tuple(draw(hosts(index)) for index in range(draw(st.integers(1, 3)))))


OPTIONS = st.builds(
    ServingOptions,
    context=st.sampled_from((None, "2048", "32768", "max")),
    concurrency=st.sampled_from((None, 1, 8, 64)),
    replicas=st.sampled_from((1, 1, 2, 3)),
    placement=st.sampled_from(("spread", "binpack")),
    engine_args=st.sampled_from(
        ((), ("--gpu-memory-utilization", "0.7"), ("--tensor-parallel-size", "2"), ("--enforce-eager",))
    ),
)


def made(name: str, fleet: Fleet, options: ServingOptions) -> Plan:
    workload = workload_of(options, DEFAULT)
    model = Model(profile=profile_of(name), category=Category.LLM, path=name)
    return plan_model(model, fleet, workload, DEFAULT)


def document(plan: Plan) -> bytes:
    return json.dumps(asdict(plan_document(plan)), sort_keys=True).encode()


def offered(plan: Plan) -> Iterator[tuple[StrategyResult, Candidate]]:
    for result in plan.strategies:
        for candidate in result.candidates:
            yield result, candidate


@FEW
@given(name=st.sampled_from(NAMES), fleet=fleets(), options=OPTIONS)
def test_what_fits_fits_on_every_rank(name: str, fleet: Fleet, options: ServingOptions) -> None:
    cards = {(host.name, gpu.index): gpu for host in fleet.hosts for gpu in host.gpus}
    for _, candidate in offered(made(name, fleet, options)):
        placed = [(host.host, gpu) for host in candidate.placement for gpu in host.gpus]
        assert len({(host, gpu.index) for host, gpu in placed}) == len(placed)
        assert len(placed) == candidate.parallelism.world_size * candidate.parallelism.data
        if candidate.verdict is not Verdict.FITS:
            continue
        assert candidate.engine.starts
        assert candidate.memory is not None
        for host, gpu in placed:
            assert gpu.claim_bytes <= gpu.allocatable_bytes <= (cards[host, gpu.index].free_bytes or 0)
        for rank, (host, gpu) in zip(candidate.memory.ranks, placed, strict=False):
            assert rank.total_bytes == cards[host, gpu.index].total_bytes
            assert rank.budget.bytes <= gpu.allocatable_bytes
            assert sum(term.most for term in rank.terms) + rank.kv_needed_bytes <= rank.budget.bytes


@FEW
@given(name=st.sampled_from(NAMES), fleet=fleets(), options=OPTIONS, data=st.data())
def test_the_order_of_hosts_is_no_input(
    name: str, fleet: Fleet, options: ServingOptions, data: st.DataObject
) -> None:
    shuffled = replace(fleet, hosts=tuple(data.draw(st.permutations(fleet.hosts))))
    first = document(made(name, fleet, options))
    assert document(made(name, shuffled, options)) == first
    assert document(made(name, fleet, options)) == first


@FEW
@given(
    name=st.sampled_from(NAMES),
    tensor=st.sampled_from((1, 2, 4)),
    card=st.sampled_from(CARDS),
    contexts=st.tuples(st.integers(1, 40960), st.integers(1, 40960)).map(sorted),
    loads=st.tuples(st.integers(1, 256), st.integers(1, 256)).map(sorted),
)
def test_more_load_never_needs_less(
    name: str, tensor: int, card: tuple[str, int, str], contexts: list[int], loads: list[int]
) -> None:
    device = Device(name=card[0], total_bytes=card[1] * GIB, compute_capability=card[2])

    def needed(context: int, concurrency: int) -> list[int]:
        question = Question(
            profile=profile_of(name),
            engine=NO_ARGUMENTS,
            version=DEFAULT,
            parallelism=Parallelism(tensor=tensor),
            devices=(device,) * tensor,
            utilization=0.9,
            context=context,
            concurrency=concurrency,
        )
        return [
            sum(term.bytes for term in rank.terms) + rank.kv_needed_bytes for rank in estimate(question).ranks
        ]

    small = needed(contexts[0], loads[0])
    longer, busier = needed(contexts[1], loads[0]), needed(contexts[0], loads[1])
    assert all(before <= after for before, after in zip(small, longer, strict=True))
    assert all(before <= after for before, after in zip(small, busier, strict=True))


def test_weights_of_a_rank_never_grow_with_tensor_parallel() -> None:
    for path in sorted(CONFIGS.glob("*.json")):
        if path.name.endswith("hf_quant_config.json"):
            continue
        beside = path.with_suffix("").with_suffix(".hf_quant_config.json")
        quantized = json.loads(beside.read_text()) if beside.exists() else None
        profile = describe(path.stem, json.loads(path.read_text()), hf_quant_config=quantized)
        sizes = [size for size in legal_tensor_sizes(profile, 16) if size & (size - 1) == 0]
        weights = [rank_weights(profile, Split(tensor=size, expert_tensor=size)).parameters for size in sizes]
        assert weights == sorted(weights, reverse=True), path.name


# -- remedies -----------------------------------------------------------


def with_change(options: ServingOptions, fleet: Fleet, remedy: Remedy) -> tuple[ServingOptions, Fleet]:
    """The request as a user would write it after reading the remedy."""
    if "gpus" in remedy.change:
        more = _more(fleet, str(remedy.change["device"]), int(remedy.change["gpus"]))
        return options, replace(fleet, hosts=(*fleet.hosts, more))
    after = changed("", options, remedy.change)
    assert after is not None
    return after[1], fleet


def _more(fleet: Fleet, device: str, count: int) -> Host:
    like = next(gpu for host in fleet.hosts for gpu in host.gpus if gpu.name == device)
    gpus = tuple(replace(like, index=index, free_bytes=like.total_bytes) for index in range(count))
    return Host(name="more", gpus=gpus)


@settings(FEW, max_examples=10)
@given(name=st.sampled_from(NAMES), fleet=fleets(), options=OPTIONS)
def test_an_offered_remedy_makes_the_strategy_fit(name: str, fleet: Fleet, options: ServingOptions) -> None:
    plan = made(name, fleet, options)
    remedies = [(result, remedy) for result in plan.strategies for remedy in result.remedies]
    assume(remedies)
    for result, remedy in remedies:
        assert remedy.verified
        typed, larger = with_change(options, fleet, remedy)
        fitting = {
            other.strategy for other in made(name, larger, typed).strategies if other.verdict is Verdict.FITS
        }
        if remedy.kind == "more_gpus":
            wanted = {StrategyName.SINGLE_GPU, StrategyName.SINGLE_HOST}
        else:
            wanted = {StrategyName(remedy.change.get("--strategy", result.strategy))}
        assert wanted & fitting, (result.strategy, remedy)
