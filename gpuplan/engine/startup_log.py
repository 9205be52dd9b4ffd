"""What a vLLM server prints while it starts: how far it is, and the memory it measured. Any release since 0.8.

Only the engine's own words count as a milestone; a line nobody knows is None, never an error. Sizes are bytes: where the
engine prints GB it means GiB (`vllm/utils/mem_constants.py`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gpuplan.domain.deployment import Actual
from gpuplan.engine.log_line import strip
from gpuplan.units import GIB

LogLine = tuple[float | None, str]
"""When it was printed (seconds since 1970; None: unknown), and the raw line."""


class MilestoneKind(StrEnum):
    """In the order an engine passes them; it may skip some, and repeats one for every rank."""

    PROCESS = "process"
    ARGUMENTS = "arguments"
    RAY_STARTED = "ray_started"
    PLACEMENT_GROUP = "placement_group"
    DISTRIBUTED = "distributed"
    NCCL = "nccl"
    WEIGHTS = "weights"
    LOADED = "loaded"
    COMPILE = "compile"
    PROFILED = "profiled"
    CACHE = "cache"
    GRAPHS = "graphs"
    ENGINE_READY = "engine_ready"
    SERVING = "serving"

    @property
    def place(self) -> int:
        """Position in the order, from 0."""
        return _PLACES[self]


_PLACES = {kind: place for place, kind in enumerate(MilestoneKind)}

Figure = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """One step of a start, in the engine's own words."""

    kind: MilestoneKind
    text: str
    """The line without its prefixes."""
    figures: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    """Sizes in bytes (`…_bytes`), tokens, concurrency, seconds, `share` of what is being done (0 to 1)."""


_N = r"\d[\d,]{0,19}"
_F = r"-?\d{1,9}(?:\.\d{1,9})?"
_GIB = rf"{_F} ?Gi?B"
_NUMBER = re.compile(r"-?[\d,.]+")


@dataclass(frozen=True, slots=True)
class _Form:
    """One wording of one milestone. `hint` must be in the line before the pattern is tried."""

    kind: MilestoneKind
    hint: str
    pattern: re.Pattern[str]


def _form(kind: MilestoneKind, hint: str, pattern: str = "") -> _Form:
    return _Form(kind, hint, re.compile(pattern or re.escape(hint)))


