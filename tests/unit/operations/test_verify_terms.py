"""Printed figures find the rank and the range they belong to, in the words of every release."""

import pytest

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import EngineAnswer, MemoryEstimate, RankMemory, Term
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.verification import ComparedFigure, Rank
from gpuplan.operations.verify_terms import compare, in_order
from gpuplan.units import GIB


def term(name: str, size: float, low: float | None = None, high: float | None = None) -> Term:
    return Term(
        name=name,
        bytes=int(size * GIB),
        low=None if low is None else int(low * GIB),
        high=None if high is None else int(high * GIB),
        basis=Basis.COMPUTED,
        formula="",
    )


def rank(number: int, weights: float, cache: float, spread: float = 0.5) -> RankMemory:
    return RankMemory(
        rank=number,
        stage=0,
        total_bytes=80 * GIB,
        budget=term("budget", 72),
        weights=term("weights", weights),
        weights_extra=term("weights, extra", 0.5, 0.25, 0.75),
        activation=term("activation", 1),
        non_torch=term("non-torch", 1),
        cuda_graph=term("graphs", 1),
        kv_cache_bytes=int(cache * GIB),
        kv_cache_low=int((cache - spread) * GIB),
        kv_cache_high=int((cache + spread) * GIB),
        kv_needed_bytes=GIB,
    )


def memory(*ranks: RankMemory) -> MemoryEstimate:
    return MemoryEstimate(
        ranks=ranks,
        blocks=1000,
        block_bytes=GIB // 100,
        block_size=16,
        kv_cache_tokens=100_000,
        max_concurrency=10.0,
        max_model_len=10_000,
        largest_max_model_len=10_000,
        concurrency_at=(),
        engine=EngineAnswer(starts=True),
        kv_needed_bytes=GIB,
        max_num_batched_tokens=8192,
        max_num_seqs=256,
    )


def rows(
    estimate: MemoryEstimate, shape: Parallelism, *lines: str
) -> dict[tuple[str, Rank | None], ComparedFigure]:
    found = compare(estimate, shape, {"h1/c": tuple((None, line) for line in lines)})
    return {(row.term, row.rank): row for row in found}


LOADED = "INFO 11-22 08:00:00 [gpu_model_runner.py:1] Model loading took {} GiB memory and 1.5 seconds"
CACHE = "INFO 11-22 08:00:00 [gpu_worker.py:1] Available KV cache memory: {} GiB"
SIZE = (
    "(EngineCore pid=3) INFO 11-22 08:00:00 [kv_cache_utils.py:1] GPU KV cache size: {:,} tokens, Maximum concurrency for "
    "10,000 tokens per request: {}x"
)


def test_one_rank_prints_as_the_engine() -> None:
    found = rows(
        memory(rank(0, 20, 40)),
        Parallelism(),
        f"(EngineCore_DP0 pid=3) {LOADED.format('20.60')}",
        f"(EngineCore_DP0 pid=3) {CACHE.format('40.51')}",
        SIZE.format(101_000, "10.10"),
    )
    weights, cache = found["weights", Rank(rank=0)], found["kv_cache", Rank(rank=0)]
    assert (weights.low, weights.high) == (20.25 * GIB, 20.75 * GIB)
    assert weights.held
    assert not cache.held, "half a GiB more was predicted at the most, and 0.01 more came"
    assert cache.difference == pytest.approx(0.51 * GIB, abs=2)
    assert found["tokens", None].held
    assert found["concurrency", None].predicted == 10.0


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("(Worker_TP1 pid=7)", Rank(rank=1)),
        ("(VllmWorker rank=1 pid=7)", Rank(rank=1)),
        ("(VllmWorker TP1 pid=7)", Rank(rank=1)),
        ("(Worker_DP2_TP1_EP5 pid=7)", Rank(replica=2, rank=1)),
        ("(Worker_PP1_TP0 pid=7)", Rank(rank=2)),
        ("(EngineCore_DP0 pid=7) (RayWorkerWrapper pid=9, ip=10.0.0.2)", Rank(rank=None)),
    ],
)
def test_who_printed_is_read_from_the_prefix(prefix: str, expected: Rank) -> None:
    shape = Parallelism(tensor=2, pipeline=2)
    estimate = memory(*(rank(number, 10 + number, 30) for number in range(4)))
    found = rows(estimate, shape, f"{prefix} {LOADED.format('11.50')}")
    [(_, who)] = found
    assert who == expected
    predicted = found["weights", who].predicted / GIB
    assert predicted == (13.5 if expected.rank is None else 10.5 + expected.rank)


def test_the_range_of_tokens_follows_that_of_the_cache() -> None:
    estimate = memory(rank(0, 20, 40, spread=4))
    held = rows(estimate, Parallelism(), SIZE.format(91_000, "9.10"))
    assert held["tokens", None].held
    missed = rows(estimate, Parallelism(), SIZE.format(89_000, "8.90"))
    assert not missed["tokens", None].held
    assert not missed["concurrency", None].held


def test_nothing_predicted_is_nothing_compared() -> None:
    assert compare(None, Parallelism(), {"h1/c": ((None, LOADED.format("1.00")),)}) == ()
    assert rows(memory(rank(0, 20, 40)), Parallelism(), "INFO nothing of note") == {}


def test_the_budgets_terms_come_before_what_is_left() -> None:
    def one(name: str) -> ComparedFigure:
        return ComparedFigure(term=name, rank=None, predicted=1, low=1, high=1, actual=1)

    ordered = in_order([one("tokens"), one("weights"), one("kv_cache")], [one("activation")])
    assert [row.term for row in ordered] == ["weights", "activation", "kv_cache", "tokens"]
