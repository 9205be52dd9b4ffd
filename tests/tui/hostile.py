"""Text that wants to be more than text, everywhere text comes from elsewhere: hosts, containers, logs, errors, files."""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar
from unicodedata import category

from rich.cells import cell_len
from textual.app import App
from textual.strip import Strip
from textual.widget import Widget

from gpuplan.domain.deployment import Deployment, Member
from gpuplan.domain.events import Event
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, Host, HostFailure, HostStatus
from gpuplan.domain.plan import Plan
from gpuplan.errors import GpuplanError, UsageError
from gpuplan.operations.logs import LogChoice, Printed
from gpuplan.operations.status import DeploymentSeen, StatusReport
from gpuplan.operations.stop import DRAIN_SECONDS, Intended, Stopped
from gpuplan.sources.catalogue.models import CatalogueModel
from gpuplan.tui.services import OnHost, Proposal, Question, Run, Source, SourceKind
from tests.fleets import host, probed_fleet
from tests.tui import deployed
from tests.tui.deploys import BEGIN, CAUSE, FAILING, SPEC, STARTED, FakeRun
from tests.tui.fakes import FakeServices

TEXTS: Mapping[str, str] = {
    "markup": "[red]x[/red]",
    "closing": "[/foo]",
    "brackets": "a[b]c",
    "click": "[@click=app.bell]x[/]",
    "variable": "[$error]x[/] $HOME $text ${x}",
    "escape": "\x1b[31mred\x1b[0m\x1b[2J",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "returns": "one\rtwo\b\b\bthree",
    "null": "nul\x00l\x7f",
    "c1": "c1\x9b31m\x85\x90",
    "lines": "tab\there\nthere\n\nand\u2028on\u2029",
    "override": "abc\u202etxt.exe\u202c",
    "isolate": "\u2066left\u2067right\u2069\u200f",
    "joiners": "a\u200bb\u200cc\u200dd\ufeff\u2060e\u00ad",
    "marks": "e\u0301" + "\u0336\u0489\u20dd" * 6 + "z",
    "mark_first": "\u0301first",
    "wide": "主机名称显卡服务器一二三四五六七",
    "emoji": "❤️☎️1️⃣👍🏽👨\u200d👩\u200d👧🇩🇪☰䷀",
    "letters": "हिन्दी ไทยำ ᄒ\u1161\u11ab ㅤᅠ\uffa0 ﷽",
    "long": "long-" + "x" * 495,
    "long_wide": "长" * 300,
    "empty": "",
    "blank": "   ",
    "surrogate": "sur\ud800ro\udcffgate\udbff",
    "formats": "%s %(x)d {0} {x!r} {} %",
    "shell": "$(reboot) `id` ; & | < > \\ ' \"",
    "link": "\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\",
    "private": "\ue000\U000f0000\ufff9\ufffe",
}
MIXED = "".join(text for name, text in TEXTS.items() if not name.startswith("long"))
"""All of them but the long ones in one."""
T = TypeVar("T")
KEPT = frozenset(
    {
        "uuid",
        "gpus",
        "vendor",
        "backend",
        "compute_capability",
        "taken_at",
        "started_at",
        "finished_at",
        "generation",
        "spec_hash",
        "state",
        "health",
        "pci_bus_id",
    }
)
"""Fields that probes and Docker give in a form of their own."""


def poisoned(value: T, text: str) -> T:
    """The same with `text` for every text of it but what the fields `KEPT` hold."""
    return _poisoned(value, text)  # type: ignore[no-any-return]


