"""`gpuplan plan -f … -o json`: every model with its homes, who blocks whom, and the moves (`schema_version` 1)."""

import shlex
from dataclasses import dataclass

from gpuplan.planning.packing.answer import Answer, Copy, ModelAnswer, Move
from gpuplan.planning.packing.blocking import Blocked
from gpuplan.planning.packing.facts import places
from gpuplan.planning.packing.moves import Action
from gpuplan.planning.packing.values import Cost
from gpuplan.present.command_lines import deploy_words
from gpuplan.present.plan_document import (
    CandidateDocument,
    FindingDocument,
    candidate_document,
    finding_document,
)

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CopyDocument:
    """One replica in its place."""

    deployment: str
    stays: bool
    """It runs there already and stays."""
    gpus: tuple[str, ...]
    """HOST:IDX[,IDX], as `--gpus` takes them."""
    gpu_memory_utilization: float | None
    """Null: it claims only what it needs."""
    candidate: CandidateDocument
    """As `gpuplan plan --gpus` has it beside the other models."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BlockerDocument:
    """A model on GPUs that another could have had."""

    model: str
    gpus: int
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MoreDocument:
    """GPUs of one kind on a further host."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class BlockedDocument:
    """Why a model is not placed, and what would let it in; each way was tried."""

    why: str
    blockers: tuple[BlockerDocument, ...]
    without: tuple[str, ...]
    """Any one of these left out would do."""
    without_all: tuple[str, ...]
    """Where none alone does: all of these."""
    stopping: tuple[str, ...]
    """Any one of these deployments, which the file does not name, stopped would do."""
    more: MoreDocument | None
    room_for_replicas: int
    unpinned: bool
    """Without its pins it has room."""
    together: bool
    """Without anti-affinity it has room."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PackedModelDocument:
    """One model of the file."""

    name: str
    model: str
    priority: int
    replicas: int
    placed: bool
    copies: tuple[CopyDocument, ...]
    blocked: BlockedDocument | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MoveDocument:
    """One step; steps are to be done in this order, each when the one before has ended."""

    action: str
    reason: str
    model: str
    deployment: str
    gpus: tuple[str, ...]
    instead_of: str | None
    """The deployment it takes over from."""
    command: str | None
    """Null: nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CostDocument:
    """What packings are compared by, in this order."""

    left_out_priority: int
    gpus: int
    gpu_memory_bytes: int
    starts: int
    waits: int
    """Of the starts, those that wait for what runs there now."""
    further_hosts: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PackingFleetDocument:
    """What was packed into."""

    basis: str
    taken_at: str | None
    hosts: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PackingDocument:
    """All models together."""

    schema_version: int
    complete: bool
    """Every model is placed."""
    fleet: PackingFleetDocument
    optimal: bool
    """No packing is better; false: that is not proved, and none is better than `bound`."""
    cost: CostDocument
    bound: CostDocument
    models: tuple[PackedModelDocument, ...]
    moves: tuple[MoveDocument, ...]
    findings: tuple[FindingDocument, ...]


def packing_document(answer: Answer) -> PackingDocument:
    """The whole answer as data."""
    packing = answer.packing
    return PackingDocument(
        schema_version=SCHEMA_VERSION,
        complete=answer.complete,
        fleet=PackingFleetDocument(
            basis=answer.fleet_basis, taken_at=answer.taken_at, hosts=answer.hosts, gpus=answer.gpus
        ),
        optimal=packing.optimal,
        cost=CostDocument(**_cost(packing.cost)),
        bound=CostDocument(**_cost(packing.bound)),
        models=tuple(_model(model) for model in answer.models),
        moves=tuple(_move(move, answer.inventory) for move in answer.moves),
        findings=tuple(finding_document(fact) for fact in answer.facts),
    )


def _cost(cost: Cost) -> dict[str, int]:
    names = ("left_out_priority", "gpus", "gpu_memory_bytes", "starts", "waits", "further_hosts")
    return dict(zip(names, cost, strict=True))


def _model(model: ModelAnswer) -> PackedModelDocument:
    return PackedModelDocument(
        name=model.name,
        model=model.reference,
        priority=model.priority,
        replicas=model.replicas,
        placed=model.placed,
        copies=tuple(_copy(copy) for copy in model.copies),
        blocked=None if model.blocked is None else _blocked(model.blocked),
    )


def _copy(copy: Copy) -> CopyDocument:
    return CopyDocument(
        deployment=copy.deployment,
        stays=copy.stays,
        gpus=gpus_of(copy),
        gpu_memory_utilization=copy.share,
        candidate=candidate_document(copy.candidate),
    )


def gpus_of(copy: Copy) -> tuple[str, ...]:
    """`h1:0,1` for each host."""
    return tuple(
        f"{host.host}:{','.join(str(gpu.index) for gpu in host.gpus)}" for host in copy.candidate.placement
    )


def _blocked(one: Blocked) -> BlockedDocument:
    more = None
    if one.more is not None:
        more = MoreDocument(kind=str(getattr(one.more[0], "name", one.more[0])), count=one.more[1])
    return BlockedDocument(
        why=one.why.value,
        blockers=tuple(
            BlockerDocument(model=other.item, gpus=other.cards, priority=other.priority)
            for other in one.blockers
        ),
        without=one.without,
        without_all=one.without_all,
        stopping=one.stopping,
        more=more,
        room_for_replicas=one.copies,
        unpinned=one.unpinned,
        together=one.together,
    )


def _move(move: Move, inventory: str | None) -> MoveDocument:
    step = move.step
    return MoveDocument(
        action=step.action.value,
        reason=step.reason.value,
        model=step.item,
        deployment=step.deployment,
        gpus=tuple(places(step.cards)),
        instead_of=step.instead_of,
        command=command_of(move, inventory),
    )


def command_of(move: Move, inventory: str | None) -> str | None:
    """The command of a step, quoted for a POSIX shell; None where nothing is to be done."""
    step = move.step
    if step.action is Action.STOP:
        words = ["gpuplan", "stop", step.deployment]
        return shlex.join([*words, *(["--inventory", inventory] if inventory is not None else [])])
    if step.action is Action.START and move.request is not None:
        asked = list(deploy_words(move.request, inventory=inventory))
        return shlex.join([*asked[:3], "--name", step.deployment, *asked[3:]])
    return None
