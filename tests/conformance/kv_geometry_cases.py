"""KV caches that vLLM's own planner was asked about: models × tensor-parallel sizes × releases."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from gpuplan.domain.model import Cache, CacheKind, ModelProfile
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine import kv_pages, kv_rules
from gpuplan.engine.architectures import describe
from gpuplan.engine.kv_cache import checked_bytes, geometry, pool
from gpuplan.engine.kv_pages import CacheSettings
from gpuplan.engine.versions import EngineVersion, null_block_reserved
from gpuplan.units import GIB

DATA = Path(__file__).parents[1] / "data"
CONFIGS = DATA / "configs"
RECORDED = DATA / "vllm-kv-geometry.json.gz"
RELEASES = (
    "0.8.5",
    "0.9.0",
    "0.9.1",
    "0.9.2",
    "0.10.0",
    "0.10.2",
    "0.11.2",
    "0.12.0",
    "0.13.0",
    "0.14.1",
    "0.15.1",
    "0.17.1",
    "0.18.1",
    "0.19.1",
    "0.20.0",
    "0.20.2",
    "0.21.0",
    "0.22.1",
    "0.23.0",
    "0.24.0",
    "0.25.1",
    "0.26.0",
    "0.27.1",
    "0.28.0",
    "0.29.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
)
STATE_RELEASES = tuple(
    release for release in RELEASES if EngineVersion.parse(release) >= EngineVersion(0, 11, 1)
)
TENSORS = (1, 2, 4, 8)
BATCH = 2048
AVAILABLE = 40 * GIB
CONTEXTS = (8192, 20000)
STATES_SINCE = EngineVersion(0, 10, 1)
"""Before, hybrid models ran on the first engine or had states of one type."""
LATENT_WINDOWS_SINCE = EngineVersion(0, 20)
CROSS_SINCE = EngineVersion(0, 10, 2)
FIRST = {
    CacheKind.STATE: STATES_SINCE,
    CacheKind.SLIDING_LATENT: LATENT_WINDOWS_SINCE,
    CacheKind.CROSS: CROSS_SINCE,
}
PREFIXES = ("", "+prefixes")


@cache
def profile(name: str) -> ModelProfile:
    path = CONFIGS / name
    text = gzip.decompress(path.read_bytes()).decode() if name.endswith(".gz") else path.read_text()
    return describe(name.removesuffix(".gz").removesuffix(".json"), json.loads(text))


@cache
def names() -> tuple[str, ...]:
    return tuple(sorted(path.name for path in CONFIGS.iterdir() if ".hf_quant_config." not in path.name))


def settings_of(release: str, tensor: int, prefixes: bool) -> CacheSettings:
    engine = EngineArguments(tensor_parallel_size=tensor, enable_prefix_caching=True if prefixes else None)
    return CacheSettings(
        version=EngineVersion.parse(release),
        engine=engine,
        tensor=tensor,
        compute_capability="9.0",
        max_num_batched_tokens=BATCH,
    )


def cases(release: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, question for `tests/tools/vllm_kv_planner.py`) of a release."""
    version = EngineVersion.parse(release)
    for name in names():
        model = profile(name)
        kinds = {cache.kind for layer in model.layer_kinds for cache in layer.caches}
        if not kinds or any(version < FIRST.get(kind, version) for kind in kinds):
            continue
        for tensor in TENSORS:
            if model.attention_heads % tensor:
                continue
            for mark in PREFIXES if CacheKind.STATE in kinds else PREFIXES[:1]:
                label = f"{name.partition('.json')[0]}@{release}/tp{tensor}{mark}"
                settings = settings_of(release, tensor, bool(mark))
                yield label, _case(model, settings, context_of(label))


def fingerprint(question: dict[str, Any]) -> str:
    """What was asked, in short; the least memory is gpuplan's guess, not part of it."""
    asked = {key: value for key, value in question.items() if key != "least"}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]


def context_of(label: str) -> int:
    """Half of the models are asked for a length that fills no block."""
    return CONTEXTS[len(label.partition("@")[0]) % 2]


def profile_of(label: str) -> ModelProfile:
    name = label.partition("@")[0]
    return profile(next(file for file in names() if file.partition(".json")[0] == name))


def settings_named(label: str) -> CacheSettings:
    release, _, rest = label.partition("@")[2].partition("/tp")
    tensor, _, mark = rest.partition("+")
    return settings_of(release, int(tensor), bool(mark))


def predicted(model: ModelProfile, settings: CacheSettings, context: int) -> dict[str, Any]:
    """What gpuplan says of a case."""
    (stage,) = geometry(model, settings, stages=1)
    made = pool([(stage, AVAILABLE)], settings, context)
    reserved = stage.block_bytes if null_block_reserved(settings.version) else 0
    return {
        "blocks": made.blocks,
        "tokens": made.tokens,
        "concurrency": made.concurrency,
        "least": max(checked_bytes(stage, settings, context), 1) + reserved,
    }


