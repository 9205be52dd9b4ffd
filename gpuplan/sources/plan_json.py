"""plan.json → `SavedPlan`: what `gpuplan plan -o json` wrote, read within bounds, as far as a launch needs it.

A plan file holds no secrets: their places hold `***`. Each must come from the environment or be repeated, before
anything is read further.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpuplan.domain.plan import Eviction, Holding, Parallelism, PlacedGpu, PlacedHost, StrategyName
from gpuplan.domain.saved_plan import SavedCandidate, SavedPlan
from gpuplan.domain.secret_text import MASK, is_secret_flag
from gpuplan.engine.argument_tokens import flag_of, grouped
from gpuplan.errors import InventoryError, UsageError
from gpuplan.sources.documents import Faults, location, read_bytes, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

    from gpuplan.sources.plan_schema import (
        CandidateKeys,
        EvictionKeys,
        PlacedGpuKeys,
        PlacedHostKeys,
        RequestKeys,
    )

MAX_BYTES = 128 * 1024**2
FROM_ENVIRONMENT = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}
"""Where the engine itself takes a secret from when its flag is not given."""
AGAIN = "`gpuplan plan MODEL -o json > plan.json` writes a plan"
_BEGINNING = 4096
Keys = TypeVar("Keys")


def is_plan(path: Path | str) -> bool:
    """Whether a file is a plan, whole or not: a model's `config.json` has no `schema_version` at its beginning."""
    try:
        with Path(path).open("rb") as file:
            beginning = file.read(_BEGINNING)
    except (OSError, ValueError):
        return False
    return beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and b'"schema_version"' in beginning


