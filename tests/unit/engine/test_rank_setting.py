"""Which runner the engine takes, and how its GPUs are linked."""

from dataclasses import replace

import pytest

from gpuplan.domain.model import Cache, CacheKind
from gpuplan.domain.workload import NO_ARGUMENTS
from gpuplan.engine.rank_setting import runner_v2
from gpuplan.engine.versions import EngineVersion
from gpuplan.units import GIB
from tests.unit.engine.memory_models import H100, LLAMA_8B, QWEN_30B, V028, V031

(DENSE,) = LLAMA_8B.layer_kinds
RECURRENT = replace(
    LLAMA_8B,
    architecture="Mamba2ForCausalLM",
    layer_kinds=(replace(DENSE, caches=(Cache(kind=CacheKind.STATE),)),),
)
QWEN3 = replace(LLAMA_8B, architecture="Qwen3ForCausalLM")
PHI = replace(LLAMA_8B, architecture="Phi3ForCausalLM")


@pytest.mark.parametrize(
    ("minor", "expected"),
    [
        (21, ()),
        (22, ("qwen3",)),
        (23, ("llama", "qwen3")),
        (24, ("llama", "qwen3")),
        (25, ("llama", "phi", "qwen3")),
        (28, ("llama", "phi", "qwen3")),
        (29, ("llama", "mixture", "phi", "pooling", "qwen3", "recurrent")),
    ],
)
def test_the_second_runner_takes_over_by_release(minor: int, expected: tuple[str, ...]) -> None:
    models = {
        "llama": LLAMA_8B,
        "mixture": QWEN_30B,
        "phi": PHI,
        "pooling": replace(QWEN3, pooling=True),
        "qwen3": QWEN3,
        "recurrent": RECURRENT,
    }
    setting = replace(H100, version=EngineVersion(0, minor))
    assert tuple(name for name, model in models.items() if runner_v2(model, setting)) == expected


def test_n_gram_drafts_stay_with_the_first_runner() -> None:
    engine = replace(NO_ARGUMENTS, speculative_config={"method": "ngram", "num_speculative_tokens": 4})
    for version in (V028, V031):
        assert not runner_v2(LLAMA_8B, replace(H100, version=version, engine=engine))


@pytest.mark.parametrize(
    ("name", "capability", "total", "switched"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", 79.19, True),
        ("NVIDIA B200", "10.0", 178.35, True),
        ("NVIDIA H100 NVL", "9.0", 93.02, False),
        ("NVIDIA H100 PCIe", "9.0", 79.19, False),
        ("NVIDIA GH200 480GB", "9.0", 95.0, False),
        ("NVIDIA A100-SXM4-80GB", "8.0", 79.25, False),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 94.97, False),
        ("custom", None, 79.19, False),
    ],
)
def test_cards_behind_a_switch(name: str, capability: str | None, total: float, switched: bool) -> None:
    setting = replace(H100, device_name=name, compute_capability=capability, total_bytes=int(total * GIB))
    assert setting.switched is switched
