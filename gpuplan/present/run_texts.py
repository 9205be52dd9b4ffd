"""What is asked and told around a deploy: before it, when somebody wants to leave it, when hosts do not allow it."""

from collections.abc import Iterator, Sequence

from gpuplan.domain.deployment import DeploymentSpec, Member
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Eviction, Plan
from gpuplan.domain.secret_text import masked
from gpuplan.present.deployment_text import confirm_text, steps_text
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, visible, wrapped
from gpuplan.present.event_words import PHASE_NAMES
from gpuplan.present.eviction_text import evicts_words
from gpuplan.present.findings import word
from gpuplan.present.numbers import listed
from gpuplan.present.plan_text import plan_text
from gpuplan.present.refusal_text import finding_lines
from gpuplan.present.run_progress import RunProgress
from gpuplan.units import plural

_NEEDS_PERSON = {
    "its key is unknown": (
        "accept the host's key: read its host again on the Fleet screen, which asks; then deploy again"
    ),
    "passphrase": (
        "the deploy has no terminal to ask on: load the key into the agent (ssh-add), then deploy again"
    ),
    "for a password": (
        "the deploy has no terminal to ask on: use a key for that login (ssh-copy-id), then deploy again"
    ),
}
"""Words in what a deploy said at its end, and what helps: it had nobody to ask."""


def agreement_text(
    spec: DeploymentSpec,
    replaces: Sequence[Member],
    facts: Sequence[Fact],
    width: int,
    *,
    evicts: Sequence[Eviction] = (),
    evicted: Sequence[Member] = (),
) -> Lines:
    """What somebody is asked to agree to: where, what, what to know beforehand, then every step in its order."""
    lines: list[Line] = [*confirm_text(spec, replaces, width, evicts)]
    for fact in facts:
        lines += finding_lines(word(fact), width)
    return (*lines, EMPTY, *steps_text(spec, (*evicted, *replaces), width))


def worth_repeating(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Errors and warnings, each once."""
    grave = [fact for fact in facts if fact.severity is not Severity.INFO]
    return tuple({repr((fact.code, fact.subject, fact.figures)): fact for fact in grave}.values())


def replaces_words(replaces: Sequence[Member]) -> str:
    """`stops 2 containers that run now`; empty where nothing does."""
    running = [member for member in replaces if member.state == "running"]
    if running:
        return f"stops {plural(len(running), 'container')} that {'runs' if len(running) == 1 else 'run'} now"
    return f"replaces {plural(len(replaces), 'container')}" if replaces else ""


def stops_words(evicts: Sequence[Eviction], replaces: Sequence[Member]) -> str:
    """What ends for it: other deployments, and what it replaces; empty where nothing does."""
    return "; ".join(words for words in (evicts_words(evicts), replaces_words(replaces)) if words)


def refused_text(
    about: str, facts: Sequence[Fact], message: str, hint: str | None, plan: Plan | None, width: int
) -> Lines:
    """Why nothing is started: the findings, or the plan that fits nowhere, or the message with its hint."""
    if facts:
        lines: list[Line] = [*wrapped(about or "nothing was started", width, role=Role.BAD)]
        for fact in facts:
            lines += finding_lines(word(fact), width)
        return tuple(lines)
    if plan is not None:
        return (*wrapped(message, width, role=Role.BAD), EMPTY, *plan_text(plan, width))
    return tuple(_message(message, hint, width))


def _message(message: str, hint: str | None, width: int) -> Iterator[Line]:
    for number, text in enumerate(message.split("\n")):
        yield from wrapped(masked(text), width, role=Role.PLAIN if number else Role.BAD)
    if hint:
        yield from wrapped(masked(hint), width, first="hint: ", role=Role.HINT)


def needs_person(message: str) -> str | None:
    """What helps where a deploy failed because there was nobody to answer a question of SSH."""
    words = message.lower()
    return next((helps for part, helps in _NEEDS_PERSON.items() if part in words), None)


def trust_text(host: str, key_type: str, fingerprint: str, width: int) -> Lines:
    """The question about a host key that nobody knows."""
    return (
        *wrapped(f"The host {host} is not known.", width, role=Role.TITLE),
        *wrapped(f"Its {key_type} key has the fingerprint", width),
        *wrapped(fingerprint, width, first="  ", role=Role.COMMAND),
        *wrapped("Compare it with what the host's operator tells you, then connect.", width),
    )


def leaving_text(names: Sequence[str], width: int) -> Lines:
    """Before the app is left while deploys are under way."""
    what = listed([visible(name) for name in names])
    are = "is" if len(names) == 1 else "are"
    return (
        *wrapped(f"{what} {are} being deployed.", width, role=Role.TITLE),
        *wrapped("Left running, it goes on without the app; the next gpuplan shows it again.", width),
        *wrapped("Taken back, what was started is removed and what it replaced runs again.", width),
    )


def take_back_text(name: str, again: bool, width: int) -> Lines:
    """Before a deploy is broken off; `again`: it is being taken back already."""
    if again:
        return (
            *wrapped(f"{name} is being taken back already.", width, role=Role.TITLE),
            *wrapped(
                "Breaking that off leaves everything as it is now; `gpuplan status` shows what is left.",
                width,
            ),
        )
    return (
        *wrapped(f"Take back the deploy of {name}?", width, role=Role.TITLE),
        *wrapped("What was started is stopped and removed; what it replaced runs again.", width),
    )


def runs_text(runs: Sequence[tuple[str, RunProgress, bool]], width: int) -> Lines:
    """Deploys to choose from: name, what is known, whether it has ended."""
    lines: list[Line] = [line(Span("Which deploy?", Role.TITLE))]
    for name, progress, ended in runs:
        state = "was not deployed" if ended else _now(progress)
        lines += wrapped(f"{name}: {state}", width, first="  ", role=Role.BAD if ended else Role.PLAIN)
    return tuple(lines)


def running_words(runs: Sequence[tuple[str, RunProgress]]) -> str:
    """`deploying qwen3-32b: load`; of several the first, and how many more there are; empty where there is none."""
    if not runs:
        return ""
    name, progress = runs[0]
    more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"deploying {visible(name)}: {_now(progress)}{more}"


def _now(progress: RunProgress) -> str:
    return PHASE_NAMES[progress.phase.phase] if progress.phase is not None else "under way"
