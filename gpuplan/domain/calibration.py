"""What start-ups taught: a prediction beside what the engine printed, term by term, and what was started."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from gpuplan.units import GIB

PRINTED = int(0.005 * GIB)
"""Bytes that rounding to two decimals of a GiB leaves open, either way: a range is not missed by less."""


class Quantity(StrEnum):
    """What is predicted and printed of one rank, in bytes; the last two of the whole server."""

    LOADING = "loading"
    """Weights and what loading adds to them: "Model loading took"."""
    ACTIVATION = "activation"
    NON_TORCH = "non_torch"
    GRAPHS = "cuda_graph"
    """The engine's own estimate of its graphs, where the budget pays it."""
    WORKING = "working"
    """Activation, non-torch and graphs together: budget − loading − KV cache. Most logs tell them apart no further."""
    KV_CACHE = "kv_cache"
    TOKENS = "kv_cache_tokens"
    """Tokens the cache of the server holds."""
    CONCURRENCY = "max_concurrency"
    """Thousandths of requests of the full length at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One quantity: predicted with its likely range, and as printed (None: the log does not say)."""

    quantity: Quantity
    predicted: int
    low: int
    high: int
    actual: int | None = None

    @property
    def difference(self) -> int | None:
        """Printed less predicted: positive where more was taken, or more room was left, than predicted."""
        return None if self.actual is None else self.actual - self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTerms:
    """The fullest rank of one pipeline stage."""

    stage: int
    phase: str = ""
    """What sets the peak of the profile run, by the prediction: tower, forward or sampler."""
    terms: tuple[Compared, ...]

    def of(self, quantity: Quantity) -> Compared | None:
        return next((term for term in self.terms if term.quantity is quantity), None)

    def residual(self, quantity: Quantity) -> int | None:
        """Printed less predicted, in bytes; None where it was not printed."""
        term = self.of(quantity)
        return None if term is None else term.difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What was started, as far as its memory depends on it; model paths are kept as names."""

    model: str
    digest: str
    """Of what in the model's description decides its memory: equal for two copies of one model under any name."""
    architecture: str
    quantization: str | None
    dtype: str
    version: str
    """X.Y.Z"""
    gpu: str = ""
    """Name of the card; empty where nobody said."""
    total_bytes: int | None = None
    """Memory of one card as the driver reports it."""
    compute_capability: str | None = None
    unified: bool = False
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    """Replicas of one mixture-of-experts server; 1 where replicas share nothing."""
    expert: bool = False
    decode_context: int = 1
    prefill_context: int = 1
    layer_partition: tuple[int, ...] | None = None
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    kv_cache_dtype: str
    enforce_eager: bool
    utilization: float | None
    arguments: tuple[tuple[str, str], ...] = ()
    """Other arguments that bear on memory, by name, values as text, secrets masked."""

    @property
    def kind(self) -> str:
        """The kind of card; empty where nobody said."""
        return gpu_kind(self.gpu)

    @property
    def built(self) -> tuple[object, ...]:
        """All that decides the parameters of a rank, the card apart."""
        return (
            self.digest,
            self.version,
            self.tensor,
            self.pipeline,
            self.data,
            self.expert,
            self.prefill_context,
            self.layer_partition,
            self.arguments,
        )

    @property
    def runs(self) -> tuple[object, ...]:
        """How the parameters are run, sizes of a batch apart."""
        return (self.decode_context, self.kv_cache_dtype, self.enforce_eager)

    @property
    def batch(self) -> tuple[int, int]:
        """Sizes of the batch that the engine profiles itself with."""
        return (self.max_num_batched_tokens, self.max_num_seqs)

    def on_card_of(self, other: "Start") -> bool:
        """Whether both ran on the same kind of card: its name and, to a hundredth, its memory."""
        if not self.kind or self.kind != other.kind:
            return False
        if self.total_bytes is None or other.total_bytes is None:
            return False
        return abs(self.total_bytes - other.total_bytes) * 100 <= self.total_bytes


class Ending(StrEnum):
    """How a start ended."""

    SERVES = "serves"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The log ends before it served or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One start: what was predicted and what was printed."""

    id: str
    """Digest of the log's own words: the same log learned twice is one lesson."""
    at: float
    """Seconds since 1970: when it started, or when the log was read."""
    origin: str
    """A log's file name, `deployment NAME`, `verify on HOST`."""
    learned_by: str
    """Version of gpuplan: residuals hold for predictions of the same one."""
    start: Start
    stages: tuple[StageTerms, ...]
    ending: Ending = Ending.UNKNOWN
    check: str | None = None
    """The check of the engine that failed (`StartCheck`)."""

    def stage(self, number: int) -> StageTerms | None:
        return next((stage for stage in self.stages if stage.stage == number), None)

    @property
    def repeats(self) -> Start:
        """Equal for starts that are repetitions of each other."""
        return replace(self.start, model="", utilization=None)


_NOISE = re.compile(r"\b(?:nvidia|geforce|tesla|quadro|amd|radeon|instinct|graphics|custom)\b")


def gpu_kind(name: str) -> str:
    """What a card's name tells of its kind: `NVIDIA H100 80GB HBM3` and `h100-80gb-hbm3` are one; empty for no name."""
    plain = re.sub(r"[^a-z0-9]+", " ", name.lower())
    return "".join(_NOISE.sub("", plain).split())
