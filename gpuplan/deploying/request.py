"""What a compilation rests on: a recommended candidate, the fleet it was planned on, and what is known of image and ports."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuplan.deploying.image_probe import UNKNOWN, ImageFacts
from gpuplan.domain.deployment import ServedModel
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.inventory import Inventory
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Candidate
from gpuplan.domain.workload import Category, Workload
from gpuplan.engine.versions import EngineVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """One plan to be made into containers."""

    name: str
    """Of the deployment: `deploy --name`, else `compile.default_name`."""
    candidate: Candidate
    profile: ModelProfile
    category: Category
    workload: Workload
    version: EngineVersion
    """Of vLLM in the image: flags are gated by it."""
    fleet: Fleet
    inventory: Inventory
    image: str
    """From `images.image_for`."""
    image_facts: ImageFacts = UNKNOWN
    model: ServedModel
    taken: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Ports in use by host, without those of the deployment that this one replaces (`ports.taken_ports`)."""
    preferred: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """Ports the running deployment of that name has, by server number and name (`ports.preferred_ports`)."""
    secrets: tuple[str, ...] = ()
    """Names of secrets that are to be in the containers; those in arguments and variables are added."""
    homes: Mapping[str, str] = field(default_factory=dict)
    """Home directory of the login by host, for `~`."""
    keep_alive_seconds: int | None = None
    asked: Mapping[str, object] = field(default_factory=dict)
    """The request as it is repeated in the label; secrets of the arguments are masked in it again."""
    trial: bool = False
    """Nothing is served: the engine starts with made-up weights, says what it takes and is removed (`gpuplan verify`)."""
    run_command: str | None = None
    """In the place of `vllm serve MODEL`, with {{model_path}}, {{model_name}}, {{port}}, {{host_ip}}, {{worker_ip}} and
    names of variables (S2.5)."""
