"""What comes of reading a start: the comparison, what it lacks, and what the lesson is good for."""

from dataclasses import dataclass
from enum import StrEnum

from gpuplan.domain.calibration import Compared, Lesson, Quantity
from gpuplan.engine.start_facts import StartFacts
from gpuplan.planning.question import Question

SERVER = -1
"""The stage of what is told of the whole server."""


class Gap(StrEnum):
    """What is not known of a start, or not certain."""

    MODEL = "model"
    VERSION = "version"
    ARGUMENTS = "arguments"
    """The log does not show them, so that defaults are taken."""
    REFUSED = "refused_arguments"
    """Some of them are not understood."""
    CARD = "gpu"
    """Its name: the figures cannot be used for a kind of card."""
    TOTAL = "gpu_memory"
    """Its memory: budget and cache say nothing."""
    ARCHITECTURE = "architecture"
    """The log's is not that of the model that was read."""
    SIZES = "sizes"
    """The model cannot be divided so."""
    STAGES = "stages"
    """The log does not say which pipeline stage printed what."""
    DOUBT = "doubt"
    """What was printed contradicts the card that the user names."""
    START = "start"
    """No line of it is one of the engine's."""
    WRONG = "wrong"
    """What log and user say together is refused."""
    PLATFORM = "platform"
    """It ran without a GPU."""
    MEASURES = "measures"
    """It printed nothing that was predicted."""


_PREVENT = frozenset(
    {
        Gap.MODEL,
        Gap.VERSION,
        Gap.ARGUMENTS,
        Gap.ARCHITECTURE,
        Gap.SIZES,
        Gap.DOUBT,
        Gap.START,
        Gap.WRONG,
        Gap.PLATFORM,
        Gap.MEASURES,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """One gap, with what is known about it."""

    gap: Gap
    detail: str = ""
    way: str = ""
    """The way out, where it is known only where the gap was found."""

    @property
    def prevents(self) -> bool:
        """Whether nothing can be kept without it."""
        return self.gap in _PREVENT


class Use(StrEnum):
    """What a lesson corrects from now on."""

    SAME_START = "same_start"
    """The same start: all of its memory."""
    LOADING = "loading"
    """The same model in the same sizes: what loading takes."""
    NON_TORCH = "non_torch"
    """Other models on this kind of card: memory outside the allocator, once two models agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """One start, predicted and printed."""

    origin: str
    facts: StartFacts
    question: Question | None = None
    """What was predicted; None: not enough is known for it."""
    lesson: Lesson | None = None
    """None: nothing of it can be compared, or it is not certain what was started."""
    compared: tuple[tuple[int, Compared], ...] = ()
    """Pipeline stage (`SERVER` for the whole server) and quantity."""
    missing: tuple[Missing, ...] = ()
    uses: tuple[Use, ...] = ()
    kept: str | None = None
    """The file it was added to."""
    unwritten: str | None = None
    """Why it was not."""

    def of(self, quantity: Quantity) -> Compared | None:
        """The comparison of a quantity that was printed, on the first stage that has it."""
        found = (term for _, term in self.compared if term.quantity is quantity)
        return next((term for term in found if term.actual is not None), None)
