"""What is to run, container by container, and what runs. Values only: `deploying` makes them, `operations` acts on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuplan.domain.plan import Role


class ContainerRole(StrEnum):
    SINGLE = Role.SINGLE.value
    LEADER = Role.LEADER.value
    FOLLOWER = Role.FOLLOWER.value
    REPLICA = Role.REPLICA.value
    RAY_HEAD = "ray-head"
    """Beside the leader's server: the cluster's first node, in whose container the leader's workers run (S1.13)."""
    HELPER = "helper"
    """Short-lived: asks an image for its versions, downloads weights."""


class Launch(StrEnum):
    """How a server's ranks find each other (`deploy-facts` section 3)."""

    SINGLE = "single"
    """One host: vLLM's own processes."""
    NATIVE_MP = "mp_only"
    """One replica over several hosts: `--nnodes`."""
    NATIVE_DP = "dp_only"
    """Data-parallel ranks over hosts, each replica inside a host."""
    NATIVE_NESTED = "nested"
    """Data-parallel ranks, each over several hosts."""
    RAY = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A directory or file of the host inside a container."""

    source: str
    """Absolute on the host."""
    target: str
    read_only: bool = False
    make: bool = False
    """Ours to make on the host, by its login, where it is missing: caches. Others must be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """Docker's own check: it tells a server that loads (`starting`) from one that serves, to every onlooker."""

    command: tuple[str, ...]
    """Run inside, without a shell."""
    interval_seconds: int = 10
    timeout_seconds: int = 5
    retries: int = 3
    start_seconds: int = 7200
    """While it loads, failures do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container, as it is created; every field that Docker is told."""

    host: str
    """Name in the inventory."""
    name: str
    """`gpuplan-<deployment>-…`, unique on its host."""
    role: ContainerRole
    server: int = 0
    rank: int = 0
    """Node rank in its server, leader 0."""
    image: str
    """As asked for; it is created from the id that reference has on the leader."""
    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    """Sorted by name; no secrets."""
    secrets: tuple[str, ...] = ()
    """Names of secrets (`SecretValues`) whose files are put into it before it starts, at `SECRETS_DIRECTORY`/NAME."""
    gpus: tuple[str, ...] = ()
    """UUIDs (GPU or MIG), or indexes where the host tells no UUID; NVIDIA: through a device request."""
    gpu_indexes: tuple[int, ...] = ()
    """The same GPUs as people name them."""
    devices: tuple[str, ...] = ()
    """Device files: AMD, Ascend, InfiniBand."""
    mounts: tuple[Mount, ...] = ()
    volumes: tuple[str, ...] = ()
    """Paths inside that are anonymous volumes, removed with the container."""
    volumes_from: str | None = None
    """Name of the container of the same host whose volumes it shares."""
    pid_from: str | None = None
    """Name of the container of the same host whose process ids it shares; None: its own."""
    shm_bytes: int = 10 * 1024**3
    user: str | None = None
    """`uid:gid`; None: the image's."""
    groups: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    ulimits: tuple[tuple[str, int], ...] = ()
    """Name and limit, soft and hard; -1 is unlimited."""
    health: HealthCheck | None = None
    stop_seconds: int = 30
    """It is killed after so long."""
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted. Those that differ from deploy to deploy (`GENERATION`, `SPEC_HASH`) are added when it is created."""


SECRETS_DIRECTORY = "/run/gpuplan/secrets"
"""Inside every container that has secrets; files of mode 0400, one a secret, without a newline at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """Served by its id from the cache of the hub that every host has (`VllmSettings.huggingface_home`)."""

    id: str
    """`org/name`."""
    revision: str | None = None
    """Branch, tag or commit as asked for; None: `main`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryModel:
    """Served from a directory that lies on every host."""

    paths: Mapping[str, str]
    """Host to the absolute path there, symbolic links resolved."""
    inside: str
    """Where every container sees it, read-only: `/models/NAME`."""
    carried: bool = False
    """Its small files are put into every container; nothing of it lies on a host."""


ServedModel = HubModel | DirectoryModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the plan says the engine will print, for comparing with what it prints; None where only a claim is known."""

    weights_bytes: int | None = None
    """Of the fullest rank, weights and what loading adds: "Model loading took"."""
    kv_cache_bytes: int | None = None
    """Of the rank with the least: "Available KV cache memory"."""
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    cuda_graph_bytes: int | None = None
    kv_needed_bytes: int | None = None
    """For one request of `max_model_len`."""
    per_gpu_bytes: int | None = None
    """Booked on each GPU (the largest claim)."""
    gpu_memory_utilization: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """What the engine printed of itself, over all members: the fullest rank, the rank with the least cache."""

    weights_bytes: int | None = None
    kv_cache_bytes: int | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    cuda_graph_bytes: int | None = None
    load_seconds: float | None = None
    start_seconds: float | None = None
    """From the first line to `Application startup complete`."""
    used_bytes: tuple[tuple[str, int, int], ...] = ()
    """Host, GPU index, bytes the device reports for our processes on it now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One address that answers requests, and how its hosts work together."""

    number: int
    launch: Launch
    host: str
    """Where it serves."""
    address: str
    """IP address or name its HTTP port is bound to; `0.0.0.0` is every address of the host."""
    port: int
    endpoint: str
    """What a user writes: `http://10.0.0.11:40000`."""
    ray_addresses: tuple[tuple[str, str, int], ...] = ()
    """With Ray: host, the address it registers with, GPUs it brings; all of them before the server starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSpec:
    """All that one `deploy` starts. The order of `containers` is the order they are started in."""

    name: str
    model: str
    served_name: str
    vllm_version: str
    image: str
    servers: tuple[Server, ...]
    containers: tuple[ContainerSpec, ...]
    predicted: Prediction = field(default_factory=Prediction)
    injected: tuple[str, ...] = ()
    """Arguments of the first server that gpuplan added, apart from what the user wrote (S2.7)."""
    notes: tuple[str, ...] = ()
    """What the operator should know of these containers: open ports, binding, privileges."""
    request: Mapping[str, object] = field(default_factory=dict, hash=False)
    """What was asked, secrets masked."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """In order of their first container."""
        return tuple(dict.fromkeys(container.host for container in self.containers))

    def of_server(self, number: int) -> tuple[ContainerSpec, ...]:
        """The containers of one server, in starting order."""
        return tuple(container for container in self.containers if container.server == number)


class SecretValues:
    """Secrets by name (`HF_TOKEN`, `VLLM_API_KEY`, `RAY_AUTH_TOKEN`); never printed, never compared, never stored."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __repr__(self) -> str:
        return f"SecretValues({', '.join(sorted(self._values))})"

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __bool__(self) -> bool:
        return bool(self._values)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._values))

    def reveal(self, name: str) -> str:
        """The value, for the file inside the container and nothing else."""
        return self._values[name]

    def masked(self, text: str) -> str:
        """The text with every secret of at least four characters replaced by `***`."""
        for value in sorted(self._values.values(), key=len, reverse=True):
            if len(value) >= 4:
                text = text.replace(value, "***")
        return text


