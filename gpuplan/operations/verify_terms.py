"""Predicted beside printed, term by term and rank by rank."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuplan.domain.calibration import PRINTED
from gpuplan.domain.memory import MemoryEstimate, RankMemory
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.verification import ComparedFigure, Rank
from gpuplan.engine.startup_log import LogLine, Milestone, MilestoneKind, milestone

_WORKER = re.compile(
    r"\((?:Vllm)?Worker(?:[ _](?P<groups>[A-Z]{2,3}\d{1,5}(?:[ _][A-Z]{2,3}\d{1,5}){0,6}))?(?: rank=(?P<rank>\d{1,5}))? pid="
)
"""`(Worker_DP0_PP1_TP3 pid=…)` since 0.10.2, `(VllmWorker TP3 pid=…)` in 0.10.1, `(VllmWorker rank=3 pid=…)` before."""
_CORE = re.compile(r"\(EngineCore(?:[ _]DP(?P<data>\d{1,5}))?[ )]")
_GROUP = re.compile(r"([A-Z]{2,3})(\d+)")


def compare(
    memory: MemoryEstimate | None, parallelism: Parallelism, lines: Mapping[str, Sequence[LogLine]]
) -> tuple[ComparedFigure, ...]:
    """Every figure that was predicted and printed, by term, then by rank; `lines` by container."""
    if memory is None or not memory.ranks:
        return ()
    by_rank: dict[Rank, dict[str, int]] = {}
    engine: dict[str, float] = {}
    for log in lines.values():
        for _, line in log:
            found = milestone(line)
            if found is None:
                continue
            _take(by_rank.setdefault(_rank_of(line, parallelism), {}), found)
            for name in ("tokens", "concurrency"):
                value = found.figures.get(name)
                if isinstance(value, int | float):
                    engine[name] = min(engine.get(name, value), value)
    rows = [
        _row(term, rank, figures[term], _predicted(memory, rank), term)
        for term in TERMS
        for rank, figures in sorted(by_rank.items(), key=_order)
        if term in figures
    ]
    return (*rows, *_engine_rows(memory, engine))


ORDER = ("weights", "activation", "non_torch", "cuda_graph", "kv_cache", "tokens", "concurrency")


def in_order(*found: Sequence[ComparedFigure]) -> tuple[ComparedFigure, ...]:
    """What the budget pays, what is left, what that holds."""
    return tuple(sorted((row for rows in found for row in rows), key=lambda row: ORDER.index(row.term)))


TERMS = ("weights", "kv_cache")
"""Those that every release prints of each rank."""
_PRINTED = {"weights_bytes": "weights", "kv_cache_bytes": "kv_cache"}


def _take(figures: dict[str, int], found: Milestone) -> None:
    """Weights are those that loading took: what is printed of them later is rounded anew."""
    for name, term in _PRINTED.items():
        value = found.figures.get(name)
        if isinstance(value, int) and (
            term != "weights" or found.kind is MilestoneKind.LOADED or term not in figures
        ):
            figures[term] = value


def _rank_of(line: str, parallelism: Parallelism) -> Rank:
    worker = _WORKER.search(line, 0, 400)
    if worker is not None:
        sizes = {name: int(number) for name, number in _GROUP.findall(worker["groups"] or "")}
        if worker["rank"] is not None:
            return Rank(rank=int(worker["rank"]))
        stage, tensor = sizes.get("PP", 0), sizes.get("TP", 0)
        return Rank(replica=sizes.get("DP", 0), rank=stage * parallelism.tensor + tensor)
    core = _CORE.search(line, 0, 400)
    replica = int(core["data"] or 0) if core is not None else 0
    return Rank(replica=replica, rank=0 if parallelism.world_size == 1 else None)


def _order(item: tuple[Rank, dict[str, int]]) -> tuple[int, int]:
    return item[0].replica, -1 if item[0].rank is None else item[0].rank


def _predicted(memory: MemoryEstimate, rank: Rank) -> Sequence[RankMemory]:
    """The rank's own prediction; where it is not known who printed, those of all."""
    if rank.rank is not None and rank.rank < len(memory.ranks):
        return (memory.ranks[rank.rank],)
    return memory.ranks


def _row(term: str, rank: Rank, actual: int, ranks: Iterable[RankMemory], name: str) -> ComparedFigure:
    figures = [_figures(one, term) for one in ranks]
    return ComparedFigure(
        term=name,
        rank=rank,
        predicted=(min if term == "kv_cache" else max)(likely for likely, _, _ in figures),
        low=min(low for _, low, _ in figures),
        high=max(high for _, _, high in figures),
        actual=actual,
        slack=PRINTED,
    )


def _figures(rank: RankMemory, term: str) -> tuple[int, int, int]:
    """Likely, least and most bytes. What loading takes is the weights and what is made of them."""
    if term == "kv_cache":
        return rank.kv_cache_bytes, rank.kv_cache_low, rank.kv_cache_high
    parts = (rank.weights, rank.weights_extra)
    return (
        sum(part.bytes for part in parts),
        sum(part.least for part in parts),
        sum(part.most for part in parts),
    )


def _engine_rows(memory: MemoryEstimate, printed: Mapping[str, float]) -> Iterator[ComparedFigure]:
    """Tokens and requests at once, whose ranges follow from the cache of the rank with the least."""
    least = min(memory.ranks, key=lambda rank: rank.kv_cache_bytes)
    if least.kv_cache_bytes <= 0:
        return
    low, high = (size / least.kv_cache_bytes for size in (least.kv_cache_low, least.kv_cache_high))
    block = memory.block_size or 1
    for name, predicted, slack in (
        ("tokens", memory.kv_cache_tokens, float(block)),
        ("concurrency", memory.max_concurrency, 0.005 + block / max(memory.max_model_len, 1)),
    ):
        if name in printed and predicted:
            yield ComparedFigure(
                term=name,
                rank=None,
                predicted=predicted,
                low=predicted * min(low, 1.0),
                high=predicted * max(high, 1.0),
                actual=printed[name],
                slack=slack,
            )
