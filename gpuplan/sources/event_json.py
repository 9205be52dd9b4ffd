"""A line of `deploy -o json` → an event, or the deployment at its end: what another process said it did.

The lines are written by `present.event_words` and `present.deployment_document`; what they leave out (how servers are
launched, commands, mounts) stays at its default. A line of another version that cannot be read is no event.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from gpuplan.domain.deployment import (
    Actual,
    ContainerRole,
    ContainerSpec,
    Deployment,
    DeploymentSpec,
    Launch,
    Load,
    Member,
    Prediction,
    Server,
    State,
)
from gpuplan.domain.events import (
    At,
    Event,
    Failed,
    MemberSeen,
    Milestone,
    Phase,
    PhaseDone,
    PhaseStarted,
    Remark,
    SpecDecided,
    StateChanged,
    Transfer,
    Undone,
)
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Basis
from gpuplan.domain.plan import Holding, Owner

Document = Mapping[str, Any]
_HOLDING = frozenset(field.name for field in fields(Holding))
Figures = TypeVar("Figures", Prediction, Load)
DEPLOYMENT = "deployment"
"""The event's name of the last line."""


class NotAnEvent(ValueError):
    """A line that is not one of those, or of a version whose events this one does not know."""


def read_line(line: bytes | str) -> At | Deployment:
    """One whole line. Raises NotAnEvent."""
    try:
        document = json.loads(line)
    except ValueError as error:
        raise NotAnEvent("not JSON") from error
    if not isinstance(document, dict):
        raise NotAnEvent("not an object")
    return read_deployment(document) if document.get("event") == DEPLOYMENT else read_event(document)


def read_event(document: Document) -> At:
    """The event that `event_document` wrote. Raises NotAnEvent."""
    reader = _READERS.get(str(document.get("event")))
    if reader is None:
        raise NotAnEvent(f"no event is called {str(document.get('event'))[:40]!r}")
    try:
        at = datetime.fromisoformat(document["at"]).timestamp()
        return At(at=at, event=reader(document))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotAnEvent(f"{document.get('event')}: {error!r}") from error


