"""A trial of a deployment as JSON: the shape scripts depend on (`schema_version` 1)."""

from dataclasses import dataclass
from typing import Any

from gpuplan.domain.verification import Verification
from gpuplan.present.deployment_document import SCHEMA_VERSION
from gpuplan.present.plan_document import FindingDocument, finding_document, plain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FigureDocument:
    """One figure, predicted and printed; bytes, but for `tokens` and `concurrency`."""

    term: str
    replica: int | None
    """Data-parallel rank; null for a figure of the whole engine."""
    rank: int | None
    """In its replica; null where the log does not say."""
    predicted: float
    low: float
    high: float
    actual: float
    difference: float
    """Actual less predicted."""
    held: bool
    """The actual figure lies in the range."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ParametersDocument:
    """Parameters of one rank, in bytes."""

    rank: int
    predicted_bytes: int
    actual_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PlaceDocument:
    """GPUs of one host."""

    host: str
    gpu_indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class VerificationDocument:
    """`gpuplan verify -o json`."""

    schema_version: int
    name: str
    model: str
    image: str
    vllm_version: str
    placement: tuple[PlaceDocument, ...]
    predicted_to_start: bool
    started: bool | None
    """null: no engine was started (`--parameters-only`)."""
    held: bool | None
    """Every printed figure lies in its range; null where nothing could be compared."""
    figures: tuple[FigureDocument, ...]
    parameters: tuple[ParametersDocument, ...]
    findings: tuple[FindingDocument, ...]
    learned: bool
    seconds: float | None
    logs: tuple[str, ...]


def verification_document(outcome: Verification) -> dict[str, Any]:
    """The document as plain data."""
    document = VerificationDocument(
        schema_version=SCHEMA_VERSION,
        name=outcome.name,
        model=outcome.model,
        image=outcome.image,
        vllm_version=outcome.vllm_version,
        placement=tuple(PlaceDocument(host=host, gpu_indexes=indexes) for host, indexes in outcome.places),
        predicted_to_start=outcome.predicted.starts,
        started=outcome.started,
        held=outcome.held,
        figures=tuple(
            FigureDocument(
                term=row.term,
                replica=row.rank.replica if row.rank is not None else None,
                rank=row.rank.rank if row.rank is not None else None,
                predicted=row.predicted,
                low=row.low,
                high=row.high,
                actual=row.actual,
                difference=row.difference,
                held=row.held,
            )
            for row in outcome.compared
        ),
        parameters=tuple(
            ParametersDocument(
                rank=one.rank, predicted_bytes=one.predicted_bytes, actual_bytes=one.actual_bytes
            )
            for one in outcome.parameters
        ),
        findings=tuple(finding_document(fact) for fact in outcome.facts),
        learned=outcome.learned,
        seconds=outcome.seconds,
        logs=outcome.logs,
    )
    made: dict[str, Any] = plain(document)
    return made
