"""One build of one image on every host of a deployment, however it gets there.

The build is the one the leader has under the reference, else the first host's that has it, else what a registry gives
the leader. The others pull it by digest, or get it streamed by its id; no tag of a host is ever moved.
"""

import json
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpuplan.domain.events import Phase, Remark
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host
from gpuplan.operations.image_faults import (
    WrongBuild,
    broke_off,
    digest_of,
    fact,
    failed,
    is_id,
    is_same,
    no_room,
    unfit,
)
from gpuplan.operations.image_stores import THIS_MACHINE, EngineStores, ImageStores, OpenHosts
from gpuplan.operations.transfers import Emit, Meter
from gpuplan.remote.connection import ConnectionFailed, HostCallFailed
from gpuplan.remote.words import system_words
from gpuplan.sources.deadline import as_finished

if TYPE_CHECKING:
    from gpuplan.remote.images import ImageDetails

PULLS = 16
"""Hosts that are served at once."""
STREAMS = 3
"""Images on their way through this machine at once."""
TRIES = 3
"""Of one transfer that breaks off: the engine was restarted, the connection was lost."""
REVIVE_SECONDS = 90.0
"""For an engine to come back between two tries."""
PAUSE_SECONDS = 1.0
MOST_ASKED = 3
"""Other hosts that are tried where the leader does not reach the registry."""
_ENDS = frozenset({"GP833", "GP834", "GP835"})
"""Failures that another source would not mend."""

T = TypeVar("T")


class Source(StrEnum):
    """Where an image that a host lacks may come from; every other word is the path of a `docker save` archive."""

    AUTO = "auto"
    """A registry, else a host that has it, else this machine's Docker."""
    NEVER = "never"
    REGISTRY = "registry"
    FLEET = "fleet"
    """Hosts that have it and this machine's Docker; no registry is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What every host has now."""

    ids: Mapping[str, str] = field(default_factory=dict)
    """Host to the id its engine knows the build by; complete when nothing failed."""
    details: Mapping[str, "ImageDetails"] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    """Failures (errors), and what was told on the way."""

    @property
    def failures(self) -> tuple[Fact, ...]:
        return tuple(item for item in self.facts if item.severity is Severity.ERROR)


