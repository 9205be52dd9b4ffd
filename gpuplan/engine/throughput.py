"""A roofline estimate of tokens per second: what a step reads, computes and exchanges, over what the hardware gives.

A decode step reads the weights it needs once, whatever the batch (of routed experts those that some token chose), and
the cache of every sequence; each part takes as long as the slower of its bytes and its operations. All-reduces, kernel
launches and the host's work between steps are added. A prompt is read in chunks of `max_num_batched_tokens`.

The shares of the data sheet's peaks are round numbers for what kernels are known to reach, the same for every model:
matrix-vector products 80 to 90 % of the bandwidth on A100 and H100, fused experts about 60 % at small batches, matrix
products of a prompt 50 to 70 % of the dense peak; a small kernel takes 3 to 4 µs inside a CUDA graph and 20 to 40 µs when
PyTorch starts it. No trace was measured for them: they were chosen with some of the 43 published measurements of
`tests/data/throughput-published.json` in sight and not adjusted to the comparison. How far off the whole is, and what LOW
and HIGH were read off: `tests/conformance/test_throughput.py`.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import TypeAlias

from gpuplan.domain.fleet import Basis
from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.model import Embedding, Layer, ModelProfile, Residence
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.throughput import Bound, DecodeSpeed, NoThroughput, OffloadCost, Throughput
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.divisibility import split_of
from gpuplan.engine.kv_pages import CacheSettings
from gpuplan.engine.layer_work import (
    Arithmetic,
    Product,
    attention_work,
    head_work,
    layer_work,
    operations_per_second,
)
from gpuplan.engine.links import Topology, all_reduce_seconds, exchange_seconds, hop_seconds
from gpuplan.engine.offload_reads import bus_name, host_rate, read_bytes
from gpuplan.engine.versions import EngineVersion, default_async_scheduling
from gpuplan.engine.weights import Split, holds, part_bytes, stage_layers
from gpuplan.units import ceil_div

WEIGHTS_SHARE = 0.8
EXPERTS_SHARE = 0.6
CACHE_SHARE = 0.75
"""Of the card's memory bandwidth."""
OPERATIONS_SHARE = 0.6
ATTENTION_OPERATIONS_SHARE = 0.4
"""Of the card's dense peak."""
KERNEL_SECONDS = 3.5e-6
"""Seconds of a small kernel inside a CUDA graph."""
EAGER_KERNEL_SECONDS = 30e-6
"""Seconds of one that PyTorch starts."""
SAMPLER_KERNELS = 20
STEP = 1.0e-3
ASYNC_STEP = 0.3e-3
SEQUENCE = 10e-6
"""Seconds of the host between steps: scheduling, inputs, sampled tokens; per sequence on top. Hidden behind the GPU's
work as far as scheduling is asynchronous."""
LOW, HIGH = 0.6, 1.3
"""Times the estimate: four of five public measurements lie between."""
SHORT_CONTEXT = 1024
FORMULA = "1 ÷ Σ over layers of max(bytes ÷ bandwidth, operations ÷ peak) + exchanges + launches + host"
SOURCE = "data sheets of the cards; shares and latencies the same for every model, checked against published measurements"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """One replica on its cards, and how it is to be served."""

    profile: ModelProfile
    engine: EngineArguments
    version: EngineVersion
    parallelism: Parallelism
    """`data` is the number of replicas; those of a mixture of experts may share its experts."""
    together: bool = False
    """Replicas are ranks of one server that holds the experts once."""
    cards: tuple[Accelerator, ...]
    """One per rank of a replica (pipeline stage × TP + TP rank)."""
    topology: Topology
    context: int
    users: int
    batched_tokens: int
    sequences: int
    """Most sequences of one step of a replica."""
    held: float = 1.0
    """Sequences of `context` tokens that the cache of a replica holds."""


@dataclass(slots=True)
class _Time:
    """Seconds of a step by what they go to."""

    memory: float = 0.0
    compute: float = 0.0
    links: float = 0.0
    launches: float = 0.0
    offload: float = 0.0

    @property
    def total(self) -> float:
        return self.memory + self.compute + self.links + self.launches + self.offload

    def slower(self, memory: float, compute: float) -> None:
        """Bytes and operations overlap: the slower counts."""
        if memory >= compute:
            self.memory += memory
        else:
            self.compute += compute

    def bound(self) -> Bound:
        shares = {
            Bound.MEMORY: self.memory,
            Bound.COMPUTE: self.compute,
            Bound.LINKS: self.links,
            Bound.LAUNCHES: self.launches,
            Bound.OFFLOAD: self.offload,
        }
        return max(shares, key=lambda bound: shares[bound])