def read_deployment(document: Document) -> Deployment:
    """The deployment that `deployment_document` wrote. Raises NotAnEvent."""
    try:
        return Deployment(
            name=str(document["name"]),
            state=State(document["state"]),
            model=str(document["model"]),
            served_name=str(document["served_name"]),
            endpoint=document["endpoint"],
            endpoints=tuple(document["endpoints"]),
            image=str(document["image"]),
            vllm_version=str(document["vllm_version"]),
            members=tuple(read_member(member) for member in document["members"]),
            predicted=_figures(Prediction, document["predicted"]),
            actual=None if document["actual"] is None else _actual(document["actual"]),
            load=None if document["load"] is None else _figures(Load, document["load"]),
            uptime_seconds=document["uptime_seconds"],
            keep_alive_seconds=document["keep_alive_seconds"],
            message=document["message"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotAnEvent(f"deployment: {error!r}") from error


def read_member(document: Document) -> Member:
    """One container of a deployment."""
    known = {field.name: document[field.name] for field in fields(Member) if field.name in document}
    known |= {"gpus": tuple(known.get("gpus", ())), "gpu_indexes": tuple(known.get("gpu_indexes", ()))}
    return Member(**{**known, "role": ContainerRole(document["role"])})


def read_fact(document: Document) -> Fact:
    """The fact behind a finding: `present.findings.word` gives it the same words again."""
    return Fact(
        code=str(document["code"]),
        severity=Severity(document["severity"]),
        subject=_frozen(document["subject"]),
        figures=_frozen(document["figures"]),
    )


def _frozen(value: Any) -> Any:
    """JSON's arrays as the tuples they were, and who holds memory as what words are made of."""
    if isinstance(value, dict) and value.keys() == _HOLDING:
        return Holding(**{**value, "owner": Owner(value["owner"]), "basis": Basis(value["basis"])})
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _figures(kind: type[Figures], document: Document) -> Figures:
    return kind(**{field.name: document.get(field.name) for field in fields(kind)})


def _actual(document: Document) -> Actual:
    names = [field.name for field in fields(Actual) if field.name != "used_bytes"]
    used = tuple((item["host"], item["index"], item["used_bytes"]) for item in document.get("used", ()))
    return Actual(used_bytes=used, **{name: document.get(name) for name in names})


def _decided(document: Document) -> SpecDecided:
    containers = tuple(_container(one, document["image"]) for one in document["containers"])
    return SpecDecided(
        spec=DeploymentSpec(
            name=document["name"],
            model=document["model"],
            served_name=document["served_name"],
            vllm_version=document["vllm_version"],
            image=document["image"],
            servers=tuple(
                _server(number, endpoint, [one for one in containers if one.server == number])
                for number, endpoint in enumerate(document["endpoints"])
            ),
            containers=containers,
            notes=tuple(document["notes"]),
        ),
        spec_hash=document["spec_hash"],
        generation=document["generation"],
    )


def _container(document: Document, image: str) -> ContainerSpec:
    return ContainerSpec(
        host=document["host"],
        name=document["container"],
        role=ContainerRole(document["role"]),
        server=document["server"],
        rank=document["rank"],
        image=image,
        entrypoint=(),
        gpus=tuple(document["gpus"]),
        gpu_indexes=tuple(document["gpu_indexes"]),
    )


def _server(number: int, endpoint: str, containers: list[ContainerSpec]) -> Server:
    """The endpoint says where; how its hosts work together is told apart by their roles."""
    address, _, port = endpoint.partition("://")[2].rstrip("/").rpartition(":")
    leaders = [one for one in containers if one.role is not ContainerRole.FOLLOWER]
    launch = Launch.SINGLE if len({one.host for one in containers}) < 2 else Launch.NATIVE_MP
    if any(one.role is ContainerRole.RAY_HEAD for one in containers):
        launch = Launch.RAY
    return Server(
        number=number,
        launch=launch,
        host=leaders[0].host if leaders else "",
        address=address,
        port=int(port) if port.isdecimal() else 0,
        endpoint=endpoint,
    )


def _phase_started(document: Document) -> PhaseStarted:
    return PhaseStarted(
        phase=Phase(document["phase"]),
        awaits=document["awaits"],
        deadline_seconds=document["deadline_seconds"],
    )


def _phase_done(document: Document) -> PhaseDone:
    return PhaseDone(phase=Phase(document["phase"]), seconds=float(document["seconds"]))


def _transfer(document: Document) -> Transfer:
    return Transfer(
        phase=Phase(document["phase"]),
        host=document["host"],
        done_bytes=int(document["done_bytes"]),
        total_bytes=document["total_bytes"],
        about=document["about"],
    )


def _member_seen(document: Document) -> MemberSeen:
    return MemberSeen(member=read_member(document["member"]))


def _milestone(document: Document) -> Milestone:
    return Milestone(
        host=document["host"],
        container=document["container"],
        kind=document["kind"],
        text=document["text"],
    )


def _remark(document: Document) -> Remark:
    return Remark(fact=read_fact(document["finding"]))


def _failed(document: Document) -> Failed:
    return Failed(
        phase=Phase(document["phase"]),
        facts=tuple(read_fact(finding) for finding in document["findings"]),
        logs=tuple(document["logs"]),
    )


def _undone(document: Document) -> Undone:
    return Undone(
        host=document["host"],
        container=document["container"],
        what=document["what"],
        why=document["why"],
    )


def _state_changed(document: Document) -> StateChanged:
    return StateChanged(state=State(document["state"]), message=document["message"])


_READERS: dict[str, Callable[[Document], Event]] = {
    "spec_decided": _decided,
    "phase_started": _phase_started,
    "phase_done": _phase_done,
    "transfer": _transfer,
    "member_seen": _member_seen,
    "milestone": _milestone,
    "remark": _remark,
    "failed": _failed,
    "undone": _undone,
    "state_changed": _state_changed,
}
KNOWN = frozenset(_READERS)