def _poisoned(value: Any, text: str) -> Any:
    if isinstance(value, (Enum, Fact)) or value is None:
        return value
    if isinstance(value, str):
        return text
    if isinstance(value, tuple):
        return tuple(_poisoned(item, text) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {
            one.name: _poisoned(getattr(value, one.name), text)
            for one in dataclasses.fields(value)
            if one.name not in KEPT and one.init
        }
        return replace(value, **changes)
    return value


def hostile_host(text: str, *, status: HostStatus = HostStatus.OK) -> Host:
    """One whose name, cards, programs, users, labels and facts all are that text."""
    if status is not HostStatus.OK:
        return Host(name=text, address=text, status=status, failure=HostFailure(stage=text, detail=text))
    probed = probed_fleet().hosts[0]
    gpus = tuple(replace(gpu, index=index) for index, gpu in enumerate(probed.gpus))
    return poisoned(replace(probed, gpus=gpus), text)


def hostile_fleet(texts: Sequence[str] = tuple(TEXTS.values()), mixed: str = MIXED) -> Fleet:
    """A host of each text, some of which do not answer, and tame ones to compare with."""
    hosts = [host("tame-a", "H100", 2)]
    for number, text in enumerate(texts):
        failed = (HostStatus.OK, HostStatus.OK, HostStatus.UNREACHABLE, HostStatus.FAILED)[number % 4]
        hosts.append(hostile_host(text, status=failed))
    busy = host(mixed, "H100", 4, free={0: 10.0})
    process = GpuProcess(pid=1, name=mixed, used_bytes=2**34, container=mixed, user=mixed)
    busy = replace(busy, gpus=tuple(replace(gpu, processes=(process,), name=mixed) for gpu in busy.gpus))
    return Fleet(hosts=(*hosts, busy, host("tame-b", "H100", 2)), notes=(mixed,))


def hostile_deployment(text: str, like: Deployment = deployed.RUNNING) -> Deployment:
    return poisoned(like, text)


def refusal(text: str = MIXED) -> GpuplanError:
    return UsageError(text, hint=text)


def silence(text: str) -> Fact:
    """That a host is silent, in its words."""
    return Fact(
        code="GP801",
        severity=Severity.ERROR,
        subject={"host": text},
        figures={"stage": text, "detail": text},
    )


def hostile_events(text: str) -> tuple[Event, ...]:
    """A deploy that fails, every word of it that text."""
    events = (*BEGIN, *STARTED, *FAILING)
    return tuple(poisoned(event, text) for event in events)


def members(texts: Sequence[str]) -> tuple[Member, ...]:
    return tuple(
        replace(deployed.LEADER, host=text, container=text, id=str(number), rank=number)
        for number, text in enumerate(texts)
    )


class HostileServices(FakeServices):
    """Everything it tells is hostile; `failing` says what of it is refused."""

    def __init__(self, *, runs: Sequence[Run] = (), texts: Sequence[str] = (), mixed: str = "") -> None:
        self.texts = tuple(texts) or tuple(TEXTS.values())
        self.mixed = mixed or (texts[0] if texts else MIXED)
        super().__init__(hostile_fleet(self.texts, self.mixed))
        self.failing: frozenset[str] = frozenset()
        self.run = FakeRun(name=self.mixed)
        self.met = tuple(runs)
        self.closing = threading.Event()
        """Logs end when it is set."""
        states = (deployed.RUNNING, deployed.LOADING, deployed.UNHEALTHY, deployed.FAILED)
        seen = tuple(
            DeploymentSeen(
                deployment=hostile_deployment(text, states[number % 4]), facts=(silence(text), CAUSE)
            )
            for number, text in enumerate(self.texts)
        )
        tame = (
            DeploymentSeen(deployment=replace(deployed.RUNNING, name="tame-a"), facts=()),
            DeploymentSeen(deployment=replace(deployed.RUNNING, name="tame-b"), facts=()),
        )
        silent = tuple(one for one in self.answer.hosts if one.status is not HostStatus.OK)
        self.report = StatusReport(deployments=(tame[0], *seen, tame[1]), silent=silent, hosts=9)

    def _maybe(self, what: str) -> None:
        if what in self.failing:
            raise refusal(self.mixed)

    @property
    def source(self) -> Source:
        return Source(kind=SourceKind.LIVE, name=self.mixed, acts=True)

    def expected(self) -> tuple[str, ...]:
        self._maybe("fleet")
        return super().expected()

    def read_fleet(self, on_host: OnHost, only: Sequence[str] = ()) -> Fleet:
        self._maybe("reading")
        return super().read_fleet(on_host, only)

    def watch(
        self,
        every_seconds: float,
        stop: threading.Event,
        on_gpus: Callable[[Mapping[str, tuple[Gpu, ...]]], None],
    ) -> None:
        self._maybe("watch")
        stop.wait()

    def models(self) -> tuple[CatalogueModel, ...]:
        self._maybe("models")
        first = super().models()[0]
        return tuple(
            replace(first, name=text, family=text, architecture=text, quantization=text, base=text)
            for text in self.texts
        )

    def plan(self, question: Question, fleet: Fleet) -> Plan:
        self._maybe("plan")
        made = super().plan(question, fleet)
        return replace(
            made,
            model={key: self.mixed if isinstance(item, str) else item for key, item in made.model.items()},
        )

    def propose(
        self, plan: Plan, choice: tuple[int, int], name: str | None, keep_alive_seconds: int | None
    ) -> Proposal:
        self._maybe("propose")
        replaces = tuple(replace(deployed.LEADER, host=text, container=text) for text in self.texts)
        return Proposal(spec=poisoned(SPEC, self.mixed), replaces=replaces, remarks=(silence(self.mixed),))

    def dry_run(self, plan: Plan, choice: tuple[int, int], fleet: Fleet) -> Any:
        self._maybe("dry_run")
        return poisoned(SPEC, self.mixed)

    def deploy(self, proposal: Proposal) -> Run:
        self._maybe("deploy")
        return self.run

    def runs(self) -> tuple[Run, ...]:
        return self.met

    def watch_deployments(self) -> "HostileServices":
        return self

    def look(self, *, dial: bool = False) -> StatusReport:
        self._maybe("look")
        return self.report

    def close(self) -> None:
        pass

    def deployments(self, name: str | None = None) -> StatusReport:
        self._maybe("deployments")
        return replace(
            self.report,
            deployments=tuple(one for one in self.report.deployments if one.deployment.name == name),
        )

    def logs(
        self,
        name: str,
        choice: LogChoice,
        begin: Callable[[Sequence[Member]], Callable[[Printed], None]],
        talk: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        everyone = members(self.texts)
        put = begin(everyone)
        for member in everyone:
            for text in self.texts:
                put(Printed(member=member, at="2026-11-22T04:00:00.000000001Z", text=text, error=False))
        talk(self.mixed)
        self._maybe("logs")
        while not stop.wait(0.01) and not self.closing.is_set():
            pass

    def stop(
        self,
        name: str,
        confirm: Callable[[Intended], bool],
        on_event: Callable[[Event], None],
        *,
        drain_seconds: int = DRAIN_SECONDS,
    ) -> Stopped:
        self._maybe("stop")
        meant = next(one.deployment for one in self.report.deployments if one.deployment.name == name)
        if not confirm(deployed.intended(meant, *self.texts)):
            return Stopped(name=name, asked=False)
        for event in hostile_events(self.mixed):
            on_event(event)
        return Stopped(
            name=name,
            removed=tuple((text, text) for text in self.texts),
            facts=(silence(self.mixed),),
            logs=tuple(self.texts),
        )

    def restart(
        self, name: str, on_event: Callable[[Event], None], *, drain_seconds: int = DRAIN_SECONDS
    ) -> None:
        for event in hostile_events(self.mixed):
            on_event(event)
        self._maybe("restart")


def ended_run(text: str, identity: str) -> FakeRun:
    """A deploy that has failed with that text everywhere."""
    from gpuplan.tui.services import RunOutcome

    run = FakeRun(name=text, identity=identity)
    run.end(RunOutcome(exit_code=5, deployment=None, message=text), *hostile_events(text))
    return run


def going_run(text: str, identity: str) -> FakeRun:
    """A deploy under way with that text everywhere."""
    run = FakeRun(name=text, identity=identity)
    run.tell(*(poisoned(event, text) for event in (*BEGIN, *STARTED)))
    return run


ALLOWED = frozenset(" \xa0")


def harms(app: App[Any], about: str, *, but: type[Widget] | None = None) -> list[str]:
    """Lines that are not as wide as the terminal, could move the cursor or be clicked; those of widgets `but` aside."""
    strips = app.screen._compositor.render_strips()
    aside = {row for one in app.screen.query(but) for row in one.region.line_range} if but is not None else ()
    found = [] if len(strips) == app.size.height else [f"{about}: {len(strips)} lines"]
    for number, strip in enumerate(strips):
        text = "".join(segment.text for segment in strip)
        width = sum(cell_len(segment.text) for segment in strip)
        if width != app.size.width:
            found.append(f"{about}, line {number}: {width} cells: {text!a}")
        if number not in aside:
            found += [f"{about}, line {number}: {harm}: {text!a}" for harm in _harms(strip, text)]
    return found


def _harms(strip: Strip, text: str) -> Iterator[str]:
    bad = [char for char in text if category(char)[0] in "CZ" and char not in ALLOWED]
    if bad:
        yield ascii(bad)
    for segment in strip:
        style = segment.style
        if style is not None and (style.link or "bell" in str(style.meta.get("@click", ""))):
            yield f"{segment.text!r} can be clicked"
