"""What starts taught, as JSON: `gpuplan learn -o json`."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpuplan.domain.calibration import Compared, Lesson, Quantity
from gpuplan.planning.learned import SERVER, Learned
from gpuplan.present.learn_text import missing_words


def learned_document(learned: Iterable[Learned]) -> dict[str, Any]:
    """Every start that was read."""
    return {"schema_version": 1, "starts": [_start(one) for one in learned]}


def _start(learned: Learned) -> dict[str, Any]:
    facts, lesson = learned.facts, learned.lesson
    return {
        "id": facts.id,
        "origin": learned.origin,
        "model": learned.question.profile.name if learned.question is not None else facts.model,
        "vllm_version": str(learned.question.version) if learned.question is not None else None,
        "gpu": lesson.start.gpu or None if lesson is not None else facts.gpu,
        "total_bytes": facts.total_bytes,
        "free_bytes": facts.free_bytes,
        "block_size": facts.block_size,
        "blocks": facts.blocks,
        "encoder_budget_tokens": facts.encoder_tokens,
        "ending": facts.ending.value,
        "check": facts.check.value if facts.check is not None else None,
        "error": facts.line,
        "terms": [_term(stage, term) for stage, term in learned.compared],
        "missing": [
            {"what": one.gap.value, "headline": missing_words(one)[0], "hint": missing_words(one)[1] or None}
            for one in learned.missing
        ],
        "corrects": [use.value for use in learned.uses],
        "kept": learned.kept,
        "not_kept_because": learned.unwritten,
    }


def _term(stage: int, term: Compared) -> dict[str, Any]:
    scale = 1000 if term.quantity is Quantity.CONCURRENCY else 1
    suffix = "" if term.quantity in {Quantity.TOKENS, Quantity.CONCURRENCY} else "_bytes"

    def scaled(value: int | None) -> float | int | None:
        return value if value is None or scale == 1 else value / scale

    return {
        "name": term.quantity.value,
        "stage": None if stage == SERVER else stage,
        f"predicted{suffix}": scaled(term.predicted),
        f"low{suffix}": scaled(term.low),
        f"high{suffix}": scaled(term.high),
        f"printed{suffix}": scaled(term.actual),
        f"difference{suffix}": scaled(term.difference),
    }


def lessons_document(lessons: Sequence[Lesson], path: str, unread: int) -> dict[str, Any]:
    """Every lesson that is kept, newest first."""
    return {
        "schema_version": 1,
        "file": path,
        "unread_lines": unread,
        "lessons": [
            {
                "id": one.id,
                "at": one.at,
                "origin": one.origin,
                "model": one.start.model,
                "vllm_version": one.start.version,
                "gpu": one.start.gpu or None,
                "tensor": one.start.tensor,
                "pipeline": one.start.pipeline,
                "ending": one.ending.value,
                "check": one.check,
                "terms": [_term(stage.stage, term) for stage in one.stages for term in stage.terms],
            }
            for one in lessons
        ],
    }
