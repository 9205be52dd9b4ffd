"""What the memory of a rank beside weights and KV cache depends on, besides the model."""

from dataclasses import dataclass

from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.versions import EngineVersion, default_runner_v2
from gpuplan.units import GIB

HOPPER = 9
BIG_CARD = 70 * GIB
"""Cards of data centres; only these come with an NVLink switch."""


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
    def runner_v2(self) -> bool:
        return default_runner_v2(self.version)

    @property
    def speculative_tokens(self) -> int:
        """Draft tokens per step; 0 without speculative decoding."""
        count = (self.engine.speculative_config or {}).get("num_speculative_tokens", 0)
        return count if isinstance(count, int) and 0 < count < 1024 else 0
