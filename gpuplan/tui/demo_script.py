"""What the engines of the demo print: vLLM's own lines with the plan's figures in them, in the time the demo takes.

Nothing here is random but by a seed: the same container, started at the same moment, prints the same.
"""

import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuplan.deploying.observed import claims, prediction
from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerRole, Load, Prediction
from gpuplan.tui.demo_containers import DemoContainer
from gpuplan.units import GIB

LOADED_SECONDS = 7.4
"""From the start of a container to its loaded weights."""
LOAD_SECONDS = 14.0
"""From the start of the containers to their answer."""
TAKEN_SHARE = 0.12
"""Of a GPU's memory that somebody else takes where a deployment is to fail."""
EVERY_SECONDS = 10.0
"""Between two lines of the engine on its load."""
_CLIENTS = ("198.51.100.7", "198.51.100.8", "192.0.2.90")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line a container prints."""

    at: float
    """Seconds since 1970."""
    text: str
    error: bool = True
    """vLLM logs to standard error; requests are on standard output."""


@dataclass(frozen=True, slots=True)
class _Say:
    """A line of the engine: when, who says it, from which place in the source."""

    after: float
    who: str
    where: str
    text: str


def start_lines(container: DemoContainer, began: float) -> tuple[LogLine, ...]:
    """What it prints from its start to its readiness. Sizes are those of the plan, as the engine rounds them."""
    pids = _pids(container)
    return tuple(
        LogLine(at=began + say.after, text=_written(say, began + say.after, pids))
        for say in _start(container)
    )


def failed_lines(container: DemoContainer, began: float, total: int) -> tuple[LogLine, ...]:
    """What it prints when somebody else took memory after the plan was made; `total`: bytes of its first GPU."""
    share = _predicted(container).gpu_memory_utilization or 0.9
    asked = share * total
    free = max(asked - TAKEN_SHARE * total, asked / 2)
    worker, core = container.worker(0), "EngineCore"
    short = (
        f"ValueError: Free memory on device cuda:0 ({free / GIB:.2f}/{total / GIB:.2f} GiB) on startup is less than "
        f"desired GPU memory utilization ({share:g}, {asked / GIB:.2f} GiB). Decrease GPU memory utilization or reduce "
        "GPU memory used by other processes."
    )
    alone = worker.startswith(core)
    place = "core.py:1231" if alone else "multiproc_executor.py:888"
    said = [say for say in _start(container) if say.after < 2.6]
    pids = _pids(container)
    lines = [LogLine(at=began + say.after, text=_written(say, began + say.after, pids)) for say in said]
    failure = (
        "EngineCore failed to start." if alone else "WorkerProc failed to start.",
        "Traceback (most recent call last):",
        '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/worker/utils.py", line 415, in request_memory',
        "    raise ValueError(",
        short,
    )
    at = began + 3.0
    lines += [
        LogLine(at=at, text=f"({worker} pid={pids[worker]}) ERROR {_stamp(at)} [{place}] {text}")
        for text in failure
    ]
    ending = (
        "Traceback (most recent call last):",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    )
    lines += [LogLine(at=began + 3.4, text=f"(APIServer pid={pids['APIServer']}) {text}") for text in ending]
    return tuple(lines)


def load_at(container: DemoContainer, since_start: float) -> Load:
    """How busy a server is so many seconds after its start: the same for everybody who asks in the same moment."""
    tick = max(0, int(since_start // EVERY_SECONDS))
    draw = random.Random(f"{container.id}/{tick}")
    running = draw.choice((0, 1, 1, 2, 3, 4, 6))
    tokens = running * draw.randint(400, 3200)
    cache = _predicted(container).kv_cache_tokens
    return Load(
        running=running,
        waiting=draw.choice((0, 0, 0, 1)) if running > 3 else 0,
        kv_cache_share=min(1.0, tokens / cache) if cache else 0.0,
        requests=int(max(0.0, since_start) * 0.6),
    )


def request_lines(container: DemoContainer, began: float, first: float, last: float) -> Iterator[LogLine]:
    """What a server that serves prints after `first` and until `last`, both seconds since 1970."""
    pid = _pids(container)["APIServer"]
    tick = max(0, int((first - began) // EVERY_SECONDS))
    while (base := began + tick * EVERY_SECONDS) <= last:
        for line in (*_requests(container, base, tick), _load_line(container, base, tick, pid)):
            if first < line.at <= last:
                yield line
        tick += 1


def _requests(container: DemoContainer, base: float, tick: int) -> Iterator[LogLine]:
    draw = random.Random(f"{container.id}/requests/{tick}")
    for offset in sorted(draw.uniform(0.2, EVERY_SECONDS - 0.5) for _ in range(draw.randint(1, 4))):
        client, port = draw.choice(_CLIENTS), draw.randint(32768, 60999)
        text = f'INFO:     {client}:{port} - "POST {_path(container)} HTTP/1.1" 200 OK'
        yield LogLine(at=base + round(offset, 3), text=text, error=False)


def _load_line(container: DemoContainer, base: float, tick: int, pid: int) -> LogLine:
    load = load_at(container, tick * EVERY_SECONDS)
    draw = random.Random(f"{container.id}/speed/{tick}")
    running = load.running or 0
    at = base + EVERY_SECONDS - 0.1
    prompt, generation = running * draw.uniform(60, 220), running * draw.uniform(28, 44)
    return LogLine(
        at=at,
        text=(
            f"(APIServer pid={pid}) INFO {_stamp(at)} [loggers.py:259] Engine 000: Avg prompt throughput: {prompt:.1f} "
            f"tokens/s, Avg generation throughput: {generation:.1f} tokens/s, Running: {running} reqs, "
            f"Waiting: {load.waiting} reqs, GPU KV cache usage: {100 * (load.kv_cache_share or 0):.1f}%, "
            f"Prefix cache hit rate: {draw.uniform(20, 45):.1f}%"
        ),
    )


def _path(container: DemoContainer) -> str:
    category = json.loads(container.labels.get(labels.REQUEST, "{}")).get("category")
    match category:
        case "embedding":
            return "/v1/embeddings"
        case "reranker":
            return "/v1/rerank"
        case "speech_to_text":
            return "/v1/audio/transcriptions"
        case _:
            return "/v1/chat/completions"


def _start(container: DemoContainer) -> Iterator[_Say]:
    """The lines of vLLM 0.26 to 0.33 that tell how far it is (`tests/data/logs`)."""
    role, serves = container.observed.member.role, labels.ENDPOINT in container.labels
    if role is ContainerRole.RAY_HEAD or (role is ContainerRole.FOLLOWER and _is_ray(container)):
        yield _Say(0.4, "", "", "Ray runtime started.")
        return
    if serves:
        yield from _begun(container)
    yield from _joined(container)
    yield from _loaded(container)
    if serves:
        yield from _serving(container)


def _begun(container: DemoContainer) -> Iterator[_Say]:
    given = container.labels
    version, model = given.get(labels.VLLM_VERSION, ""), given.get(labels.MODEL, "")
    yield _Say(0.5, "APIServer", "api_utils.py:339", f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}")
    words = f"'model': '{model}', 'served_model_name': ['{given.get(labels.SERVED_NAME, model)}']"
    yield _Say(0.5, "APIServer", "api_utils.py:273", f"non-default args: {{{words}}}")
    length = _predicted(container).max_model_len
    if length is not None:
        yield _Say(1.0, "APIServer", "model.py:1776", f"Using max model len {length}")


def _joined(container: DemoContainer) -> Iterator[_Say]:
    """A line of every GPU's process."""
    workers, world = _workers(container), _world_size(container)
    offset = workers * _number(container.labels.get(labels.RANK), 0)
    for local in range(workers):
        text = (
            f"world_size={world} rank={offset + local} local_rank={local} "
            "distributed_init_method=tcp://127.0.0.1:53741 backend=nccl"
        )
        yield _Say(2.0 + 0.05 * local, container.worker(local), "parallel_state.py:1640", text)
    if world > 1:
        yield _Say(2.5, container.worker(0), "pynccl.py:113", "vLLM is using nccl==2.28.9")


