"""One candidate in full, in sections that fold: where its memory goes and why, what is wrong, what would help, how to run it.

Every number is the plan's own, the one `plan -o json` prints.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuplan.deploying.docker_run import command_texts, grouped
from gpuplan.domain.deployment import ContainerSpec, DeploymentSpec
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Candidate, Plan, StrategyResult, Verdict
from gpuplan.present.capacity_curve import chart_lines, table_lines
from gpuplan.present.command_lines import deploy_words
from gpuplan.present.cost_words import cost_parts
from gpuplan.present.document import Line, Lines, Role, Span, line, visible, wrapped
from gpuplan.present.findings import word
from gpuplan.present.folding import Key, Part, fitted, indented
from gpuplan.present.layout_words import layout_table
from gpuplan.present.numbers import count, gib, gpu_range, listed, times, tokens
from gpuplan.present.placement_text import (
    bar_lines,
    capacity_lines,
    command_lines,
    pasteable,
    quoted,
    shape_words,
)
from gpuplan.present.plan_changes import change_lines, plan_changes
from gpuplan.present.refusal_text import SEVERITIES, ordered_refusals
from gpuplan.present.remedies import word_remedy
from gpuplan.present.strategy_table import NAMES, VERDICTS, where
from gpuplan.present.terms import (
    RankGroup,
    account,
    claim_lines,
    expansion,
    header_line,
    rank_groups,
    replica_words,
    row_line,
    summary,
)
from gpuplan.present.throughput_words import speed_parts
from gpuplan.units import plural

MOST_FINDINGS = 12
CONTAINERS: Key = ("containers",)
REMEDY = "remedies"
"""First word of the key of a remedy; the second is its number, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """The containers that would run, as far as they are known."""

    spec: DeploymentSpec | None = None
    failure: str | None = None
    """Why they cannot be told."""
    hint: str | None = None


NOT_LOOKED = Containers()


def detail(
    plan: Plan,
    choice: tuple[int, int] | None,
    strategy: int,
    previous: Plan | None,
    width: int,
    *,
    containers: Containers = NOT_LOOKED,
    mark: str = "",
    inventory: str | None = None,
) -> tuple[Part, ...]:
    """The sections of a candidate (`choice`: strategy and candidate) or of a strategy that has none; no line exceeds `width`.

    `mark` stands in the headline (`A`: it is marked for a comparison).
    """
    result = plan.strategies[strategy]
    candidate = None if choice is None else plan.strategies[choice[0]].candidates[choice[1]]
    parts = [_headline(plan, result, candidate, choice, width, mark)]
    parts += _changes(plan, choice, strategy, previous, width)
    refusals = _refusals(result, candidate, width)
    remedies = _remedies(result, width)
    if candidate is None:
        return fitted((*parts, *refusals, *remedies, *_about_plan(plan, width)), width)
    fits = candidate.verdict is Verdict.FITS
    memory = [*_memory(candidate, width), *_capacity(candidate, width), *_speed(candidate, width)]
    memory += _cost(candidate, width)
    trouble = [*_findings(candidate, width), *refusals, *remedies]
    parts += [*memory, *trouble] if fits else [*trouble, *memory]
    parts += _terms(plan, candidate, width)
    parts += _curve(candidate, width)
    parts += _commands(plan, candidate, inventory, width)
    parts.append(_containers(containers, width))
    parts += _about_plan(plan, width)
    return fitted(parts, width)


def _title(text: str, words: str = "", *, width: int, role: Role = Role.TITLE) -> Lines:
    """A section's first line: what it is, and the short of it; cut to the width."""
    room = width - 2 - len(text) - 2
    words = visible(words)
    if len(words) > room:
        words = words[: max(0, room - 1)] + "…"
    return (line(Span(text, role), Span(f"  {words}" if words else "", Role.DIM)),)


