"""Knobs of the engine that leave more of each GPU for weights and the KV cache."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuplan.domain.model import Encoder
from gpuplan.engine.cuda_graphs import LARGEST_SIZE, LARGEST_SIZE_ON_SM100
from gpuplan.engine.lora import RANKS
from gpuplan.engine.offloading import READS_HOST_MEMORY
from gpuplan.engine.versions import GraphAccounting, graph_accounting
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.planning.offers import Device
from gpuplan.planning.passing_shares import shares_that_pass
from gpuplan.planning.remedies.case import Case, Near
from gpuplan.planning.remedies.ladder import Ladder, Step, argument, ladder_of
from gpuplan.units import GIB, ceil_div

BATCHES = (16384, 8192, 4096, 2048, 1024, 512)
GRAPH_SIZES = (512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
MOST_UTILIZATION = 0.95
FP8_SINCE = (8, 9)
"""Compute capability from which NVIDIA cards keep an fp8 KV cache: Ada, Hopper."""
COARSE_OFFLOADS = 12


def sequences(case: Case, near: Sequence[Near]) -> Iterator[Ladder]:
    """`--max-num-seqs`: powers of two below what it is, down to the requests asked for at once."""
    now = max((one.memory.max_num_seqs for one in near), default=0)
    least = case.request.workload.concurrency or 1
    values = {1 << power for power in range(max(now, 1).bit_length())} | {least}
    steps = tuple(
        argument(
            "max_num_seqs", value, {"sequences": value, "asked": now}, max(0.0, 0.2 * math.log2(now / value))
        )
        for value in sorted(values, reverse=True)
        if least <= value < now
    )
    yield ladder_of("max_num_seqs", steps)


def batches(case: Case, near: Sequence[Near]) -> Iterator[Ladder]:
    """`--max-num-batched-tokens`, where the engine reads prompts in parts.

    Never below the sequences the user set nor the largest item of a tower (vLLM `SchedulerConfig`, which refuses both).
    """
    engine, profile = case.arguments, case.request.profile
    if engine.enable_chunked_prefill is False or profile.pooling:
        return
    now = max((one.memory.max_num_batched_tokens for one in near), default=0)
    items = 0 if engine.language_model_only else max(map(_item, profile.encoders), default=0)
    least = max(engine.max_num_seqs or 1, items)
    steps = tuple(
        argument(
            "max_num_batched_tokens", value, {"batched": value, "asked": now}, 0.2 * math.log2(now / value)
        )
        for value in BATCHES
        if least <= value < now
    )
    yield ladder_of("max_num_batched_tokens", steps)


def _item(encoder: Encoder) -> int:
    return max(encoder.least_batched_tokens, encoder.tokens_per_item)


def graphs(case: Case, near: Sequence[Near]) -> Iterator[Ladder]:
    """Fewer CUDA graphs, and none: from the release on that takes them from the budget (0.20)."""
    engine = case.arguments
    if engine.enforce_eager or not _counted(case, near):
        return
    if engine.cudagraph_capture_sizes is not None:
        yield ladder_of("graphs", tuple(_shorter(case, engine.cudagraph_capture_sizes)))
    elif not {"cudagraph_capture_sizes", "max_cudagraph_capture_size"} & set(engine.compilation_config):
        now = engine.max_cudagraph_capture_size or max(map(_largest_graph, near), default=0)
        yield ladder_of(
            "graphs",
            tuple(
                argument(
                    "max_cudagraph_capture_size",
                    value,
                    {"graphs": value, "asked": now},
                    0.3 + 0.15 * math.log2(now / value),
                )
                for value in GRAPH_SIZES
                if value < now
            ),
        )
    yield ladder_of("enforce_eager", (argument("enforce_eager", True, {}, 2.0),))


def _counted(case: Case, near: Sequence[Near]) -> bool:
    return graph_accounting(case.request.version) is GraphAccounting.SUBTRACTED and any(
        rank.cuda_graph.most > 0 for one in near for rank in one.memory.ranks
    )


def _largest_graph(near: Near) -> int:
    """The largest batch that is captured by default (`VllmConfig._set_cudagraph_sizes`)."""
    newest = (near.devices[0].compute_capability or "").startswith("10.")
    bound = LARGEST_SIZE_ON_SM100 if newest else LARGEST_SIZE
    return min(2 * near.memory.max_num_seqs, bound, near.memory.max_num_batched_tokens)


def _shorter(case: Case, sizes: tuple[int, ...]) -> Iterator[Step]:
    """The user's own list without its largest sizes, down to the smallest alone."""
    ordered = tuple(sorted(set(sizes)))
    for count in sorted({len(ordered) * part // 8 for part in range(1, 8)} | {1}, reverse=True):
        if not 0 < count < len(ordered):
            continue
        kept = ordered[:count]
        figures = {"graphs": kept[-1], "asked": ordered[-1]}
        size = 0.3 + 0.15 * math.log2(ordered[-1] / kept[-1])
        step = argument("cudagraph_capture_sizes", kept, figures, size)
        if case.arguments.max_cudagraph_capture_size is not None:
            # the engine wants the largest size named to be the largest listed
            last = argument("max_cudagraph_capture_size", kept[-1], figures, size)
            step = _together(step, last)
        yield step


def _together(one: Step, other: Step) -> Step:
    return Step(
        change={**one.change, **other.change},
        figures=one.figures,
        size=one.size,
        apply=lambda request: other.apply(one.apply(request)),
    )


def kv_dtype(case: Case, near: Sequence[Near]) -> Iterator[Ladder]:
    """An fp8 KV cache, where the cards have the type."""
    if case.arguments.kv_cache_dtype != "auto" or case.request.profile.kv_cache_dtype:
        return
    if any(layer.caches for layer in case.request.profile.layer_kinds) and any(
        all(has_fp8(device) for device in one.devices) for one in near
    ):
        yield ladder_of("kv_cache_dtype", (argument("kv_cache_dtype", "fp8", {}, 1.0),))


def has_fp8(device: Device) -> bool:
    """Whether a card keeps a KV cache in fp8."""
    if device.backend != "cuda":
        return True
    major, _, minor = (device.compute_capability or "0.0").partition(".")
    return (int(major), int(minor or 0)) >= FP8_SINCE


def utilization_up(case: Case) -> Iterator[Ladder]:
    """A larger share of each GPU, where that much of one is free."""
    asked = case.request.utilization
    if asked is None or case.claim_only:
        return
    up = [round(asked + at / 100, 2) for at in range(1, 20) if asked + at / 100 <= MOST_UTILIZATION + 1e-9]
    free = shares_that_pass(case.request, case.supply, up)
    yield ladder_of("gpu_memory_utilization", tuple(share_step(share, asked) for share in free), each=True)


def share_step(share: float, asked: float) -> Step:
    """`--gpu-memory-utilization`, which is settled in the request besides."""
    step = argument("gpu_memory_utilization", share, {"share": share, "asked": asked}, 5 * abs(share - asked))
    return replace(step, apply=lambda request: replace(step.apply(request), utilization=share))


def lora(case: Case) -> Iterator[Ladder]:
    """Fewer adapters in one batch, and adapters of a lower rank."""
    engine = case.arguments
    if not engine.enable_lora:
        return
    slots = engine.max_loras
    yield ladder_of(
        "max_loras",
        tuple(
            argument(
                "max_loras", value, {"slots": value, "asked": slots}, 0.3 + 0.5 * math.log2(slots / value)
            )
            for value in range(slots - 1, 0, -1)
        ),
    )
    rank = engine.max_lora_rank
    yield ladder_of(
        "max_lora_rank",
        tuple(
            argument(
                "max_lora_rank", value, {"rank": value, "asked": rank}, 1.0 + 0.4 * math.log2(rank / value)
            )
            for value in reversed(RANKS)
            if value < rank
        ),
    )


MODALITIES = {"vision": ("image", "video"), "audio": ("audio",)}


def items(case: Case) -> Iterator[Ladder]:
    """No items of one kind of tower, then of none (`--limit-mm-per-prompt`)."""
    engine, encoders = case.arguments, case.request.profile.encoders
    if engine.language_model_only or not encoders:
        return
    kinds = tuple(dict.fromkeys(encoder.kind for encoder in encoders))
    for kind in kinds if len(kinds) > 1 else ():
        yield ladder_of("mm_limit", (_without_items(engine.limit_mm_per_prompt, (kind,), 1.5),))
    yield ladder_of("mm_limit", (_without_items(engine.limit_mm_per_prompt, kinds, 2.5),))


def _without_items(limits: Mapping[str, Any], kinds: tuple[str, ...], size: float) -> Step:
    names = [name for kind in kinds for name in MODALITIES.get(kind, (kind,))]
    value = {**limits, **dict.fromkeys(names, 0)}
    return argument("limit_mm_per_prompt", json.loads(json.dumps(value)), {"modalities": names}, size)


def offload(case: Case) -> Iterator[Ladder]:
    """`--cpu-offload-gb`: whole GiB of weights of each rank in host memory, as far as a host has the RAM."""
    profile, engine = case.request.profile, case.arguments
    if case.claim_only or engine.cpu_offload_gb or not profile.layer_order:
        return
    kinds = {offer.device for offer in case.supply.offers}
    if not any(kind.backend in READS_HOST_MEMORY and not kind.unified for kind in kinds):
        return
    taken = (case.request.workload.ram_claim_bytes or 0) + int((engine.kv_offloading_size or 0) * GIB)
    room = max((host.ram_available_bytes or 0 for host in case.supply.hosts), default=0) - taken
    weights = rank_weights(profile, Split()).parameters
    most = min(room // GIB, ceil_div(weights, GIB))
    if most < 1:
        return

    def step(at: int) -> Step:
        figures = {"gib": at + 1, "weights_bytes": weights}
        return argument("cpu_offload_gb", at + 1, figures, 1.5 + 3 * (at + 1) * GIB / max(weights, GIB))

    coarse = {most * part // COARSE_OFFLOADS for part in range(1, COARSE_OFFLOADS)} | {0, 1, 3, most - 1}
    yield Ladder(
        kind="cpu_offload_gb",
        count=most,
        step=step,
        coarse=tuple(sorted(at for at in coarse if 0 <= at < most)),
    )
