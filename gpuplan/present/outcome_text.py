"""How a deploy ended, for people: the address, what runs where, and what was predicted beside what came."""

import json
import shlex
from collections.abc import Iterator

from gpuplan.domain.deployment import Actual, Deployment, Prediction, State
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.numbers import count, gib, gpu_range, times

ROLES = {
    State.PREPARING: Role.PLAIN,
    State.STARTING: Role.PLAIN,
    State.RUNNING: Role.GOOD,
    State.UNHEALTHY: Role.WARNING,
    State.STOPPED: Role.DIM,
    State.ERROR: Role.BAD,
}


def outcome_text(deployment: Deployment, width: int, *, changed: bool = True) -> Lines:
    """The deployment in lines of at most `width` cells; the command at the end is never broken inside a word."""
    lines: list[Line] = [*_headline(deployment, width, changed=changed)]
    for member in deployment.members:
        where = f"{member.host}:{gpu_range(member.gpu_indexes)}" if member.gpu_indexes else member.host
        text = f"{member.container} ({member.role.value}) {member.state}"
        lines += wrapped(text, width, first=f"  {padded(visible(where), 20)} ", role=Role.DIM)
    lines += comparison_lines(deployment.predicted, deployment.actual)
    if deployment.state is State.RUNNING and deployment.endpoint is not None:
        lines += [EMPTY, *_question(deployment, deployment.endpoint)]
    return tuple(lines)


def _headline(deployment: Deployment, width: int, *, changed: bool) -> Iterator[Line]:
    name = deployment.name
    if deployment.state is not State.RUNNING:
        text = f"{name}: {deployment.state.value}" + (f", {deployment.message}" if deployment.message else "")
        yield from wrapped(text, width, role=ROLES[deployment.state])
        return
    where = ", ".join(deployment.endpoints) or deployment.endpoint or "no address"
    how = "serves" if changed else "serves already, nothing was changed:"
    yield from wrapped(
        f"{name} {how} {deployment.served_name or deployment.model} at {where}", width, role=Role.GOOD
    )


FIGURES = (
    ("weights", "weights_bytes", gib),
    ("KV cache", "kv_cache_bytes", gib),
    ("tokens in it", "kv_cache_tokens", count),
    ("requests of the whole context", "max_concurrency", times),
    ("CUDA graphs", "cuda_graph_bytes", gib),
)


def comparison_lines(predicted: Prediction, actual: Actual | None) -> Iterator[Line]:
    """A row per figure that both sides know: predicted, actual, by how much it is off."""
    if actual is None:
        return
    rows = [
        (name, words(before), words(after), _off(before, after))
        for name, field, words in FIGURES
        if (before := getattr(predicted, field)) is not None and (after := getattr(actual, field)) is not None
    ]
    if rows:
        yield line(Span(f"  {'':<30}{'predicted':>14}{'actual':>14}{'off by':>10}", Role.DIM))
    for name, before, after, off in rows:
        yield line(f"  {name:<30}{before:>14}{after:>14}{off:>10}")


def _off(before: float, after: float) -> str:
    """`+1.2 %`: how much more came than was predicted."""
    return "–" if not before else f"{100 * (after - before) / before:+z.1f} %"


def question_command(deployment: Deployment) -> str | None:
    """A first request as one command line to paste; None where it has no address."""
    if deployment.endpoint is None:
        return None
    return (
        f"curl {shlex.quote(visible(deployment.endpoint))}/v1/completions -H 'Content-Type: application/json' "
        f"-d {shlex.quote(visible(_asked(deployment)))}"
    )


def _asked(deployment: Deployment) -> str:
    return json.dumps(
        {"model": deployment.served_name or deployment.model, "prompt": "Hello", "max_tokens": 16}
    )


def _question(deployment: Deployment, endpoint: str) -> Iterator[Line]:
    """A first request to paste."""
    asked = _asked(deployment)
    yield line("  ", Span(f"curl {endpoint}/v1/completions \\", Role.COMMAND))
    yield line("      ", Span("-H 'Content-Type: application/json' \\", Role.COMMAND))
    yield line("      ", Span(visible(f"-d {shlex.quote(asked)}"), Role.COMMAND))
