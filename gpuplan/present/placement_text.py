"""One placement for people: a bar per GPU, the cache in tokens and requests, the command."""

import shlex
from collections.abc import Iterator, Sequence

from gpuplan.domain.memory import MemoryEstimate, RankMemory
from gpuplan.domain.plan import Candidate, Parallelism, PlacedGpu
from gpuplan.domain.secret_text import MASK, masked_words
from gpuplan.present.cost_words import cost_lines
from gpuplan.present.document import Line, Role, Span, line, padded, visible, wrapped
from gpuplan.present.findings import word
from gpuplan.present.holdings import held_lines, is_shown
from gpuplan.present.numbers import gib, times, tokens
from gpuplan.present.refusal_text import finding_lines
from gpuplan.present.throughput_words import throughput_lines
from gpuplan.units import GIB


def shape_words(candidate: Candidate) -> str:
    """`TP2`, `TP8·PP2`, `TP8·EP`, with the number of replicas in front."""
    return parallelism_words(candidate.parallelism)


def parallelism_words(parallelism: Parallelism) -> str:
    """The same of a shape alone."""
    words = [f"TP{parallelism.tensor}"]
    if parallelism.pipeline > 1:
        words.append(f"PP{parallelism.pipeline}")
    if parallelism.expert:
        words.append("EP")
    text = "·".join(words)
    return f"{parallelism.data}×{text}" if parallelism.data > 1 else text


def candidate_lines(candidate: Candidate, width: int, *, findings: bool = True) -> Iterator[Line]:
    """One bar per GPU, then the cache in tokens and requests, tokens per second, the cost, the candidate's own findings."""
    yield from bar_lines(candidate, width)
    yield from capacity_lines(candidate, width)
    if candidate.memory is not None:
        yield from throughput_lines(candidate, width)
    yield from cost_lines(candidate, width)
    for fact in candidate.facts if findings and candidate.memory is not None else ():
        yield from finding_lines(word(fact), width)


def bar_lines(candidate: Candidate, width: int) -> Iterator[Line]:
    """A bar per GPU with its legend, and who holds what of it already; of a claim its numbers."""
    memory = candidate.memory
    if memory is None:
        yield from wrapped(
            "only the claim is known: weights, activation and KV cache are not told apart",
            width,
            first="  ",
            role=Role.DIM,
        )
        for host in candidate.placement:
            for gpu in host.gpus:
                claim = f"claim {gib(gpu.claim_bytes)} of {gib(gpu.total_bytes)}"
                yield line(
                    f"  {visible(host.host)}:{gpu.index}  {claim}, {gib(gpu.allocatable_bytes)} allocatable"
                )
        yield from held_lines(candidate, width)
        return
    yield from _legend(held=any(is_shown(gpu) for host in candidate.placement for gpu in host.gpus))
    yield from _bars(candidate, memory, width)
    yield from held_lines(candidate, width)


def _legend(*, held: bool) -> Iterator[Line]:
    yield line(
        "  ",
        Span("█ weights", Role.WEIGHTS),
        "  ",
        Span("▓ activation+other", Role.ACTIVATION),
        "  ",
        Span("▒ graphs", Role.GRAPHS),
        "  ",
        Span("░ KV cache", Role.CACHE),
        "  ",
        Span("· outside the budget", Role.FREE),
    )
    if held:
        yield line("  ", Span("▞ held by others or kept back", Role.HELD))


MOST_BARS = 16


def _bars(candidate: Candidate, memory: MemoryEstimate, width: int) -> Iterator[Line]:
    places = [(host.host, gpu) for host in candidate.placement for gpu in host.gpus]
    world = max(1, len(memory.ranks))
    label = min(18, max(len(f"{host}:{gpu.index}") for host, gpu in places))
    cells = max(10, width - label - 39)
    for position, (host, gpu) in enumerate(places[:MOST_BARS]):
        rank = memory.ranks[position % world]
        sizes = (
            ("W", _weights(rank)),
            ("A", _other(rank)),
            ("G", rank.cuda_graph.bytes),
            ("KV", rank.kv_cache_bytes),
        )
        figures = "".join(f" {name} {size / GIB:.1f}" for name, size in sizes) + " GiB"
        yield line("  ", padded(visible(f"{host}:{gpu.index}"), label), " ", *_bar(rank, gpu, cells), figures)
    if len(places) > MOST_BARS:
        yield line(Span(f"  … {len(places) - MOST_BARS} more GPUs with the same shape", Role.DIM))


