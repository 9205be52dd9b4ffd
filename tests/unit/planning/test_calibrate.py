"""What a like start teaches, and what it must not."""

from dataclasses import replace

import pytest

from gpuplan.domain.calibration import Compared, Lesson, Quantity, StageTerms, gpu_kind
from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import MemoryEstimate
from gpuplan.domain.plan import Parallelism
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import EngineVersion
from gpuplan.planning.calibrate import SCATTER
from gpuplan.planning.estimate import estimate, start_asked
from gpuplan.planning.likeness import Lessons
from gpuplan.planning.offers import Device
from gpuplan.planning.question import Question
from gpuplan.units import GIB
from gpuplan.version import __version__
from tests.fleets import profile

H200 = Device(name="NVIDIA H200", total_bytes=int(139.8 * GIB), compute_capability="9.0")
H100 = Device(name="NVIDIA H100 80GB HBM3", total_bytes=int(79.18 * GIB), compute_capability="9.0")


def question(
    *words: str,
    model: str = "Qwen/Qwen3-32B",
    device: Device = H200,
    tensor: int = 2,
    version: str = "0.11.0",
) -> Question:
    parsed = EngineVersion.parse(version)
    engine = parse(
        ["--max-model-len", "8192", "--max-num-seqs", "64", "--max-num-batched-tokens", "8192", *words],
        version=parsed,
        model_given=True,
    )
    return Question(
        profile=profile(model.replace("/", "__")),
        engine=engine,
        version=parsed,
        parallelism=Parallelism(tensor=tensor),
        devices=(device,) * tensor,
        utilization=engine.gpu_memory_utilization or 0.9,
        context=None,
    )


def lesson(asked: Question, name: str = "log", at: float = 1000.0, **residuals: float) -> Lesson:
    """As if the start had printed what is predicted, and so many GiB more of these quantities."""
    memory = estimate(replace(asked, lessons=Lessons()))
    rank = memory.ranks[0]
    groups = {
        Quantity.LOADING: (rank.weights, rank.weights_extra),
        Quantity.ACTIVATION: (rank.activation,),
        Quantity.NON_TORCH: (rank.non_torch,),
        Quantity.WORKING: (rank.activation, rank.non_torch, rank.cuda_graph),
    }
    terms = []
    for quantity, parts in groups.items():
        size = sum(term.bytes for term in parts)
        more = residuals.get(quantity.value)
        terms.append(
            Compared(
                quantity=quantity,
                predicted=size,
                low=sum(term.least for term in parts),
                high=sum(term.most for term in parts),
                actual=None if more is None else size + int(more * GIB),
            )
        )
    stage = StageTerms(stage=0, phase=str(dict(rank.activation.inputs)["phase"]), terms=tuple(terms))
    return Lesson(
        id=name, at=at, origin=name, learned_by=__version__, start=start_asked(asked), stages=(stage,)
    )


def cache(asked: Question, *lessons: Lesson) -> tuple[int, int, int]:
    """KV cache, least and most, with these lessons."""
    rank = estimate(replace(asked, lessons=Lessons(all=lessons))).ranks[0]
    return rank.kv_cache_bytes, rank.kv_cache_low, rank.kv_cache_high


def with_lessons(asked: Question, *lessons: Lesson) -> MemoryEstimate:
    return estimate(replace(asked, lessons=Lessons(all=lessons)))


def test_the_same_start_takes_over_what_was_measured() -> None:
    asked = question()
    taught = lesson(asked, loading=0.5, working=0.3)
    plain, _, _ = cache(asked)
    learned, least, most = cache(asked, taught)
    assert learned == plain - int(0.5 * GIB) - int(0.3 * GIB)
    assert most - least <= 4 * SCATTER
    assert least <= learned <= most


def test_every_corrected_term_says_so() -> None:
    asked = question()
    rank = with_lessons(asked, lesson(asked, loading=0.5, working=0.3)).ranks[0]
    for term in (rank.weights_extra, rank.activation, rank.non_torch):
        assert term.basis is Basis.MEASURED
        assert term.starts == ("log",)
        assert "1970-01-01" in term.source
        assert "computed" in dict(term.inputs)
    assert rank.weights.starts == ()


def test_all_ranks_are_corrected_alike() -> None:
    asked = question()
    ranks = with_lessons(asked, lesson(asked, loading=0.5, working=0.3)).ranks
    assert len({rank.kv_cache_bytes for rank in ranks}) == 1


@pytest.mark.parametrize("more", [-0.1, 0.0, 0.7])
def test_what_is_told_apart_is_taken_over_apart(more: float) -> None:
    asked = question()
    plain = estimate(asked).ranks[0]
    rank = with_lessons(asked, lesson(asked, loading=0.0, non_torch=more, working=more)).ranks[0]
    assert rank.non_torch.bytes == plain.non_torch.bytes + int(more * GIB)
    assert rank.activation.bytes == pytest.approx(plain.activation.bytes, abs=2)


def test_repeated_starts_widen_the_range_by_their_scatter_and_the_newest_counts() -> None:
    asked = question()
    old, new = lesson(asked, "old", 1.0, working=0.4), lesson(asked, "new", 2.0, working=0.3)
    plain, _, _ = cache(asked)
    learned, least, most = cache(asked, old, new)
    assert learned == plain - int(0.3 * GIB)
    assert least == plain - int(0.4 * GIB) - SCATTER
    assert most == learned + SCATTER


