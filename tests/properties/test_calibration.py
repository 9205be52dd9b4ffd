"""Whatever a start printed: the next prediction of it is what it printed, and nothing else moves to the unsafe side."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpuplan.domain.calibration import Lesson, Quantity
from gpuplan.domain.memory import RankMemory
from gpuplan.domain.plan import Parallelism
from gpuplan.engine.arguments import parse
from gpuplan.engine.start_facts import RankFacts, StartFacts
from gpuplan.engine.versions import EngineVersion
from gpuplan.operations.learn import compare
from gpuplan.operations.start_question import Asked
from gpuplan.planning.calibrate import SCATTER
from gpuplan.planning.estimate import estimate
from gpuplan.planning.likeness import Lessons
from gpuplan.planning.offers import Device
from gpuplan.planning.question import Question
from gpuplan.units import GIB
from tests.fleets import profile

CARDS = {
    "NVIDIA H200": (139.8, "9.0"),
    "NVIDIA H100 80GB HBM3": (79.18, "9.0"),
    "NVIDIA A100-SXM4-80GB": (79.25, "8.0"),
}
MODELS = ("Qwen__Qwen3-32B", "Qwen__Qwen3-30B-A3B", "openai__gpt-oss-20b", "Qwen__Qwen3-32B-FP8")


@st.composite
def questions(draw: st.DrawFn) -> Question:
    card = draw(st.sampled_from(sorted(CARDS)))
    total, capability = CARDS[card]
    version = EngineVersion.parse(draw(st.sampled_from(["0.9.2", "0.11.0", "0.19.1", "0.22.0", "0.33.0"])))
    words = ["--max-num-batched-tokens", str(draw(st.sampled_from([2048, 8192, 16384])))]
    words += ["--max-num-seqs", str(draw(st.sampled_from([16, 256]))), "--max-model-len", "4096"]
    words += ["--enforce-eager"] if draw(st.booleans()) else []
    tensor = draw(st.sampled_from([1, 2, 4]))
    return Question(
        profile=profile(draw(st.sampled_from(MODELS))),
        engine=parse(words, version=version, model_given=True),
        version=version,
        parallelism=Parallelism(tensor=tensor),
        devices=(Device(name=card, total_bytes=int(total * GIB), compute_capability=capability),) * tensor,
        utilization=draw(st.sampled_from([0.8, 0.9])),
        context=None,
    )


def printed(size: float) -> int:
    """As a log has it: two decimals of a GiB."""
    return round(round(size / GIB, 2) * GIB)


def plain(question: Question) -> RankMemory:
    return estimate(question).ranks[0]


def learned(question: Question, *lessons: Lesson) -> RankMemory:
    return estimate(replace(question, lessons=Lessons(all=lessons))).ranks[0]


def taught(question: Question, loading: float, working: float, name: str = "a") -> tuple[Lesson, int]:
    """A start that took so many GiB more than predicted, and the cache it printed."""
    rank = plain(question)
    cache = printed(rank.kv_cache_bytes - (loading + working) * GIB)
    loaded = printed(rank.weights.bytes + rank.weights_extra.bytes + loading * GIB)
    facts = StartFacts(id=name, ranks=(RankFacts(stage=0, loading=loaded, kv_cache=cache),))
    lesson = compare(facts, Asked(question=question), origin=name, at=1.0).lesson
    assert lesson is not None
    return lesson, cache


more = st.floats(min_value=-0.05, max_value=3.0)


@given(asked=questions(), loading=more, working=st.floats(min_value=0.0, max_value=4.0))
def test_a_start_that_was_learned_is_predicted_as_it_was(
    asked: Question, loading: float, working: float
) -> None:
    lesson, cache = taught(asked, loading, working)
    rank = learned(asked, lesson)
    assert abs(rank.kv_cache_bytes - cache) <= SCATTER
    assert rank.kv_cache_low <= cache <= rank.kv_cache_high
    assert rank.kv_cache_high - rank.kv_cache_low <= 4 * SCATTER
    assert all(term.least <= term.bytes <= term.most for term in rank.terms)
    assert rank.non_torch.bytes >= 0
    assert rank.budget.bytes - sum(term.bytes for term in rank.terms) == rank.kv_cache_bytes


@given(first=questions(), other=questions(), loading=more, working=more)
def test_what_is_not_the_same_start_is_never_promised_more(
    first: Question, other: Question, loading: float, working: float
) -> None:
    lesson, _ = taught(first, loading, max(0.0, working))
    rank, before = learned(other, lesson), plain(other)
    same = (first.profile, first.version, first.devices, first.parallelism, first.engine) == (
        other.profile,
        other.version,
        other.devices,
        other.parallelism,
        other.engine,
    )
    if same:
        return
    assert (rank.activation, rank.non_torch, rank.cuda_graph) == (
        before.activation,
        before.non_torch,
        before.cuda_graph,
    )
    if rank.weights_extra.starts:
        assert first.profile == other.profile
        assert first.version == other.version
        told = lesson.stages[0].residual(Quantity.LOADING)
        assert told is not None
        assert abs(rank.weights_extra.bytes - before.weights_extra.bytes - told) <= SCATTER


@given(asked=questions(), seen=st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=2, max_size=4))
def test_the_range_covers_every_repetition(asked: Question, seen: list[float]) -> None:
    pairs = [taught(asked, 0.0, working, str(number)) for number, working in enumerate(seen)]
    rank = learned(asked, *(lesson for lesson, _ in pairs))
    for _, cache in pairs:
        assert rank.kv_cache_low <= cache <= rank.kv_cache_high


@given(asked=questions(), loading=more, working=more)
def test_without_the_lessons_the_prediction_is_what_it_was(
    asked: Question, loading: float, working: float
) -> None:
    before = estimate(asked)
    lesson, _ = taught(asked, loading, max(0.0, working))
    learned(asked, lesson)
    assert estimate(asked) == before
