"""What a deploy told, kept as it happens: a gpuplan that is killed leaves the story so far."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpuplan.domain.deployment import Deployment
from gpuplan.domain.events import At, Phase, PhaseStarted, Transfer, Undone
from gpuplan.operations.deploy_run import Sink
from gpuplan.sources.state import append_lines


class Record:
    """Writes every event down and passes it on; the deployment is what they add up to."""

    def __init__(self, directory: Path, sink: Sink, document_of: Callable[[At], Mapping[str, Any]]) -> None:
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
