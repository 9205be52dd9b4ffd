"""Finding the wanted image among those a host has."""

from collections.abc import Iterable

from gpuplan.domain.fleet import Host
from gpuplan.domain.host_facts import Image
from gpuplan.planning.preflight_cuda import Cuda, cuda_of_tag, cuda_of_text, cuda_of_vllm

_HUB = ("docker.io/library/", "index.docker.io/", "docker.io/", "library/")
ARCHITECTURES = {
    "amd64": "x86_64",
    "x86_64": "x86_64",
    "x86-64": "x86_64",
    "arm64": "aarch64",
    "arm64/v8": "aarch64",
    "aarch64": "aarch64",
}
"""Docker's and the kernel's names of one architecture."""


def canonical(reference: str) -> str:
    """A reference as Docker lists it: `docker.io/library/x` is `x:latest`; a digest takes the place of the tag."""
    text = reference.strip()
    for prefix in _HUB:
        if text.startswith(prefix):
            text = text.removeprefix(prefix)
            break
    name, at, digest = text.partition("@")
    last = name.rpartition("/")[2]
    if at:
        return f"{name.removesuffix(':' + last.partition(':')[2])}@{digest}" if ":" in last else text
    return name if ":" in last else f"{name}:latest"


def image_on(host: Host, reference: str) -> Image | None:
    """The wanted image on a host: by tag, by digest, or by its id."""
    docker = host.facts.docker
    if docker is None:
        return None
    wanted = canonical(reference)
    bare = reference.strip().removeprefix("sha256:")
    for image in docker.images:
        names = {canonical(name) for name in (*image.tags, *image.digests)}
        by_id = len(bare) >= 12 and image.id.removeprefix("sha256:").startswith(bare)
        if wanted in names or by_id:
            return image
    return None


def image_cuda(reference: str, found: Iterable[Image]) -> Cuda | None:
    """The CUDA in an image: what the image says where it is present, else its tag, else its vLLM release."""
    images = list(found)
    for image in images:
        stated = cuda_of_text(image.cuda_version)
        if stated is not None:
            return stated
    by_tag = cuda_of_tag(reference)
    if by_tag is not None:
        return by_tag
    versions = (cuda_of_vllm(image.vllm_version) for image in images if image.vllm_version)
    return next((cuda for cuda in versions if cuda is not None), None)


def same_build(images: Iterable[Image]) -> bool:
    """Whether all are one image: one id, or a digest they share (an image store may count ids its own way)."""
    items = list(images)
    if len({image.id for image in items}) <= 1:
        return True
    shared = set(items[0].digests)
    for image in items[1:]:
        shared &= set(image.digests)
    return bool(shared)
