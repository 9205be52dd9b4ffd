"""Buffers and copies beside the parameters, by version."""

import gzip
import json
from pathlib import Path

import pytest

from gpuplan.engine.allocator import rounding_bytes
from gpuplan.engine.architectures.describe import describe
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.engine.weights_extra import (
    PER_LAYER,
    SHARED_KEYS,
    WORKSPACE,
    WORKSPACE_BYTES,
    extra_bytes,
)
from gpuplan.units import GIB, MIB
from tests.fleets import profile

DATA = Path(__file__).parents[2] / "data"
MODELS = json.loads(gzip.decompress((DATA / "vllm-startup-logs-configs.json.gz").read_bytes()))["configs"]
GEMMA_E4B = describe("google/gemma-4-E4B-it", MODELS["google__gemma-4-E4B-it"])
V010, V019, V024, V025, V030 = (EngineVersion(0, minor) for minor in (10, 19, 24, 25, 30))


def test_per_layer_embeddings_of_a_batch() -> None:
    added = dict(extra_bytes(GEMMA_E4B, Split(), batched_tokens=2496, version=V030))
    assert added[PER_LAYER] == 2496 * 42 * 256 * 2
    assert SHARED_KEYS not in added
    assert PER_LAYER not in dict(
        extra_bytes(profile("google__gemma-4-26B-A4B"), Split(), batched_tokens=2048)
    )


def test_layers_that_share_a_cache_had_keys_and_values_before_0_30() -> None:
    added = dict(extra_bytes(GEMMA_E4B, Split(), version=V019))
    assert added[SHARED_KEYS] == (15 * 5 + 3 * 10) * MIB


def test_gemma_4_e4b_as_logged() -> None:
    weights = rank_weights(GEMMA_E4B, Split())
    added = sum(size for _, size in extra_bytes(GEMMA_E4B, Split(), batched_tokens=2496, version=V019))
    total = weights.parameters + weights.buffers + added + rounding_bytes(GEMMA_E4B, Split(), version=V019)
    assert total / GIB == pytest.approx(15.16, abs=0.01)


@pytest.mark.parametrize(
    ("capability", "version", "there"),
    [
        ("9.0", V010, False),
        ("10.0", V010, True),
        ("9.0", EngineVersion(0, 11, 1), True),
        ("9.0", V024, True),
        ("10.0", V025, False),
    ],
)
def test_the_workspace_of_latent_attention(capability: str, version: EngineVersion, there: bool) -> None:
    latent = profile("deepseek-ai__DeepSeek-R1")
    added = dict(extra_bytes(latent, Split(tensor=8, compute_capability=capability), version=version))
    assert added.get(WORKSPACE, 0) == (WORKSPACE_BYTES if there else 0)
    plain = profile("Qwen__Qwen3-32B")
    assert WORKSPACE not in dict(extra_bytes(plain, Split(compute_capability=capability), version=version))