def _headline(
    plan: Plan,
    result: StrategyResult,
    candidate: Candidate | None,
    choice: tuple[int, int] | None,
    width: int,
    mark: str,
) -> Part:
    label, role = VERDICTS[result.verdict if candidate is None else candidate.verdict]
    words = f"{label}  {NAMES[result.strategy]}"
    lines: list[Line] = []
    if candidate is None or choice is None:
        lines += wrapped(words, width, role=role)
        if result.reason:
            lines += wrapped(result.reason, width, first="  ")
        return Part(key=("headline",), lines=tuple(lines))
    words += f" on {where(candidate)} ({shape_words(candidate)})"
    lines += wrapped(f"[{mark}] {words}" if mark else words, width, rest="  ", role=role)
    about = [f"candidate {choice[1] + 1} of {len(result.candidates)}"]
    if plan.recommended == (result.strategy, choice[1]):
        about.append("recommended")
    if candidate.memory is not None:
        memory = candidate.memory
        about.append(f"context {count(memory.max_model_len)}")
        about.append(f"{times(memory.max_concurrency)} such requests at once")
    lines += wrapped(" · ".join(about), width, first="  ", role=Role.DIM)
    if plan.recommended == (result.strategy, choice[1]):
        for reason in plan.recommended_because:
            lines += wrapped(reason, width, first="  ", role=Role.DIM)
    if candidate.engine.error is not None:
        lines += wrapped(
            f"the engine would print: {candidate.engine.error}", width, first="  ", role=Role.BAD
        )
    return Part(key=("headline",), lines=tuple(lines))


def _changes(
    plan: Plan, choice: tuple[int, int] | None, strategy: int, previous: Plan | None, width: int
) -> Iterator[Part]:
    changes = plan_changes(previous, plan, strategy, choice)
    if changes:
        yield Part(
            key=("changes",),
            lines=_title("Changed", plural(len(changes), "difference") + " to the plan before", width=width),
            below=(Part(key=("changes", "lines"), lines=change_lines(changes, width)),),
            is_open=True,
        )


def _memory(candidate: Candidate, width: int) -> Iterator[Part]:
    gpus = [gpu for host in candidate.placement for gpu in host.gpus]
    most = max((gpu.claim_bytes for gpu in gpus), default=0)
    words = f"{plural(len(gpus), 'GPU')}, claim {gib(most)}" + (" at most" if len(gpus) > 1 else "")
    below = [Part(key=("memory", "bars"), lines=tuple(bar_lines(candidate, width)))]
    if candidate.memory is not None:
        below.append(Part(key=("memory", "claims"), lines=claim_lines(candidate, width)))
    yield Part(
        key=("memory",),
        lines=_title("Memory", words, width=width),
        below=tuple(below),
        is_open=True,
    )


def _capacity(candidate: Candidate, width: int) -> Iterator[Part]:
    lines = tuple(capacity_lines(candidate, width))
    if candidate.memory is None or not lines:
        return
    words = f"{tokens(candidate.memory.kv_cache_tokens)} in the KV cache" if candidate.memory.blocks else ""
    yield Part(
        key=("capacity",),
        lines=_title("Capacity", words, width=width),
        below=(Part(key=("capacity", "lines"), lines=lines),),
        is_open=True,
    )


# ---------------------------------------------------------------------- findings and remedies


def _refusals(result: StrategyResult, candidate: Candidate | None, width: int) -> Iterator[Part]:
    """What the strategy refused; folded where a candidate fits all the same."""
    told = {repr(fact) for fact in candidate.facts} if candidate is not None else set()
    facts = tuple(fact for fact in result.facts if repr(fact) not in told)
    if not facts:
        return
    fits = candidate is not None and candidate.verdict is Verdict.FITS
    title = "Refused" if fits else "Why not"
    yield _finding_section(("refusals",), title, ordered_refusals(facts), width, is_open=not fits)


def _findings(candidate: Candidate, width: int) -> Iterator[Part]:
    if candidate.facts:
        grave = any(fact.severity is not Severity.INFO for fact in candidate.facts)
        facts = ordered_refusals(candidate.facts)
        yield _finding_section(("findings",), "Findings", facts, width, is_open=grave)


def _about_plan(plan: Plan, width: int) -> Iterator[Part]:
    """What is to be known of model, fleet and arguments, whichever candidate is taken."""
    if plan.facts:
        facts = ordered_refusals(plan.facts)
        yield _finding_section(("plan",), "Whatever is chosen", facts, width, is_open=False)


