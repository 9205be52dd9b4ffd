"""From what was asked to the containers to be started: read, planned, placed, compiled. Nothing on a host is changed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuplan.deploying.compile import compile_deployment, default_name
from gpuplan.deploying.images import image_for
from gpuplan.deploying.ports import preferred_ports, taken_ports
from gpuplan.deploying.request import CompileRequest
from gpuplan.deploying.secrets import API_KEY, HUB_TOKEN, secrets_of
from gpuplan.domain import labels
from gpuplan.domain.deployment import (
    DeploymentSpec,
    DirectoryModel,
    HubModel,
    Member,
    SecretValues,
    ServedModel,
)
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.inventory import HostEntry
from gpuplan.domain.plan import Candidate, Eviction
from gpuplan.domain.workload import Category, Workload
from gpuplan.errors import UsageError
from gpuplan.operations.container_names import taken_names
from gpuplan.operations.deploy_evicted import Evicted, as_agreed, to_evict
from gpuplan.operations.deploy_hosts import clocks_off, require_ready
from gpuplan.operations.deploy_question import chosen, question_on, unchanged
from gpuplan.operations.deploy_request import (
    DeployRequest,
    Wanted,
    named_model,
    narrowed,
    opened_fleet,
    read_wanted,
)
from gpuplan.operations.deploy_same import as_it_runs
from gpuplan.operations.deployed import Existing, existing, names_of, placement_label, placement_of
from gpuplan.operations.fleet import (
    read_fleet,
    require_usable,
)
from gpuplan.operations.served_model import locate
from gpuplan.operations.stopped import FleetChanged, NotReady
from gpuplan.planning.released import released
from gpuplan.planning.request import PlanRequest
from gpuplan.sources.hub_token import hub_token

if TYPE_CHECKING:
    from gpuplan.operations.probe import OpenFleet
    from gpuplan.operations.served_model import ModelPlace


ABSENT = "GP840"
"""That a host does not have the model's directory."""
_MODELS = "/models"
_CACHE = "/.cache/huggingface"
"""What the probe asks for under the login's home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is going to be started, and what it rests on."""

    wanted: Wanted
    name: str
    candidate: Candidate
    request: PlanRequest
    """The planner's question, on the fleet as it will be once the deployment of that name is stopped."""
    compile_request: CompileRequest
    spec: DeploymentSpec
    secrets: SecretValues
    place: "ModelPlace | None" = None
    """As it was found on the hosts."""
    existing: Existing = field(default_factory=Existing)
    """What there is of a deployment of that name, as it was seen when this was prepared."""
    remarks: tuple[Fact, ...] = ()
    evicted: tuple[Evicted, ...] | None = None
    """Deployments that are stopped to make room, as they were seen; None: no host was asked."""

    @property
    def evicts(self) -> tuple[Eviction, ...]:
        """The same for whoever is asked; as they were planned where no host was asked."""
        if self.evicted is None:
            return self.candidate.evicts
        return tuple(one.eviction for one in self.evicted)

    @property
    def evicted_members(self) -> tuple[Member, ...]:
        """Their containers, as far as hosts were asked."""
        return tuple(one.member for each in self.evicted or () for one in each.group.containers)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host that something is started or stopped on."""
        stopped = (host for one in self.evicted or () for host in one.group.hosts)
        there = (member.host for member in self.replaces)
        return tuple(dict.fromkeys((*self.spec.hosts, *there, *stopped)))

    @property
    def category(self) -> Category:
        return self.wanted.model.category

    @property
    def replaces(self) -> tuple[Member, ...]:
        """What this one will replace unless it is the same."""
        return tuple(one.member for one in self.existing.containers)

    @property
    def workload(self) -> Workload:
        return self.wanted.workload

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(server.endpoint for server in self.spec.servers)


def look(request: DeployRequest) -> Prepared:
    """What would be done, for `--dry-run` and `--export`; hosts are probed unless the options say otherwise."""
    wanted = read_wanted(request)
    if request.fleet.probes:
        with opened_fleet(request, wanted) as opened:
            return prepare(opened, wanted)
    fleet = read_fleet(request.fleet, None if request.fleet.snapshot is not None else wanted.inventory)
    return look_on(fleet, wanted)


def look_on(
    fleet: Fleet,
    wanted: Wanted,
    planned: Candidate | None = None,
    *,
    secrets: Mapping[str, str] | None = None,
) -> Prepared:
    """The same on a fleet that was read, its hosts not asked again; `planned`: this candidate, not the recommended one.

    `secrets`: those there are; None: as arguments, inventory and this machine have them. Raises NothingFits, FleetChanged.
    """
    name = wanted.name or default_name(named_model(wanted).name)
    question = question_on(fleet, wanted, name, planned.evicts if planned is not None else ())
    candidate = chosen(wanted, question, None) if planned is None else unchanged(planned, question)
    if planned is None and candidate.evicts:
        question = question_on(fleet, wanted, name, candidate.evicts)
    place = assumed_place(wanted, candidate)
    taken = taken_ports(fleet, replacing=name)
    return _compiled(wanted, name, question, candidate, place, taken=taken, secrets=secrets)


def prepare(opened: "OpenFleet", wanted: Wanted) -> Prepared:
    """Plan on the fleet that was opened, where the deployment is already if it fits there still.

    Raises NothingFits, NotReady, FleetChanged, UsageError, NoHostError.
    """
    require_usable(narrowed(opened.fleet, wanted))
    name = name_of(opened, wanted)
    found = existing_of(opened, name)
    wanted = as_it_runs(wanted, found, narrowed(released(opened.fleet, name), wanted))
    saved = wanted.saved
    question = question_on(opened.fleet, wanted, name, saved.candidate.evicts if saved is not None else ())
    candidate = (
        chosen(wanted, question, placement_of(found))
        if saved is None
        else unchanged(saved.candidate, question)
    )
    if saved is None and candidate.evicts:
        question = question_on(opened.fleet, wanted, name, candidate.evicts)
    evicted = to_evict(opened, candidate.evicts)
    return replace(_on_hosts(opened, wanted, name, question, candidate, found), evicted=evicted)


def prepare_again(opened: "OpenFleet", prepared: Prepared) -> Prepared:
    """The same on the fleet as it is now, its hosts read again. Raises FleetChanged, NotReady.

    Ports that were taken meanwhile are replaced, and that is told.
    """
    wanted, name = prepared.wanted, prepared.name
    opened.read_again(prepared.hosts)
    if (now := name_of(opened, wanted)) != name:
        raise FleetChanged([_fact("GP821", {"deployment": name}, hosts=(), other=now)])
    question = question_on(opened.fleet, wanted, name, prepared.candidate.evicts)
    candidate = unchanged(prepared.candidate, question)
    evicted = as_agreed(opened, prepared.evicted or ())
    again = _on_hosts(opened, wanted, name, question, candidate, existing_of(opened, name))
    remarks = (*again.remarks, *_moved_ports(prepared.spec, again.spec))
    return replace(again, remarks=remarks, evicted=evicted)


def require_room(opened: "OpenFleet", prepared: Prepared) -> None:
    """What was planned fits beside everything that holds memory on the fleet as it was read last. Raises FleetChanged."""
    unchanged(prepared.candidate, question_on(opened.fleet, prepared.wanted, prepared.name))


def name_of(opened: "OpenFleet", wanted: Wanted) -> str:
    """`--name`, else one from the model: that of the deployment which serves the model already, else a free one."""
    if wanted.name is not None:
        return wanted.name
    named = named_model(wanted)
    base = default_name(named.name)
    present = names_of(opened.fleet.hosts)
    for number in range(1, 1000):
        name = base if number == 1 else f"{base}-{number}"
        if name not in present:
            return name
        label = existing(opened, name, present[name]).label
        if label.get(labels.MODEL) in {named.id, f"{_MODELS}/{named.name}"}:
            return name
    raise UsageError(f"a thousand deployments are called {base}", hint="give this one a name with --name")


def existing_of(opened: "OpenFleet", name: str) -> Existing:
    """What there is of a deployment on every host that answers."""
    return existing(opened, name, tuple(opened.connections))


def assumed_place(wanted: Wanted, candidate: Candidate) -> ServedModel:
    """Where the model is taken to lie when no host is asked."""
    named = named_model(wanted)
    if named.id is not None:
        return HubModel(id=named.id, revision=named.revision)
    entries = {entry.name: entry for entry in wanted.inventory.hosts}
    paths = {}
    for placed in candidate.placement:
        entry = entries.get(placed.host)
        directory = (entry.model_dir if entry is not None else None) or _MODELS
        paths[placed.host] = named.path or f"{directory.rstrip('/')}/{named.name}"
    return DirectoryModel(paths=paths, inside=f"{_MODELS}/{named.name}")


def _on_hosts(
    opened: "OpenFleet",
    wanted: Wanted,
    name: str,
    question: PlanRequest,
    candidate: Candidate,
    found: Existing,
) -> Prepared:
    """Compiled for hosts that can be asked where the model lies and what holds their ports."""
    hosts = tuple(dict.fromkeys(placed.host for placed in candidate.placement))
    require_ready(opened.fleet, hosts)
    engine = wanted.workload.engine
    place = locate(
        wanted.asked.reference or wanted.model.path,
        wanted.model,
        wanted.inventory,
        opened,
        hosts,
        revision=engine.revision,
        config_only=engine.load_format == "dummy",
    )
    if wanted.carried and place.model is None and all(fact.code == ABSENT for fact in place.facts):
        inside = f"{_MODELS}/{named_model(wanted).name}"
        place = replace(place, model=DirectoryModel(paths={}, inside=inside, carried=True), facts=())
    if place.model is None or place.failures:
        raise NotReady(place.failures)
    preferred = preferred_ports(one.labels for one in found.containers)
    prepared = _compiled(
        wanted,
        name,
        question,
        candidate,
        pinned(place, place.model),
        taken=taken_ports(opened.fleet, replacing=name, preferred=preferred),
        preferred=preferred,
    )
    taken = taken_names(opened, prepared.spec)
    if taken:
        raise NotReady(taken)
    return replace(
        prepared,
        place=place,
        existing=found,
        remarks=clocks_off(opened.fleet, hosts),
    )


def pinned(place: "ModelPlace", model: ServedModel) -> ServedModel:
    """The commit that all hosts have whole, so that an engine which starts later does not fetch another one."""
    commits = {found.revision for found in place.found.values()}
    commit = commits.pop() if len(commits) == 1 and not place.missing else None
    return replace(model, revision=commit) if isinstance(model, HubModel) and commit else model


def _compiled(
    wanted: Wanted,
    name: str,
    question: PlanRequest,
    candidate: Candidate,
    model: ServedModel,
    *,
    taken: Mapping[str, frozenset[int]],
    preferred: Mapping[tuple[int, str], int] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Prepared:
    known = dict(secrets) if secrets is not None else _secrets(wanted, model)
    compile_request = CompileRequest(
        name=name,
        candidate=candidate,
        profile=question.profile,
        category=wanted.model.category,
        workload=question.workload,
        version=wanted.version,
        fleet=question.fleet,
        inventory=wanted.inventory,
        image=image_of(wanted, question.fleet, candidate),
        model=model,
        taken=taken,
        preferred=preferred or {},
        secrets=tuple(known),
        homes={entry.name: home_of(entry, question.fleet) for entry in wanted.inventory.hosts},
        keep_alive_seconds=wanted.keep_alive_seconds,
        asked={**question.echo, **placement_label(candidate)},
        trial=wanted.trial,
    )
    spec = compile_deployment(compile_request)
    return Prepared(
        wanted=wanted,
        name=name,
        candidate=candidate,
        request=question,
        compile_request=compile_request,
        spec=spec,
        secrets=SecretValues(known),
    )


def _secrets(wanted: Wanted, model: ServedModel) -> dict[str, str]:
    """What the words and variables give away, then what this machine's environment has (`deploy-facts` section 7)."""
    known = secrets_of(wanted.workload.engine.user_args, wanted.inventory.vllm.env)
    if API_KEY not in known and (key := wanted.environ.get(API_KEY)):
        known[API_KEY] = key
    if HUB_TOKEN not in known and isinstance(model, HubModel):
        token = hub_token(wanted.environ)
        if token:
            known[HUB_TOKEN] = token
    return known


