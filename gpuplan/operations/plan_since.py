"""`gpuplan plan --since OLD`: the plan now beside that of then, and which change accounts for another answer.

A saved plan tells what was asked and answered, a snapshot what the fleet was. What is known of then is taken back, one
change at a time, and planned again; the model, the rules and a fleet of which there is no snapshot cannot be.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan
from gpuplan.domain.told_plan import ToldPlan
from gpuplan.errors import GpuplanError, UsageError
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ReadQuestion, ServingOptions, plan_model, read_question, request_for
from gpuplan.operations.plan_again import NARROWING, Again, narrowed
from gpuplan.planning.answers import (
    Answer,
    Cause,
    Comparison,
    Factor,
    answer_of,
    moved_hosts,
    recommended_of,
    tried,
)
from gpuplan.planning.changes import changes
from gpuplan.sources import plan_json, snapshot_json, told_plan_json
from gpuplan.sources.documents import read_bytes

MOST_HOSTS = 12
"""Changed hosts that are taken back one by one; of more only all together."""
DERIVED = frozenset({"model", "reference", "gpu_memory_utilization", "kv_cache_dtype"})
"""Keys of a request that follow from others; the reference is a factor of its own."""
LEARNED = "GP505"
OF_THE_FLEET = frozenset({"GP802", "GP803", "GP804", "GP805", "GP806"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """What is known of then: a plan, a snapshot, or both."""

    plan: ToldPlan | None = None
    fleet: Fleet | None = None
    name: str = ""


def make_plan_since(
    reference: str, fleet_options: FleetOptions, options: ServingOptions, since: Sequence[Path]
) -> tuple[Plan, Comparison]:
    """The plan as it is now, compared with what `since` holds: a saved plan, a snapshot, or one of each.

    Raises GpuplanError subclasses for anything the user can correct; files are read before any host is.
    """
    former = read_former(since)
    read = read_question(reference, fleet_options, options)
    made = plan_model(read.model, read.fleet, read.workload, read.version, read.asked)
    return made, _Inquiry(former=former, read=read, fleet_options=fleet_options, made=made).compared()


def compare_plans(before: Path, after: Path) -> Comparison:
    """Two saved plans, by what they tell; nothing is planned again. Raises InventoryError."""
    then, now = told_plan_json.load(before), told_plan_json.load(after)
    return Comparison(
        before=str(before),
        after=str(after),
        then=then,
        now=now,
        answers=(answer_of(then.plan), answer_of(now.plan)),
    )


def read_former(since: Sequence[Path]) -> Former:
    """The files of `--since`. Raises InventoryError for a wrong one, UsageError for two of a kind."""
    former = Former(name=" and ".join(map(str, since)))
    for path in since:
        content = read_bytes(path, limit=plan_json.MAX_BYTES, missing_hint=plan_json.AGAIN)
        is_snapshot = _is_snapshot(content)
        if (former.fleet if is_snapshot else former.plan) is not None:
            kind = "snapshots" if is_snapshot else "plans"
            raise UsageError(
                f"--since {path}: two {kind} of then are one too many",
                hint="name one saved plan, one snapshot, or one of each",
            )
        if is_snapshot:
            former = replace(former, fleet=snapshot_json.parse(content, str(path)))
        else:
            former = replace(former, plan=told_plan_json.parse(content, str(path)))
    return former


def _is_snapshot(content: bytes) -> bool:
    """Whether a JSON object has hosts and no strategies; what is no JSON is read as a plan, which says so."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "hosts" in value and "strategies" not in value


