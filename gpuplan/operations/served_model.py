"""Where the model lies on every host: in a directory, or in the cache of the hub; whole and the same, or not."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gpuplan.deploying import weights_probe
from gpuplan.deploying.weights_compare import faults, is_mendable
from gpuplan.deploying.weights_probe import FoundPlace, Located, Place, PlaceKind, Room
from gpuplan.domain.deployment import DirectoryModel, HubModel, ServedModel
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.inventory import HostEntry, Inventory
from gpuplan.operations.across import Outcome, on_each
from gpuplan.remote.connection import ConnectionFailed, Stage

if TYPE_CHECKING:
    from gpuplan.operations.models import Model
    from gpuplan.remote.connection import Connection

CONTAINER_DIRECTORY = "/models"
"""Where a model's directory is seen inside."""


class HasConnections(Protocol):
    """The part of an open fleet that is needed here."""

    @property
    def connections(self) -> "Mapping[str, Connection]": ...
    @property
    def entries(self) -> Mapping[str, HostEntry]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlace:
    """The model as it lies on the hosts."""

    model: ServedModel | None
    """None: it cannot be served from where it is; the facts say why."""
    found: Mapping[str, FoundPlace] = field(default_factory=dict)
    """Per host, where it is, whole or not."""
    missing: tuple[str, ...] = ()
    """Hosts whose cache lacks all or part of it: to be downloaded there (`deploy_weights.bring_weights`)."""
    located: Mapping[str, Located] = field(default_factory=dict)
    """What each host answered: the login's home and ids, room on its file systems."""
    cache_homes: Mapping[str, str] = field(default_factory=dict)
    """Per host the absolute path of `VllmSettings.huggingface_home`."""
    facts: tuple[Fact, ...] = ()

    @property
    def failures(self) -> tuple[Fact, ...]:
        return tuple(item for item in self.facts if item.severity is Severity.ERROR)

    def room(self, host: str) -> Room | None:
        """The file system of the hub's cache."""
        answered = self.located.get(host)
        home = self.cache_homes.get(host)
        return next((each for each in answered.rooms if each.path == home), None) if answered else None


