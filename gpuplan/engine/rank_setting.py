"""What the memory of a rank beside weights and KV cache depends on, besides the model."""

from dataclasses import dataclass

from gpuplan.domain.model import CacheKind, ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.versions import RUNNER_V2_SINCE, EngineVersion
from gpuplan.units import GIB

HOPPER = 9
BLACKWELL = 10
BIG_CARD = 70 * GIB
"""Cards of data centres; only these come with an NVLink switch."""
SWITCHLESS = ("gh200", "gb200", "gb300", "nvl", "pcie")
"""Hopper and Blackwell parts, by name, whose links go from GPU to GPU or to other hosts, not through a switch in the host."""

RUNNER_V2_FOR = {
    EngineVersion(0, 22): frozenset(("Qwen3ForCausalLM",)),
    EngineVersion(0, 23): frozenset(("Qwen3ForCausalLM", "LlamaForCausalLM", "MistralForCausalLM")),
    EngineVersion(0, 24): frozenset(
        (
            "Qwen3ForCausalLM",
            "DeepseekV2ForCausalLM",
            "Qwen2MoeForCausalLM",
            "GraniteMoeForCausalLM",
            "LlamaForCausalLM",
            "MistralForCausalLM",
        )
    ),
    EngineVersion(0, 25): frozenset(
        ("DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM")
    ),
}
"""Architectures that default to the second runner from that release, beside dense ones from 0.25."""
RUNNER_V2_DENSE_SINCE = EngineVersion(0, 25)
LEFT_TO_FIRST_RUNNER = ("ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSetting:
    """Everything the non-weight terms of a rank depend on."""

    version: EngineVersion
    engine: EngineArguments
    parallelism: Parallelism
    stage: int
    total_bytes: int
    device_name: str
    compute_capability: str | None
    backend: str
    unified: bool
    max_num_batched_tokens: int
    max_num_seqs: int

    @property
    def last_stage(self) -> bool:
        return self.stage == self.parallelism.pipeline - 1

    @property
    def generation(self) -> int | None:
        """Major compute capability; None where it is not known."""
        major = (self.compute_capability or "").partition(".")[0]
        return int(major) if major.isdecimal() else None

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability (major, minor); None where it is not known."""
        major, _, minor = (self.compute_capability or "").partition(".")
        return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None

    @property
    def switched(self) -> bool:
        """Whether the GPUs of a host probably hang on an NVLink switch that can multicast (HGX from Hopper on)."""
        name = self.device_name.lower()
        return (
            self.total_bytes >= BIG_CARD
            and self.generation in (HOPPER, BLACKWELL)
            and not any(part in name for part in SWITCHLESS)
        )


def runner_v2(profile: ModelProfile, setting: RankSetting) -> bool:
    """Whether the engine runs the model with its second runner (`VllmConfig.use_v2_model_runner`).

    0.22 to 0.24 for named architectures that generate, 0.25 to 0.28 for dense ones without recurrent states too, from 0.29
    for all; never with draft methods it lacks.
    """
    version = setting.version
    if setting.engine.speculative_method in LEFT_TO_FIRST_RUNNER:
        return False
    if version >= RUNNER_V2_SINCE:
        return True
    if profile.pooling:
        return False
    named = next((names for since, names in reversed(RUNNER_V2_FOR.items()) if version >= since), frozenset())
    if profile.architecture in named:
        return True
    recurrent = any(cache.kind is CacheKind.STATE for layer in profile.layer_kinds for cache in layer.caches)
    return version >= RUNNER_V2_DENSE_SINCE and not profile.expert_count and not recurrent
