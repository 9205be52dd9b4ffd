"""What happens during a deploy or a stop, as it happens. A deployment's state is these events put together."""

from dataclasses import dataclass, field
from enum import StrEnum

from gpuplan.domain.deployment import DeploymentSpec, Member, State
from gpuplan.domain.fact import Fact


class Phase(StrEnum):
    """The order of operations; a deploy passes through them in this order and skips those it does not need."""

    CONNECT = "connect"
    CAPACITY = "capacity"
    """Room is waited for (`--wait-for-capacity`)."""
    LOCK = "lock"
    COMPARE = "compare"
    """The fleet against the plan."""
    PREFLIGHT = "preflight"
    IMAGE = "image"
    WEIGHTS = "weights"
    REPLACE = "replace"
    """What ran under the name is stopped and set aside; its memory comes back."""
    CREATE = "create"
    START = "start"
    REGISTER = "register"
    """Every host and GPU is in the cluster."""
    LOAD = "load"
    """The engine loads weights, compiles, makes its cache."""
    READY = "ready"
    """`/health` and `/v1/models`."""
    ANSWER = "answer"
    """One real completion."""
    CLEAN = "clean"
    """What was replaced is removed."""
    UNDO = "undo"
    """After a failure: what was created is removed, what was replaced runs again."""
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted:
    phase: Phase
    awaits: str
    """What it waits for, in words: `every host to have vllm/vllm-openai:v0.33.0`."""
    deadline_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDone:
    phase: Phase
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes on their way to a host: an image's layers, a model's files."""

    phase: Phase
    host: str
    done_bytes: int
    total_bytes: int | None
    about: str = ""
    """`pulling`, `from h100-a`, `model-00003-of-00017.safetensors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen:
    """A container was made, started, ended or got healthy."""

    member: Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """The engine's own words on how far it is."""

    host: str
    container: str
    kind: str
    """A `engine.startup_log.MilestoneKind`."""
    text: str
    """The log's line, masked, without its prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something worth telling that stops nothing."""

    fact: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Why it ended badly: the root cause first, then what followed from it."""

    phase: Phase
    facts: tuple[Fact, ...]
    logs: tuple[str, ...] = ()
    """Files the members' first logs were saved to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """One thing that was taken back, or could not be."""

    host: str
    container: str
    what: str
    """`removed`, `restored`, `left`."""
    why: str | None = None
    """For what was left: the reason, and what takes it away later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    state: State
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDecided:
    """What is going to be started is known."""

    spec: DeploymentSpec
    spec_hash: str
    generation: str


Event = (
    PhaseStarted
    | PhaseDone
    | Transfer
    | MemberSeen
    | Milestone
    | Remark
    | Failed
    | Undone
    | StateChanged
    | SpecDecided
)


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """An event and when it happened (seconds since 1970)."""

    at: float
    event: Event = field(compare=True)