Kinds: TypeAlias = tuple[tuple[Layer, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One pipeline stage, seen from its slowest rank."""

    number: int
    layers: Kinds
    heads: tuple[Product, ...]
    others: int
    card: Accelerator


def throughput(serving: Serving) -> Throughput | NoThroughput:
    """Tokens per second of a placement, or why there is no telling. The model must be divisible by the sizes."""
    reason = _unknown(serving)
    if reason is not None:
        return NoThroughput(reason=reason)
    split = _split(serving)
    stages = _stages(serving, split)
    asked, time = _decode(serving, split, stages, serving.users, serving.context)
    most = int(min(serving.sequences, max(serving.held, 1.0))) * serving.parallelism.data
    points = dict.fromkeys(((1, min(SHORT_CONTEXT, serving.context)), (most, serving.context)))
    others = tuple(
        _decode(serving, split, stages, users, context)[0]
        for users, context in points
        if (users, context) != (asked.users, asked.context)
    )
    chunk, chunks, slowest, prompt = _prompt(serving, split, stages)
    return Throughput(
        decode=asked,
        others=others,
        prefill_tokens_per_second=chunk / slowest.total * serving.parallelism.data,
        prefill_bound=slowest.bound(),
        first_token_seconds=prompt + (chunks - 1) * slowest.total,
        low=LOW,
        high=HIGH,
        basis=Basis.COMPUTED,
        formula=FORMULA,
        inputs=tuple(_inputs(serving, time)),
        source=SOURCE,
        notes=tuple(_notes(serving)),
        offload=_offload_cost(serving, split, stages) if serving.engine.cpu_offload_gb else None,
    )


def _offload_cost(serving: Serving, split: Split, stages: tuple[_Stage, ...]) -> OffloadCost:
    """What a decode step reads from host memory, against the same cards with all weights on them."""
    whole = replace(serving, engine=replace(serving.engine, cpu_offload_gb=0.0))
    batch = ceil_div(serving.users, serving.parallelism.data)
    read, card = max(
        ((_offload_read(serving, split, stage.number, batch), stage.card) for stage in stages),
        key=lambda item: item[0],
    )
    return OffloadCost(
        read_bytes=round(read),
        bytes_per_second=round(_offload_rate(serving, card)),
        bus=bus_name(card),
        whole_per_user=_decode(whole, split, stages, serving.users, serving.context)[0].per_user,
    )


def _unknown(serving: Serving) -> str | None:
    profile = serving.profile
    if profile.pooling:
        return "the model generates no tokens"
    if not profile.layer_order or not profile.recognised:
        return "the model's layers are not known"
    for card in serving.cards:
        if card.bandwidth_bytes_per_second is None:
            return f"the memory bandwidth of {card.name} is not known"
        if card.half_flops is None:
            return f"the peak operations per second of {card.name} are not known"
    return None


def _notes(serving: Serving) -> list[str]:
    notes = []
    if serving.engine.speculative_config:
        notes.append(
            "speculative decoding is not counted: it depends on how many drafted tokens are accepted"
        )
    if serving.topology.hosts > 1 and not serving.topology.network_known:
        notes.append("100 Gbit/s with RDMA is assumed between hosts")
    return notes


def _inputs(serving: Serving, time: _Time) -> list[tuple[str, int | float | str]]:
    card = serving.cards[0]
    found: list[tuple[str, int | float | str]] = [
        ("card", card.name),
        ("memory bandwidth, GB/s", round((card.bandwidth_bytes_per_second or 0) / 1e9)),
        ("dense 16-bit peak, TFLOP/s", round((card.half_flops or 0) / 1e12, 1)),
        ("users at once", serving.users),
        ("context, tokens", serving.context),
    ]
    if serving.engine.cpu_offload_gb:
        rate = round(_offload_rate(serving, card) / 1e9)
        found.append((f"host memory over {bus_name(card)}, GB/s", rate))
    for name in ("memory", "compute", "links", "launches", "offload"):
        seconds = getattr(time, name)
        if seconds:
            found.append((f"{name}, ms of a step", round(seconds * 1e3, 2)))
    return found


def _split(serving: Serving) -> Split:
    data = serving.parallelism.data if serving.together else 1
    return split_of(
        replace(serving.parallelism, data=data),
        compute_capability=serving.cards[0].compute_capability,
        language_model_only=serving.engine.language_model_only,
    )


def _stages(serving: Serving, split: Split) -> tuple[_Stage, ...]:
    """Layers, head and slowest card of each stage; the draft of speculative decoding is left out."""
    profile, parallelism = serving.profile, serving.parallelism
    stages = parallelism.pipeline
    size = parallelism.tensor * parallelism.prefill_context
    found = []
    for stage, (first, last) in enumerate(
        stage_layers(profile.layer_count, stages, parallelism.layer_partition)
    ):
        counts = Counter(profile.layer_order[first:last])
        heads, others = [], 0
        for resident in profile.parts:
            if resident.buffer or resident.tower or not holds(resident.residence, stage, stages):
                continue
            if not isinstance(resident.part, Embedding):
                others += part_bytes(resident.part, split)
            elif stage == stages - 1 and resident.residence in (Residence.LAST, Residence.FIRST_AND_LAST):
                heads.append(head_work(resident.part, split))
        cards = serving.cards[stage * size : (stage + 1) * size] or serving.cards
        found.append(
            _Stage(
                number=stage,
                layers=tuple((profile.layer_kinds[kind], count) for kind, count in counts.items()),
                heads=tuple(heads),
                others=others,
                card=min(cards, key=lambda card: card.bandwidth_bytes_per_second or 0),
            )
        )
    return tuple(found)


def _settings(serving: Serving) -> CacheSettings:
    parallelism = serving.parallelism
    return CacheSettings(
        version=serving.version,
        engine=serving.engine,
        tensor=parallelism.tensor,
        pipeline=parallelism.pipeline,
        decode_context=parallelism.decode_context,
        prefill_context=parallelism.prefill_context,
        compute_capability=serving.cards[0].compute_capability,
        backend=serving.cards[0].backend,
    )


def _stage_time(
    serving: Serving, split: Split, stage: _Stage, tokens: int, sequences: int, context: float
) -> _Time:
    """One pass of `tokens` tokens of `sequences` sequences, each of which has `context` tokens in the cache."""
    time, card = _Time(), stage.card
    bandwidth = float(card.bandwidth_bytes_per_second or 1)
    settings = _settings(serving)
    parallelism, profile = serving.parallelism, serving.profile
    across = _hosts_of_a_group(serving)
    served = tokens * (parallelism.data if serving.together else 1)
    hidden = tokens * profile.hidden * profile.itemsize
    kernels = 0
    for layer, count in stage.layers:
        work = layer_work(layer, split)
        one = _Time()
        for product in work.products:
            one.slower(product.weight_bytes / bandwidth / WEIGHTS_SHARE, _seconds(product, tokens, card))
        one.memory += work.other_bytes / bandwidth / WEIGHTS_SHARE
        for experts in work.experts:
            read = experts.product.weight_bytes * experts.read_share(served)
            one.slower(read / bandwidth / EXPERTS_SHARE, _seconds(experts.product, served, card))
            if split.expert_ranks > parallelism.tensor:
                sent = hidden * min(experts.top_k, split.expert_ranks) * 2 / parallelism.tensor
                one.links += exchange_seconds(
                    sent, split.expert_ranks, serving.topology.hosts, card, serving.topology
                )
        attended = attention_work(layer, profile, settings, context)
        peak = operations_per_second(card, Arithmetic.HALF) or 1.0
        one.slower(
            sequences * attended.read_bytes / bandwidth / CACHE_SHARE,
            tokens * attended.operations / peak / ATTENTION_OPERATIONS_SHARE,
        )
        one.links += work.reductions * all_reduce_seconds(
            hidden, parallelism.tensor, across, card, serving.topology
        )
        _add(time, one, count)
        kernels += work.kernels * count
    for head in stage.heads:
        time.slower(head.weight_bytes / bandwidth / WEIGHTS_SHARE, _seconds(head, sequences, card))
        kernels += SAMPLER_KERNELS
    time.memory += stage.others / bandwidth / WEIGHTS_SHARE
    time.offload = _offload_read(serving, split, stage.number, served) / _offload_rate(serving, card)
    if serving.engine.enforce_eager:
        time.launches = max(kernels * KERNEL_SECONDS, kernels * EAGER_KERNEL_SECONDS - time.total)
    else:
        time.launches = kernels * KERNEL_SECONDS
    return time


def _offload_read(serving: Serving, split: Split, stage: int, tokens: float) -> float:
    """Bytes of host memory that one rank of a stage reads in a pass of so many tokens (`--cpu-offload-gb`)."""
    parallelism = serving.parallelism
    return read_bytes(
        serving.profile,
        split,
        serving.engine.cpu_offload_gb,
        tokens=tokens,
        stage=stage,
        stages=parallelism.pipeline,
        layer_partition=parallelism.layer_partition,
    )


def _offload_rate(serving: Serving, card: Accelerator) -> float:
    """Bytes per second at which a rank reads them, while all ranks of its host do."""
    return host_rate(card, ceil_div(len(serving.cards), serving.topology.hosts))


def _seconds(product: Product, tokens: float, card: Accelerator) -> float:
    peak = operations_per_second(card, product.arithmetic) or 1.0
    return product.operations * tokens / peak / OPERATIONS_SHARE


def _add(time: _Time, one: _Time, count: int) -> None:
    time.memory += one.memory * count
    time.compute += one.compute * count
    time.links += one.links * count


def _hosts_of_a_group(serving: Serving) -> int:
    """Hosts that one tensor-parallel group stands on: stages are laid out first, host after host."""
    return max(1, serving.topology.hosts // serving.parallelism.pipeline)


def _decode(
    serving: Serving, split: Split, stages: tuple[_Stage, ...], users: int, context: int
) -> tuple[DecodeSpeed, _Time]:
    """Speed of `users` users over all replicas. Stages work on parts of the batch at the same time."""
    data = serving.parallelism.data
    batch = min(ceil_div(users, data), max(serving.sequences, 1))
    parts = min(len(stages), batch)
    share = ceil_div(batch, parts)
    times = [_stage_time(serving, split, stage, share, share, context) for stage in stages]
    step = _Time()
    for time in times:
        _add(step, time, 1)
        step.launches += time.launches
        step.offload += time.offload
    hidden = share * serving.profile.hidden * serving.profile.itemsize
    step.links += (len(stages) - 1) * hop_seconds(2 * hidden, stages[0].card, serving.topology)
    seconds = max(step.total, parts * max(time.total for time in times))
    waited = _host_seconds(serving, seconds, share)
    step.launches += waited
    per_user = 1 / (seconds + waited)
    answered = min(users, batch * data)
    speed = DecodeSpeed(
        users=users, context=context, per_user=per_user, total=per_user * answered, bound=step.bound()
    )
    return speed, step


def _host_seconds(serving: Serving, busy: float, sequences: int) -> float:
    """What the host adds to a step that keeps the GPU busy for so many seconds."""
    asked = serving.engine.async_scheduling
    hidden = default_async_scheduling(serving.version, pipeline=serving.parallelism.pipeline)
    if hidden if asked is None else asked:
        return max(ASYNC_STEP, STEP + SEQUENCE * sequences - busy)
    return STEP + SEQUENCE * sequences


def _prompt(serving: Serving, split: Split, stages: tuple[_Stage, ...]) -> tuple[int, int, _Time, float]:
    """Tokens of a chunk, chunks of a prompt of the context, the slowest stage's time for one, all stages' seconds."""
    chunk = max(1, min(serving.context, serving.batched_tokens))
    chunks = ceil_div(serving.context, chunk)
    times = [_stage_time(serving, split, stage, chunk, 1, serving.context / 2) for stage in stages]
    host = _host_seconds(serving, max(time.total for time in times), 1)
    for time in times:
        time.launches += host / len(times)
    hidden = chunk * serving.profile.hidden * serving.profile.itemsize
    hops = (len(stages) - 1) * hop_seconds(2 * hidden, stages[0].card, serving.topology)
    return chunk, chunks, max(times, key=lambda time: time.total), sum(time.total for time in times) + hops
