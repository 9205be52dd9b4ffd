"""What a trial says of the prediction, as facts (GP870 to GP874)."""

from collections.abc import Mapping, Sequence

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.memory import EngineAnswer, StartCheck
from gpuplan.domain.verification import ComparedFigure

HELD, MISSED, FAILED, AGAINST, SILENT = "GP870", "GP871", "GP872", "GP873", "GP874"
_CHECKS = {
    "MEM_FREE": StartCheck.FREE_MEMORY,
    "MEM_WEIGHTS": StartCheck.LOADING,
    "MEM_ACTIVATION": StartCheck.LOADING,
    "MEM_GRAPH": StartCheck.LOADING,
    "MEM_KV_NONE": StartCheck.NO_KV_ROOM,
    "MEM_KV_SMALL": StartCheck.CONTEXT,
}
"""Class of a failure (`deploying.signature`) to the check of the engine that it is."""


def verdict(
    predicted: EngineAnswer, rows: Sequence[ComparedFigure], *, failure: Sequence[Fact] = ()
) -> tuple[Fact, ...]:
    """The verdict first, then the cause of a failed start.

    `failure`: why the engine did not start, the root first; empty: it did.
    """
    if failure:
        return (_failed(predicted, failure[0]), *failure, *_missed(rows))
    against = () if predicted.starts else (_fact(AGAINST, Severity.WARNING, check=_name(predicted.check)),)
    if not rows:
        return (*against, _fact(SILENT, Severity.WARNING))
    return (*against, *(_missed(rows) or (_fact(HELD, Severity.INFO, **_widest(rows)),)))


def _failed(predicted: EngineAnswer, cause: Fact) -> Fact:
    """GP872: whether the prediction had said that it fails, and at that check."""
    check = _CHECKS.get(str(cause.figures.get("class", "")))
    foreseen = check is not None and not predicted.starts
    return _fact(
        FAILED,
        Severity.ERROR,
        foreseen=foreseen,
        same_check=foreseen and predicted.check is check,
        predicted_check=_name(predicted.check),
        check=_name(check),
    )


def _missed(rows: Sequence[ComparedFigure]) -> tuple[Fact, ...]:
    """GP871: the terms outside their range, each by its worst rank."""
    worst: dict[str, ComparedFigure] = {}
    for row in rows:
        if not row.held and (row.term not in worst or _off(row) > _off(worst[row.term])):
            worst[row.term] = row
    if not worst:
        return ()
    terms = tuple(
        {
            "term": row.term,
            "rank": row.rank.label if row.rank is not None else None,
            "predicted": row.predicted,
            "low": row.low,
            "high": row.high,
            "actual": row.actual,
        }
        for row in worst.values()
    )
    return (_fact(MISSED, Severity.WARNING, terms=terms),)


def _off(row: ComparedFigure) -> float:
    return max(row.low - row.actual, row.actual - row.high)


def _widest(rows: Sequence[ComparedFigure]) -> Mapping[str, object]:
    """Of the cache, which decides: by how much its most distant rank is off."""
    cached = [row for row in rows if row.term == "kv_cache"]
    if not cached:
        return {}
    row = max(cached, key=lambda one: abs(one.difference))
    return {"predicted_bytes": row.predicted, "actual_bytes": row.actual}


def _name(check: StartCheck | None) -> str | None:
    return check.value if check is not None else None


def _fact(code: str, severity: Severity, **figures: object) -> Fact:
    return Fact(code=code, severity=severity, subject={}, figures=figures)
