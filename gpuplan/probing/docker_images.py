"""Which images of an engine may run vLLM, and what is in them, from what the engine says about them.

Nothing is started. A version is taken from the best of: the builder's label or variable for vLLM itself, the tag the
builder recorded, the image's own tags, the commands it was built with. Official images carry `ai.vllm.image.tag`
(docker-bake.hcl of vLLM), NVIDIA's `com.nvidia.vllm.version`; `org.opencontainers.image.version` alone may be that of
the base image, as Ubuntu sets it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuplan.domain.host_facts import Image
from gpuplan.engine.versions import EngineVersion, ray_in_image, stated_version
from gpuplan.probing.json_values import mapping, natural, text, text_map, texts

_OFFICIAL = re.compile(
    r"(?:docker\.io/|index\.docker\.io/)?vllm/vllm-openai(?:-rocm)?|public\.ecr\.aws/q9t5s3a7/vllm-[\w-]+"
)
"""Repositories of the vLLM project: only of these it is known when Ray went."""
_RAY_REPOSITORY = re.compile(r"(?:^|[/._-])ray(?:[/._-]|$)")
_NUMBER = r"v?(\d+\.\d+\.\d+(?:\.\d+)?(?:\.?(?:rc|post|dev|a|b)\d+)*)(?![\d.])"
_VERSION_TAG = re.compile(r"(?:^|[^\d.a-z])" + _NUMBER, re.IGNORECASE)
_AFTER_VLLM = re.compile(r"vllm(?:-openai)?[-_:=]?" + _NUMBER, re.IGNORECASE)
_BUILT = re.compile(
    r"(?:\bVLLM_VERSION=|\bvllm(?:\[[^\]]*\])?==|\bvllm-(?=\d))[\"']?" + _NUMBER, re.IGNORECASE
)
_INSTALL = re.compile(r"\b(?:pip3?|uv|conda|mamba|micromamba|poetry)\b[^;&|]*?\b(?:install|add)\b([^;&|]*)")
_RAY_WORD = re.compile(r"ray(?:\[[^\]]*\])?(?:[=<>~!].*)?", re.IGNORECASE)
_CUDA_REQUIRED = re.compile(r"cuda>=(\d+\.\d+)")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_NONE = "<none>"


def machine(architecture: str) -> str | None:
    """An architecture in the kernel's words (`x86_64`, `aarch64`), from the kernel's or Go's."""
    return _MACHINES.get(architecture, architecture) or None


def names(summary: Any, key: str) -> tuple[str, ...]:
    """`RepoTags` or `RepoDigests` without the placeholders older engines print."""
    return tuple(sorted(name for name in texts(summary, key) if not name.startswith(_NONE)))


def may_run_vllm(summary: Any) -> bool:
    """Whether an entry of `/images/json` is worth a closer look.

    `vllm` stands in a name, a tag or a label of it, or `ray` is a word of its repository (`rayproject/ray`,
    `anyscale/ray-llm`).
    """
    references = (*names(summary, "RepoTags"), *names(summary, "RepoDigests"))
    labels = text_map(summary, "Labels")
    if any("vllm" in word.lower() for word in (*references, *labels, *labels.values())):
        return True
    return any(_RAY_REPOSITORY.search(repository(reference)) for reference in references)


def repository(reference: str) -> str:
    """`vllm/vllm-openai` from `vllm/vllm-openai:v0.11.0` or `vllm/vllm-openai@sha256:…`."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


def image(summary: Any, inspected: Any, history: Sequence[Any]) -> Image:
    """One image from its entry in the list, its inspection and its history; each of the latter may be empty."""
    tags, digests = names(summary, "RepoTags"), names(summary, "RepoDigests")
    config = mapping(inspected, "Config")
    labels = {**text_map(summary, "Labels"), **text_map(config, "Labels")}
    variables = _variables(texts(config, "Env"))
    built = [text(layer, "CreatedBy") for layer in history]
    version = _vllm_version(labels, variables, tags, built)
    repositories = [repository(reference) for reference in (*tags, *digests)]
    return Image(
        id=text(summary, "Id"),
        tags=tags,
        digests=digests,
        architecture=machine(text(inspected, "Architecture")),
        size_bytes=natural(summary, "Size"),
        vllm_version=version,
        ray=_ray(repositories, version, built),
        cuda_version=_cuda(variables),
    )


def _variables(entries: Iterable[str]) -> Mapping[str, str]:
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _vllm_version(
    labels: Mapping[str, str], variables: Mapping[str, str], tags: Sequence[str], built: Sequence[str]
) -> str | None:
    stated = (labels.get("com.nvidia.vllm.version"), variables.get("VLLM_VERSION"))
    recorded = (labels.get("ai.vllm.image.tag"), variables.get("VLLM_IMAGE_TAG"))
    found = [
        *(_VERSION_TAG.search(words) for words in stated if words),
        *(_of_tag(words) for words in recorded if words),
        *(_VERSION_TAG.search(words) for words in (_own_version(labels),) if words),
        *(_of_tag(tag) for tag in tags),
        *(_BUILT.search(words) for words in built),
    ]
    return next((version for match in found if match and (version := _readable(match.group(1)))), None)


def _own_version(labels: Mapping[str, str]) -> str | None:
    """`org.opencontainers.image.version` where the labels around it say that it is vLLM's."""
    about = ("title", "source", "url", "ref.name", "description")
    spoken_of = " ".join(labels.get(f"org.opencontainers.image.{key}", "") for key in about).lower()
    own = labels.get("org.opencontainers.image.version", "")
    return own if "vllm" in spoken_of or "vllm" in own.lower() else None


def _of_tag(reference: str) -> re.Match[str] | None:
    """The version in a tag: what follows `vllm` in it, else a version in the tag of a repository named vLLM."""
    name = repository(reference)
    tag = reference[len(name) :]
    last = name.rpartition("/")[2]
    return _AFTER_VLLM.search(tag) or (
        _VERSION_TAG.search(tag or name) if "vllm" in last or not tag else None
    )


def _readable(version: str) -> str | None:
    return version if stated_version(version) is not None else None


def _ray(repositories: Sequence[str], version: str | None, built: Sequence[str]) -> bool | None:
    """Whether Ray is in the image: a build command installed it, the repository is Ray's, or by vLLM's release.

    Up to 0.17 Ray came with vLLM; later only where somebody adds it, which an image of the project's own does not.
    """
    if any(_installs_ray(command) for command in built):
        return True
    if any(_RAY_REPOSITORY.search(name) for name in repositories):
        return True
    if version is None or not any(_OFFICIAL.fullmatch(name) for name in repositories):
        return None
    return ray_in_image(EngineVersion.parse(version))


def _installs_ray(command: str) -> bool:
    return any(
        _RAY_WORD.fullmatch(word.strip("\"'"))
        for packages in _INSTALL.findall(command)
        for word in packages.split()
    )


def _cuda(variables: Mapping[str, str]) -> str | None:
    required = _CUDA_REQUIRED.match(variables.get("NVIDIA_REQUIRE_CUDA", ""))
    return variables.get("CUDA_VERSION") or (required.group(1) if required else None)