@pytest.mark.parametrize(
    "other",
    [
        question(device=H100),
        question(version="0.11.1"),
        question(tensor=4),
        question("--moe-backend", "triton", version="0.22.0"),
        question("--enforce-eager"),
        question("--kv-cache-dtype", "fp8"),
        question(model="Qwen/Qwen3-8B"),
    ],
)
def test_other_starts_do_not_take_over_the_working_memory(other: Question) -> None:
    taught = lesson(question(), loading=0.5, working=0.3)
    rank = with_lessons(other, taught).ranks[0]
    assert rank.activation == estimate(other).ranks[0].activation


def test_unlike_hardware_is_left_alone_apart_from_loading() -> None:
    taught = lesson(question(), loading=0.5, activation=0.2, non_torch=0.1, working=0.3)
    other = question(device=H100)
    plain, rank = estimate(other).ranks[0], with_lessons(other, taught).ranks[0]
    assert (rank.activation, rank.non_torch) == (plain.activation, plain.non_torch)
    assert rank.weights_extra.bytes == plain.weights_extra.bytes + int(0.5 * GIB)


def test_kernels_of_another_generation_repack_otherwise() -> None:
    quantized = "Qwen/Qwen3-32B-FP8"
    ada = Device(name="NVIDIA L40S", total_bytes=int(44.39 * GIB), compute_capability="8.9")
    taught = lesson(question(model=quantized), loading=0.5)
    same = with_lessons(question(model=quantized, device=H100), taught).ranks[0]
    other = with_lessons(question(model=quantized, device=ada), taught).ranks[0]
    assert same.weights_extra.starts == ("log",)
    assert other.weights_extra.starts == ()


def test_another_batch_moves_the_safe_end_to_the_safe_side_only() -> None:
    taught = lesson(question(), loading=0.0, activation=-0.2, non_torch=-0.05, working=-0.25)
    other = question("--max-num-batched-tokens", "16384")
    plain, rank = estimate(other).ranks[0], with_lessons(other, taught).ranks[0]
    assert rank.non_torch.bytes < plain.non_torch.bytes
    assert rank.non_torch.most == plain.non_torch.most
    assert rank.activation.most >= plain.activation.most
    more = lesson(question(), loading=0.0, non_torch=0.4, working=0.4)
    worse = with_lessons(other, more).ranks[0]
    assert worse.non_torch.most == plain.non_torch.most + int(0.4 * GIB)


def test_other_models_teach_of_the_hardware_where_two_agree() -> None:
    asked = question()
    one = lesson(question(model="Qwen/Qwen3-8B"), "one", non_torch=0.3)
    two = lesson(question(model="Qwen/Qwen3-14B"), "two", non_torch=0.4)
    far = lesson(question(model="Qwen/Qwen3-4B"), "far", non_torch=2.0)
    plain = estimate(asked).ranks[0].non_torch
    assert with_lessons(asked, one).ranks[0].non_torch == plain
    both = with_lessons(asked, one, two).ranks[0].non_torch
    assert both.bytes == pytest.approx(plain.bytes + int(0.35 * GIB), abs=2)
    assert both.most >= plain.most + int(0.4 * GIB)
    assert set(both.starts) == {"one", "two"}
    assert with_lessons(asked, one, two, far).ranks[0].non_torch == plain


def test_a_start_beside_which_memory_came_back_is_not_believed_alone() -> None:
    asked = question()
    plain, _, _ = cache(asked)
    odd = lesson(asked, "odd", non_torch=-3.0, working=-3.0)
    assert cache(asked, odd)[0] == plain
    unsaid = lesson(asked, "unsaid", loading=0.0, working=-20.0)
    assert cache(asked, unsaid)[0] == plain


def test_another_share_or_length_widens_the_range() -> None:
    taught = lesson(question(), loading=0.0, working=0.3)
    other = replace(question(), utilization=0.8)
    _, least, most = cache(other, taught)
    assert most - least > 4 * SCATTER


def test_residuals_of_another_gpuplan_hold_for_the_very_same_start_only() -> None:
    asked = question()
    taught = replace(lesson(asked, loading=0.5, working=0.3, non_torch=0.1), learned_by="0.0.1")
    assert cache(asked, taught)[0] < cache(asked)[0]
    other = question("--max-num-batched-tokens", "16384")
    assert with_lessons(other, taught) == estimate(other)


def test_without_lessons_nothing_changes() -> None:
    asked = question()
    taught = lesson(asked, loading=0.5, working=0.3)
    assert with_lessons(asked) == estimate(asked)
    with_lessons(asked, taught)
    assert with_lessons(asked) == estimate(asked)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3", True),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", True),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", False),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H200", False),
    ],
)
def test_kinds_of_cards(one: str, other: str, *, alike: bool) -> None:
    assert (gpu_kind(one) == gpu_kind(other)) is alike


def test_a_card_without_a_name_is_like_no_other() -> None:
    nameless = replace(start_asked(question()), gpu="custom")
    assert nameless.kind == ""
    assert not nameless.on_card_of(nameless)


def test_a_log_that_confirms_the_count_does_not_replace_it() -> None:
    asked = question()
    rank = with_lessons(asked, lesson(asked, loading=0.004)).ranks[0]
    assert rank.weights_extra == estimate(asked).ranks[0].weights_extra


def test_a_start_with_a_draft_is_like_itself() -> None:
    speculative = '{"method": "mtp", "num_speculative_tokens": 1}'
    words = ("--speculative-config", speculative)
    asked = question(*words, model="Qwen/Qwen3-Next-80B-A3B-Instruct", version="0.22.0")
    plain, _, _ = cache(asked)
    assert cache(asked, lesson(asked, loading=0.0, working=0.3))[0] == plain - int(0.3 * GIB)
