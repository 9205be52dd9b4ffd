"""Where a rank's memory goes, term by term: size, likely range, what it rests on, formula, inputs, source.

Ranks that are alike are told once, with the GPUs they stand for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import MemoryEstimate, RankMemory, Term
from gpuplan.domain.plan import Candidate
from gpuplan.present.document import Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.numbers import count, gib, gpu_range, listed
from gpuplan.units import GIB, plural

STAGE = "pipeline stage"
COUNTS = frozenset(
    {
        "tensor parallel",
        STAGE,
        "max_num_batched_tokens",
        "max_num_seqs",
        "elements per token",
        "bytes per logit",
        "piecewise graphs",
        "full decode graphs",
        "layers",
        "context (tokens)",
        "requests at once",
        "tokens of a block",
    }
)
"""Inputs that are numbers of something; every other whole number is bytes."""

BASES = {
    Basis.EXACT: "exact",
    Basis.COMPUTED: "computed",
    Basis.MEASURED: "measured",
    Basis.ASSUMED: "assumed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """Ranks whose memory is the same."""

    ranks: tuple[int, ...]
    places: tuple[str, ...]
    """`HOST:GPUS` of every replica, in order."""
    memory: RankMemory

    @property
    def title(self) -> str:
        """`rank 0`, `ranks 0-3`."""
        return f"rank{'' if len(self.ranks) == 1 else 's'} {gpu_range(self.ranks)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRow:
    """One line of a rank's account; `key` is stable over plans."""

    key: str
    name: str
    bytes: int
    low: int
    high: int
    basis: Basis
    formula: str
    inputs: tuple[tuple[str, int | float | str], ...] = ()
    source: str = ""


def rank_groups(candidate: Candidate) -> tuple[RankGroup, ...]:
    """The ranks of one replica, alike ones together, in the order of their first; empty where only a claim is known."""
    memory = candidate.memory
    if memory is None:
        return ()
    alike: dict[RankMemory, list[RankMemory]] = {}
    for rank in memory.ranks:
        alike.setdefault(_of_stage(rank, 0), []).append(rank)
    return tuple(
        RankGroup(
            ranks=tuple(rank.rank for rank in ranks),
            places=_places(candidate, frozenset(rank.rank for rank in ranks)),
            memory=_of_stage(ranks[0], gpu_range(tuple({rank.stage for rank in ranks}))),
        )
        for ranks in alike.values()
    )


def _of_stage(rank: RankMemory, stage: int | str) -> RankMemory:
    """The rank with another stage named among the inputs of its weights, so that stages can be compared."""
    inputs = tuple((name, stage if name == STAGE else value) for name, value in rank.weights.inputs)
    return replace(rank, rank=0, stage=0, weights=replace(rank.weights, inputs=inputs))


def _places(candidate: Candidate, ranks: frozenset[int]) -> tuple[str, ...]:
    """Ranks are laid over the placed GPUs in order, replica after replica."""
    world = max(candidate.parallelism.world_size, 1)
    placed = [(host.host, gpu.index) for host in candidate.placement for gpu in host.gpus]
    found: dict[str, list[int]] = {}
    for position, (host, index) in enumerate(placed):
        if position % world in ranks:
            found.setdefault(host, []).append(index)
    return tuple(f"{host}:{gpu_range(indexes)}" for host, indexes in found.items())


def account(rank: RankMemory, memory: MemoryEstimate, concurrency: int) -> tuple[TermRow, ...]:
    """Budget, every term it pays, what is left for the KV cache, what is needed of it, and the headroom."""
    rows = [_row("budget", rank.budget)]
    keys = ("weights", "weights_extra", "activation", "non_torch", "cuda_graph")
    rows += [_row(key, term) for key, term in zip(keys, rank.terms, strict=True)]
    cached = memory.block_bytes > 0
    rows.append(_cache(rank, cached=cached))
    if cached:
        rows += [_needed(rank, memory, concurrency), _headroom(rank)]
    return tuple(rows)


def _row(key: str, term: Term) -> TermRow:
    return TermRow(
        key=key,
        name=term.name,
        bytes=term.bytes,
        low=term.least,
        high=term.most,
        basis=term.basis,
        formula=term.formula,
        inputs=term.inputs,
        source=term.source,
    )


def _cache(rank: RankMemory, *, cached: bool) -> TermRow:
    paid = sum(term.bytes for term in rank.terms)
    inputs: tuple[tuple[str, int], ...] = ()
    if not cached:
        formula = "nothing is cached; below zero: what is missing"
    elif rank.budget.bytes - paid == rank.kv_cache_bytes:
        formula = "budget − " + " − ".join(term.name for term in rank.terms)
        inputs = tuple((term.name, term.bytes) for term in (rank.budget, *rank.terms))
    else:
        formula = "--kv-cache-memory-bytes, whatever the budget"
    return TermRow(
        key="kv_cache",
        name="KV cache",
        bytes=rank.kv_cache_bytes,
        low=rank.kv_cache_low,
        high=rank.kv_cache_high,
        basis=Basis.COMPUTED,
        formula=formula,
        inputs=inputs,
        source="vLLM v1/worker/gpu_worker.py determine_available_memory",
    )