NO_SECRETS = SecretValues()


ENDED = frozenset({"exited", "dead", "removing"})
"""Docker's states of a container that has run: it prints nothing more, holds no memory and is not about to."""
GONE = ENDED | {"missing"}
"""The same, and that of one which was made and is not there any more."""


class State(StrEnum):
    """Of a deployment (S2.1)."""

    PREPARING = "preparing"
    STARTING = "starting"
    RUNNING = "running"
    UNHEALTHY = "unhealthy"
    STOPPED = "stopped"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One container of a deployment as it is now."""

    host: str
    container: str
    """Its name."""
    id: str = ""
    role: ContainerRole
    rank: int = 0
    server: int = 0
    state: str
    """As Docker prints it (`created`, `running`, `exited`, …); `missing`: it should be there; `unknown`: host silent."""
    health: str | None = None
    """`starting`, `healthy`, `unhealthy`; None: it has no check."""
    gpus: tuple[str, ...] = ()
    gpu_indexes: tuple[int, ...] = ()
    exit_code: int | None = None
    oom_killed: bool = False
    started_at: str | None = None
    """ISO 8601, UTC."""
    finished_at: str | None = None
    message: str | None = None
    """Docker's own words about a start that failed, or ours about a host that is silent."""
    generation: str = ""
    spec_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the engine's metrics say now."""

    running: int | None = None
    waiting: int | None = None
    kv_cache_share: float | None = None
    """Of the KV cache in use, 0 to 1."""
    requests: int | None = None
    """Served since it started."""
    tokens: int | None = None
    """Read and written since it started: they move also when a request is broken off, which is not served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A deployment as it is: `gpuplan status`, and the last line of `deploy -o json`."""

    name: str
    state: State
    model: str = ""
    served_name: str = ""
    endpoint: str | None = None
    """Of its first server."""
    endpoints: tuple[str, ...] = ()
    """Of every server: N independent replicas have N."""
    image: str = ""
    vllm_version: str = ""
    members: tuple[Member, ...] = ()
    predicted: Prediction = field(default_factory=Prediction)
    actual: Actual | None = None
    load: Load | None = None
    uptime_seconds: int | None = None
    message: str | None = None
    """Why it is not running, in one sentence."""
    keep_alive_seconds: int | None = None
