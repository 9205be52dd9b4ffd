"""Which image runs on the hosts of a placement: asked for, configured, or by version, vendor, architecture and driver (S2.4).

Tags are those vLLM's release pipeline pushes (`.buildkite/scripts/push-release-images.sh`), and vllm-ascend's. One image
serves all hosts: members of a server must run the same one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.inventory import VllmSettings
from gpuplan.domain.plan import Candidate
from gpuplan.domain.workload import Category
from gpuplan.engine.versions import EngineVersion
from gpuplan.errors import UsageError
from gpuplan.planning.preflight_cuda import (
    Cuda,
    Service,
    cuda_of_text,
    cuda_of_vllm,
    is_data_center,
    judge_driver,
)

_NVIDIA = "vllm/vllm-openai"
_AMD = "vllm/vllm-openai-rocm"
_OMNI = "vllm/vllm-omni"
_ASCEND = "quay.io/ascend/vllm-ascend"
_ARM_FROM = EngineVersion(0, 10, 2)
"""First official image for aarch64; the plain tag is for both architectures from then on."""
_ROCM_FROM = EngineVersion(0, 14)
"""First official ROCm image that was seen."""
_VARIANTS: tuple[tuple[EngineVersion, EngineVersion | None, Cuda, str], ...] = (
    (EngineVersion(0, 20), None, (12, 9), "-cu129"),
    (EngineVersion(0, 14), EngineVersion(0, 20), (13, 0), "-cu130"),
)
"""From, before, CUDA, what is added to the tag: images beside the default one."""
_NEEDS_CUDA_13 = frozenset(("10.3", "11.0", "12.1"))
"""Compute capabilities that CUDA 12.9 images have no kernels for (B300, Thor, GB10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageChoice:
    """The image and why it is that one."""

    reference: str
    because: str


def image_for(
    *,
    explicit: str | None,
    settings: VllmSettings,
    fleet: Fleet,
    candidate: Candidate,
    version: EngineVersion,
    category: Category = Category.LLM,
) -> ImageChoice:
    """`--image`, else `vllm.image` of the inventory, else the official one for the hosts of the candidate.

    Raises UsageError where no one image serves all of them; the message names the hosts.
    """
    if explicit is not None:
        return ImageChoice(reference=mirrored(explicit, settings.registry), because="--image")
    if settings.image is not None:
        because = "vllm.image of the inventory"
        return ImageChoice(reference=mirrored(settings.image, settings.registry), because=because)
    names = {host.host for host in candidate.placement}
    hosts = [host for host in fleet.hosts if host.name in names]
    used = {(placed.host, gpu.index) for placed in candidate.placement for gpu in placed.gpus}
    cards = [gpu for host in hosts for gpu in host.gpus if (host.name, gpu.index) in used]
    chosen = _automatic(hosts, cards, version, category)
    return ImageChoice(reference=_through(chosen.reference, settings.registry), because=chosen.because)


def mirrored(reference: str, registry: str | None) -> str:
    """A reference of Docker Hub through the mirror of the inventory; one that names its registry stays."""
    if registry is None or has_registry(reference):
        return reference
    return _through(reference, registry)


def has_registry(reference: str) -> bool:
    """Whether the first part of a reference is a host, by Docker's own rule: a dot, a port, or `localhost`."""
    first, slash, _ = reference.partition("/")
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def _through(reference: str, registry: str | None) -> str:
    if registry is None:
        return reference
    mirror = registry.rstrip("/")
    if reference.startswith(f"{mirror}/"):
        return reference
    path = reference.partition("/")[2] if has_registry(reference) else reference
    return f"{mirror}/{path}"


def _automatic(
    hosts: Sequence[Host], cards: Sequence[Gpu], version: EngineVersion, category: Category
) -> ImageChoice:
    vendors = sorted({card.vendor for card in cards}) or ["nvidia"]
    if len(vendors) > 1:
        raise _no_one_image(hosts, f"their GPUs are of {' and '.join(vendors)}")
    match vendors[0]:
        case "amd":
            return _amd(version)
        case "ascend":
            return _ascend(hosts, cards, version)
        case "nvidia":
            if category is Category.OMNI:
                return ImageChoice(reference=f"{_OMNI}:v{version}", because="vLLM-Omni of that release")
            return _nvidia(hosts, cards, version)
        case other:
            raise UsageError(
                f"no official vLLM image is known for {other} GPUs",
                hint="name one with --image, or under vllm.image in the inventory",
            )


def _amd(version: EngineVersion) -> ImageChoice:
    if version < _ROCM_FROM:
        raise UsageError(
            f"vLLM {version} has no official ROCm image",
            hint="name one with --image (rocm/vllm has older ones)",
        )
    return ImageChoice(reference=f"{_AMD}:v{version}", because=f"vLLM {version} for ROCm")


def _ascend(hosts: Sequence[Host], cards: Sequence[Gpu], version: EngineVersion) -> ImageChoice:
    suffixes = sorted({_ascend_suffix(card) for card in cards})
    if len(suffixes) > 1:
        raise _no_one_image(hosts, "their Ascend chips need different ones")
    because = f"vllm-ascend {version}" + (f" for {suffixes[0].removeprefix('-')}" if suffixes[0] else "")
    return ImageChoice(reference=f"{_ASCEND}:v{version}{suffixes[0]}", because=because)


def _ascend_suffix(card: Gpu) -> str:
    name = card.name.upper()
    if "310P" in name:
        return "-310p"
    return "-a3" if "910C" in name or "910_93" in name or "A3" in name.split() else ""


def _nvidia(hosts: Sequence[Host], cards: Sequence[Gpu], version: EngineVersion) -> ImageChoice:
    """The newest CUDA that the driver of every host serves, else the oldest there is."""
    machines = {host.facts.architecture for host in hosts if host.facts.architecture is not None}
    if "aarch64" in machines and version < _ARM_FROM:
        names = ", ".join(host.name for host in hosts if host.facts.architecture == "aarch64")
        raise UsageError(
            f"vLLM {version} has no official image for aarch64 ({names})",
            hint=f"use {_ARM_FROM} or newer (--vllm-version), or name an image with --image",
        )
    default = cuda_of_vllm(str(version)) or (12, 4)
    offered = [(default, "")] + [
        (cuda, suffix)
        for first, before, cuda, suffix in _VARIANTS
        if version >= first and (before is None or version < before)
    ]
    offered.sort(reverse=True)
    if any(card.compute_capability in _NEEDS_CUDA_13 for card in cards):
        offered = [each for each in offered if each[0] >= (13, 0)] or offered
    if all(host.facts.driver_version is None and host.facts.runtime_version is None for host in hosts):
        cuda, suffix = next(each for each in offered if each[1] == "" or len(offered) == 1)
        because = "no driver is known"
    else:
        served = [each for each in offered if all(_serves(host, each[0]) for host in hosts)]
        cuda, suffix = served[0] if served else offered[-1]
        of_all = "the newest the driver of every host serves" if served else "no driver serves it"
        because = of_all
    reference = f"{_NVIDIA}:v{version}{suffix}"
    return ImageChoice(reference=reference, because=f"vLLM {version}, CUDA {cuda[0]}.{cuda[1]}: {because}")


def _serves(host: Host, cuda: Cuda) -> bool:
    """Whether the driver runs programs of a CUDA release: by its version, else by the newest runtime it names."""
    driver, runtime = host.facts.driver_version, cuda_of_text(host.facts.runtime_version)
    if driver is not None:
        names = [card.name for card in host.gpus]
        verdict = judge_driver(driver, cuda, data_center=is_data_center(names))
        if verdict is not None:
            return verdict.service in {Service.FULL, Service.MINOR}
    return runtime is None or runtime >= cuda or runtime[0] == cuda[0]


def _no_one_image(hosts: Sequence[Host], why: str) -> UsageError:
    names = ", ".join(host.name for host in hosts)
    return UsageError(
        f"no one image serves {names}: {why}",
        hint="choose hosts of one kind (--gpus), or name an image for all of them with --image",
    )