def _needed(rank: RankMemory, memory: MemoryEstimate, concurrency: int) -> TermRow:
    return TermRow(
        key="kv_needed",
        name="KV needed",
        bytes=rank.kv_needed_bytes,
        low=rank.kv_needed_bytes,
        high=rank.kv_needed_bytes,
        basis=Basis.COMPUTED,
        formula="one request of the planned context, in whole blocks × requests at once",
        inputs=(
            ("one request", rank.kv_needed_bytes // max(concurrency, 1)),
            ("context (tokens)", memory.max_model_len),
            ("tokens of a block", memory.block_size),
            ("requests at once", concurrency),
        ),
        source="vLLM v1/core/kv_cache_planning.py",
    )


def _headroom(rank: RankMemory) -> TermRow:
    return TermRow(
        key="headroom",
        name="headroom",
        bytes=rank.headroom_bytes,
        low=rank.kv_cache_low - rank.kv_needed_bytes,
        high=rank.kv_cache_high - rank.kv_needed_bytes,
        basis=Basis.COMPUTED,
        formula="KV cache − KV needed",
        inputs=(("KV cache", rank.kv_cache_bytes), ("KV needed", rank.kv_needed_bytes)),
    )


ROLES: Mapping[str, Role] = {
    "weights": Role.WEIGHTS,
    "weights_extra": Role.ACTIVATION,
    "activation": Role.ACTIVATION,
    "non_torch": Role.ACTIVATION,
    "cuda_graph": Role.GRAPHS,
    "kv_cache": Role.CACHE,
}


def header_line(indent: int, width: int) -> Line:
    """Above the rows of a rank; `width` is that of the rows."""
    columns = f"{'term':<15}{'size':>12}  {'likely range':<{_range_cells(width)}} basis"
    return line(Span(" " * indent + columns, Role.DIM))


def row_line(row: TermRow, width: int) -> Line:
    """`weights  39.31 GiB  …  exact`, between 56 and 63 cells."""
    role = Role.BAD if row.bytes < 0 else ROLES.get(row.key, Role.PLAIN)
    likely = f"{range_words(row.low, row.high):<{_range_cells(width)}}"
    return line(
        Span(padded(row.name, 15), role),
        Span(f"{gib(row.bytes):>12}", Role.BAD if row.bytes < 0 else Role.PLAIN),
        f"  {likely} {BASES[row.basis]}",
    )


def _range_cells(width: int) -> int:
    return max(18, min(25, width - 38))


def range_words(low: int, high: int) -> str:
    """`5.34 – 9.03 GiB`; empty where it is one value."""
    if low == high:
        return ""
    first, second = gib(low), gib(high)
    if first.rpartition(" ")[2] == second.rpartition(" ")[2]:
        first = first.rpartition(" ")[0]
    return f"{first} – {second}"


def expansion(row: TermRow, width: int) -> Lines:
    """Formula, a line for each input, source."""
    lines: list[Line] = [*wrapped(row.formula, width, first="= ")]
    for name, value in row.inputs:
        lines += wrapped(f"{name}: {input_words(name, value)}", width, first="  ", rest="    ", role=Role.DIM)
    if row.source:
        lines += wrapped(row.source, width, first="source: ", role=Role.DIM)
    return tuple(lines)


def input_words(name: str, value: float | str) -> str:
    """Bytes as a size with the exact number, counts as they are."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, float):
        return f"{value:g}"
    if name in COUNTS or value == 0:
        return count(value)
    return f"{gib(value)} ({count(value)} bytes)"


def claim_lines(candidate: Candidate, width: int) -> Lines:
    """What is booked on every GPU, equal ones together: `h1:0-3  claim 72.86 of 79.19 GiB each, 79.19 GiB can be claimed`."""
    alike: dict[tuple[int, int, int], dict[str, list[int]]] = {}
    for host in candidate.placement:
        for gpu in host.gpus:
            key = (gpu.claim_bytes, gpu.total_bytes, gpu.allocatable_bytes)
            alike.setdefault(key, {}).setdefault(host.host, []).append(gpu.index)
    lines: list[Line] = []
    for (claim, total, allocatable), hosts in alike.items():
        number = sum(len(indexes) for indexes in hosts.values())
        where = listed([f"{host}:{gpu_range(indexes)}" for host, indexes in hosts.items()], most=4)
        each = " each" if number > 1 else ""
        over = claim > allocatable
        text = f"{where}  claim {gib(claim)} of {gib(total)}{each}, {gib(allocatable)} can be claimed" + (
            f", {gib(claim - allocatable)} too much" if over else ""
        )
        lines += wrapped(text, width, first="  ", rest="    ", role=Role.BAD if over else Role.PLAIN)
    for host_claim in sorted({host.ram_claim_bytes for host in candidate.placement} - {0}):
        names = [host.host for host in candidate.placement if host.ram_claim_bytes == host_claim]
        text = f"{listed(names, most=4)}  claim {gib(host_claim)} of host RAM"
        lines += wrapped(text, width, first="  ", rest="    ")
    return tuple(lines)


def summary(group: RankGroup) -> str:
    """`ranks 0-3 on h1:0-3: weights 15.30 GiB, KV cache 52.11 GiB`."""
    memory = group.memory
    where = listed(list(group.places), most=2)
    return f"{group.title} on {where}: weights {gib(memory.weights.bytes)}, KV cache {gib(memory.kv_cache_bytes)}"


def replica_words(candidate: Candidate) -> str:
    """`the same in each of 3 replicas`; empty for one."""
    number = candidate.parallelism.data
    return f"the same in each of {plural(number, 'replica')}" if number > 1 else ""


def signed_gib(size: int) -> str:
    """`+3.30 GiB`, `−512.00 MiB`, `±0`."""
    if size == 0:
        return "±0"
    return ("+" if size > 0 else "−") + gib(abs(size))


def signed_short(size: int) -> str:
    """`+3.30`, in GiB without the unit, for behind two sizes."""
    return ("+" if size > 0 else "−" if size < 0 else "±") + f"{abs(size) / GIB:,.2f}"
