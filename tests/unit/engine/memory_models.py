"""Models and cards that the tests of a rank's memory share."""

from dataclasses import replace
from typing import Any

from gpuplan.domain.model import Encoder, Experts, Layer, Linear, ModelProfile, Partition, Shard
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import NO_ARGUMENTS
from gpuplan.engine.rank_setting import RankSetting
from gpuplan.engine.versions import EngineVersion
from gpuplan.units import GIB

V010, V011, V012, V013, V019, V022, V024, V026, V027, V028, V031, V033 = (
    EngineVersion(0, minor) for minor in (10, 11, 12, 13, 19, 22, 24, 26, 27, 28, 31, 33)
)
H100 = RankSetting(
    version=V019,
    engine=NO_ARGUMENTS,
    parallelism=Parallelism(),
    stage=0,
    total_bytes=int(79.19 * GIB),
    device_name="NVIDIA H100 80GB HBM3",
    compute_capability="9.0",
    backend="cuda",
    unified=False,
    max_num_batched_tokens=8192,
    max_num_seqs=1024,
)


def column(name: str, inputs: int, *outputs: int) -> Linear:
    return Linear(
        name=name,
        inputs=Partition(units=inputs),
        outputs=tuple(Partition(units=size) for size in outputs),
        shard=Shard.COLUMN,
        itemsize=2,
    )


def row(name: str, inputs: int, outputs: int) -> Linear:
    return Linear(
        name=name,
        inputs=Partition(units=inputs),
        outputs=(Partition(units=outputs),),
        shard=Shard.ROW,
        itemsize=2,
    )


def profile(hidden: int, wide: int, vocabulary: int, layers: int = 32, **others: Any) -> ModelProfile:
    layer = Layer(
        name="layer",
        parts=(column("gate_up_proj", hidden, wide, wide), row("down_proj", wide, hidden)),
        intermediate=wide,
    )
    dense = ModelProfile(
        name="model",
        architecture="LlamaForCausalLM",
        model_type="llama",
        dtype="bfloat16",
        itemsize=2,
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=32,
        kv_heads=8,
        head_size=128,
        layer_kinds=(layer,),
        layer_order=(0,) * layers,
        parts=(),
    )
    return replace(dense, **others)


LLAMA_8B = profile(4096, 14336, 128256)
ROUTED = Experts(name="experts", count=128, top_k=8, hidden=2048, intermediate=768, itemsize=2)
QWEN_30B = replace(
    profile(2048, 0, 151936, layers=48, architecture="Qwen3MoeForCausalLM"),
    layer_kinds=(Layer(name="sparse", parts=(ROUTED,)),),
)


def gib(size: int) -> float:
    return size / GIB


QWEN2_VL = profile(
    1536,
    8960,
    151936,
    layers=28,
    encoders=(
        Encoder(
            kind="vision",
            heads=16,
            hidden=1280,
            layers=32,
            intermediate=5120,
            tokens_per_item=16384,
            patches_per_item=65536,
            inputs_per_patch=1176,
        ),
    ),
)
RTX_4080 = replace(
    H100,
    version=V010,
    total_bytes=int(15.99 * GIB),
    device_name="RTX 4080",
    compute_capability="8.9",
    max_num_batched_tokens=2048,
    max_num_seqs=256,
)
