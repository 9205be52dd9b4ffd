"""The same asked for again keeps the context it runs with: what was learned since must not replace a server that serves."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuplan.domain import labels
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Verdict
from gpuplan.operations.deploy_request import Wanted
from gpuplan.operations.deployed import Existing, placement_of
from gpuplan.operations.plan import request_for
from gpuplan.planning.same_place import candidate_at

PLACED = frozenset({"placed", "parallelism"})
"""Keys of the request label that say where it was placed, not what was asked."""


def as_it_runs(wanted: Wanted, found: Existing, fleet: Fleet) -> Wanted:
    """The request with the context that runs, where the same was asked for without one and that still fits there."""
    workload, there = wanted.workload, placement_of(found)
    open_context = workload.context is None and workload.engine.max_model_len is None
    if not open_context or there is None or wanted.saved is not None:
        return wanted
    length = _object(found, labels.PREDICTED).get("max_model_len")
    before = {key: value for key, value in _object(found, labels.REQUEST).items() if key not in PLACED}
    question = request_for(wanted.model, fleet, workload, wanted.version, wanted.asked)
    if not isinstance(length, int) or length < 1 or before != json.loads(json.dumps(dict(question.echo))):
        return wanted
    kept = replace(wanted, workload=replace(workload, context=length))
    again = request_for(wanted.model, fleet, kept.workload, wanted.version, wanted.asked)
    candidate = candidate_at(again, *there)
    return kept if candidate is not None and candidate.verdict is Verdict.FITS else wanted


def _object(found: Existing, label: str) -> Mapping[str, Any]:
    try:
        document = json.loads(found.label.get(label, ""))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
