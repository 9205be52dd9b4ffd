"""Parameters counted by the image itself, in a container without a GPU, beside the plan's weights."""

import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from gpuplan.deploying import verify_parameters as asked
from gpuplan.deploying.parameter_script import SECONDS, EngineParameters, read_parameters
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.verification import RankParameters, Verification
from gpuplan.errors import GpuplanError
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.deploy_prepare import image_of
from gpuplan.operations.deploy_request import DeployRequest, Wanted, narrowed, opened_fleet
from gpuplan.operations.fleet import require_usable
from gpuplan.operations.helper_containers import EngineHelpers
from gpuplan.operations.models import open_repository
from gpuplan.operations.plan import plan_model
from gpuplan.operations.stopped import NothingFits, NotReady
from gpuplan.operations.verify_outcome import outcome_of
from gpuplan.operations.verify_request import read_trial
from gpuplan.planning.planner import candidate_of
from gpuplan.remote.words import printable

if TYPE_CHECKING:
    from gpuplan.domain.plan import Candidate, Plan
    from gpuplan.operations.probe import OpenFleet

MATCH, SILENT, NO_IMAGE = "GP875", "GP876", "GP877"
LOOK_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterBytes:
    """What came of it."""

    ranks: tuple[RankParameters, ...] = ()
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """Program and question, put into the container before it starts."""

    contents: dict[str, bytes]
    directory: str = asked.DIRECTORY
    owner: tuple[int, int] = (0, 0)


def count_parameters(request: DeployRequest) -> Verification:
    """`gpuplan verify --parameters-only`: no GPU is touched, nothing is started but the counting container.

    A placement that does not fit now is counted all the same. Raises NotReady where the host lacks the image (GP877),
    and what planning raises.
    """
    wanted = read_trial(request)
    with opened_fleet(request, wanted) as opened:
        fleet = narrowed(opened.fleet, wanted)
        require_usable(fleet)
        made = plan_model(wanted.model, fleet, wanted.workload, wanted.version, wanted.asked)
        candidate = candidate_of(made) or _any(made)
        if candidate is None:
            raise NothingFits(made)
        image = image_of(wanted, fleet, candidate)
        hosts = tuple(dict.fromkeys(placed.host for placed in candidate.placement))
        host, image_id = _holder(opened, hosts, image)
        found = parameters_of(opened, wanted, candidate, host, image_id)
    return replace(
        outcome_of(wanted, candidate, wanted.name or "", image), parameters=found.ranks, facts=found.facts
    )


def _any(made: "Plan") -> "Candidate | None":
    """The first that was estimated, whatever its verdict."""
    candidates = (one for strategy in made.strategies for one in strategy.candidates)
    return next((one for one in candidates if one.memory is not None), None)


def _holder(opened: "OpenFleet", hosts: Sequence[str], image: str) -> tuple[str, str]:
    """A host that has the image, and its id there. Raises NotReady."""
    from gpuplan.remote.images import inspect_image

    def look(host: str) -> str | None:
        details = inspect_image(opened.engine_of(host), image)
        return details.id if details is not None else None

    found = on_each({host: partial(look, host) for host in hosts}, LOOK_SECONDS)
    for host, answer in found.items():
        if isinstance(answer, str):
            return host, answer
    facts = []
    for host, answer in found.items():
        if isinstance(answer, Outcome):
            facts.append(_fact("GP813", Severity.ERROR, host, why=answer.why, during="image"))
        else:
            facts.append(_fact(NO_IMAGE, Severity.ERROR, host, image=image))
    raise NotReady(facts)


def parameters_of(
    opened: "OpenFleet", wanted: Wanted, candidate: "Candidate", host: str, image_id: str
) -> ParameterBytes:
    """Counted on one host and compared; what stands against it is a fact. Never raises for a host."""
    memory = candidate.memory
    if memory is None or not memory.ranks:
        return _silent(host, "nothing was predicted of it but a claim")
    if wanted.workload.engine.speculative_config:
        return _silent(host, "the plan's weights are those of the model and its draft together")
    try:
        line = _question(opened, wanted, candidate, host)
    except GpuplanError as error:
        return _silent(host, error.message)
    if line is None:
        return _silent(host, "it is done for cards of NVIDIA whose compute capability is known")
    answer = _asked(opened, host, image_id, line, candidate)
    if answer.error is not None:
        return _silent(host, printable(answer.error)[:400])
    predicted = {rank.rank: rank.weights.bytes for rank in memory.ranks}
    counted = {one.stage * candidate.parallelism.tensor + one.tensor_rank: one for one in answer.ranks}
    ranks = tuple(
        RankParameters(rank=rank, predicted_bytes=predicted[rank], actual_bytes=one.parameters)
        for rank, one in sorted(counted.items())
        if rank in predicted
    )
    if not ranks:
        return _silent(host, "it counted other ranks than the plan has")
    worst = max(ranks, key=lambda one: abs(one.actual_bytes - one.predicted_bytes))
    exact = worst.actual_bytes == worst.predicted_bytes
    told = _fact(
        MATCH,
        Severity.INFO if exact else Severity.WARNING,
        host,
        rank=worst.rank,
        ranks=len(ranks),
        predicted_bytes=worst.predicted_bytes,
        actual_bytes=worst.actual_bytes,
        model_class=counted[worst.rank].built,
        pretended=answer.pretended,
    )
    return ParameterBytes(ranks=ranks, facts=(told,))


def _question(opened: "OpenFleet", wanted: Wanted, candidate: "Candidate", host: str) -> str | None:
    """The first and the last tensor-parallel rank of every stage: an uneven share lies between them. Raises ModelError."""
    repository = open_repository(wanted.asked.reference or wanted.model.path, wanted.workload.engine)
    shape = candidate.parallelism
    placed = {gpu.index for one in candidate.placement if one.host == host for gpu in one.gpus}
    cards = (gpu for one in opened.fleet.hosts if one.name == host for gpu in one.gpus)
    card = next((gpu for gpu in cards if gpu.index in placed), None)
    if card is None:
        return None
    return asked.question(
        candidate.vllm_args[2:],
        repository.config,
        quantization=repository.quantization,
        gpu=card,
        ranks=shape.world_size,
        tensor_ranks=sorted({0, shape.tensor - 1}),
    )


def _asked(
    opened: "OpenFleet", host: str, image_id: str, line: str, candidate: "Candidate"
) -> EngineParameters:
    """Run to its end, or to the end of patience, and removed."""
    from gpuplan.remote.connection import HostCallFailed

    helpers = EngineHelpers(opened)
    begun: list[str] = []
    ended = threading.Event()

    def run() -> str:
        body = asked.container_body(image_id, candidate.env)
        files = _Files(contents=asked.files(line))
        name = f"{asked.PREFIX}{secrets.token_hex(4)}"
        begun.append(helpers.begin(host, name, body, files))
        if ended.is_set():  # nobody waits any more
            helpers.remove(host, begun[0])
            return ""
        return "\n".join(helpers.lines(host, begun[0]))

    try:
        answer = on_each({host: run}, SECONDS)[host]
    finally:
        ended.set()
        for container in begun:
            with suppress(HostCallFailed):
                helpers.remove(host, container)
    if isinstance(answer, Outcome):
        return EngineParameters(version=None, error=answer.why)
    return read_parameters(answer)


def _silent(host: str, why: str) -> ParameterBytes:
    return ParameterBytes(facts=(_fact(SILENT, Severity.INFO, host, why=why),))


def _fact(code: str, severity: Severity, host: str, **figures: object) -> Fact:
    return Fact(code=code, severity=severity, subject={"host": host}, figures=figures)