def locate(
    reference: str,
    model: "Model",
    inventory: Inventory,
    opened: HasConnections,
    hosts: Sequence[str],
    *,
    revision: str | None = None,
    config_only: bool = False,
) -> ModelPlace:
    """Look for the model on all hosts at once and compare what they have; failures are facts (GP840 to GP843).

    `reference`: MODEL as it was written. `config_only`: no weights are read (`--load-format dummy`).
    """
    wanted = wanted_model(reference, model, revision)
    return look(wanted, inventory, opened, hosts, config_only=config_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedModel:
    """What MODEL means on the hosts."""

    name: str
    """Last part of its path or id."""
    id: str | None = None
    """On the hub."""
    revision: str | None = None
    path: str | None = None
    """A directory, absolute or below `~`."""

    def places(self, entry: HostEntry, huggingface_home: str) -> tuple[Place, ...]:
        """Where a host may have it, the best first."""
        root = entry.model_dir.rstrip("/") if entry.model_dir else None
        below = (self.id, self.name, self.id.replace("/", "--")) if self.id else (self.name,)
        paths = [self.path] if self.path else []
        paths += [f"{root}/{part}" for part in below] if root else []
        found = [Place(kind=PlaceKind.DIRECTORY, path=path) for path in dict.fromkeys(paths)]
        if self.id:
            cache = f"{huggingface_home.rstrip('/')}/hub/models--{self.id.replace('/', '--')}"
            found.append(Place(kind=PlaceKind.CACHE, path=cache, revision=self.revision or "main"))
        return tuple(found)


def wanted_model(reference: str, model: "Model", revision: str | None = None) -> WantedModel:
    """What MODEL means: a directory (also that of a `config.json`), a hub id, or the name of a lone `.json` file."""
    text = reference.strip()
    here = os.path.expanduser(text)  # noqa: PTH111 - leaves an unknown user as it is
    if text.startswith(("/", "~/")) or os.path.exists(here):  # noqa: PTH110
        written = text if text.startswith(("/", "~/")) else os.path.abspath(here)  # noqa: PTH100 - links stay
        path = written.rstrip("/") or "/"
        head, _, last = path.rpartition("/")
        if last == "config.json":
            return WantedModel(name=head.rpartition("/")[2], path=head or "/")
        if last.endswith(".json"):
            return WantedModel(name=last.removesuffix(".json"))
        return WantedModel(name=last, path=path)
    id_ = (model.path or text).partition("@")[0]
    written_revision = text.partition("@")[2]
    return WantedModel(name=id_.rpartition("/")[2], id=id_, revision=revision or written_revision or None)


def look(
    wanted: WantedModel,
    inventory: Inventory,
    opened: HasConnections,
    hosts: Sequence[str],
    *,
    config_only: bool = False,
) -> ModelPlace:
    """Ask all hosts at once, one session each, and decide what is served from where."""
    home = inventory.vllm.huggingface_home
    places = {host: wanted.places(opened.entries[host], home) for host in hosts}
    answers = on_each(
        {host: partial(_ask, opened.connections[host], places[host], home) for host in hosts},
        seconds=weights_probe.SECONDS + 10,
    )
    silent = [_silent(host, answer) for host, answer in answers.items() if not isinstance(answer, Located)]
    located = {host: answer for host, answer in answers.items() if isinstance(answer, Located)}
    homes = {host: _at_home(home, answer.home) for host, answer in located.items()}
    if silent:
        return ModelPlace(model=None, located=located, cache_homes=homes, facts=tuple(silent))
    decided = _decided(wanted, located, places, config_only=config_only)
    return replace(decided, located=located, cache_homes=homes)


def _ask(connection: "Connection", places: Sequence[Place], home: str) -> Located:
    """What a host has. Raises ConnectionFailed, also when the script did not come to its end."""
    done = connection.run(
        ["sh", "-s"],
        stdin=weights_probe.script(places, rooms=(home,)),
        timeout=weights_probe.SECONDS,
        limit=weights_probe.OUTPUT_LIMIT,
    )
    answer = weights_probe.parse(done.stdout.decode(errors="replace"), places)
    if answer is None:
        late = "no answer in time" if done.timed_out else f"exit status {done.exit_code}"
        raise ConnectionFailed(Stage.COMMAND, late)
    return answer


def _silent(host: str, outcome: Outcome | Located) -> Fact:
    why = outcome.why if isinstance(outcome, Outcome) else ""
    figures = {"what": "the model's files", "detail": why}
    return Fact(code="GP636", severity=Severity.ERROR, subject={"host": host}, figures=figures)


def _at_home(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _decided(
    wanted: WantedModel,
    located: Mapping[str, Located],
    places: Mapping[str, Sequence[Place]],
    *,
    config_only: bool,
) -> ModelPlace:
    """A directory that all hosts have goes before the cache; a directory that only some have is not left aside."""
    revision = None if wanted.revision == "main" else wanted.revision
    directories = _first(located, PlaceKind.DIRECTORY, revision)
    caches = _first(located, PlaceKind.CACHE, None)
    hub = HubModel(id=wanted.id, revision=wanted.revision) if wanted.id else None
    if len(directories) == len(located):
        facts = faults(directories, config_only=config_only)
        if not facts or hub is None or len(caches) < len(located) or faults(caches, config_only=config_only):
            return ModelPlace(model=_directory(wanted, directories), found=directories, facts=facts)
    if hub is None or (directories and len(caches) < len(located)):
        absent = tuple(
            _absent(host, wanted, places[host], tuple(directories))
            for host in located
            if host not in directories
        )
        facts = (*absent, *faults(directories, config_only=config_only))
        return ModelPlace(model=None, found=directories, facts=facts)
    told = faults(caches, config_only=config_only)
    mendable = {item.subject["host"] for item in told if is_mendable(item)}
    missing = tuple(host for host in located if host not in caches or host in mendable)
    final = tuple(item for item in told if not is_mendable(item))
    return ModelPlace(model=hub, found=caches, missing=missing, facts=final)


def _first(located: Mapping[str, Located], kind: PlaceKind, revision: str | None) -> dict[str, FoundPlace]:
    """The best place of that kind on each host; where a revision is asked for, only one that is known to be of it."""
    found = {}
    for host, answer in located.items():
        fitting = (
            each
            for each in answer.places
            if each.kind is kind and (revision is None or (each.revision or "").startswith(revision))
        )
        best = next(fitting, None)
        if best is not None:
            found[host] = best
    return found


def _directory(wanted: WantedModel, found: Mapping[str, FoundPlace]) -> DirectoryModel:
    inside = f"{CONTAINER_DIRECTORY}/{wanted.name or 'model'}"
    return DirectoryModel(paths={host: place.path for host, place in found.items()}, inside=inside)


def _absent(host: str, wanted: WantedModel, places: Sequence[Place], owners: Sequence[str]) -> Fact:
    figures = {
        "model": wanted.id or wanted.path or wanted.name,
        "looked": tuple(place.path for place in places),
        "have": tuple(owners),
    }
    return Fact(code="GP840", severity=Severity.ERROR, subject={"host": host}, figures=figures)
