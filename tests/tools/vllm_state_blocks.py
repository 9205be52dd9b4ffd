"""Runs vLLM's own choice of the attention block of models with recurrent states, from the sources of one release.

    python -m tests.tools.vllm_state_blocks DIR < cases.json > answers.json

As `vllm_kv_planner.py`: `HybridAttentionMambaModelConfig` up to 0.19, `Platform._align_hybrid_block_size` from 0.20, with an
attention backend that takes multiples of 16 tokens. An answer is the block in tokens and the bytes a state is padded to.
"""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.tools import vllm_kv_planner as planner

BACKEND = SimpleNamespace(
    get_supported_kernel_block_sizes=lambda *_: [planner.MultipleOf(16)], customize_spec=lambda spec: spec
)
PLATFORM = SimpleNamespace(
    is_device_capability=lambda *_, **__: False, is_device_capability_family=lambda *_, **__: False
)
DTYPES = {"fp8": "uint8", "auto": "bfloat16"}


class _Set:
    """`set_current_vllm_config`."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def configuration(case: dict[str, Any]) -> SimpleNamespace:
    cache = SimpleNamespace(
        cache_dtype=case["dtype"],
        block_size=case["asked"],
        mamba_page_size_padded=None,
        enable_prefix_caching=case["prefixes"],
        mamba_cache_mode=case["mode"],
        mamba_block_size=None,
        calculate_kv_scales=False,
        kv_cache_dtype_skip_layers=[],
        user_specified_mamba_block_size=False,
    )
    model = SimpleNamespace(
        dtype="bfloat16",
        use_mla=case["latent"],
        get_num_kv_heads=lambda _: case["heads"],
        get_head_size=lambda: case["head_size"],
        max_model_len=32768,
        architecture="",
        supports_mamba_prefix_caching=case["every_block"],
        get_mamba_chunk_size=lambda: 256,
        hf_text_config=SimpleNamespace(),
    )
    return SimpleNamespace(
        cache_config=cache,
        model_config=model,
        parallel_config=None,
        attention_config=SimpleNamespace(backend=None),
        compilation_config=SimpleNamespace(cudagraph_mode=1),
        scheduler_config=SimpleNamespace(enable_chunked_prefill=True),
        speculative_config=None,
    )


def main() -> None:
    root = Path(sys.argv[1])
    planner.REAL.update({"vllm.model_executor.models.config", "vllm.platforms.interface"})
    registry = SimpleNamespace(resolve_model_cls=None)
    planner.KNOWN.update(
        current_platform=PLATFORM,
        STR_DTYPE_TO_TORCH_DTYPE=DTYPES,
        set_current_vllm_config=_Set,
        get_mamba_prefill_checkpoint_alignment=lambda _: None,
        ModelRegistry=registry,
        envs=SimpleNamespace(VLLM_USE_V1=True, VLLM_ATTENTION_BACKEND=None),
    )
    sys.meta_path.insert(0, planner.Finder(root))
    config: Any = importlib.import_module("vllm.model_executor.models.config")
    chooser = config.HybridAttentionMambaModelConfig.verify_and_update_config
    platform: Any = importlib.import_module("vllm.platforms.interface").Platform
    by_platform = hasattr(platform, "_align_hybrid_block_size")
    if by_platform:
        platform._find_non_ssm_backends = classmethod(lambda *_: [BACKEND])
        platform._get_indexer_block_alignment = classmethod(lambda *_: 0)
    answers = {}
    for name, case in json.load(sys.stdin).items():
        states = SimpleNamespace(
            get_mamba_state_shape_from_config=lambda _, case=case: ((case["bytes"],),),
            get_mamba_state_dtype_from_config=lambda _: ("uint8",),
        )
        registry.resolve_model_cls = lambda *_, states=states, **__: (states, None)
        settled = configuration(case)
        if by_platform:
            platform._align_hybrid_block_size(settled, BACKEND)
        else:
            chooser(settled)
        cache = settled.cache_config
        answers[name] = [cache.block_size, cache.mamba_page_size_padded or case["bytes"]]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
