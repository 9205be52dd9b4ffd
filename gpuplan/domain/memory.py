"""What one rank's GPU memory goes to, term by term, each with its range and what it rests on."""

from dataclasses import dataclass
from enum import StrEnum

from gpuplan.domain.fleet import Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of a GPU's memory in bytes, expandable to formula and inputs."""

    name: str
    bytes: int
    basis: Basis
    formula: str
    inputs: tuple[tuple[str, int | float | str], ...] = ()
    low: int | None = None
    """Smallest value that is likely; None: exactly `bytes`."""
    high: int | None = None
    source: str = ""
    starts: tuple[str, ...] = ()
    """Lessons (`domain.calibration`) whose measurements are in it."""

    @property
    def least(self) -> int:
        return self.bytes if self.low is None else self.low

    @property
    def most(self) -> int:
        return self.bytes if self.high is None else self.high


class StartCheck(StrEnum):
    """The checks vLLM makes at start, in order."""

    FREE_MEMORY = "free_memory"
    LOADING = "out_of_memory"
    NO_KV_ROOM = "no_kv_room"
    CONTEXT = "too_long"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Memory of one rank. `kv_cache_bytes` may be negative: the engine prints it so and refuses to start."""

    rank: int
    stage: int
    total_bytes: int
    budget: Term
    weights: Term
    weights_extra: Term
    activation: Term
    non_torch: Term
    cuda_graph: Term
    kv_cache_bytes: int
    kv_cache_low: int
    kv_cache_high: int
    kv_needed_bytes: int
    """One request of the asked length at the asked concurrency."""
    loading_peak_bytes: int = 0
    """Allocated for a moment while the model is loaded, beyond what loading leaves."""

    @property
    def terms(self) -> tuple[Term, ...]:
        """Everything the budget pays besides the KV cache."""
        return (self.weights, self.weights_extra, self.activation, self.non_torch, self.cuda_graph)

    @property
    def loading_bytes(self) -> int:
        """Most that is held while the model is loaded, before anything is profiled."""
        return self.weights.bytes + self.weights_extra.bytes + self.loading_peak_bytes

    @property
    def headroom_bytes(self) -> int:
        return self.kv_cache_bytes - self.kv_needed_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAnswer:
    """Whether the engine would start, and the line it would print if not."""

    starts: bool
    check: StartCheck | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """One replica on given devices: every rank, and what the engine makes of the remaining memory."""

    ranks: tuple[RankMemory, ...]
    blocks: int
    """KV blocks of every rank (the smallest rank decides)."""
    block_bytes: int
    block_size: int
    """Tokens of one block."""
    kv_cache_tokens: int
    max_concurrency: float
    max_model_len: int
    """Context the placement is planned for (tokens)."""
    largest_max_model_len: int
    """Longest context one request could have; 0 when not even one block fits."""
    concurrency_at: tuple[tuple[int, float], ...]
    """(context, concurrent requests) for 8k, 32k and the longest."""
    concurrency_curve: tuple[tuple[int, float], ...] = ()
    """The same for 4k, doubled up to the longest."""
    engine: EngineAnswer
    kv_needed_bytes: int
    """For the asked concurrency at max_model_len, on the fullest rank."""
    max_num_batched_tokens: int
    max_num_seqs: int
    assumptions: tuple[str, ...] = ()
