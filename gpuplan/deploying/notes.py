"""What the operator should know of the containers before they are started."""

from collections.abc import Mapping, Sequence

from gpuplan.deploying import secrets
from gpuplan.deploying.addresses import WILDCARDS, Place, is_loopback
from gpuplan.deploying.devices import is_310p, rdma_devices, vendor_of
from gpuplan.deploying.environment import PER_HOST, uses_lmcache
from gpuplan.deploying.grouping import Group, ray_is_unknown
from gpuplan.deploying.request import CompileRequest
from gpuplan.domain.deployment import Launch
from gpuplan.domain.inventory import LOCAL
from gpuplan.domain.secret_text import masked_words
from gpuplan.engine.arguments import engine_words
from gpuplan.engine.versions import EngineVersion, stated_version

_RAY_TOKENS = EngineVersion(2, 52)
OPEN_PATHS = "/health, /metrics, /tokenize, /pooling, /score, /rerank and /invocations"
"""An API key guards /v1, /v2, /inference and /cohere alone (vLLM 0.33, `entrypoints/openai/server_utils.py`)."""


def notes_of(
    request: CompileRequest,
    groups: Sequence[Group],
    places: Mapping[str, Place],
    secret_names: Sequence[str],
) -> tuple[str, ...]:
    """Sentences, in order of how much they matter; each once."""
    found = [*_binding(groups, places, secret_names)]
    for group in groups:
        found += _members(request, group, [places[node.host] for node in group.nodes])
    found += _vendor(request, groups, places)
    if request.workload.engine.config is not None:
        found.append(f"arguments in {request.workload.engine.config} (--config) are not seen by gpuplan")
    found += _readable_secrets(request)
    left_out = sorted({name for name, _ in request.inventory.vllm.env} & PER_HOST)
    if left_out:
        found.append(f"{', '.join(left_out)} under vllm.env is left out: it differs from host to host")
    return tuple(dict.fromkeys(found))


def _readable_secrets(request: CompileRequest) -> list[str]:
    """Flags whose values look like secrets and stay where `docker inspect` shows them."""
    words, _ = secrets.split(engine_words(request.workload.engine))
    flag, found = "", []
    for word, shown in zip(words, masked_words(words), strict=True):
        if word.startswith("--"):
            flag = word.partition("=")[0]
        if word != shown:
            found.append(f"{flag}: its value looks like a secret, and can be read in `docker inspect`")
    return found


def _binding(groups: Sequence[Group], places: Mapping[str, Place], secret_names: Sequence[str]) -> list[str]:
    found = []
    for group in groups:
        place = places[group.leader.host]
        if place.bind in WILDCARDS:
            found.append(f"{place.name}: the server listens on every address of the host")
        elif is_loopback(place.bind):
            found.append(
                f"{place.name}: the server listens on {place.bind}: only programs on the host reach it"
            )
        elif place.bind == place.data_address and place.entry is not None:
            asked = place.entry.address
            if asked not in {LOCAL, place.bind}:
                found.append(
                    f"{place.name}: the server listens on {place.bind}, since {asked} is no address of the host itself"
                )
    if secrets.API_KEY in secret_names:
        found.append(f"the API key guards /v1; {OPEN_PATHS} answer without it")
    else:
        found.append("no API key is set: whoever reaches the endpoint can use the model")
    return found


def _members(request: CompileRequest, group: Group, places: Sequence[Place]) -> list[str]:
    if not group.several:
        return []
    names = ", ".join(place.name for place in places)
    found = [f"{names} need every TCP port open between each other: ranks meet on ports the kernel gives"]
    blind = [place.name for place in places if place.interface is None]
    if blind:
        found.append(
            f"{', '.join(blind)}: no network interface is known, NCCL and Gloo choose one themselves"
        )
    if rdma_devices(places):
        found.append(f"{names}: containers get /dev/infiniband and IPC_LOCK, NCCL uses RDMA")
    elif vendor_of(places[0], group.leader) != "ascend":
        found.append(f"{names}: no RDMA device is active on all of them, NCCL uses TCP")
    if group.launch is Launch.RAY:
        version = stated_version(request.image_facts.ray_version or "")
        if version is not None and version < _RAY_TOKENS:
            found.append(f"Ray {version} asks for no token: whoever reaches its ports runs code on the hosts")
        else:
            found.append("Ray's ports ask for a token and are not encrypted")
        if ray_is_unknown(request):
            found.append(
                f"whether {request.image} has Ray is not known; official images from 0.18 on have none"
            )
    return found


def _vendor(request: CompileRequest, groups: Sequence[Group], places: Mapping[str, Place]) -> list[str]:
    vendor = vendor_of(places[groups[0].leader.host], groups[0].leader)
    found = []
    if uses_lmcache(request) and vendor not in {"nvidia", "amd"}:
        found.append(f"the extended KV cache (LMCache) runs on NVIDIA and AMD, not on {vendor}")
    if vendor == "amd":
        found.append(
            "AMD: containers get /dev/kfd and /dev/dri, SYS_PTRACE and no seccomp filter, as ROCm asks"
        )
    nodes = [node for group in groups for node in group.nodes]
    if any(is_310p(places[node.host], node) for node in nodes):
        found.append("Ascend 310P: eager mode and float16, it has no graphs and no bfloat16")
    return found