def load(
    path: Path | str, *, repeated: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> SavedPlan:
    """Read a plan; `repeated` are vLLM's arguments given again, secrets only.

    Raises InventoryError naming file, line or key; also where there is nothing to launch, and where a secret is
    masked that neither `repeated` nor `environ` has. Raises UsageError for a repeated argument that is no secret.
    """
    content = read_bytes(path, limit=MAX_BYTES, missing_hint=AGAIN)
    return parse(content, str(path), repeated=repeated, environ=environ)


def parse(
    content: bytes, path: str, *, repeated: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> SavedPlan:
    """Read a plan from its bytes; `path` is what faults name."""
    from gpuplan.sources.plan_schema import PLAN

    keys, faults = validated(content, path, PLAN), Faults(path=path, hint=AGAIN)
    recommended = keys["recommended"]
    if recommended is None:
        raise InventoryError(
            f"{path}: recommended: the plan found no placement, so there is nothing to deploy",
            hint="see its remedies (`gpuplan plan MODEL`), change the request and plan again",
        )
    name, index = recommended["strategy"], recommended["candidate"]
    found = [
        (("strategies", place, "candidates", index), result["candidates"][index])
        for place, result in enumerate(keys["strategies"])
        if result["strategy"] is name and index < len(result["candidates"])
    ]
    if not found:
        faults.add("recommended", f"there is no candidate {index} of strategy {name.value}")
        faults.raise_if_any()
    at, chosen = found[0]
    _check(chosen, location(at), faults)
    faults.raise_if_any()
    request = keys["request"]
    engine_args = _with_secrets(request["engine_args"], path, repeated, environ or {})
    return SavedPlan(
        path=path,
        reference=request["reference"],
        serving=serving(request, engine_args),
        hosts=tuple(request["hosts"]),
        labels=tuple(request["labels"]),
        strategy=StrategyName(name),
        candidate=_candidate(chosen),
        basis=keys["fleet"]["basis"],
    )


def validated(content: bytes, path: str, kind: "TypeAdapter[Keys]") -> "Keys":
    """The keys of a plan file of that kind. Raises InventoryError naming file, line or key."""
    from pydantic import ValidationError

    if not content.strip():
        raise InventoryError(f"{path}: is empty", hint=AGAIN)
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        return kind.validate_json(content)
    except ValidationError as error:
        faults = Faults(path=path, hint=AGAIN)
        _refuse(error, content, faults)
        faults.raise_if_any()
        raise AssertionError("a rejected plan has faults") from None


def _refuse(error: "ValidationError", content: bytes, faults: Faults) -> None:
    from gpuplan.sources.faults_of_schema import not_json, refuse_newer, text_of

    details = error.errors(include_url=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        raise not_json(faults.path, content, details[0], hint=AGAIN)
    places = [detail["loc"] for detail in details]
    if ("schema_version",) in places:
        refuse_newer(faults.path, content, hint="upgrade gpuplan, or make the plan again with this version")
    for detail in details:
        where = detail["loc"]
        if where == ("schema_version",):
            faults.add("schema_version", "this key is required and must be 1")
        elif not where or {("request",), ("strategies",)} <= set(places):
            raise InventoryError(f"{faults.path}: is not a plan", hint=AGAIN)
        else:
            faults.add(location(tuple(part for part in where if not _of_union(part))), text_of(detail))


def _of_union(part: str | int) -> bool:
    """Parts that pydantic adds for the members of a union."""
    return isinstance(part, str) and (part.startswith(("constrained-", "literal[")) or part == "[key]")


def _check(keys: "CandidateKeys", at: str, faults: Faults) -> None:
    """What must agree inside a candidate, so that it can be launched."""
    shape = parallelism(keys)
    taken = [(host["host"], gpu["index"]) for host in keys["placement"] for gpu in host["gpus"]]
    ranks = shape.world_size * shape.data
    if len(taken) != ranks:
        faults.add(f"{at}.placement", f"has {len(taken)} GPUs, but its parallelism takes {ranks}")
    for number, (host, index) in enumerate(taken):
        if (host, index) in taken[:number]:
            faults.add(f"{at}.placement", f"GPU {index} of {shown(host)} stands there twice")
    partition = shape.layer_partition
    if partition is not None and len(partition) != shape.pipeline:
        faults.add(
            f"{at}.parallelism.layer_partition",
            f"has {len(partition)} entries for {shape.pipeline} pipeline stages",
        )
    if keys["vllm_args"][:1] != ["serve"]:
        faults.add(f"{at}.vllm_args", "must begin with serve")


def serving(request: "Mapping[str, Any] | RequestKeys", engine_args: tuple[str, ...]) -> dict[str, Any]:
    """The request by the names of ServingOptions, as they would be written on the command line."""
    return {
        "context": _written(request["context"]),
        "concurrency": request["concurrency"],
        "category": str(request["category"]),
        "replicas": request["replicas"],
        "placement": str(request["placement"]),
        "executor": str(request["executor"]),
        "image": request["image"],
        "vllm_version": request["vllm_version"],
        "vram_claim": _written(request["vram_claim_bytes"]),
        "ram_claim": _written(request["ram_claim_bytes"]),
        "allow_overcommit": request["allow_overcommit"],
        "no_distributed": request["no_distributed"],
        "no_calibration": bool(request.get("no_calibration")),
        "strategies": tuple(request["strategies"]),
        "gpus": tuple(request["gpus"]),
        "engine_args": engine_args,
    }


def _written(value: int | str | None) -> str | None:
    return None if value is None else str(value)


def _candidate(keys: "CandidateKeys") -> SavedCandidate:
    return SavedCandidate(
        verdict=keys["verdict"],
        parallelism=parallelism(keys),
        placement=tuple(placed_host(host) for host in keys["placement"]),
        vllm_args=tuple(word for words in grouped(keys["vllm_args"]) if not _masked(words) for word in words),
        env=tuple(keys["env"].items()),
        evicts=tuple(_eviction(one) for one in keys.get("evicts", ())),
    )


def _eviction(keys: "EvictionKeys") -> Eviction:
    return Eviction(
        deployment=keys["deployment"],
        gpus=tuple((freed["host"], freed["index"], freed["bytes"]) for freed in keys["gpus"]),
        running_requests=keys.get("running_requests"),
        keep_alive_seconds=keys.get("keep_alive_seconds"),
    )


def parallelism(keys: "CandidateKeys") -> Parallelism:
    """How the ranks of a candidate divide the model."""
    shape = keys["parallelism"]
    partition = shape["layer_partition"]
    return Parallelism(
        tensor=shape["tensor"],
        pipeline=shape["pipeline"],
        data=shape["data"],
        expert=shape["expert"],
        decode_context=shape["decode_context"],
        prefill_context=shape["prefill_context"],
        layer_partition=None if partition is None else tuple(partition),
    )


def placed_host(keys: "PlacedHostKeys") -> PlacedHost:
    """One host of a placement."""
    return PlacedHost(
        host=keys["host"],
        role=keys["role"],
        gpus=tuple(_placed_gpu(gpu) for gpu in keys["gpus"]),
        ram_claim_bytes=keys.get("ram_claim_bytes", 0),
        driver_version=keys.get("driver_version"),
        cpu_offload_gib=keys.get("cpu_offload_gib", 0),
    )


def _placed_gpu(keys: "PlacedGpuKeys") -> PlacedGpu:
    return PlacedGpu(
        index=keys["index"],
        uuid=keys["uuid"],
        claim_bytes=keys["claim_bytes"],
        allocatable_bytes=keys["allocatable_bytes"],
        total_bytes=keys["total_bytes"],
        held=tuple(Holding(**holding) for holding in keys.get("held", ())),
    )


def _masked(words: tuple[str, ...]) -> bool:
    return any(MASK in word for word in words)


def _with_secrets(
    words: Sequence[str], path: str, repeated: Sequence[str], environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The user's arguments with each masked one replaced by its repetition, or left out where the environment has it."""
    again = {flag_of(group): group for group in grouped(repeated)}
    groups = list(grouped(words))
    masked = {flag_of(group) for group in groups if _masked(group)}
    for flag in again:
        if flag not in masked and not is_secret_flag(flag):
            raise UsageError(
                f"{shown(flag)}: the arguments of a saved plan are fixed; only its secrets are given again",
                hint=f"plan again with {shown(flag)}, or leave it out",
            )
    for flag in sorted(masked - again.keys()):
        variable = FROM_ENVIRONMENT.get(flag)
        if variable is None or not environ.get(variable):
            raise InventoryError(
                f"{path}: request.engine_args: the value of {shown(flag)} is a secret, which a plan file does not hold",
                hint=(f"set {variable} in the environment, or " if variable else "")
                + f"repeat it: gpuplan deploy {path} -- {shown(flag)} VALUE",
            )
    kept = [group for group in groups if not _masked(group)]
    return tuple(word for group in (*kept, *again.values()) for word in group)
