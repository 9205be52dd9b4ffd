"""Runs vLLM's own planning of the KV cache, from the sources of one release, without torch or a GPU.

    python -m tests.tools.vllm_kv_planner DIR < cases.json > answers.json

DIR holds an unpacked wheel (`vllm/…`). Only the modules that plan are loaded; everything they import besides is
a stand-in. Each case gives the layers' caches and the settings; the answer is the number of blocks, the two lines that the
engine prints, and whether it starts with `least` bytes and with one byte less. Run in a process of its own: it replaces modules.
"""

import importlib
import json
import re
import sys
from dataclasses import fields
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

REAL = {
    "vllm.v1.kv_cache_interface",
    "vllm.v1.kv_cache_spec_registry",
    "vllm.v1.kv_cache_layout",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.core.kv_cache_planning",
    "vllm.v1.core.kv_cache_config_builder",
    "vllm.v1.core.single_type_kv_cache_manager",
    "vllm.utils.math_utils",
}
STOOD_IN = ("vllm", "torch", "msgspec", "cbor2", "xxhash", "numpy", "typing_extensions")
SIZES = {"uint8": 1, "bfloat16": 2, "float32": 4}
LINES: list[str] = []


class _Log:
    """Keeps what the planner prints."""

    def _keep(self, text: str, *values: Any, **_: Any) -> None:
        LINES.append(text % values if values else text)

    info = info_once = _keep

    def __getattr__(self, _: str) -> Any:
        return _Nothing()


class MultipleOf:
    """As `vllm.v1.attention.backend.MultipleOf`."""

    def __init__(self, base: int) -> None:
        self.base = base


KNOWN = {
    "init_logger": lambda _: _Log(),
    "cdiv": lambda a, b: -(-a // b),
    "round_up": lambda a, b: -(-a // b) * b,
    "get_dtype_size": lambda dtype: SIZES[dtype],
    "format_gib": lambda size: f"{size / 2**30:.2f}",
    "GiB_bytes": 2**30,
    "nvfp4_kv_cache_full_dim": lambda size: size // 2 + size // 16,
    "get_hisparse_kv_cache_groups": lambda *_: None,
    "MultipleOf": MultipleOf,
    "Self": Any,
    "dtype": str,
}


class _Type(type):
    """A class nobody looks into."""

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing()


class _Nothing:
    """A value nobody looks into; as a decorator it gives back what it decorates."""

    def __call__(self, *args: Any, **_: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> Any:
        return self

    def __or__(self, _: Any) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, _: Any) -> tuple[()]:
        return ()


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = KNOWN[name] if name in KNOWN else _Type(name, (), {}) if name[0].isupper() else _Nothing()
        setattr(self, name, value)
        return value


class Finder(MetaPathFinder, Loader):
    """Real planning modules from the tree, stand-ins for the rest."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in STOOD_IN:
            return None
        if name in REAL:
            found = PathFinder.find_spec(name, [str(self.root.joinpath(*name.split(".")[:-1]))])
            if found is not None:
                return found
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def made(cls: Any, **values: Any) -> Any:
    """A spec with the fields this release knows."""
    known = {field.name for field in fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in known})


def spec_of(interface: Any, cache: dict[str, Any]) -> Any:
    """The spec of one layer's cache."""
    kind, block = cache["kind"], cache["block"]
    if kind == "mamba":
        shapes, dtypes = ((cache["bytes"],),), ("uint8",)
        return made(
            interface.MambaSpec,
            block_size=block,
            shapes=shapes,
            dtypes=dtypes,
            dtype="uint8",
            page_size_padded=cache["padded"],
            mamba_cache_mode=cache["mode"],
            num_speculative_blocks=cache["drafts"],
            num_prefill_checkpoint_blocks=cache["checkpoints"],
        )
    latent = kind in ("mla", "sliding_mla", "indexer")
    shared = {
        "block_size": block,
        "num_kv_heads": cache["heads"],
        "head_size": cache["head_size"],
        "dtype": cache["dtype"],
        "use_mla": latent,
        "sliding_window": cache["window"],
        "attention_chunk_size": cache["window"],
    }
    if latent:
        name = "SlidingWindowMLASpec" if kind == "sliding_mla" else "MLAAttentionSpec"
        cls = getattr(interface, name, interface.FullAttentionSpec)
        if kind != "sliding_mla":
            del shared["sliding_window"], shared["attention_chunk_size"]
        return made(
            cls,
            **shared,
            compress_ratio=cache["ratio"],
            tokens_per_state=cache["ratio"],
            cache_dtype_str=cache["cache_dtype"],
            alignment=cache["alignment"] if cache["alignment"] > 1 else None,
        )
    shared["head_size_v"] = cache["head_size_v"]
    if kind == "sliding" and hasattr(interface, "SlidingWindowSpec"):
        return made(interface.SlidingWindowSpec, **shared)
    if kind == "chunked" and hasattr(interface, "ChunkedLocalAttentionSpec"):
        return made(interface.ChunkedLocalAttentionSpec, **shared)
    if kind == "cross":
        return made(interface.CrossAttentionSpec, **shared)
    del shared["sliding_window"], shared["attention_chunk_size"]
    return made(interface.FullAttentionSpec, **shared)


def configuration(case: dict[str, Any], layout: Any) -> SimpleNamespace:
    """What the planner reads of a VllmConfig."""
    spec = {"encoder_tokens": 0, **case}
    return SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=case["context"],
            original_max_model_len=case["context"],
            supports_kv_cache_grouping=False,
        ),
        scheduler_config=SimpleNamespace(
            max_num_batched_tokens=case["batch"],
            disable_hybrid_kv_cache_manager=not case["hybrid"],
            max_num_encoder_input_tokens=spec["encoder_tokens"],
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            tensor_parallel_size=case["tensor"],
            pipeline_parallel_size=1,
        ),
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=None,
            gpu_memory_utilization=0.9,
            block_size=case["block"],
            mamba_cache_mode=case["mode"],
            prefix_cache_retention_interval=None,
            get_resolved_kv_cache_layout=lambda: layout,
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        max_in_flight_tokens=case["in_flight"],
        num_prefill_lookahead_tokens=0,
        speculative_config=None,
        kv_transfer_config=None,
        kv_events_config=None,
    )