def _finding_section(key: Key, title: str, facts: Sequence[Fact], width: int, *, is_open: bool) -> Part:
    parts = [_finding(key, number, fact, width) for number, fact in enumerate(facts[:MOST_FINDINGS])]
    if len(facts) > MOST_FINDINGS:
        text = f"… {plural(len(facts) - MOST_FINDINGS, 'more finding')} (all in -o json)"
        parts.append(Part(key=(*key, "more"), lines=wrapped(text, width, first="    ", role=Role.DIM)))
    return Part(
        key=key,
        lines=_title(title, plural(len(facts), "finding"), width=width),
        below=tuple(parts),
        is_open=is_open,
    )


def _finding(key: Key, number: int, fact: Fact, width: int) -> Part:
    """Headline; evidence and the way out below it."""
    finding = word(fact)
    below: list[Line] = list(layout_table(finding.figures, width)) if "layouts" in finding.figures else []
    for reason in finding.because:
        below += wrapped(reason, width, first="      because ", role=Role.DIM)
    if finding.hint:
        below += wrapped(finding.hint, width, first="      hint: ", role=Role.HINT)
    own = (*key, str(number), fact.code)
    headline = f"{finding.headline} [{finding.code}]"
    role = SEVERITIES[fact.severity]
    if not below:
        return Part(key=own, lines=wrapped(headline, width, first="    ", role=role))
    return Part(
        key=own,
        lines=wrapped(headline, width - 4, role=role),
        below=(Part(key=(*own, "why"), lines=tuple(below)),),
        is_open=fact.severity is not Severity.INFO,
    )


def _remedies(result: StrategyResult, width: int) -> Iterator[Part]:
    if not result.remedies:
        return
    parts = []
    for number, remedy in enumerate(result.remedies, 1):
        headline, cost = word_remedy(remedy)
        checked = "" if remedy.verified else ", not re-planned"
        text = f"{headline} ({cost}{checked})"
        lines = wrapped(text, width, first=f"  {number:>2}. ", role=Role.HINT)
        parts.append(Part(key=(REMEDY, str(number)), lines=lines))
    yield Part(
        key=(REMEDY,),
        lines=_title("Would make it fit", "smallest change first; Enter applies one", width=width),
        below=tuple(parts),
        is_open=True,
    )


def _speed(candidate: Candidate, width: int) -> Iterator[Part]:
    parts = speed_parts(candidate, width)
    if parts:
        title = _title("Tokens per second", "an estimate; Enter opens what it rests on", width=width)
        yield Part(key=("speed",), lines=title, below=parts, is_open=True)


def _cost(candidate: Candidate, width: int) -> Iterator[Part]:
    parts = cost_parts(candidate, width)
    if parts:
        title = _title("Cost and energy", "by the inventory; Enter opens what it rests on", width=width)
        yield Part(key=("cost",), lines=title, below=parts, is_open=True)


# ---------------------------------------------------------------------- terms and curve


def _terms(plan: Plan, candidate: Candidate, width: int) -> Iterator[Part]:
    groups = rank_groups(candidate)
    if not groups:
        return
    parts = [_rank(plan, candidate, group, number, width) for number, group in enumerate(groups)]
    same = replica_words(candidate)
    if same:
        parts.append(Part(key=("terms", "replicas"), lines=wrapped(same, width, first="  ", role=Role.DIM)))
    yield Part(
        key=("terms",),
        lines=_title("Terms", "size, likely range, basis; Enter opens formula and inputs", width=width),
        below=tuple(parts),
        is_open=True,
    )


def _rank(plan: Plan, candidate: Candidate, group: RankGroup, number: int, width: int) -> Part:
    assert candidate.memory is not None
    key = ("terms", str(number))
    rows = [Part(key=(*key, "header"), lines=(header_line(6, width - 6),))]
    rows += [
        Part(
            key=(*key, row.key),
            lines=(row_line(row, width - 6),),
            below=(Part(key=(*key, row.key, "inputs"), lines=indented(expansion(row, width - 8), 8)),),
        )
        for row in account(group.memory, candidate.memory, int(plan.request.get("concurrency") or 1))
    ]
    return Part(key=key, lines=wrapped(summary(group), width - 4), below=tuple(rows), is_open=number == 0)


