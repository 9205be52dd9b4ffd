"""What is different between two plans that were told: question, model, fleet, rules, findings, answer, in words.

Of the fleet a plan tells how many hosts and GPUs each filter left, and the GPUs that it or a refusal names; with the
snapshots of both, `present.fleet_changes` tells all of it.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Candidate, FunnelStep, PlacedGpu, Plan, StrategyName, StrategyResult, Verdict
from gpuplan.domain.told_plan import ToldFinding, ToldPlan
from gpuplan.planning.answers import Comparison, recommended_of
from gpuplan.planning.changes import NOTICEABLE, newcomers
from gpuplan.present.document import Role
from gpuplan.present.findings import word
from gpuplan.present.fleet_changes import fleet_changes
from gpuplan.present.holdings import sentence
from gpuplan.present.numbers import count, gib, gpu_range, listed
from gpuplan.present.plan_changes import asked_changes, candidate_changes, same_place
from gpuplan.present.plan_document import plain
from gpuplan.present.strategy_table import NAMES, VERDICTS
from gpuplan.present.terms import signed_short
from gpuplan.units import plural

UNREACHED = "GP402"
MEMORY_WENT = "GP805"
LEARNED = "GP505"
BY_UTILIZATION = "budget free"
"""The filter that depends on the question."""
OF_THE_WHOLE = frozenset(
    {
        "where",
        "shape",
        "context",
        "longest context of one request",
        "tokens in the KV cache",
        "requests of that context at once",
        "cost",
    }
)
"""Changes that mean something between placements that are not alike."""
MOST = 24
"""Differences of one kind that are told one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is different."""

    kind: str
    """asked, model, fleet, rules, findings, answer"""
    words: str
    role: Role = Role.PLAIN
    key: str = ""
    """Of the request; the host."""


def all_differences(comparison: Comparison) -> Iterator[Difference]:
    """Everything that is different, kind by kind."""
    now = told(comparison.now)
    fleets = comparison.fleets
    of_fleet = [] if fleets is None else list(_of_hosts(*fleets))
    if comparison.then is None:
        yield from of_fleet
        return
    then = told(comparison.then)
    yield from asked(then.plan, now.plan)
    yield from model(then.plan, now.plan)
    yield from _place_then(comparison.place_then, now.plan)
    yield from of_fleet if fleets is not None else fleet(then, now)
    yield from rules(then, now)
    yield from findings(then, now)
    yield from answer(then, now)


def told(plan: ToldPlan | Plan) -> ToldPlan:
    """A plan as its file would tell it, so that two are told alike."""
    if isinstance(plan, ToldPlan):
        return plan
    return ToldPlan(
        path="",
        plan=replace(plan, request=plain(plan.request), model=plain(plan.model)),
        findings=tuple(_finding(fact) for fact in plan.facts),
        refusals={one.strategy: tuple(_finding(fact) for fact in one.facts) for one in plan.strategies},
    )


def _finding(fact: Fact) -> ToldFinding:
    finding = word(fact)
    return ToldFinding(
        code=finding.code,
        severity=finding.severity.value,
        headline=finding.headline,
        subject=finding.subject,
        figures=finding.figures,
    )


def asked(before: Plan, after: Plan) -> Iterator[Difference]:
    """Of the question."""
    for change in asked_changes(before.request, after.request):
        key = change.key.removeprefix("asked ")
        yield Difference(kind="asked", words=change.words.removeprefix("asked: "), key=key)


def model(before: Plan, after: Plan) -> Iterator[Difference]:
    """Of the model as it was read: weights, format, sizes."""
    for key in dict.fromkeys((*before.model, *after.model)):
        then, now = before.model.get(key), after.model.get(key)
        if then != now:
            name = key.removesuffix("_bytes").replace("_", " ")
            yield Difference(kind="model", words=f"{name} {_value(key, then)} → {_value(key, now)}")


def _value(key: str, value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool() | str():
            return str(value)
        case int() | float():
            return gib(value) if key.endswith("_bytes") else count(value)
        case Mapping():
            return ", ".join(f"{name} {inner}" for name, inner in value.items())
        case _:
            return str(value)


# ---------------------------------------------------------------------- fleet


def _of_hosts(before: Fleet, after: Fleet) -> Iterator[Difference]:
    """All of it, from the pictures of then and now."""
    for one in fleet_changes(before, after):
        yield Difference(kind="fleet", words=f"{one.host}: {one.words}", role=one.role, key=one.host)


def _place_then(facts: tuple[Fact, ...], after: Plan) -> Iterator[Difference]:
    """What became of the GPUs recommended then; of free memory only where the later plan does not name the GPU."""
    named = named_gpus(after)
    for fact in facts:
        if fact.code == MEMORY_WENT and (fact.subject.get("host"), fact.subject.get("gpu")) in named:
            continue
        finding = word(fact)
        because = f": {'; '.join(finding.because)}" if finding.because else ""
        yield Difference(kind="fleet", words=f"{finding.headline}{because}", role=Role.WARNING)


def fleet(before: ToldPlan, after: ToldPlan) -> Iterator[Difference]:
    """Of the fleet, as far as two plans tell it."""
    then, now = before.plan, after.plan
    if then.fleet_basis != now.fleet_basis:
        yield Difference(kind="fleet", words=f"the fleet was {then.fleet_basis} and is {now.fleet_basis}")
    yield from _filters(then, now)
    yield from _unreached(before.findings, after.findings)
    yield from _gpus(then, now)


def _filters(before: Plan, after: Plan) -> Iterator[Difference]:
    """How many hosts and GPUs there are, and how many each filter takes away."""
    then, now = _taken(before.funnel), _taken(after.funnel)
    same_share = before.request.get("gpu_memory_utilization") == after.request.get("gpu_memory_utilization")
    if before.funnel and after.funnel:
        first, second = before.funnel[0], after.funnel[0]
        if (first.hosts, first.gpus) != (second.hosts, second.gpus):
            words = f"{_size(first.hosts, first.gpus)} → {_size(second.hosts, second.gpus)} in the fleet"
            role = Role.BAD if second.gpus < first.gpus else Role.GOOD
            yield Difference(kind="fleet", words=words, role=role)
    for name in dict.fromkeys((*then, *now)):
        if name == BY_UTILIZATION and not same_share:
            continue
        earlier, later = then.get(name, (0, 0, ())), now.get(name, (0, 0, ()))
        if earlier == later:
            continue
        words = f"left out by the filter “{name}”: {_size(*earlier[:2])} → {_size(*later[:2])}"
        if later[2]:
            words += f" ({listed(later[2])})"
        role = Role.BAD if later[1] > earlier[1] else Role.PLAIN
        yield Difference(kind="fleet", words=words, role=role)


def _taken(funnel: tuple[FunnelStep, ...]) -> dict[str, tuple[int, int, tuple[str, ...]]]:
    """Hosts and GPUs each filter takes away, and the first of them by name."""
    return {
        step.name: (max(0, before.hosts - step.hosts), max(0, before.gpus - step.gpus), step.taken)
        for before, step in itertools.pairwise(funnel)
    }


def _size(hosts: int, gpus: int) -> str:
    parts = [plural(number, noun) for number, noun in ((hosts, "host"), (gpus, "GPU")) if number]
    return " with ".join(parts) or "none"


def _unreached(before: tuple[ToldFinding, ...], after: tuple[ToldFinding, ...]) -> Iterator[Difference]:
    then = {str(one.subject.get("host")): one.headline for one in before if one.code == UNREACHED}
    now = {str(one.subject.get("host")): one.headline for one in after if one.code == UNREACHED}
    for host, headline in now.items():
        if host not in then:
            yield Difference(kind="fleet", words=headline, role=Role.BAD)
    for host in then:
        if host not in now:
            yield Difference(
                kind="fleet", words=f"{host} was not reachable then; nothing says so now", role=Role.GOOD
            )


def _gpus(before: Plan, after: Plan) -> Iterator[Difference]:
    """GPUs that both plans name: another card, another size, other free memory, and who has it; equal ones together."""
    then = named_gpus(before)
    alike: dict[Difference, list[tuple[str, int]]] = {}
    for place, gpu in named_gpus(after).items():
        difference = _gpu(then[place], gpu) if place in then else None
        if difference is not None:
            alike.setdefault(difference, []).append(place)
    for difference, places in alike.items():
        hosts: dict[str, list[int]] = {}
        for host, index in places:
            hosts.setdefault(host, []).append(index)
        on = listed([f"{host}:{gpu_range(indexes)}" for host, indexes in hosts.items()])
        yield replace(difference, words=f"{on}: {difference.words}")


def _gpu(before: PlacedGpu, after: PlacedGpu) -> Difference | None:
    if before.uuid is not None and after.uuid is not None and before.uuid != after.uuid:
        words = f"another card, {before.uuid} → {after.uuid}"
        return Difference(kind="fleet", words=words, role=Role.WARNING)
    if before.total_bytes != after.total_bytes:
        words = f"another card, {gib(before.total_bytes)} → {gib(after.total_bytes)} in all"
        return Difference(kind="fleet", words=words, role=Role.WARNING)
    change = after.allocatable_bytes - before.allocatable_bytes
    if abs(change) < NOTICEABLE:
        return None
    words = f"{gib(before.allocatable_bytes)} → {gib(after.allocatable_bytes)} can be claimed ({signed_short(change)})"
    came, went = newcomers(before.held, after.held), newcomers(after.held, before.held)
    if change < 0 and came:
        words += f"; held now: {sentence(came)}"
    if change > 0 and went:
        words += f"; held then: {sentence(went)}"
    return Difference(kind="fleet", words=words, role=Role.WARNING if change < 0 else Role.GOOD)


def named_gpus(plan: Plan) -> dict[tuple[str, int], PlacedGpu]:
    """GPUs of all candidates; not of those that evict, for which others count as gone."""
    return {
        (host.host, gpu.index): gpu
        for result in plan.strategies
        if result.strategy is not StrategyName.EVICT
        for candidate in result.candidates
        for host in candidate.placement
        for gpu in host.gpus
    }


# ---------------------------------------------------------------------- rules and findings


def rules(before: ToldPlan, after: ToldPlan) -> Iterator[Difference]:
    """What was learned from starts, and terms that are computed otherwise than before from the same inputs."""
    learned = [_learned(told) for told in (before, after)]
    if learned[0] != learned[1]:
        words = f"{learned[0] or 'nothing measured is in the figures'} → {learned[1] or 'nothing measured'}"
        yield Difference(kind="rules", words=words)
    told: set[str] = set()
    for then, now in _pairs(before.plan, after.plan):
        if then.memory is None or now.memory is None:
            continue
        for first, second in zip(then.memory.ranks, now.memory.ranks, strict=False):
            for term_then, term in zip(
                (first.budget, *first.terms), (second.budget, *second.terms), strict=True
            ):
                if term.name in told:
                    continue
                words = ""
                if (term_then.basis, term_then.formula) != (term.basis, term.formula):
                    how = "measured" if term.basis.value == "measured" else "computed otherwise"
                    words = f"{term.name}: {term_then.basis.value} → {how} ({gib(term_then.bytes)} → {gib(term.bytes)})"
                elif dict(term_then.inputs) == dict(term.inputs) and term_then.bytes != term.bytes:
                    words = (
                        f"{term.name}: {gib(term_then.bytes)} → {gib(term.bytes)} from the same inputs, "
                        "by another release of gpuplan"
                    )
                if words:
                    told.add(term.name)
                    yield Difference(kind="rules", words=words)


def _learned(told: ToldPlan) -> str:
    return next((one.headline for one in told.findings if one.code == LEARNED), "")


def _pairs(before: Plan, after: Plan) -> Iterator[tuple[Candidate, Candidate]]:
    """Candidates of both plans on the same GPUs in the same shape."""
    earlier = [candidate for result in before.strategies for candidate in result.candidates]
    for result in after.strategies:
        for candidate in result.candidates:
            match = next((one for one in earlier if same_place(one, candidate)), None)
            if match is not None:
                yield match, candidate


def findings(before: ToldPlan, after: ToldPlan) -> Iterator[Difference]:
    """What is said of fleet, model and question besides."""
    then = {one.headline: one for one in before.findings if one.code not in (UNREACHED, LEARNED)}
    now = {one.headline: one for one in after.findings if one.code not in (UNREACHED, LEARNED)}
    for headline, one in now.items():
        if headline not in then:
            role = Role.PLAIN if one.severity == "info" else Role.WARNING
            yield Difference(kind="findings", words=f"new: {headline} [{one.code}]", role=role)
    for headline, one in then.items():
        if headline not in now:
            yield Difference(kind="findings", words=f"no longer: {headline} [{one.code}]", role=Role.DIM)


# ---------------------------------------------------------------------- answer


def answer(before: ToldPlan, after: ToldPlan) -> Iterator[Difference]:
    """Verdicts, strategy by strategy, with what stands against it now; then the figures of the recommended placement."""
    then = {one.strategy: one for one in before.plan.strategies}
    for result in after.plan.strategies:
        earlier = then.get(result.strategy)
        verdict = Verdict.SKIPPED if earlier is None else earlier.verdict
        if verdict is not result.verdict:
            label, role = VERDICTS[result.verdict]
            words = f"{NAMES[result.strategy]}: {VERDICTS[verdict][0]} → {label}"
            reason = _reason(result, after)
            yield Difference(kind="answer", words=f"{words}: {reason}" if reason else words, role=role)
    pair = _compared(before.plan, after.plan)
    if pair is not None:
        alike = same_place(*pair)
        for change in candidate_changes(*pair):
            if not alike and change.key not in OF_THE_WHOLE:
                continue  # memory of another shape on other cards is no news
            yield Difference(kind="answer", words=change.words, role=change.role)


def _reason(result: StrategyResult, told: ToldPlan) -> str:
    if result.verdict not in (Verdict.NO_FIT, Verdict.SKIPPED):
        return ""
    refusals = [one for one in told.refusals.get(result.strategy, ()) if one.severity == "error"]
    return result.reason or (f"{refusals[0].headline} [{refusals[0].code}]" if refusals else "")


def _compared(before: Plan, after: Plan) -> tuple[Candidate, Candidate] | None:
    """The recommended placements; where one of them recommends nothing, the same strategy's best in the other."""
    first, second = recommended_of(before), recommended_of(after)
    if first is not None and second is not None:
        return first, second
    known = before.recommended or after.recommended
    if known is None:
        return None
    best = [
        next(
            (one.candidates[0] for one in plan.strategies if one.strategy is known[0] and one.candidates),
            None,
        )
        for plan in (before, after)
    ]
    first, second = first or best[0], second or best[1]
    return None if first is None or second is None else (first, second)
