"""What a start-up teaches: its log read, the very same start predicted, both compared term by term, and the result kept."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuplan.domain.calibration import Lesson, Quantity
from gpuplan.engine.divisibility import violations
from gpuplan.engine.start_facts import StartFacts, facts_of
from gpuplan.engine.startup_log import LogLine
from gpuplan.operations.start_question import NOTHING_KNOWN, Asked, Known, question_of
from gpuplan.planning.estimate import estimate, start_asked
from gpuplan.planning.learned import SERVER, Gap, Learned, Missing, Use
from gpuplan.planning.likeness import NO_LESSONS
from gpuplan.planning.question import Question
from gpuplan.planning.start_compared import doubts, server_compared, stages_compared
from gpuplan.sources import calibration_store
from gpuplan.version import __version__

__all__ = ["NOTHING_KNOWN", "Gap", "Known", "Learned", "Missing", "Use", "compare", "learn_from_lines"]


def learn_from_lines(
    lines_by_member: Mapping[str, Sequence[LogLine]],
    *,
    origin: str,
    at: float,
    environ: Mapping[str, str],
    question: Question | None = None,
    known: Known = NOTHING_KNOWN,
    keep: bool = True,
) -> Learned:
    """Compare one start with its prediction, and keep what it teaches.

    `at`: seconds since 1970, when it started. `question`: what was started, where the caller knows it, of the release the
    log names; else it is read from the log, with what the user says in `known`. The prediction is made without what was
    learned before. Raises GpuplanError for something the user said that is wrong; a file that cannot be written is told in
    the result.
    """
    facts = facts_of(lines_by_member)
    if question is None:
        asked = question_of(facts, known)
    elif facts.platform == "cpu":
        asked = Asked(question=None, missing=(Missing(gap=Gap.PLATFORM, detail="cpu"),))
    elif facts.version is None:
        asked = Asked(question=question)
    else:
        asked = Asked(question=replace(question, version=facts.version))
    learned = compare(facts, asked, origin=origin, at=at)
    if learned.lesson is None or not keep:
        return learned
    problem = calibration_store.keep(learned.lesson, environ)
    path = str(calibration_store.lessons_file(environ))
    return replace(learned, kept=None if problem else path, unwritten=problem)


def compare(facts: StartFacts, asked: Asked, *, origin: str, at: float) -> Learned:
    """What was printed beside what is predicted for the same; a lesson where enough of it is certain."""
    question = asked.question
    if question is None:
        return Learned(origin=origin, facts=facts, missing=asked.missing)
    broken = violations(
        question.profile,
        question.parallelism,
        language_model_only=question.engine.language_model_only,
        towers_data_parallel=question.engine.mm_encoder_tp_mode == "data",
        version=question.version,
    )
    if broken:
        missing = (*asked.missing, Missing(gap=Gap.SIZES, detail=broken[0].line))
        return Learned(origin=origin, facts=facts, question=question, missing=missing)
    memory = estimate(replace(question, lessons=NO_LESSONS))
    stages = stages_compared(facts, question, memory, total_known=asked.total_known)
    whole = server_compared(facts, memory, total_known=asked.total_known)
    told = tuple(stage for stage in stages if any(term.actual is not None for term in stage.terms))
    missing = asked.missing if told else (*asked.missing, Missing(gap=Gap.MEASURES))
    if asked.total_named and not any(one.prevents for one in missing):
        missing = (*missing, *doubts(told, question.devices[0].total_bytes))
    lesson = None
    if not any(one.prevents for one in missing):
        start = start_asked(question)
        lesson = Lesson(
            id=facts.id,
            at=at,
            origin=origin,
            learned_by=__version__,
            start=start if asked.card_known else replace(start, gpu=""),
            stages=told,
            ending=facts.ending,
            check=None if facts.check is None else facts.check.value,
        )
    return Learned(
        origin=origin,
        facts=facts,
        question=question,
        lesson=lesson,
        compared=(
            *((stage.stage, term) for stage in stages for term in stage.terms),
            *((SERVER, term) for term in whole),
        ),
        missing=missing,
        uses=() if lesson is None else _uses(lesson),
    )


def _uses(lesson: Lesson) -> tuple[Use, ...]:
    def told(quantity: Quantity) -> bool:
        return any(stage.residual(quantity) is not None for stage in lesson.stages)

    on_card = bool(lesson.start.kind)
    uses = {
        Use.SAME_START: on_card and told(Quantity.WORKING),
        Use.LOADING: told(Quantity.LOADING),
        Use.NON_TORCH: on_card and told(Quantity.NON_TORCH),
    }
    return tuple(use for use, holds in uses.items() if holds)
