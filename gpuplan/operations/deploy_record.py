"""What a deploy told, kept as it happens: a gpuplan that is killed leaves the story so far."""

import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gpuplan.domain.deployment import Deployment
from gpuplan.domain.events import At, Phase, PhaseStarted, Transfer, Undone
from gpuplan.operations.deploy_run import Sink, Teller
from gpuplan.operations.stopped import Interrupted
from gpuplan.sources.state import append_lines

DocumentOf = Callable[[At], Mapping[str, Any]]
T = TypeVar("T")


class Record:
    """Writes every event down and passes it on; the deployment is what they add up to."""

    def __init__(self, directory: Path, sink: Sink, document_of: DocumentOf) -> None:
        self.directory = directory
        self._document_of = document_of
        self._sink = sink
        self._events: list[At] = []
        self._unwritten: list[At] = []
        self._unheard = False

    def __call__(self, event: At) -> None:
        """Raises OSError once when nobody reads any more; after that it is only written down."""
        self._events.append(event)
        self._unwritten.append(event)
        if not isinstance(event.event, Transfer):
            self.write()
        if self._unheard:
            return
        try:
            self._sink(event)
        except OSError:
            self._unheard = True
            raise

    @property
    def deployment(self) -> Deployment:
        from gpuplan.deploying.reduce import reduce

        return reduce(self._events)

    @property
    def taken_back(self) -> set[tuple[str, str]]:
        """Host and container of everything that was; what was cleared away before the undoing is not of this deploy."""
        done: set[tuple[str, str]] = set()
        undoing = False
        for event in (at.event for at in self._events):
            undoing = undoing or (isinstance(event, PhaseStarted) and event.phase is Phase.UNDO)
            if undoing and isinstance(event, Undone) and event.what != "left":
                done.add((event.host, event.container))
        return done

    @property
    def left(self) -> tuple[str, ...]:
        """`CONTAINER on HOST` of everything that could not be taken back."""
        told = [at.event for at in self._events if isinstance(at.event, Undone)]
        left = [f"{event.container} on {event.host}" for event in told if event.what == "left"]
        return tuple(dict.fromkeys(left))

    def write(self) -> None:
        """Write down what is not yet; a disk that is full costs the record, not the deploy."""
        lines = [self._document_of(at) for at in self._unwritten]
        self._unwritten.clear()
        if lines:
            append_lines(self.directory / "events.jsonl", lines)


def recorded(
    directory: Path, sink: Sink, document_of: DocumentOf, act: Callable[[Teller, str, Record], T]
) -> T:
    """What `act` makes of a generation of its own (its second argument), told to a record below `directory`.

    Raises what `act` does, and Interrupted for Ctrl-C; the record is written to its end in any case.
    """
    generation = f"{int(time.time()):x}-{secrets.token_hex(3)}"
    record = Record(directory / generation, sink, document_of)
    try:
        return act(Teller(record), generation, record)
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(record.deployment) from None
    finally:
        record.write()
