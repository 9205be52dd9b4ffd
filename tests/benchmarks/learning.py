"""What learning is worth: every logged start predicted with what all the others taught, and without.

    python -m tests.benchmarks.learning

Each start of the published logs becomes a lesson, as `gpuplan learn` makes it of its figures; then each is left out once and
predicted with the others. Errors are of the KV cache, in percent of the budget; GB10 is left out, as its memory is the host's.
"""

import gzip
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from gpuplan.domain.calibration import Ending, Lesson
from gpuplan.engine.start_facts import RankFacts, StartFacts
from gpuplan.errors import GpuplanError
from gpuplan.operations.learn import compare
from gpuplan.operations.start_question import Known, question_of
from gpuplan.planning.estimate import estimate
from gpuplan.planning.likeness import Lessons
from gpuplan.planning.question import Question
from gpuplan.sources.catalogue import accelerators
from gpuplan.units import GIB
from tests.benchmarks import starts

ROUNDING = 0.01
Point = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One start that can be predicted, and what it teaches."""

    name: str
    question: Question
    lesson: Lesson | None
    cache: float | None
    """GiB, where the log can be compared."""
    budget: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One start predicted without its own lesson."""

    name: str
    before: float
    """Error without any lesson, in percent of the budget."""
    after: float
    whole: bool
    """The same start was measured among the others."""
    touched: bool
    inside: bool
    """The range with the lessons holds the log."""


def logged(models: Path) -> Iterator[Logged]:
    """Every start of the corpora whose model is known; `models` is a directory for the configs."""
    for corpus in (starts.PUBLISHED, starts.COLLECTED):
        for point, config, place in _points(corpus, models):
            found = _logged(point, config, place)
            if found is not None:
                yield found


def _points(corpus: str, models: Path) -> Iterator[tuple[Point, dict[str, Any], Path]]:
    """Every start whose model is known, corrected, with its config and where that was written."""
    corrections = starts._document(starts.DATA / f"{corpus}-corrections.json")
    known = json.loads(gzip.decompress((starts.DATA / f"{corpus}-configs.json.gz").read_bytes()))
    for line in (starts.DATA / f"{corpus}.jsonl").read_text().splitlines():
        point: Point = json.loads(line)
        point |= corrections.get(point["id"], {})
        model = known["of_point"].get(point["id"])
        if model is None or "all" in point.get("exclude", ()) or not point.get("tp"):
            continue
        place = models / model
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps(known["configs"][model]))
        yield point, known["configs"][model], place


def _logged(point: Point, config: dict[str, Any], place: Path) -> Logged | None:
    version, total = starts._release(point), starts._total(point)
    share = starts._utilization(point, version)
    words = starts._arguments(point, config, share)
    known = Known(
        model=str(place), gpu=_card(point, total), version=version or "0.33.0", engine_args=tuple(words)
    )
    facts = _facts(point)
    try:
        asked = question_of(facts, known)
        learned = compare(facts, asked, origin=point["id"], at=0.0)
    except GpuplanError:
        return None
    if learned.question is None:
        return None
    comparable = (
        bool(total and share) and "c" not in point.get("exclude", ()) and point.get("gpu") != starts.GB10
    )
    cache = point["observed"].get("available_kv_cache_gib")
    return Logged(
        name=point["id"],
        question=learned.question,
        lesson=learned.lesson if total and comparable else None,
        cache=cache if comparable else None,
        budget=total * share if total and share else None,
    )


def _card(point: Point, total: float | None) -> str | None:
    """`--gpu` for the card of a log: its name with the memory it reports."""
    name = point.get("gpu")
    if total is None:
        return None
    known = accelerators.by_device_name(name, round(total * GIB)) if name else None
    plain = re.sub(r"[^A-Za-z0-9 ]+", " ", known.name if known is not None else name or "custom")
    return f"{known.name if known is not None else plain}={total}GiB"


def _facts(point: Point) -> StartFacts:
    seen = point["observed"]

    def size(name: str) -> int | None:
        return round(seen[name] * GIB) if name in seen else None

    rank = RankFacts(
        stage=0,
        loading=size("weights_gib"),
        kv_cache=size("available_kv_cache_gib"),
        activation=size("peak_activation_gib"),
        non_torch=size("non_torch_gib"),
        consumed=size("consumed_gib"),
        graphs_estimated=size("cudagraph_estimate_gib"),
    )
    return StartFacts(id=point["id"], ranks=(rank,), ending=Ending.UNKNOWN)


def left_out(found: list[Logged]) -> list[LeftOut]:
    """Each start that can be compared, predicted with the lessons of the others."""
    answers = []
    for one in found:
        if one.cache is None or one.budget is None:
            continue
        others = Lessons(all=tuple(o.lesson for o in found if o.lesson is not None and o.name != one.name))
        plain, _ = _cache(one.question)
        learned, terms = _cache(replace(one.question, lessons=others))
        answers.append(
            LeftOut(
                name=one.name,
                before=100 * (plain[0] - one.cache) / one.budget,
                after=100 * (learned[0] - one.cache) / one.budget,
                whole=terms[1],
                touched=terms[0],
                inside=learned[1] - ROUNDING <= one.cache <= learned[2] + ROUNDING,
            )
        )
    return answers


def _cache(question: Question) -> tuple[tuple[float, float, float], tuple[bool, bool]]:
    """KV cache in GiB, likely, least and most; whether any term and whether the activation was corrected."""
    memory = estimate(question)
    rank = min(memory.ranks, key=lambda rank: rank.kv_cache_bytes)
    sizes = (rank.kv_cache_bytes / GIB, rank.kv_cache_low / GIB, rank.kv_cache_high / GIB)
    return sizes, (any(term.starts for term in rank.terms), bool(rank.activation.starts))


def told(title: str, answers: list[LeftOut]) -> str:
    """One line of the summary."""
    if not answers:
        return f"{title}: none"
    before, after = [abs(one.before) for one in answers], [abs(one.after) for one in answers]
    return (
        f"{title}: {len(answers)} starts, median {median(before):.2f} -> {median(after):.2f} %, "
        f"mean {fmean(before):.2f} -> {fmean(after):.2f} %, in range {sum(one.inside for one in answers)}"
    )


def main() -> int:
    """Print every start that lessons changed, and the summary."""
    with tempfile.TemporaryDirectory() as models:
        answers = left_out(list(logged(Path(models))))
    for one in answers:
        if one.touched:
            kind = "all terms" if one.whole else "some terms"
            print(
                f"{one.name:64} {one.before:8.3f} {one.after:8.3f}  {kind}{'' if one.inside else ', out of range'}"
            )
    print(told("every start", answers))
    print(told("starts with a like one", [one for one in answers if one.touched]))
    print(told("starts with the same one", [one for one in answers if one.whole]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