def bring_images(
    opened: OpenHosts,
    hosts: Sequence[str],
    reference: str,
    *,
    emit: Emit,
    environ: Mapping[str, str],
    policy: str = Source.AUTO,
    stores: ImageStores | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Brought:
    """Bring one build of `reference` to all hosts; `hosts[0]` is the leader.

    `policy`: a `Source`, or the path of an archive. Tells `Transfer` and `Remark` events, from several threads but one
    at a time. Failures are facts (GP830 to GP839), never exceptions; after the first of a transfer nothing more is
    started, and what is under way ends with the connections.
    """
    meter = Meter(emit, Phase.IMAGE)
    known = {host.name: host for host in opened.fleet.hosts}
    with ExitStack() as stack:
        stack.callback(meter.close)
        if stores is None:
            stores = stack.enter_context(closing(EngineStores(opened, environ)))
        work = _Bringing(
            stores=stores,
            meter=meter,
            hosts={name: known[name] for name in hosts},
            reference=reference,
            policy=policy,
            pause=pause,
        )
        return work.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    """The build all hosts are to have, and a place that has it."""

    details: "ImageDetails"
    holder: str


class _Bringing:
    """One call of `bring_images`."""

    def __init__(
        self,
        *,
        stores: ImageStores,
        meter: Meter,
        hosts: Mapping[str, Host],
        reference: str,
        policy: str,
        pause: Callable[[float], None],
    ) -> None:
        self._stores = stores
        self._meter = meter
        self._hosts = hosts
        self._reference = reference
        self._archive = None if policy in set(Source) else Path(policy).expanduser()
        self._registry = policy in {Source.AUTO, Source.REGISTRY} and not is_id(reference)
        self._streams = policy in {Source.AUTO, Source.FLEET} or self._archive is not None
        self._pause = pause
        self._streaming = threading.BoundedSemaphore(STREAMS)
        self._facts: list[Fact] = []

    def run(self) -> Brought:
        found = self._looked()
        if self._failed:
            return self._brought({})
        build = self._chosen(found) or self._fetched()
        if build is None:
            return self._brought({})
        owned = self._all({name: partial(self._owned, name, build, found[name]) for name in self._hosts})
        if self._failed:
            return self._brought({})
        have = {name: details for name, details in owned.items() if details is not None}
        lacking = [name for name in self._hosts if name not in have]
        self._judge(build, lacking, found)
        if not self._failed:
            calls = {name: partial(self._bring, name, build) for name in lacking}
            have |= self._all(calls, source=build.holder)
        return self._brought(have)

    # ------------------------------------------------------------------ what is there

    def _looked(self) -> dict[str, "ImageDetails | None"]:
        """What each host has under the reference; a host that does not answer is a failure."""
        return self._all({name: partial(self._stores.inspect, name, self._reference) for name in self._hosts})

    def _chosen(self, found: Mapping[str, "ImageDetails | None"]) -> _Build | None:
        """The build that is there already: the leader's, else the first host's. An archive decides for itself."""
        if self._archive is not None:
            return None
        return next(
            (_Build(details=details, holder=name) for name in self._hosts if (details := found[name])), None
        )

    def _owned(self, host: str, build: _Build, under_tag: "ImageDetails | None") -> "ImageDetails | None":
        """The build on a host, under the reference or without a name."""
        if host == build.holder:
            return build.details
        if under_tag is not None and is_same(under_tag, build.details):
            return under_tag
        for name in (build.details.id, *build.details.digests):
            details = self._stores.inspect(host, name)
            if details is not None and is_same(details, build.details):
                return details
        return None

    # ------------------------------------------------------------------ the first copy

    def _fetched(self) -> _Build | None:
        """The build, brought to a host that none of them had it on; a fact when there is none to be had."""
        leader = next(iter(self._hosts))
        if self._archive is not None:
            return self._loaded(leader, self._archive)
        refused = self._first_pull([leader]) if self._registry else None
        if isinstance(refused, _Build):
            return refused
        here = self._here() if self._streams and (refused is None or refused.code not in _ENDS) else None
        if here is not None:
            return _Build(details=here, holder=THIS_MACHINE)
        if refused is not None and refused.code == "GP838":
            others = self._first_pull([name for name in self._hosts if name != leader][:MOST_ASKED])
            if isinstance(others, _Build):
                self._told(replace(refused, severity=Severity.INFO))
                return others
        self._told(refused or fact("GP831", leader, image=self._reference, registry=self._registry))
        return None

    def _first_pull(self, names: Sequence[str]) -> _Build | Fact | None:
        """The reference pulled on the first of these hosts where that works; else the last host's failure."""
        why = None
        for name in names:
            try:
                self._insist([name], partial(self._pull, name, self._reference))
                details = self._stores.inspect(name, self._reference)
            except HostCallFailed as error:
                why = failed(error, self._hosts[name], self._reference)
                continue
            if details is not None:
                return _Build(details=details, holder=name)
        return why

    def _here(self) -> "ImageDetails | None":
        """The image in this machine's own Docker, where there is one."""
        try:
            return self._stores.inspect(THIS_MACHINE, self._reference)
        except HostCallFailed:
            return None

    def _loaded(self, leader: str, archive: Path) -> _Build | None:
        """The archive's image on the leader; a tag that stood for another image is put back."""
        wanted = _id_in(archive) or self._reference
        try:
            details = self._stores.inspect(leader, wanted) if is_id(wanted) else None
            if details is None:
                before = self._stores.inspect(leader, self._reference)
                progress = self._meter.progress(leader, f"from {archive.name}")
                loaded = self._insist([leader], partial(self._stores.load, leader, archive, progress))
                names = (wanted, *loaded, self._reference)
                details = next((each for name in names if (each := self._stores.inspect(leader, name))), None)
                if before is not None and details is not None and before.id != details.id:
                    self._stores.tag(leader, before.id, self._reference)
        except HostCallFailed as error:
            self._told(failed(error, self._hosts[leader], self._reference, source=str(archive)))
            return None
        except OSError as error:
            words = f"{archive}: {system_words(error)}"
            self._told(fact("GP839", leader, image=self._reference, source=str(archive), detail=words))
            return None
        if details is None:
            self._told(fact("GP831", leader, image=self._reference, archive=str(archive)))
            return None
        return _Build(details=details, holder=leader)

    # ------------------------------------------------------------------ all the others

    def _judge(
        self, build: _Build, lacking: Sequence[str], found: Mapping[str, "ImageDetails | None"]
    ) -> None:
        """What is known before anything moves: other builds, other machines, disks that are too small."""
        bringing = self._registry or self._streams
        for name, host in self._hosts.items():
            wrong = unfit(build.details, host, self._reference)
            self._told(wrong)
            if name not in lacking or wrong is not None:
                continue
            other = found[name]
            if other is not None:
                severity = Severity.INFO if bringing else Severity.ERROR
                figures = {"image": self._reference, "id": other.id, "wanted": build.details.id}
                self._told(fact("GP832", name, severity, **figures, holder=build.holder))
            elif not bringing:
                self._told(fact("GP831", name, image=self._reference, holder=build.holder))
            if bringing:
                self._told(no_room(build.details, host, self._reference))

    def _bring(self, host: str, build: _Build) -> "ImageDetails":
        """The build onto one host: from the registry where it can be had, else streamed. Raises HostCallFailed."""
        digest = digest_of(build.details, self._reference)
        if self._registry and (digest is not None or not self._streams):
            try:
                self._insist([host], partial(self._pull, host, digest or self._reference))
                return self._arrived(host, build, digest or self._reference)
            except HostCallFailed as error:
                why = failed(error, self._hosts[host], self._reference)
                if not self._streams or why.code in _ENDS:
                    raise
                self._told(
                    replace(why, severity=Severity.INFO, figures={**why.figures, "source": build.holder})
                )
        with self._streaming:
            progress = self._meter.progress(host, f"from {build.holder}")
            size = build.details.size_bytes
            copy = partial(self._stores.copy, build.holder, host, build.details.id, size, progress)
            arrived = self._insist([build.holder, host], copy)
        details = self._stores.inspect(host, arrived)
        if details is None:
            raise WrongBuild(f"{arrived} came from {build.holder} and is not there any more")
        return details

    def _pull(self, host: str, reference: str) -> None:
        self._stores.pull(host, reference, self._meter.progress(host))

    def _arrived(self, host: str, build: _Build, reference: str) -> "ImageDetails":
        """What the host has of what it pulled. Raises WrongBuild."""
        for name in (build.details.id, reference):
            details = self._stores.inspect(host, name)
            if details is not None and is_same(details, build.details):
                return details
        raise WrongBuild(f"what arrived is not {build.details.id} of {build.holder}")

    # ------------------------------------------------------------------ how it is done

    def _insist(self, names: Sequence[str], call: Callable[[], T]) -> T:
        """The call, again when its engine or connection went away and came back. Raises HostCallFailed."""
        for _ in range(TRIES - 1):
            try:
                return call()
            except HostCallFailed as error:
                if not broke_off(error):
                    raise
                for name in names:
                    self._revive(name)
        return call()

    def _revive(self, host: str) -> None:
        """Wait until the engine answers again; a connection that is gone is opened anew. Raises HostCallFailed."""
        ends = time.monotonic() + REVIVE_SECONDS
        for left in range(int(REVIVE_SECONDS / PAUSE_SECONDS), -1, -1):
            try:
                self._stores.inspect(host, self._reference)
                return
            except HostCallFailed as error:
                if not left or time.monotonic() > ends:
                    raise
                if isinstance(error, ConnectionFailed):
                    with suppress(HostCallFailed):
                        self._stores.reopen(host)
                self._pause(PAUSE_SECONDS)

    def _all(self, calls: Mapping[str, Callable[[], T]], *, source: str | None = None) -> dict[str, T]:
        """Results by host; a call that fails is told, and none is begun after it."""
        names = list(calls)
        results: dict[str, T] = {}
        with closing(as_finished([calls[name] for name in names], workers=PULLS)) as finished:
            for call in finished:
                name = names[call.number]
                try:
                    results[name] = call.result()
                except HostCallFailed as error:
                    self._told(failed(error, self._hosts[name], self._reference, source=source))
                    break
        return results

    def _told(self, told: Fact | None) -> None:
        """Kept; what is no failure is told at once."""
        if told is None:
            return
        self._facts.append(told)
        if told.severity is not Severity.ERROR:
            self._meter.tell(Remark(fact=told))

    @property
    def _failed(self) -> bool:
        return any(item.severity is Severity.ERROR for item in self._facts)

    def _brought(self, have: Mapping[str, "ImageDetails"]) -> Brought:
        ordered = {name: have[name] for name in self._hosts if name in have}
        return Brought(
            ids={name: details.id for name, details in ordered.items()},
            details=ordered,
            facts=tuple(self._facts),
        )


def _id_in(archive: Path) -> str | None:
    """The id of the image in a `docker save` archive; None where it is compressed, or holds several."""
    try:
        with tarfile.open(archive, "r:") as tar:
            stream = tar.extractfile("manifest.json")
            manifest = json.load(stream) if stream is not None else []
        name = manifest[0]["Config"] if len(manifest) == 1 else ""
    except (OSError, tarfile.TarError, KeyError, ValueError, TypeError):
        return None
    digest = name.rpartition("/")[2].removesuffix(".json")
    return f"sha256:{digest}" if is_id(digest) else None
