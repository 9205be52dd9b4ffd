"""A start beside its prediction, term by term: what the fullest rank of each stage printed, and what it was told to take."""

from collections.abc import Sequence

from gpuplan.domain.calibration import PRINTED, Compared, Quantity, StageTerms
from gpuplan.domain.memory import MemoryEstimate, RankMemory, Term
from gpuplan.engine.start_facts import RankFacts, StartFacts
from gpuplan.engine.versions import GraphAccounting, graph_accounting
from gpuplan.planning.learned import Gap, Missing
from gpuplan.planning.question import Question
from gpuplan.units import GIB


def stages_compared(
    facts: StartFacts, question: Question, memory: MemoryEstimate, *, total_known: bool
) -> tuple[StageTerms, ...]:
    """Every pipeline stage. `total_known`: the memory of the card is its own, so that budget and cache mean something."""
    printed = facts.of_stages(question.parallelism.pipeline)
    found = []
    for stage in sorted({rank.stage for rank in memory.ranks}):
        ranks = [rank for rank in memory.ranks if rank.stage == stage]
        terms = _terms(printed.get(stage, RankFacts()), question, ranks, total_known=total_known)
        phase = str(dict(ranks[0].activation.inputs).get("phase", ""))
        found.append(StageTerms(stage=stage, phase=phase, terms=terms))
    return tuple(found)


def doubts(stages: Sequence[StageTerms], total_bytes: int) -> tuple[Missing, ...]:
    """Whether the start ran on a card as large as the user says, or within arguments that the log does not show.

    What is neither loaded nor cache cannot be less than nothing, and is not a quarter of the card more than predicted.
    """
    for terms in (stage.terms for stage in stages):
        working = next((term for term in terms if term.quantity is Quantity.WORKING), None)
        if working is None or working.actual is None:
            continue
        if working.actual < -PRINTED:
            said = f"the KV cache has {-working.actual / GIB:.2f} GiB more than such a card leaves for it"
            return (Missing(gap=Gap.DOUBT, detail=said),)
        if working.actual - working.high > total_bytes // 4:
            said = (
                f"{working.actual / GIB:.2f} GiB of it would be neither weights nor KV cache, "
                f"{working.high / GIB:.2f} GiB at most are expected"
            )
            return (Missing(gap=Gap.DOUBT, detail=said),)
    return ()


def server_compared(facts: StartFacts, memory: MemoryEstimate, *, total_known: bool) -> tuple[Compared, ...]:
    """Tokens and requests that the cache of the whole server holds; concurrency where it is told for the same length."""
    if not total_known:
        return ()
    found = []
    if facts.tokens is not None:
        found.append(_number(Quantity.TOKENS, memory.kv_cache_tokens, facts.tokens))
    if facts.max_concurrency is not None and facts.max_model_len in {None, memory.max_model_len}:
        predicted = round(memory.max_concurrency * 1000)
        found.append(_number(Quantity.CONCURRENCY, predicted, round(facts.max_concurrency * 1000)))
    return tuple(found)


def _number(quantity: Quantity, predicted: int, actual: int) -> Compared:
    return Compared(quantity=quantity, predicted=predicted, low=predicted, high=predicted, actual=actual)


def _terms(
    printed: RankFacts, question: Question, ranks: Sequence[RankMemory], *, total_known: bool
) -> tuple[Compared, ...]:
    fullest = max(ranks, key=lambda rank: rank.weights.bytes + rank.weights_extra.bytes)
    poorest = min(ranks, key=lambda rank: rank.kv_cache_bytes)
    rest = (poorest.activation, poorest.non_torch, poorest.cuda_graph)
    estimated = graph_accounting(question.version) is GraphAccounting.SUBTRACTED
    graphs = printed.graphs_estimated if estimated else None
    found = [
        _summed(Quantity.LOADING, (fullest.weights, fullest.weights_extra), printed.loading),
        _summed(Quantity.ACTIVATION, (poorest.activation,), _peak(printed, question, estimated=estimated)),
        _summed(Quantity.NON_TORCH, (poorest.non_torch,), printed.non_torch),
    ]
    if estimated:
        found.append(_summed(Quantity.GRAPHS, (poorest.cuda_graph,), graphs))
    working = _working(printed, question, poorest, total_known=total_known, estimated=estimated)
    found.append(_summed(Quantity.WORKING, rest, working))
    if total_known or question.engine.kv_cache_memory_bytes is not None:
        cache = Compared(
            quantity=Quantity.KV_CACHE,
            predicted=poorest.kv_cache_bytes,
            low=poorest.kv_cache_low,
            high=poorest.kv_cache_high,
            actual=printed.kv_cache,
        )
        found.append(cache)
    return tuple(found)


def _peak(printed: RankFacts, question: Question, *, estimated: bool) -> int | None:
    """The peak of the profile run where it can be compared.

    Releases that subtract their estimate of the graphs add it to the peak they print (vLLM v1/worker/gpu_worker.py);
    those that print what was consumed leave out of the peak what stays allocated.
    """
    if printed.activation is None or printed.consumed is not None:
        return None
    if not estimated or question.engine.enforce_eager:
        return printed.activation
    return None if printed.graphs_estimated is None else printed.activation - printed.graphs_estimated


def _working(
    printed: RankFacts, question: Question, rank: RankMemory, *, total_known: bool, estimated: bool
) -> int | None:
    """Activation, non-torch and graphs together: what the budget lost besides loading and cache, else their sum."""
    fixed = question.engine.kv_cache_memory_bytes is not None
    if printed.loading is None:
        return None
    if total_known and printed.kv_cache is not None and not fixed and question.utilization is not None:
        return rank.budget.bytes - printed.loading - printed.kv_cache
    if printed.activation is None:
        return None
    if printed.consumed is not None:
        return printed.activation + printed.consumed - printed.loading
    if printed.non_torch is None:
        return None
    without = rank.cuda_graph.bytes if not estimated else 0
    return printed.activation + printed.non_torch + without


def _summed(quantity: Quantity, terms: Sequence[Term], actual: int | None) -> Compared:
    return Compared(
        quantity=quantity,
        predicted=sum(term.bytes for term in terms),
        low=sum(term.least for term in terms),
        high=sum(term.most for term in terms),
        actual=actual,
    )
