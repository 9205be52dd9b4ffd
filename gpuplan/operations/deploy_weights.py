"""The weights where they are served from: downloaded by a container of the image where a host lacks them.

Files are written as the login that owns the directory, never deleted; a download that broke off is taken up again by
the next one. Hosts that share a file system download once.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gpuplan.deploying import weights_probe
from gpuplan.deploying.weights_compare import weight_bytes
from gpuplan.deploying.weights_download import TOKEN, Ending, Told, heard, helper_body, helper_name
from gpuplan.domain.deployment import (
    NO_SECRETS,
    SECRETS_DIRECTORY,
    HubModel,
    SecretValues,
)
from gpuplan.domain.events import Phase
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.inventory import HostEntry, Inventory
from gpuplan.domain.secret_text import masked
from gpuplan.operations.helper_containers import EngineHelpers, HelperContainers
from gpuplan.operations.host_directories import everywhere, make_directories, one_of_each, prepare_directories
from gpuplan.operations.image_faults import broke_off
from gpuplan.operations.served_model import ModelPlace, WantedModel, look
from gpuplan.operations.transfers import Emit, Meter
from gpuplan.remote.connection import Connection, ConnectionFailed, HostCallFailed
from gpuplan.remote.docker_engine import RequestRefused
from gpuplan.remote.words import printable
from gpuplan.sources.deadline import as_finished
from gpuplan.units import MIB

if TYPE_CHECKING:
    from gpuplan.remote.docker_engine import Engine

DOWNLOADS = 8
"""Hosts that download at once: they share the way to the hub."""
TRIES = 5
"""Times a container that runs on is taken up again, after the connection or the engine was away."""
PAUSE_SECONDS = 2.0
__all__ = ["bring_weights", "prepare_directories"]

_COMMIT = re.compile(r"[0-9a-f]{40}")
_CODES = {
    Ending.FULL: "GP845",
    Ending.GATED: "GP846",
    Ending.DENIED: "GP846",
    Ending.NOT_FOUND: "GP847",
    Ending.NO_REVISION: "GP847",
    Ending.UNWRITABLE: "GP849",
}


class OpenHosts(Protocol):
    """The part of an open fleet that is needed here."""

    @property
    def fleet(self) -> Fleet: ...
    @property
    def entries(self) -> Mapping[str, HostEntry]: ...
    @property
    def connections(self) -> Mapping[str, Connection]: ...
    def engine_of(self, host: str) -> "Engine": ...
    def reopen(self, host: str) -> None: ...


def bring_weights(
    opened: OpenHosts,
    place: ModelPlace,
    inventory: Inventory,
    *,
    image_ids: Mapping[str, str],
    emit: Emit,
    secrets: SecretValues = NO_SECRETS,
    expected_bytes: int | None = None,
    config_only: bool = False,
    helpers: HelperContainers | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> ModelPlace:
    """Download the hub's model on the hosts of `place.missing` and look again; failures are facts (GP841 to GP849).

    `image_ids`: per host, of an image with `huggingface_hub`. `secrets`: HF_TOKEN, where there is one; it is put into
    the container as a file. `expected_bytes`: of the whole checkpoint, as far as it is known. Nothing is done where
    nothing is missing. Containers that run are removed when this ends, whatever ends it.
    """
    if not place.missing or not isinstance(place.model, HubModel) or place.failures:
        return place
    meter = Meter(emit, Phase.WEIGHTS)
    work = _Downloading(
        opened=opened,
        place=place,
        model=place.model,
        inventory=inventory,
        image_ids=image_ids,
        secrets=secrets,
        expected_bytes=expected_bytes,
        config_only=config_only,
        helpers=helpers or EngineHelpers(opened),
        meter=meter,
        pause=pause,
    )
    try:
        facts = work.run()
    finally:
        meter.close()
        work.clear()
    if facts:
        return replace(place, facts=(*place.facts, *facts))
    wanted = WantedModel(
        name=place.model.id.rpartition("/")[2], id=place.model.id, revision=place.model.revision
    )
    again = look(wanted, inventory, opened, tuple(place.located), config_only=config_only)
    left = tuple(work.fact("GP848", host, ending="incomplete", detail="") for host in again.missing)
    return replace(again, facts=(*again.facts, *left))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenFile:
    """HF_TOKEN as a file of the container."""

    contents: Mapping[str, bytes] = field(repr=False)
    owner: tuple[int, int]
    directory: str = SECRETS_DIRECTORY


@dataclass(frozen=True, kw_only=True)
class _Downloading:
    """One call of `bring_weights`."""

    opened: OpenHosts
    place: ModelPlace
    model: HubModel
    inventory: Inventory
    image_ids: Mapping[str, str]
    secrets: SecretValues
    expected_bytes: int | None
    config_only: bool
    helpers: HelperContainers
    meter: Meter
    pause: Callable[[float], None]
    running: dict[str, str] = field(default_factory=dict)
    """Host to the id of its container."""
    ended: threading.Event = field(default_factory=threading.Event)
    """Nobody waits any more: what is begun only now is removed by who began it."""

    def run(self) -> tuple[Fact, ...]:
        """Failures; after the first of a download the others are broken off."""
        facts = make_directories(
            self.opened, {host: (f"{self.place.cache_homes[host]}/hub",) for host in self.place.missing}
        )
        if facts:
            return facts
        hosts = one_of_each(
            self.place.missing,
            self.opened,
            directories=self.place.cache_homes,
            devices={host: room.device for host in self.place.missing if (room := self.place.room(host))},
        )
        full = tuple(told for host in hosts if (told := self._no_room(host)) is not None)
        if full:
            return full
        calls = [partial(self._download, host) for host in hosts]
        with closing(as_finished(calls, workers=DOWNLOADS)) as finished:
            for call in finished:
                told = call.result()
                if told is not None:
                    return (told,)
        return ()

    def clear(self) -> None:
        """Remove the containers that still run; a host that does not answer keeps its own, with our label."""
        self.ended.set()
        for host, container in list(self.running.items()):
            with suppress(HostCallFailed):
                self.helpers.remove(host, container)
                self.running.pop(host, None)

    def fact(self, code: str, host: str, **figures: object) -> Fact:
        """A failure on one host."""
        about = {
            "model": self.model.id,
            "revision": self.model.revision,
            "path": f"{self.place.cache_homes[host]}/hub",
            "token": TOKEN in self.secrets,
        }
        return Fact(code=code, severity=Severity.ERROR, subject={"host": host}, figures={**about, **figures})

    # ------------------------------------------------------------------ before

    def _no_room(self, host: str) -> Fact | None:
        """GP844: less room than what is still to come."""
        room = self.place.room(host)
        if room is None or self.expected_bytes is None or self.config_only:
            return None
        found = self.place.found.get(host)
        have = weight_bytes(found) + found.incomplete_bytes if found is not None else 0
        needed = max(0, self.expected_bytes - have)
        if room.free_bytes >= needed:
            return None
        figures = {"needed_bytes": needed, "free_bytes": room.free_bytes, "device": room.device}
        return self.fact("GP844", host, **figures)

    # ------------------------------------------------------------------ one host

    def _download(self, host: str) -> Fact | None:
        """From the container's start to its end; why it failed."""
        told = Told()
        try:
            self.running[host] = self._begin(host)
            if self.ended.is_set():
                self.clear()
                return None
            told = self._follow(host, told)
            code = self.helpers.exit_code(host, self.running[host])
        except RequestRefused as refused:
            lacking = "executable file not found" in refused.detail or "no such file" in refused.detail
            ending = Ending.NO_LIBRARY if lacking else Ending.OTHER
            return self._failure(host, replace(told, ending=ending, detail=refused.detail))
        except HostCallFailed as error:
            lost = broke_off(error)
            return self._failure(host, replace(told, ending=Ending.OTHER, detail=error.detail), lost=lost)
        with suppress(HostCallFailed):
            self.helpers.remove(host, self.running[host])
            self.running.pop(host, None)
        if told.ending is Ending.COMPLETE:
            return None
        if told.ending is None:
            told = replace(told, ending=Ending.OTHER, detail=f"it ended with status {code}. {told.detail}")
        return self._failure(host, told)

    def _begin(self, host: str) -> str:
        located = self.place.located[host]
        ids = (located.uid or 0, located.gid or 0)
        user = self.inventory.vllm.user or (None if self._is_rootless(host) else f"{ids[0]}:{ids[1]}")
        body = helper_body(
            self.model,
            host=host,
            image_id=self.image_ids[host],
            cache_home=self.place.cache_homes[host],
            user=user,
            env=self.inventory.vllm.env,
            token=TOKEN in self.secrets,
            commit=self._commit(),
            config_only=self.config_only,
        )
        files = None
        if TOKEN in self.secrets:
            owner = _owner(user)
            files = _TokenFile(contents={TOKEN: self.secrets.reveal(TOKEN).encode()}, owner=owner)
        return self.helpers.begin(host, helper_name(self.model), body, files)

    def _follow(self, host: str, told: Told) -> Told:
        """Its lines to the end, through connections that break: it goes on meanwhile, and its lines are kept."""
        progress = self.meter.progress(host)
        for left in range(TRIES, -1, -1):
            try:
                for line in self.helpers.lines(host, self.running[host]):
                    known = heard(line, told)
                    if known is told and told.ending is None:
                        known = replace(told, detail=printable(line))
                    told = known
                    progress(told.done_bytes, told.total_bytes, "downloading")
            except HostCallFailed as error:
                if not left or not broke_off(error):
                    raise
                self.pause(PAUSE_SECONDS)
                if isinstance(error, ConnectionFailed):
                    with suppress(HostCallFailed):
                        self.opened.reopen(host)
            else:
                break
        return told

    def _failure(self, host: str, told: Told, *, lost: bool = False) -> Fact:
        """Why it failed; `lost`: the host cannot be asked about its disk."""
        ending = told.ending or Ending.OTHER
        detail = self.secrets.masked(masked(printable(told.detail)))
        figures: dict[str, object] = {
            "ending": ending.value,
            "detail": detail,
            "done_bytes": told.done_bytes,
            "total_bytes": told.total_bytes,
        }
        if ending is Ending.FULL or (ending is Ending.OTHER and not lost):
            room = self._room_now(host)
            if ending is Ending.OTHER and _is_full(room, told):
                ending = Ending.FULL
                figures["ending"] = ending.value
            if ending is Ending.FULL:
                figures |= room
        return self.fact(_CODES.get(ending, "GP848"), host, **figures)

    def _room_now(self, host: str) -> dict[str, object]:
        """`df` of the cache, after it got full."""
        home = self.place.cache_homes[host]
        script = weights_probe.script((), rooms=(home,)).decode()
        answer = everywhere(self.opened, {host: script})[host]
        located = weights_probe.parse(answer, ())
        rooms = located.rooms if located is not None else ()
        return {"device": rooms[0].device, "free_bytes": rooms[0].free_bytes} if rooms else {}

    def _commit(self) -> str | None:
        """What a host that has the model has it at: the others are to have the same."""
        whole = (found for host, found in self.place.found.items() if host not in self.place.missing)
        return next(
            (found.revision for found in whole if found.revision and _COMMIT.fullmatch(found.revision)), None
        )

    def _is_rootless(self, host: str) -> bool:
        """There the login is the container's root."""
        docker = self._host(host).facts.docker
        return docker is not None and docker.rootless

    def _host(self, name: str) -> Host:
        return next(host for host in self.opened.fleet.hosts if host.name == name)


def _is_full(room: Mapping[str, object], told: Told) -> bool:
    """Whether what was still to come has no room: a full disk ends a container in many words, or in none."""
    free = room.get("free_bytes")
    return isinstance(free, int) and free < max(MIB, (told.total_bytes or 0) - told.done_bytes)


def _owner(user: str | None) -> tuple[int, int]:
    """`uid:gid` as numbers; root where the image decides."""
    uid, _, gid = (user or "").partition(":")
    return (int(uid) if uid.isdigit() else 0, int(gid) if gid.isdigit() else 0)