def _weights(rank: RankMemory) -> int:
    """Weights on the card: what is offloaded is not."""
    return max(0, rank.weights.bytes + min(0, rank.weights_extra.bytes))


def _other(rank: RankMemory) -> int:
    return max(0, rank.weights_extra.bytes) + rank.activation.bytes + rank.non_torch.bytes


def _bar(rank: RankMemory, gpu: PlacedGpu, size: int) -> list[Span]:
    """Cells in proportion to bytes of the whole card, largest remainders first.

    What others hold takes no cell from the rank: where the two do not fit beside each other, the refusal says so.
    """
    cache = max(0, rank.kv_cache_bytes)
    parts = [
        (_weights(rank), "█", Role.WEIGHTS),
        (_other(rank), "▓", Role.ACTIVATION),
        (rank.cuda_graph.bytes, "▒", Role.GRAPHS),
        (cache, "░", Role.CACHE),
    ]
    used = sum(part for part, _, _ in parts)
    left = max(0, rank.total_bytes - used)
    held = min(left, rank.total_bytes - gpu.allocatable_bytes) if is_shown(gpu) else 0
    parts += [(left - held, "·", Role.FREE), (held, "▞", Role.HELD)]
    whole = max(1, sum(part for part, _, _ in parts))
    exact = [part * size / whole for part, _, _ in parts]
    cells = [int(value) for value in exact]
    order = sorted(range(len(parts)), key=lambda number: cells[number] - exact[number])
    for number in order[: size - sum(cells)]:
        cells[number] += 1
    return [Span(char * cells[number], role) for number, (_, char, role) in enumerate(parts) if cells[number]]


def capacity_lines(candidate: Candidate, width: int) -> Iterator[Line]:
    """The KV cache in bytes, tokens and requests; nothing of a claim."""
    memory = candidate.memory
    if memory is None:
        return
    if not memory.block_bytes:
        yield from wrapped("no KV cache: the model keeps nothing between requests", width, first="  ")
        return
    poorest = min(memory.ranks, key=lambda rank: rank.kv_cache_bytes)
    text = (
        f"KV cache {gib(poorest.kv_cache_bytes)} a GPU (likely {gib(poorest.kv_cache_low)} to {gib(poorest.kv_cache_high)}), "
        f"{tokens(memory.kv_cache_tokens)}"
    )
    if candidate.parallelism.data > 1:
        text += ", in each replica"
    yield from wrapped(text, width, first="  ")
    if not memory.blocks:
        return
    requests = ", ".join(f"{times(number)} of {tokens(length)}" for length, number in memory.concurrency_at)
    yield from wrapped(f"requests at once: {requests}", width, first="  ")
    longest = memory.largest_max_model_len
    yield from wrapped(
        f"context {tokens(memory.max_model_len)}; the longest one request could have is {tokens(longest)}",
        width,
        first="  ",
    )


def command_lines(candidate: Candidate, width: int) -> Iterator[Line]:
    """The command to run, broken so that it can be pasted."""
    environment = [f"{name}={shlex.quote(value)}" for name, value in candidate.env]
    yield from pasteable((*environment, "vllm", *quoted(candidate.vllm_args)), width)


def quoted(words: Sequence[str]) -> tuple[str, ...]:
    """Words for a shell, secrets masked."""
    return tuple(word if word == MASK else shlex.quote(word) for word in masked_words(words))


def pasteable(words: Sequence[str], width: int) -> Iterator[Line]:
    """Words that are quoted already as a command over as many lines as it takes."""
    current = "  "
    rows: list[str] = []
    for item in words:
        if len(current) + len(item) + 3 > width and current.strip():
            rows.append(current.rstrip() + " \\")
            current = "      "
        current += item + " "
    rows.append(current.rstrip())
    for row in rows:
        yield line(Span(visible(row), Role.COMMAND))