def _curve(candidate: Candidate, width: int) -> Iterator[Part]:
    memory = candidate.memory
    if memory is None or not memory.blocks or not memory.concurrency_curve:
        return
    shortest, longest = memory.concurrency_curve[0], memory.concurrency_curve[-1]
    words = (
        f"{times(shortest[1])} of {count(shortest[0])} … {times(longest[1])} of {count(longest[0])} tokens"
    )
    yield Part(
        key=("curve",),
        lines=_title("Context against requests", words, width=width),
        below=(
            Part(key=("curve", "chart"), lines=indented(tuple(chart_lines(memory, width - 2)), 2)),
            Part(key=("curve", "table"), lines=indented(tuple(table_lines(memory, width - 2)), 2)),
        ),
    )


# ---------------------------------------------------------------------- how to run it


def _commands(plan: Plan, candidate: Candidate, inventory: str | None, width: int) -> Iterator[Part]:
    chosen = (
        ()
        if _is_recommended(plan, candidate)
        else wrapped("deploys the recommended candidate; save the plan to deploy this one", width, first="  ",
                     role=Role.DIM)
    )  # fmt: skip
    yield Part(
        key=("serve",),
        lines=_title("vllm serve", "the engine's command", width=width),
        below=(Part(key=("serve", "lines"), lines=tuple(command_lines(candidate, width))),),
    )
    yield Part(
        key=("deploy",),
        lines=_title("gpuplan deploy", "asks the same on the command line", width=width),
        below=(
            Part(
                key=("deploy", "lines"),
                lines=(
                    *pasteable(_in_groups(deploy_words(plan.request, inventory=inventory)), width),
                    *chosen,
                ),
            ),
        ),
    )


def _in_groups(words: Sequence[str]) -> tuple[str, ...]:
    """Quoted words, each flag with its value."""
    return tuple(" ".join(quoted(group)) for group in grouped(words))


def _is_recommended(plan: Plan, candidate: Candidate) -> bool:
    if plan.recommended is None:
        return False
    name, index = plan.recommended
    result = next(one for one in plan.strategies if one.strategy is name)
    return result.candidates[index] is candidate


def _containers(containers: Containers, width: int) -> Part:
    spec = containers.spec
    if spec is None:
        text = containers.failure or "looking at what would run …"
        role = Role.BAD if containers.failure else Role.DIM
        lines = wrapped(text, width, first="  ", role=role)
        if containers.hint:
            lines += wrapped(containers.hint, width, first="  hint: ", role=Role.HINT)
        below: tuple[Part, ...] = (Part(key=(*CONTAINERS, "state"), lines=lines),)
        words = "the docker lines that would run"
    else:
        below = (*_remarks(spec, width), *(_container(one, width) for one in spec.containers))
        words = f"{plural(len(spec.containers), 'container')} on {listed(list(spec.hosts))}, {spec.image}"
    return Part(key=CONTAINERS, lines=_title("Containers", words, width=width), below=below)


def _remarks(spec: DeploymentSpec, width: int) -> Iterator[Part]:
    texts = ["ports, paths and the image's contents are assumed; a deploy asks the hosts"]
    if any(container.secrets for container in spec.containers):
        texts.append("secrets are files of the directory `secrets`; their values are nowhere in this text")
    rows = [row for text in (*texts, *spec.notes) for row in wrapped(text, width, first="  ", role=Role.DIM)]
    yield Part(key=(*CONTAINERS, "remarks"), lines=tuple(rows))


def _container(container: ContainerSpec, width: int) -> Part:
    key = (*CONTAINERS, container.host, container.name)
    words = f"{container.host}: {container.name} ({container.role.value}"
    words += f", GPU {gpu_range(container.gpu_indexes)})" if container.gpu_indexes else ")"
    commands = tuple(
        line(Span(visible(row), Role.COMMAND))
        for text in command_texts(container, width, indent="    ")
        for row in text.split("\n")
    )
    return Part(
        key=key,
        lines=wrapped(words, width - 4),
        below=(Part(key=(*key, "lines"), lines=commands),),
        is_open=True,
    )
