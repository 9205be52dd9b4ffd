"""A command line judged, for people and for scripts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.present.document import Line, Lines, Role, Span, line, wrapped
from gpuplan.present.findings import word
from gpuplan.present.plan_document import FindingDocument, finding_document
from gpuplan.present.refusal_text import finding_lines
from gpuplan.units import plural

UNREAD = "GP115"
"""The parser stopped: nothing beyond it was judged."""
NO_MODEL = (
    "no model was read: sizes are not checked against heads, experts and layers (--config CONFIG.json, or --moe for a "
    "model with experts)"
)
SHOWN = (
    ("world size", "world_size"),
    ("with data parallel", "world_size_across_dp"),
    ("tensor parallel", "tensor_parallel_size"),
    ("pipeline parallel", "pipeline_parallel_size"),
    ("data parallel", "data_parallel_size"),
    ("of it on this node", "data_parallel_size_local"),
    ("executor", "distributed_executor_backend"),
    ("nodes", "nnodes"),
    ("expert parallel", "enable_expert_parallel"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LintDocument:
    """What `lint -o json` prints."""

    schema_version: int
    ok: bool
    vllm_version: str
    model: str | None
    findings: tuple[FindingDocument, ...]
    parallel_config: dict[str, Any] | None


def lint_document(
    *,
    ok: bool,
    version: str,
    model: str | None,
    facts: tuple[Fact, ...],
    parallel_config: dict[str, Any] | None,
) -> LintDocument:
    """`gpuplan lint -o json`."""
    return LintDocument(
        schema_version=1,
        ok=ok,
        vllm_version=version,
        model=model,
        findings=tuple(finding_document(fact) for fact in facts),
        parallel_config=parallel_config,
    )


def lint_text(document: LintDocument, facts: tuple[Fact, ...], width: int) -> Lines:
    """The verdict, the findings, and the configuration that results."""
    return tuple(_lines(document, facts, width))


def _lines(document: LintDocument, facts: tuple[Fact, ...], width: int) -> Iterator[Line]:
    errors = sum(fact.severity is Severity.ERROR for fact in facts)
    by = f"by vLLM {document.vllm_version}"
    if document.ok:
        yield line(Span("accepted", Role.GOOD), Span(f" {by}"))
    else:
        yield line(Span("refused", Role.BAD), Span(f" {by}: {plural(errors, 'error')}"))
    if document.model is not None:
        yield line(Span(f"  sizes checked against {document.model}", Role.DIM))
    elif not any(fact.code == UNREAD for fact in facts):
        yield from wrapped(NO_MODEL, width, first="  ", rest="  ", role=Role.DIM)
    for fact in facts:
        yield from finding_lines(word(fact), width)
    if document.parallel_config is not None:
        yield line()
        for title, name in SHOWN:
            value = document.parallel_config[name]
            shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
            yield line(Span(f"  {title:<20}", Role.DIM), Span(str(shown)))