def home_of(entry: HostEntry, fleet: Fleet) -> str:
    """The home of the login on a host: as the probe saw it, else where a Linux has it."""
    host = next((one for one in fleet.hosts if one.name == entry.name), None)
    for disk in host.facts.disks if host is not None else ():
        if disk.purpose == "huggingface_cache" and disk.path.endswith(_CACHE):
            return disk.path.removesuffix(_CACHE)
    user = (host.facts.user if host is not None else None) or entry.user or os.environ.get("USER") or "root"
    return "/root" if user == "root" else f"/home/{user}"


def image_of(wanted: Wanted, fleet: Fleet, candidate: Candidate) -> str:
    """The reference of the image that a candidate is started from."""
    choice = image_for(
        explicit=wanted.workload.image,
        settings=wanted.inventory.vllm,
        fleet=fleet,
        candidate=candidate,
        version=wanted.version,
        category=wanted.model.category,
    )
    return choice.reference


def _fact(code: str, subject: Mapping[str, object], **figures: object) -> Fact:
    return Fact(code=code, severity=Severity.ERROR, subject=subject, figures=figures)


def _moved_ports(before: DeploymentSpec, after: DeploymentSpec) -> tuple[Fact, ...]:
    return tuple(
        Fact(
            code="GP810",
            severity=Severity.WARNING,
            subject={"host": then.host},
            figures={"before": then.port, "after": now.port},
        )
        for then, now in zip(before.servers, after.servers, strict=False)
        if then.port != now.port
    )
