"""From what was asked to the containers to be started: read, planned, placed, compiled. Nothing on a host is changed."""

import os
from collections.abc import Mapping, Sequence
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
from gpuplan.domain.plan import Candidate, Parallelism, PlacedHost, Verdict
from gpuplan.domain.saved_plan import SavedCandidate
from gpuplan.domain.workload import Category, Workload
from gpuplan.errors import UsageError
from gpuplan.operations.container_names import taken_names
from gpuplan.operations.deploy_hosts import clocks_off, require_ready
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
from gpuplan.operations.plan import (
    plan_model,
    request_for,
)
from gpuplan.operations.replan import breaks, candidate_at, changes
from gpuplan.operations.served_model import locate
from gpuplan.operations.stopped import FleetChanged, NothingFits, NotReady
from gpuplan.planning.planner import candidate_of
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
    question = _question(wanted, released(fleet, name))
    candidate = _chosen(wanted, question, None) if planned is None else _unchanged(planned, question)
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
    question = _question(wanted, narrowed(released(opened.fleet, name), wanted))
    saved = wanted.saved
    candidate = (
        _chosen(wanted, question, placement_of(found))
        if saved is None
        else _unchanged(saved.candidate, question)
    )
    return _on_hosts(opened, wanted, name, question, candidate, found)


def prepare_again(opened: "OpenFleet", prepared: Prepared) -> Prepared:
    """The same on the fleet as it is now, its hosts read again. Raises FleetChanged, NotReady.

    Ports that were taken meanwhile are replaced, and that is told.
    """
    wanted, name = prepared.wanted, prepared.name
    there = (member.host for member in prepared.replaces)
    opened.read_again(tuple(dict.fromkeys((*prepared.spec.hosts, *there))))
    if (now := name_of(opened, wanted)) != name:
        raise FleetChanged([_fact("GP821", {"deployment": name}, hosts=(), other=now)])
    question = _question(wanted, narrowed(released(opened.fleet, name), wanted))
    candidate = _unchanged(prepared.candidate, question)
    again = _on_hosts(opened, wanted, name, question, candidate, existing_of(opened, name))
    return replace(again, remarks=(*again.remarks, *_moved_ports(prepared.spec, again.spec)))


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


def _question(wanted: Wanted, fleet: Fleet) -> PlanRequest:
    return request_for(wanted.model, fleet, wanted.workload, wanted.version, wanted.asked)


def _chosen(
    wanted: Wanted, question: PlanRequest, there: tuple[tuple[PlacedHost, ...], Parallelism] | None
) -> Candidate:
    """The candidate where the deployment is, if that fits, else the recommended one (S4.9)."""
    if there is not None and not wanted.workload.selection:
        candidate = candidate_at(question, *there)
        if candidate is not None and candidate.verdict is Verdict.FITS:
            return candidate
    made = plan_model(wanted.model, question.fleet, wanted.workload, wanted.version, wanted.asked)
    candidate = candidate_of(made)
    if candidate is None:
        raise NothingFits(made)
    return candidate


def _unchanged(before: Candidate | SavedCandidate, question: PlanRequest) -> Candidate:
    found = changes(before, question)
    if breaks(found):
        raise _grave(found)
    candidate = candidate_at(question, before.placement, before.parallelism)
    if candidate is None:
        raise _grave(found)
    return candidate


def _grave(facts: Sequence[Fact]) -> FleetChanged:
    return FleetChanged([fact for fact in facts if fact.severity is Severity.ERROR] or facts)


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