def plan(modules: SimpleNamespace, case: dict[str, Any], available: int) -> Any:
    """The plan for one rank; raises as the engine does."""
    LINES.clear()
    config = configuration(case, modules.layout(case))
    specs = {f"layers.{n}": spec_of(modules.interface, cache) for n, cache in enumerate(case["caches"])}
    planner = modules.planner
    if hasattr(planner, "get_global_kv_cache_groups"):
        groups = planner.get_global_kv_cache_groups(config, [specs])
        return config, planner.get_kv_cache_configs(config, [specs], [available], groups)[0]
    if hasattr(planner, "get_kv_cache_configs"):
        return config, planner.get_kv_cache_configs(config, [specs], [available])[0]
    return config, planner.get_kv_cache_config(config, specs, available)


def printed(pattern: str) -> float | None:
    for line in LINES:
        found = re.search(pattern, line)
        if found:
            return float(found.group(1).replace(",", ""))
    return None


def answer(modules: SimpleNamespace, case: dict[str, Any]) -> dict[str, Any]:
    """Blocks, tokens, concurrency, and whether it starts with the least memory and with a byte less."""

    def starts(available: int) -> bool:
        try:
            plan(modules, case, available)
        except ValueError:
            return False
        return True

    config, made_plan = plan(modules, case, case["available"])
    if hasattr(modules.utils, "get_kv_cache_capacity"):
        tokens, at_once = modules.utils.get_kv_cache_capacity(config, made_plan)
    else:
        tokens = printed(r"GPU KV cache size: ([\d,]+) tokens")
        at_once = printed(r"tokens per request: ([\d.]+)x")
    least = case["least"]
    return {
        "blocks": made_plan.num_blocks,
        "tokens": tokens,
        "concurrency": round(at_once, 2),
        "starts": [starts(least), starts(least - 1)],
    }


def load(root: Path) -> SimpleNamespace:
    sys.meta_path.insert(0, Finder(root))
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    planned = root.joinpath("vllm", "v1", "core", "kv_cache_planning.py").exists()
    planner = importlib.import_module("vllm.v1.core.kv_cache_planning") if planned else utils
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    layouts: Any = getattr(interface, "KVCacheLayout", None)
    if root.joinpath("vllm", "v1", "kv_cache_spec_registry.py").exists():
        # registers the specs
        importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
    if planned:
        builders: Any = importlib.import_module("vllm.v1.core.kv_cache_config_builder")
        builders.get_kv_cache_config_builder = lambda _: planner.DefaultKVCacheConfigBuilder()

    def layout(case: dict[str, Any]) -> Any:
        if not hasattr(layouts, "BLHNC"):
            return None
        latent_windows = any(cache["kind"] == "sliding_mla" for cache in case["caches"])
        return layouts.BLHNC if latent_windows else layouts.LBNHC

    for name in [name for name in vars(planner) if "estimate_max_model_len" in name]:
        # only part of a message, and slow
        setattr(planner, name, lambda *_: 0)
    return SimpleNamespace(utils=utils, planner=planner, interface=interface, layout=layout)


def main() -> None:
    modules = load(Path(sys.argv[1]))
    answers = {}
    for name, case in json.load(sys.stdin).items():
        try:
            answers[name] = answer(modules, case)
        except (AssertionError, NotImplementedError):
            answers[name] = {"refused": "the release cannot group these caches"}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