def _loaded(container: DemoContainer) -> Iterator[_Say]:
    """Weights, compilation, and what is left for the cache."""
    first, predicted = container.worker(0), _predicted(container)
    model = container.labels.get(labels.MODEL, "")
    yield _Say(3.0, first, "gpu_model_runner.py:5308", f"Starting to load model {model}...")
    shards = max(1, round((predicted.weights_bytes or 0) * _world_size(container) / (4.7 * GIB)))
    for step in range(1, 5):
        done = shards * step // 4
        text = (
            f"Loading safetensors checkpoint shards: {100 * done // shards:3d}% Completed | {done}/{shards}"
        )
        yield _Say(3.0 + step, first, "", f"{text} [00:0{step}<00:0{4 - step},  1.00s/it]")
    yield _Say(7.2, first, "default_loader.py:430", "Loading weights took 4.05 seconds")
    if predicted.weights_bytes is not None:
        size = f"{predicted.weights_bytes / GIB:.2f} GiB memory and 4.312846 seconds"
        yield _Say(LOADED_SECONDS, first, "gpu_model_runner.py:5405", f"Model loading took {size}")
    yield _Say(8.3, first, "backends.py:1155", "Dynamo bytecode transform time: 0.84 s")
    yield _Say(9.4, first, "monitor.py:53", "torch.compile took 1.87 s in total")
    if predicted.cuda_graph_bytes:
        size = f"{predicted.cuda_graph_bytes / GIB:.2f} GiB total"
        yield _Say(10.0, first, "gpu_model_runner.py:6798", f"Estimated CUDA graph memory: {size}")
    if predicted.kv_cache_bytes is not None:
        size = f"{predicted.kv_cache_bytes / GIB:.2f} GiB"
        yield _Say(10.4, first, "gpu_worker.py:563", f"Available KV cache memory: {size}")


