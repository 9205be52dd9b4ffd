"""What is asked at the moment and what was asked before: one undo takes back what a person did in one go."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Remedy
from gpuplan.operations.question import changed
from gpuplan.tui.knobs import DEFAULTS, Knobs, knobs_of, options_of
from gpuplan.tui.services import Question
from gpuplan.tui.state import GpuKey

MOST_REMEMBERED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The question as a person has it in hand: values may be wrong."""

    reference: str = ""
    knobs: Knobs = DEFAULTS
    hosts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def question(self) -> Question:
        """Raises UsageError for a value that cannot be read."""
        return Question(
            reference=self.reference,
            serving=options_of(self.knobs),
            hosts=self.hosts,
            labels=self.labels,
        )

    def remedied(self, remedy: Remedy) -> "Asking | None":
        """With a remedy's change; None where it is nothing the knobs can say. Raises UsageError as `question`."""
        after = changed(self.reference, options_of(self.knobs), remedy.change)
        if after is None:
            return None
        return replace(self, reference=after[0], knobs=knobs_of(after[1]))


def asking_of(question: Question) -> Asking:
    """A question as it is put in a person's hand."""
    return Asking(
        reference=question.reference,
        knobs=knobs_of(question.serving),
        hosts=question.hosts,
        labels=question.labels,
    )


@dataclass(slots=True)
class History:
    """Earlier questions. Changes to one thing in a row are one step."""

    _before: list[Asking] = field(default_factory=list)
    _subject: str | None = None

    def changing(self, before: Asking, subject: str | None) -> bool:
        """`before` is about to change; tells whether that begins another step. With None it is a step of its own."""
        begins = subject is None or subject != self._subject
        if begins:
            self._before = [*self._before[-MOST_REMEMBERED + 1 :], before]
        self._subject = subject
        return begins

    def close(self) -> None:
        """What comes next is another step."""
        self._subject = None

    def back(self) -> Asking | None:
        """The question before the last step."""
        self._subject = None
        return self._before.pop() if self._before else None

    def __bool__(self) -> bool:
        return bool(self._before)


def gpus_of(marked: Collection[GpuKey], fleet: Fleet) -> tuple[str, ...]:
    """Marks as `--gpus` has them, hosts in the fleet's order: ranks follow it."""
    order = {host.name: place for place, host in enumerate(fleet.hosts)}
    by_host: dict[str, list[int]] = {}
    for host, index in sorted(marked, key=lambda mark: (order.get(mark[0], len(order)), mark)):
        by_host.setdefault(host, []).append(index)
    return tuple(f"{host}:{','.join(map(str, indexes))}" for host, indexes in by_host.items())


def marks_of(gpus: Iterable[str], fleet: Fleet) -> frozenset[GpuKey] | None:
    """`--gpus` as marks; None where a GPU is not in the fleet."""
    hosts = {host.name: host for host in fleet.hosts}
    marks: set[GpuKey] = set()
    for text in gpus:
        name, _, devices = text.partition(":")
        known = hosts[name].gpus if name in hosts else ()
        for written in devices.split(","):
            device = written.strip()
            index = next((gpu.index for gpu in known if device in (str(gpu.index), gpu.uuid)), None)
            if index is None:
                return None
            marks.add((name, index))
    return frozenset(marks)