K = MilestoneKind
_FORMS = (
    _form(K.SERVING, "Application startup complete", r"^(?:INFO:\s*)?Application startup complete\."),
    _form(K.ENGINE_READY, "init engine (", rf"init engine \([^)]{{1,80}}\) took (?P<seconds>{_F}) ?s"),
    _form(
        K.GRAPHS,
        "Graph capturing finished",
        rf"Graph capturing finished in (?P<seconds>{_F}) secs?, took (?P<cuda_graph_bytes>{_GIB})",
    ),
    _form(
        K.GRAPHS,
        "CUDA graph pool memory:",
        rf"CUDA graph pool memory: (?P<cuda_graph_bytes>{_GIB}) \(actual\), (?P<cuda_graph_estimate_bytes>{_GIB}) \(estimated\)",
    ),
    _form(
        K.GRAPHS,
        "Free memory on device",
        rf"Free memory on device[^(]{{0,20}}\((?P<free>{_F})/(?P<total_bytes>{_GIB})\) on startup\. Desired GPU memory "
        rf"utilization is \((?P<utilization>[\d.]{{1,8}}), (?P<requested_bytes>{_GIB})\)\. Actual usage is "
        rf"(?P<used_bytes>{_GIB}) for (?:weight|consumed memory)[^,]{{0,40}}, (?P<activation_bytes>{_GIB}) for peak activation"
        rf"(?:, (?P<non_torch_bytes>{_GIB}) for non-torch)?",
    ),
    _form(
        K.GRAPHS,
        "Capturing CUDA graph",
        rf"Capturing CUDA graphs?[^:]{{0,80}}:.{{0,90}}?\| ?(?P<done>{_N})/(?P<total>{_N})",
    ),
    _form(K.GRAPHS, "Capturing cudagraphs for decoding"),
    _form(
        K.CACHE,
        "KV cache size:",
        rf"\b[A-Z]{{2,5}} KV cache size: (?P<tokens>{_N}) tokens"
        rf"(?:,? \|? ?Maximum concurrency for (?P<max_model_len>{_N}) tokens per request: (?P<concurrency>{_F})x)?",
    ),
    _form(
        K.CACHE,
        "Maximum concurrency for",
        rf"Maximum concurrency for (?P<max_model_len>{_N}) tokens per request: (?P<concurrency>{_F})x",
    ),
    _form(K.CACHE, "# GPU blocks:", rf"# GPU blocks: (?P<blocks>{_N})"),
    _form(K.CACHE, "# cuda blocks:", rf"# cuda blocks: (?P<blocks>{_N})"),
    _form(
        K.PROFILED, "Available KV cache memory:", rf"Available KV cache memory: (?P<kv_cache_bytes>{_GIB})"
    ),
    _form(
        K.PROFILED,
        "Explicitly set (",
        rf"Explicitly set \((?P<kv_cache_bytes>{_F})/(?P<free>{_F})\) GiB for KV cache",
    ),
    _form(
        K.PROFILED,
        "reserved for KV Cache",
        rf"model weights take (?P<weights_bytes>{_GIB}); non_torch_memory takes (?P<non_torch_bytes>{_GIB}); PyTorch activation "
        rf"peak memory takes (?P<activation_bytes>{_GIB}); the rest of the memory reserved for KV Cache is "
        rf"(?P<kv_cache_bytes>{_GIB})",
    ),
    _form(
        K.PROFILED,
        "memory for KV Cache",
        rf"Initial free memory:? (?P<free_bytes>{_GIB})[,;] [Rr]eserved (?P<kv_cache_bytes>{_GIB}) memory for KV Cache",
    ),
    _form(
        K.PROFILED,
        "Estimated CUDA graph memory:",
        rf"Estimated CUDA graph memory: (?P<cuda_graph_estimate_bytes>{_GIB})",
    ),
    _form(K.PROFILED, "Memory profiling takes", rf"Memory profiling takes (?P<seconds>{_F}) seconds"),
    _form(K.COMPILE, "torch.compile t", rf"torch\.compile (?:takes|took) (?P<seconds>{_F}) s in total"),
    _form(K.COMPILE, "Dynamo bytecode transform", rf"Dynamo bytecode transform time: (?P<seconds>{_F}) s"),
    _form(K.COMPILE, "Compiling a graph for", r"Compiling a graph for [^:]{1,60}"),
    _form(K.COMPILE, "Directly load the compiled graph"),
    _form(K.COMPILE, "Directly load AOT compilation"),
    _form(K.COMPILE, "for vLLM's torch.compile"),
    _form(K.COMPILE, "Compile and warming up"),
    _form(K.COMPILE, "Initial profiling/warmup run took", rf"warmup run took (?P<seconds>{_F}) s"),
    _form(
        K.LOADED,
        "Model loading took",
        rf"Model loading took (?P<weights_bytes>{_GIB})(?: memory)?(?: and (?P<seconds>{_F}) seconds)?",
    ),
    _form(K.LOADED, "Loading model weights took", rf"Loading model weights took (?P<weights_bytes>{_GIB})"),
    _form(K.WEIGHTS, "Loading weights took", rf"Loading weights took (?P<seconds>{_F}) seconds"),
    _form(
        K.WEIGHTS,
        "checkpoint shards:",
        rf"Loading \w{{1,20}} checkpoint shards: +(?P<percent>\d{{1,3}})% Completed \| (?P<done>{_N})/(?P<total>{_N})",
    ),
    _form(
        K.WEIGHTS,
        "loading shards:",
        rf"loading shards: +(?P<percent>\d{{1,3}})% Completed \| (?P<done>{_N})/(?P<total>{_N})",
    ),
    _form(
        K.WEIGHTS,
        "Prefetching checkpoint files:",
        rf"Prefetching checkpoint files: +(?P<percent>\d{{1,3}})% \((?P<done>{_N})/(?P<total>{_N})\)",
    ),
    _form(K.WEIGHTS, "Starting to load model", r"Starting to load model \S"),
    _form(
        K.WEIGHTS,
        "Time spent downloading weights",
        rf"downloading weights for \S{{1,300}}: (?P<seconds>{_F}) seconds",
    ),
    _form(K.NCCL, "vLLM is using nccl==", r"vLLM is using nccl==(?P<version>[\w.]{1,20})"),
    _form(
        K.DISTRIBUTED,
        "distributed_init_method=",
        r"world_size=(?P<world_size>\d{1,6}) rank=(?P<rank>\d{1,6}) local_rank=\d{1,6} distributed_init_method=\S{1,200}",
    ),
    _form(
        K.DISTRIBUTED,
        "is assigned as DP rank",
        r"rank (?P<rank>\d{1,6}) in world size (?P<world_size>\d{1,6}) is assigned as DP rank",
    ),
    _form(K.DISTRIBUTED, "DP group leader: node_rank"),
    _form(
        K.PLACEMENT_GROUP,
        "creating a placement group",
        rf"Waiting for creating a placement group of specs for (?P<seconds>{_N}) seconds",
    ),
    _form(K.PLACEMENT_GROUP, "Creating a new placement group"),
    _form(K.RAY_STARTED, "Ray runtime started."),
    _form(K.RAY_STARTED, "Connected to Ray cluster."),
    _form(K.RAY_STARTED, "Started a local Ray instance"),
    _form(K.ARGUMENTS, "non-default args:", r"^non-default args: \{"),
    _form(K.ARGUMENTS, "args: Namespace(", r"^args: Namespace\("),
    _form(K.ARGUMENTS, "Resolved architecture:", r"Resolved architecture: \w"),
    _form(K.ARGUMENTS, "Using max model len", rf"^Using max model len (?P<max_model_len>{_N})"),
    _form(K.ARGUMENTS, "LLM engine (v", r"Initializing an? (?:V\d )?LLM engine \(v[^)]{1,80}\)"),
    _form(K.PROCESS, "vLLM API server version", r"vLLM API server version (?P<version>\S{1,80})"),
    _form(K.PROCESS, "█  version", r"█ {1,4}version (?P<version>\d\S{0,80})"),
    _form(K.PROCESS, "Automatically detected platform"),
)
_HINTS = re.compile(
    "version |rank|nccl==|tarting to load|shards:|weights|loading took|torch.compile|compil|ynamo|warm|KV [Cc]ache|locks:"
    "|concurrency|raph|Free memory|profiling|init engine|startup complete|lacement group|Ray |args|architecture"
    "|max model len|LLM engine|detected platform|Prefetching"
)
"""A line with none of these is no milestone: most of a long log is skipped by one search."""


