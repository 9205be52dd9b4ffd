"""The question of a plan, as its file repeats it, asked again: with other keys, on another fleet."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan
from gpuplan.domain.secret_text import MASK
from gpuplan.domain.workload import Workload
from gpuplan.engine.argument_tokens import grouped
from gpuplan.errors import GpuplanError
from gpuplan.operations.fleet import FleetOptions, parse_label, see_fleet
from gpuplan.operations.plan import (
    Asked,
    ReadQuestion,
    ServingOptions,
    engine_version,
    model_for,
    plan_model,
    workload_of,
)
from gpuplan.operations.question import described_by
from gpuplan.planning.answers import Answer, answer_of
from gpuplan.sources import plan_json

if TYPE_CHECKING:
    from gpuplan.operations.models import Model

NARROWING = frozenset({"hosts", "labels"})
"""Keys of a request that choose among the hosts."""


class Again:
    """Asks variants of one question; a model is read once, a fleet once more where it was narrowed."""

    def __init__(self, read: ReadQuestion, fleet_options: FleetOptions, request: Mapping[str, Any]) -> None:
        self._read = read
        self._fleet_options = fleet_options
        self._request = request
        self._whole: Fleet | None = None
        options = serving_options(request)
        key = _key(str(request["reference"]), workload_of(options, engine_version(options, None)))
        self._models: dict[Hashable, Model] = {key: read.model}

    def fleet(self, request: Mapping[str, Any]) -> Fleet:
        """The fleet of now as a request narrows it. Reads it again, hosts are not reached for it."""
        if all(list(request[key]) == list(self._request[key]) for key in NARROWING):
            return self._read.fleet
        if self._whole is None:
            self._whole = see_fleet(replace(self._fleet_options, hosts=(), labels=()))
        return narrowed(self._whole, request)

    def answer(self, request: Mapping[str, Any], fleet: Fleet | None) -> Answer:
        """What a request comes to on a fleet (that of now); a refusal is an answer."""
        try:
            return answer_of(self.plan(request, fleet or self._read.fleet))
        except GpuplanError as error:
            return Answer(refusal=error.message)

    def plan(self, request: Mapping[str, Any], fleet: Fleet) -> Plan:
        """The plan of a request. Raises GpuplanError subclasses where there is none."""
        options = serving_options(request)
        version = engine_version(options, None)
        workload = workload_of(options, version)
        reference = str(request["reference"])
        asked = Asked(reference=reference, hosts=tuple(request["hosts"]), labels=tuple(request["labels"]))
        key = _key(reference, workload)
        if key not in self._models:
            self._models[key] = model_for(reference, workload)
        return plan_model(self._models[key], fleet, workload, version, asked)


def serving_options(request: Mapping[str, Any]) -> ServingOptions:
    """What was asked of the model; arguments whose values were masked as secrets, which no plan rests on, are left out."""
    kept = (group for group in grouped(request["engine_args"]) if not any(MASK in one for one in group))
    return ServingOptions(**plan_json.serving(request, tuple(one for group in kept for one in group)))


def narrowed(fleet: Fleet, request: Mapping[str, Any]) -> Fleet:
    """The hosts a request names by name and label; those that are not there are no fault."""
    names, labels = request["hosts"], [parse_label(text) for text in request["labels"]]
    kept = (
        host
        for host in fleet.hosts
        if (not names or host.name in names) and all(label in host.labels for label in labels)
    )
    return replace(fleet, hosts=tuple(kept))


def _key(reference: str, workload: Workload) -> Hashable:
    return (*described_by(reference, workload), workload.vram_claim_bytes is not None)