@dataclass(frozen=True, kw_only=True)
class _Inquiry:
    """One comparison of a plan made now with then."""

    former: Former
    read: ReadQuestion
    fleet_options: FleetOptions
    made: Plan

    @cached_property
    def request(self) -> Mapping[str, Any]:
        return self.made.request

    @cached_property
    def asked_then(self) -> Mapping[str, Any] | None:
        return None if self.former.plan is None else self.former.plan.plan.request

    @cached_property
    def again(self) -> Again:
        return Again(self.read, self.fleet_options, self.request)

    def compared(self) -> Comparison:
        then, before = self._then()
        after = answer_of(self.made)
        causes = self._by_host(before, after, tried(before, after, tuple(self._factors(before))))
        enough = len(causes) < 2 or any(one.restores for one in causes)
        fleet = self._fleet_then(self.request)
        return Comparison(
            before=self.former.name,
            then=then,
            now=self.made,
            answers=(before, after),
            causes=causes,
            together=None if enough else self._together(),
            turned=self._turned(),
            fleets=None if fleet is None else (fleet, self.read.fleet),
            place_then=self._place_then() if fleet is None else (),
        )

    def _then(self) -> tuple[ToldPlan | Plan | None, Answer]:
        """The saved plan; else the question of now on the fleet of then, which may have no answer."""
        if self.former.plan is not None:
            return self.former.plan, answer_of(self.former.plan.plan)
        fleet = self._fleet_then(self.request)
        assert fleet is not None
        try:
            plan = self.again.plan(self.request, fleet)
        except GpuplanError as error:
            return None, Answer(refusal=error.message)
        return plan, answer_of(plan)

    def _place_then(self) -> tuple[Fact, ...]:
        """What became of the GPUs that were recommended then."""
        candidate = None if self.former.plan is None else recommended_of(self.former.plan.plan)
        if candidate is None:
            return ()
        read = self.read
        request = request_for(read.model, read.fleet, read.workload, read.version, read.asked)
        return tuple(fact for fact in changes(candidate, request) if fact.code in OF_THE_FLEET)

    # -------------------------------------------------------------- taking back

    def _turned(self) -> frozenset[str]:
        kinds = set() if self._unturned() else {"asked"}
        if self.former.fleet is not None:
            kinds.add("fleet")
        if self._is_other_model():
            kinds.add("model")
        return frozenset(kinds)

    def _is_other_model(self) -> bool:
        return self.asked_then is not None and self.asked_then["reference"] != self.request["reference"]

    def _keys(self) -> tuple[str, ...]:
        """Keys of the question that differ."""
        then = self.asked_then
        if then is None:
            return ()
        keys = (key for key in dict.fromkeys((*then, *self.request)) if key not in DERIVED)
        return tuple(key for key in keys if then.get(key) != self.request.get(key))

    def _unturned(self) -> tuple[str, ...]:
        """Keys that differ and cannot be taken back: hosts that were not probed cannot be planned on."""
        return tuple(key for key in self._keys() if key in NARROWING and self.fleet_options.probes)

    def _factors(self, before: Answer) -> Iterator[Factor]:
        then = self.asked_then
        if then is not None:
            for key in self._keys():
                if key not in self._unturned():
                    yield self._factor("asked", key, {key: then.get(key)})
            if self._is_other_model():
                yield self._factor("model", "reference", {"reference": then["reference"]})
            if self._has_learned():
                yield self._factor("rules", "no_calibration", {"no_calibration": True})
        if self.former.fleet is not None:
            moved = self._moved()
            yield Factor(
                kind="fleet",
                key=moved[0] if len(moved) == 1 else "",
                undone=lambda: before if then is None else self._answer_then(),
            )

    def _factor(self, kind: str, key: str, change: Mapping[str, Any]) -> Factor:
        request = {**self.request, **change}
        return Factor(
            kind=kind, key=key, undone=lambda: self.again.answer(request, self.again.fleet(request))
        )

    def _answer_then(self) -> Answer:
        """The question of now on the fleet of then."""
        return self.again.answer(self.request, self._fleet_then(self.request))

    def _has_learned(self) -> bool:
        """Whether measurements are in the figures of now that were not in those of then."""
        assert self.former.plan is not None
        then = {str(one.figures.get("ids")) for one in self.former.plan.findings if one.code == LEARNED}
        now = {str(one.figures.get("ids")) for one in self.made.facts if one.code == LEARNED}
        return bool(now - then)

    def _moved(self) -> tuple[str, ...]:
        fleet = self._fleet_then(self.request)
        return () if fleet is None else moved_hosts(fleet, self.read.fleet)

    def _by_host(self, before: Answer, after: Answer, causes: tuple[Cause, ...]) -> tuple[Cause, ...]:
        """The fleet as a cause narrowed to the hosts that, as they were, bring the former answer back alone."""
        names = self._moved()
        if not 1 < len(names) <= MOST_HOSTS or not any(
            one.kind == "fleet" and one.restores for one in causes
        ):
            return causes
        factors = [Factor(kind="fleet", key=name, undone=self._with_host_of_then(name)) for name in names]
        alone = tuple(one for one in tried(before, after, factors) if one.restores)
        return (*(one for one in causes if one.kind != "fleet"), *alone) if alone else causes

    def _with_host_of_then(self, name: str) -> Callable[[], Answer]:
        then = self._fleet_then(self.request)
        old = [] if then is None else [one for one in then.hosts if one.name == name]
        others = [one for one in self.read.fleet.hosts if one.name != name]
        fleet = replace(self.read.fleet, hosts=(*others, *old))
        return lambda: self.again.answer(self.request, fleet)

    def _fleet_then(self, request: Mapping[str, Any]) -> Fleet | None:
        return None if self.former.fleet is None else narrowed(self.former.fleet, request)

    def _together(self) -> Answer:
        """Everything that can be taken back, taken back."""
        then = self.asked_then or self.request
        keys = [key for key in (*self._keys(), "reference") if key not in self._unturned()]
        request = {**self.request, **{key: then.get(key) for key in keys}}
        if self.asked_then is not None and self._has_learned():
            request["no_calibration"] = True
        fleet = self._fleet_then(request)
        return self.again.answer(request, self.again.fleet(request) if fleet is None else fleet)