def milestone(line: str) -> Milestone | None:
    """The milestone a raw line tells of, with its figures; None for every other line."""
    if _HINTS.search(line, 0, 4096) is None:
        return None
    text = strip(line)
    for form in _FORMS:
        if form.hint in text:
            # Of a progress bar that was drawn over itself, the last.
            found = list(form.pattern.finditer(text))
            if found:
                return Milestone(kind=form.kind, text=text, figures=_figures(found[-1]))
    return None


def _figures(match: re.Match[str]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name, text in match.groupdict().items():
        if text is None:
            continue
        if name == "version":
            figures[name] = text
            continue
        number = _NUMBER.match(text)
        value = float(number[0].replace(",", "")) if number else 0.0
        if name.endswith("_bytes"):
            figures[name] = round(value * GIB)
        elif name == "free":
            figures["free_bytes"] = round(value * GIB)
        elif name in ("seconds", "concurrency", "utilization"):
            figures[name] = value
        else:
            figures[name] = int(value)
    done, total = figures.get("done"), figures.get("total")
    if isinstance(done, int) and isinstance(total, int) and total > 0:
        figures["share"] = min(1.0, done / total)
    return figures


def furthest(lines: Iterable[str]) -> Milestone | None:
    """The last milestone of the highest kind: how far a start came."""
    best: Milestone | None = None
    for line in lines:
        seen = milestone(line)
        if seen is not None and (best is None or seen.kind.place >= best.kind.place):
            best = seen
    return best


def actual_of(lines_by_member: Mapping[str, Sequence[LogLine]]) -> Actual:
    """What the engine printed of itself, over all members of one server; nothing is summed.

    Weights and graphs are those of the fullest rank, the cache that of the rank with the least, tokens and concurrency as
    printed (the least, where several data-parallel ranks print theirs). Only a member's last start counts. Seconds are None
    where lines have no time.
    """
    values: dict[str, list[float]] = {}
    began: list[float] = []
    served: list[float] = []
    for lines in lines_by_member.values():
        start, milestones = _last_start(lines)
        began += [] if start is None or not milestones else [start]
        for at, found in milestones:
            if found.kind is K.SERVING and at is not None:
                served.append(at)
            for name, figure in found.figures.items():
                if not isinstance(figure, str):
                    key = "load" if (found.kind, name) == (K.LOADED, "seconds") else name
                    values.setdefault(key, []).append(figure)
    return Actual(
        weights_bytes=_most(values.get("weights_bytes")),
        kv_cache_bytes=_least(values.get("kv_cache_bytes")),
        kv_cache_tokens=_least(values.get("tokens")),
        max_concurrency=min(values["concurrency"]) if "concurrency" in values else None,
        cuda_graph_bytes=_most(values.get("cuda_graph_bytes")),
        load_seconds=max(values["load"]) if "load" in values else None,
        start_seconds=max(0.0, max(served) - min(began)) if served and began else None,
    )


def _last_start(lines: Sequence[LogLine]) -> tuple[float | None, list[tuple[float | None, Milestone]]]:
    """When the server's process last began, and its milestones since then, each with its time."""
    began = next((at for at, _ in lines if at is not None), None)
    found: list[tuple[float | None, Milestone]] = []
    for at, line in lines:
        seen = milestone(line)
        if seen is None:
            continue
        again = seen.kind is K.PROCESS and "version" in seen.figures
        if again and any(earlier.kind.place > K.ARGUMENTS.place for _, earlier in found):
            began, found = at, []
        found.append((at, seen))
    return began, found


def _least(values: Sequence[float] | None) -> int | None:
    return int(min(values)) if values else None


def _most(values: Sequence[float] | None) -> int | None:
    """Of what was taken; an allocator that gave memory back prints a negative size."""
    return max(0, int(max(values))) if values else None
