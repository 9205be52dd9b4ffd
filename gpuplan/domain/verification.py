"""What a trial of a deployment showed: predicted beside printed, term by term and rank by rank."""

from dataclasses import dataclass

from gpuplan.domain.fact import Fact
from gpuplan.domain.memory import EngineAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Who printed a figure."""

    replica: int = 0
    """Data-parallel rank."""
    rank: int | None = None
    """In its replica; None: the line does not say (Ray's workers)."""
    stage: int | None = None
    """The fullest rank of a pipeline stage, whichever that is."""

    @property
    def label(self) -> str:
        """`rank 3`, `replica 1 rank 0`, `stage 1`, `some rank`."""
        if self.stage is not None:
            return f"stage {self.stage}"
        words = "some rank" if self.rank is None else f"rank {self.rank}"
        return f"replica {self.replica} {words}" if self.replica else words


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure of one rank, or of the engine, predicted and printed."""

    term: str
    """`weights`, `kv_cache` and others in bytes, `tokens`, `concurrency`."""
    rank: Rank | None
    """None: the engine's own, or that of the fullest rank."""
    predicted: float
    low: float
    high: float
    actual: float
    slack: float = 0.0
    """What the printing rounds away."""

    @property
    def difference(self) -> float:
        """How much more came than was predicted."""
        return self.actual - self.predicted

    @property
    def held(self) -> bool:
        """The printed figure lies in the range that was predicted."""
        return self.low - self.slack <= self.actual <= self.high + self.slack


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParameters:
    """Parameters of one rank as the image's own model class makes them, without a GPU."""

    rank: int
    predicted_bytes: int
    actual_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """How a trial ended."""

    name: str
    model: str
    image: str
    vllm_version: str
    places: tuple[tuple[str, tuple[int, ...]], ...]
    """Hosts with the indexes of their GPUs."""
    predicted: EngineAnswer
    started: bool | None
    """None: no engine was started (`--parameters-only`)."""
    compared: tuple[ComparedFigure, ...] = ()
    parameters: tuple[RankParameters, ...] = ()
    facts: tuple[Fact, ...] = ()
    """The verdict first; of a failed start its cause next."""
    logs: tuple[str, ...] = ()
    """Files the members' logs were saved to."""
    learned: bool = False
    """Later predictions on like hardware use it."""
    seconds: float | None = None
    """From the first start to the last word that was wanted."""

    @property
    def held(self) -> bool | None:
        """Every printed figure lies in its range; None where nothing could be compared."""
        return all(row.held for row in self.compared) if self.compared else None
