"""What goes wrong with an image on a host, as facts (GP830 to GP839); and which build of an image is which."""

import re
from typing import TYPE_CHECKING

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host
from gpuplan.domain.host_facts import Image
from gpuplan.domain.secret_text import masked
from gpuplan.planning.preflight_images import ARCHITECTURES, canonical, same_build
from gpuplan.planning.preflight_resources import disk
from gpuplan.remote.connection import ConnectionFailed, HostCallFailed
from gpuplan.remote.docker_engine import EngineFailed

if TYPE_CHECKING:
    from gpuplan.remote.images import ImageDetails

_ID = re.compile(r"(?:sha256:)?[0-9a-f]{12,64}")


class WrongBuild(HostCallFailed):
    """An image arrived on a host, and it is another one."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


def fact(code: str, host: str, severity: Severity = Severity.ERROR, /, **figures: object) -> Fact:
    """A fact about one host."""
    return Fact(code=code, severity=severity, subject={"host": host}, figures=figures)


def is_id(reference: str) -> bool:
    """Whether it names an image by its id, which no registry knows."""
    return _ID.fullmatch(reference.strip()) is not None


def is_same(one: "ImageDetails", other: "ImageDetails") -> bool:
    """Whether two hosts' images are one build."""
    return same_build((_image(one), _image(other)))


def digest_of(details: "ImageDetails", reference: str) -> str | None:
    """`repo@sha256:…` to pull this build by: of the repository that was asked for, else any it came from."""
    wanted = _repository(reference)
    own = [name for name in details.digests if _repository(name) == wanted]
    return next(iter((*own, *details.digests)), None)


def unfit(details: "ImageDetails", host: Host, reference: str) -> Fact | None:
    """Why this build cannot run on a host: made for another architecture (GP833)."""
    theirs = ARCHITECTURES.get(host.facts.architecture or "", host.facts.architecture)
    own = ARCHITECTURES.get(details.architecture, details.architecture) or None
    if theirs is None or own is None or theirs == own:
        return None
    return fact("GP833", host.name, image=reference, image_architecture=own, host_architecture=theirs)


def no_room(details: "ImageDetails", host: Host, reference: str) -> Fact | None:
    """Why this build cannot be unpacked on a host: Docker's root has less room than it takes (GP834)."""
    root = disk(host, "docker_root")
    if root is None or not details.size_bytes or root.free_bytes >= details.size_bytes:
        return None
    return fact(
        "GP834",
        host.name,
        image=reference,
        needed_bytes=details.size_bytes,
        free_bytes=root.free_bytes,
        path=root.path,
        device=root.device,
    )


def broke_off(error: HostCallFailed) -> bool:
    """Whether the connection or the engine went away meanwhile: the same may go well when it is back."""
    from gpuplan.remote.images import PullCause, PullFailed

    if isinstance(error, PullFailed):
        return error.cause is PullCause.LOST
    return isinstance(error, ConnectionFailed | EngineFailed)


def failed(error: HostCallFailed, host: Host, reference: str, *, source: str | None = None) -> Fact:
    """Why an image did not get to a host; `source`: the host or file it was to come from."""
    from gpuplan.remote.images import LoadFailed, PullCause, PullFailed
    from gpuplan.remote.registry_login import LoginUnreadable

    words = masked(error.detail)
    figures: dict[str, object] = {"image": reference, "detail": words}
    match error:
        case EngineFailed():
            return fact(error.cause.value, host.name, detail=words)
        case PullFailed(cause=PullCause.NO_SPACE):
            return _full(host, reference, words)
        case PullFailed(cause=PullCause.LOST) | ConnectionFailed():
            return fact("GP830", host.name, source=source, **figures)
        case PullFailed(cause=PullCause.WRONG_ARCHITECTURE):
            return fact("GP833", host.name, host_architecture=host.facts.architecture, **figures)
        case LoadFailed():
            at_source = source if error.at_source else None
            return fact("GP839", host.name, source=source, at_source=at_source, **figures)
        case PullFailed(cause=PullCause.NOT_FOUND):
            return fact("GP836", host.name, **figures)
        case PullFailed(cause=PullCause.DENIED) | LoginUnreadable():
            return fact("GP837", host.name, **figures)
        case PullFailed():
            return fact("GP838", host.name, cause=error.cause.value, **figures)
        case _:
            return fact("GP839", host.name, source=source, **figures)


def _full(host: Host, reference: str, words: str) -> Fact:
    root = disk(host, "docker_root")
    return fact(
        "GP835",
        host.name,
        image=reference,
        path=root.path if root else None,
        device=root.device if root else None,
        total_bytes=root.total_bytes if root else None,
        free_bytes=root.free_bytes if root else None,
        detail=words,
    )


def _image(details: "ImageDetails") -> Image:
    return Image(id=details.id, digests=tuple(details.digests))


def _repository(reference: str) -> str:
    """`vllm/vllm-openai` of every way to write it."""
    name = canonical(reference).partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]