def _case(model: ModelProfile, settings: CacheSettings, context: int) -> dict[str, Any]:
    version = settings.version
    block = kv_pages.block_size(model, settings)
    pages = kv_pages.page_lists(model, settings)
    caches = []
    modes = {"none"}
    for kind, held in zip(model.layer_order, pages, strict=True):
        for cache_, page in zip(model.layer_kinds[kind].caches, held, strict=True):
            caches.append(_question(cache_, model, settings, page, context))
            if page.kind is CacheKind.STATE:
                modes.add(page.mode)
    return {
        "caches": caches,
        "context": context,
        "batch": BATCH,
        "in_flight": settings.in_flight_tokens,
        "tensor": settings.tensor,
        "block": block,
        "mode": max(modes - {"none"}, default="none"),
        "hybrid": kv_rules.chunks_saved(version, settings.engine)
        if any(cache["kind"] == "chunked" for cache in caches)
        else True,
        "encoder_tokens": max(
            (cache["window"] or 0 for cache in caches if cache["kind"] == "cross"), default=0
        ),
        "available": AVAILABLE,
        "least": predicted(model, settings, context)["least"],
    }


def _question(
    cache_: Cache, model: ModelProfile, settings: CacheSettings, page: kv_pages.Page, context: int
) -> dict[str, Any]:
    version = settings.version
    if page.kind is CacheKind.STATE:
        natural = kv_pages.state_bytes(cache_, settings)
        spread = {"none": context, "align": page.block, "all": page.block}[page.mode]
        checkpoints = (
            kv_rules.checkpoint_blocks(version, cache_.state_type, settings.compute_capability)
            if page.mode == "align"
            else 0
        )
        return {
            "kind": "mamba",
            "block": spread,
            "bytes": natural,
            "padded": page.page_bytes if page.page_bytes != natural else None,
            "mode": page.mode,
            "drafts": 0,
            "checkpoints": checkpoints,
        }
    fixed = kv_pages.content_bytes(cache_, model, settings, "auto")
    latent = page.kind in (CacheKind.LATENT, CacheKind.SLIDING_LATENT, CacheKind.INDEXER)
    element = int(kv_pages.element_bytes(model, "auto"))
    dtype = {1: "uint8", 2: "bfloat16", 4: "float32"}[element]
    heads = 1 if latent else max(1, cache_.heads // settings.tensor)
    return {
        "kind": str(page.kind),
        "block": page.block,
        "heads": heads,
        "head_size": int(fixed) if latent else cache_.head_size,
        "head_size_v": cache_.head_size if cache_.head_size_v is None else cache_.head_size_v,
        "dtype": "uint8" if latent else dtype,
        "window": cache_.window,
        "ratio": cache_.tokens_per_state,
        "alignment": cache_.page_alignment,
        "cache_dtype": None if page.kind is CacheKind.INDEXER else "auto",
    }


def state_cases(release: str) -> Iterator[tuple[str, dict[str, Any], list[int]]]:
    """(name, question for `tests/tools/vllm_state_blocks.py`, gpuplan's answer) of models with states and attention."""
    version = EngineVersion.parse(release)
    for name in names():
        model = profile(name)
        caches = [cache for layer in model.layer_kinds for cache in layer.caches]
        states = [cache for cache in caches if cache.kind is CacheKind.STATE]
        attention = [cache for cache in caches if cache.kind in (CacheKind.FULL, CacheKind.LATENT)]
        if not states or not attention:
            continue
        for tensor, dtype, prefixes in product(TENSORS[:3], ("auto", "fp8"), (False, True)):
            engine = EngineArguments(kv_cache_dtype=dtype, enable_prefix_caching=prefixes)
            settings = CacheSettings(version=version, engine=engine, tensor=tensor, compute_capability="8.0")
            kind = states[0].state_type
            mode = kv_rules.state_mode(version, engine, kind=kind, attention=True)
            if mode == "all":
                continue
            latent = attention[0].kind is CacheKind.LATENT
            question = {
                "dtype": "auto" if kv_pages.element_bytes(model, dtype) == model.itemsize else "fp8",
                "asked": None if version < EngineVersion(0, 18) else kv_pages.DEFAULT_BLOCK,
                "prefixes": prefixes,
                "mode": mode,
                "latent": latent,
                "heads": 1 if latent else max(1, attention[0].heads // tensor),
                "head_size": attention[0].head_size,
                "every_block": kind in kv_rules.KEPT_IN_ALL_MODE,
                "bytes": max(kv_pages.state_bytes(cache, settings) for cache in states),
            }
            pages = kv_pages.page_lists(model, settings)
            padded = next(page.page_bytes for held in pages for page in held if page.kind is CacheKind.STATE)
            label = f"{name.partition('.json')[0]}/tp{tensor}/{dtype}{'+prefixes' if prefixes else ''}"
            yield label, question, [kv_pages.block_size(model, settings), padded]
