"""A run whose events are told while they happen: kept from the first one, given to everybody who asks, ended once."""

import threading
from collections.abc import Iterator

from gpuplan.deploying.reduce import NOTHING, apply
from gpuplan.domain.events import At, Event, Phase, PhaseDone, PhaseStarted
from gpuplan.tui.demo_world import Clock
from gpuplan.tui.services import RunOutcome


class TakenBack(Exception):
    """It is broken off."""


class PlayedRun:
    """What `services.Run` asks for, and what whoever plays the run tells."""

    def __init__(self, clock: Clock, identity: str, name: str) -> None:
        self.id = identity
        self.name = name
        self.acknowledged = False
        self.deployment = NOTHING
        """By the events so far."""
        self.committed = False
        """Nothing breaks it off any more."""
        self.phase: tuple[Phase, float] | None = None
        """Under way, and since when."""
        self._clock = clock
        self._events: list[At] = []
        self._told = threading.Condition()
        self._outcome: RunOutcome | None = None
        self._broken_off = threading.Event()

    @property
    def alive(self) -> bool:
        return self._outcome is None

    def events(self) -> Iterator[At]:
        seen = 0
        while True:
            with self._told:
                while seen >= len(self._events) and self._outcome is None:
                    self._told.wait()
                fresh = self._events[seen:]
            if not fresh:
                return
            yield from fresh
            seen += len(fresh)

    def outcome(self) -> RunOutcome | None:
        return self._outcome

    def take_back(self) -> None:
        self._broken_off.set()

    def acknowledge(self) -> None:
        if not self.alive:
            self.acknowledged = True

    # ------------------------------------------------------------------ for whoever plays it

    def tell(self, event: Event) -> None:
        at = At(at=self._clock.now(), event=event)
        with self._told:
            self._events.append(at)
            self.deployment = apply(self.deployment, at)
            self._told.notify_all()

    def begin(self, phase: Phase, awaits: str, deadline: float | None = None) -> None:
        """The next phase begins, the last one is done."""
        self.done()
        self.phase = phase, self._clock.now()
        self.tell(PhaseStarted(phase=phase, awaits=awaits, deadline_seconds=deadline))

    def done(self) -> None:
        """The phase under way is done."""
        if self.phase is not None:
            phase, since = self.phase
            self.phase = None
            self.tell(PhaseDone(phase=phase, seconds=round(self._clock.now() - since, 1)))

    def pause(self, length: float) -> None:
        """Let time pass. Raises TakenBack when it is broken off meanwhile."""
        stop = threading.Event() if self.committed else self._broken_off
        if self._clock.wait(max(0.0, length), stop):
            raise TakenBack

    def end(self, outcome: RunOutcome) -> None:
        with self._told:
            self._outcome = outcome
            self._told.notify_all()
