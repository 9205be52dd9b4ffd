"""What one run has told so far: read in a thread of its own, taken over by the event loop in steps.

A feed goes on whether or not a screen shows it; nothing a run told is read twice.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress

from gpuplan.domain.events import At, Transfer
from gpuplan.present.document import Line, line
from gpuplan.present.event_words import event_text
from gpuplan.present.run_progress import NOTHING_YET, RunProgress, advanced, event_span
from gpuplan.tui.services import Run, RunOutcome


class EventRows:
    """A row per event worth one; bytes on their way change the row they have."""

    def __init__(self) -> None:
        self._events: list[At] = []
        self._moving: dict[tuple[str, str, str], int] = {}

    def __len__(self) -> int:
        return len(self._events)

    def key(self, index: int) -> Hashable:
        return index

    def index(self, key: Hashable) -> int | None:
        return key if isinstance(key, int) and 0 <= key < len(self._events) else None

    def line(self, index: int, width: int) -> Line:
        at = self._events[index]
        text = event_text(at, max(20, width)) or ""
        return line(event_span(at, text))

    def add(self, at: At) -> int | None:
        """Take an event; the row that looks different from before, None where one was added or none is shown."""
        event = at.event
        if isinstance(event, Transfer):
            key = (event.phase.value, event.host, event.about)
            known = self._moving.setdefault(key, len(self._events))
            if known < len(self._events):
                self._events[known] = at
                return known
        if event_text(at) is not None:
            self._events.append(at)
        return None


class RunFeed:
    """One run, followed from its first event to its end."""

    def __init__(self, run: Run, arrived: Callable[["RunFeed"], None]) -> None:
        """`arrived` is called from a thread, once until `take` was called."""
        self.run = run
        self.progress: RunProgress = NOTHING_YET
        self.rows = EventRows()
        self.changed_rows: set[Hashable] = set()
        """Rows that look different since the last `take`."""
        self.outcome: RunOutcome | None = None
        """How it ended; None: it is under way, or not read to its end yet."""
        self.taking_back = False
        self.found_ended = False
        """It had ended when the app met it."""
        self.due = False
        """A look at what came is on its way."""
        self._arrived = arrived
        self._came: deque[At] = deque()
        self._ended: RunOutcome | None = None
        self._error: BaseException | None = None
        self._told = False
        self._thread = threading.Thread(target=self._listen, daemon=True, name=f"run {run.name}")

    def start(self) -> None:
        self._thread.start()

    @property
    def over(self) -> bool:
        return self.outcome is not None

    @property
    def badly(self) -> bool:
        """It has ended, and not well."""
        return self.outcome is not None and self.outcome.exit_code != 0

    def take(self) -> None:
        """In the event loop: everything that came since. Raises what went wrong while it was read."""
        self._told = False
        ended, error = self._ended, self._error  # asked first: what came before the end is taken with it
        events: list[At] = []
        while self._came:
            events.append(self._came.popleft())
        self.changed_rows = {row for at in events if (row := self.rows.add(at)) is not None}
        self.progress = advanced(self.progress, events)
        self.outcome = ended
        if error is not None:
            raise error

    def _listen(self) -> None:
        try:
            for at in self.run.events():
                self._came.append(at)
                self._tell()
            self._ended = self.run.outcome()
        except BaseException as error:  # noqa: BLE001 - raised again where it is taken
            self._error = error
        self._told = False
        self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            with suppress(RuntimeError):  # the event loop is closed: the app was left
                self._arrived(self)
