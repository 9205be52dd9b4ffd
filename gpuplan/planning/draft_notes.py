"""What a plan says of the draft model of speculative decoding: counted, guessed or left out."""

from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.model import Draft, ModelProfile
from gpuplan.engine.draft import draft_named, with_draft
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.planning.question import draft_layers
from gpuplan.planning.request import PlanRequest


def about_draft(request: PlanRequest) -> list[Fact]:
    """GP504 where a draft is not counted or only guessed, GP506 where it is."""
    profile, engine = request.profile, request.workload.engine
    named, draft = draft_named(engine), profile.draft
    if named is None or (draft is None and draft_layers(profile, engine)):
        return []
    if draft is not None and draft.profile is not None and not draft.missing:
        figures = {
            "method": draft.method,
            "weights_bytes": draft_bytes(profile, request.version),
            "cached_layers": _cached(draft),
        }
        facts = [
            Fact(code="GP506", severity=Severity.INFO, subject={"model": draft.name[:100]}, figures=figures)
        ]
        return facts + [
            Fact(
                code="GP502",
                severity=Severity.INFO,
                subject={"model": draft.name[:100]},
                figures={"assumption": f"draft model: {text}"},
            )
            for text in draft.profile.assumptions
        ]
    figures = {
        "missing": "" if draft is None else draft.missing,
        "assumed_bytes": None
        if draft is None or draft.profile is None
        else draft_bytes(profile, request.version),
    }
    return [Fact(code="GP504", severity=Severity.WARNING, subject={"model": named[:100]}, figures=figures)]


def draft_bytes(profile: ModelProfile, version: EngineVersion) -> int:
    """Weights the draft adds on one GPU that holds everything, without what it shares with the target."""
    drafted = with_draft(profile, version, 1)
    whole = rank_weights(drafted, Split(), draft_layers=len(drafted.draft_order)).parameters
    return whole - rank_weights(drafted, Split()).parameters


def draft_summary(draft: Draft) -> dict[str, Any]:
    """What a plan's model says of its draft."""
    return {
        "name": draft.name,
        "method": draft.method,
        "cached_layers": None if draft.profile is None else _cached(draft),
        "missing": draft.missing or None,
    }


def _cached(draft: Draft) -> int:
    profile = draft.profile
    if profile is None:
        return 0
    return sum(1 for kind in profile.layer_order if profile.layer_kinds[kind].caches)