def _serving(container: DemoContainer) -> Iterator[_Say]:
    """The cache, graphs, and the server's own words."""
    first, engine, predicted = container.worker(0), "EngineCore", _predicted(container)
    if predicted.kv_cache_tokens is not None:
        text = f"GPU KV cache size: {predicted.kv_cache_tokens:,} tokens"
        yield _Say(10.6, engine, "kv_cache_utils.py:2235", text)
    if predicted.max_concurrency is not None and predicted.max_model_len is not None:
        text = (
            f"Maximum concurrency for {predicted.max_model_len:,} tokens per request: "
            f"{predicted.max_concurrency:.2f}x"
        )
        yield _Say(10.6, engine, "kv_cache_utils.py:2236", text)
    if predicted.cuda_graph_bytes:
        text = f"Graph capturing finished in 2 secs, took {predicted.cuda_graph_bytes / GIB:.2f} GiB"
        yield _Say(12.6, first, "gpu_model_runner.py:6905", text)
    text = "init engine (profile, create kv cache, warmup model) took 5.41 s (compilation: 1.87 s)"
    yield _Say(12.9, engine, "core.py:348", text)
    endpoint = container.labels[labels.ENDPOINT]
    yield _Say(13.4, "APIServer", "api_server.py:680", f"Starting vLLM server on {endpoint}")
    yield _Say(13.5, "APIServer", "", "INFO:     Started server process [1]")
    yield _Say(13.5, "APIServer", "", "INFO:     Waiting for application startup.")
    yield _Say(13.6, "APIServer", "", "INFO:     Application startup complete.")


def _written(say: _Say, at: float, pids: dict[str, int]) -> str:
    prefix = f"({say.who} pid={pids[say.who]}) " if say.who else ""
    return f"{prefix}INFO {_stamp(at)} [{say.where}] {say.text}" if say.where else f"{prefix}{say.text}"


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M:%S")


def _workers(container: DemoContainer) -> int:
    """Its GPUs; beside a Ray cluster's head, whose container holds them, one speaks for all."""
    return max(1, len(claims(container.observed)))


def _world_size(container: DemoContainer) -> int:
    return _workers(container) * _number(container.labels.get(labels.NNODES), 1)


def _pids(container: DemoContainer) -> dict[str, int]:
    base = 100 + zlib.crc32(container.name.encode()) % 400
    names = ["EngineCore", *(container.worker(n) for n in range(_workers(container)))]
    return {"APIServer": 1, **{name: base + 53 * n for n, name in enumerate(dict.fromkeys(names))}}


def _predicted(container: DemoContainer) -> Prediction:
    return prediction(container.labels.get(labels.PREDICTED, ""))


def _is_ray(container: DemoContainer) -> bool:
    members = json.loads(container.labels.get(labels.MEMBERS, "[]"))
    return any(one.get("role") == ContainerRole.RAY_HEAD.value for one in members)


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdigit() else default
