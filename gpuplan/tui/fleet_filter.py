"""Which hosts and GPUs a filter leaves: every word of it must be found, `free>40` compares GiB."""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from gpuplan.domain.fleet import Gpu, Host
from gpuplan.planning.allocatable import ours_by_gpu, ours_on
from gpuplan.present.fleet_rows import HostLook, label_words, status_of
from gpuplan.units import GIB

_FREE = re.compile(r"free(>=|<=|>|<)(\d+(?:\.\d+)?)(?:gib|gb|g)?", re.IGNORECASE)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Words that match a host (name, label, address, status) or a GPU (name, deployment, process, owner)."""

    words: tuple[str, ...] = ()
    bounds: tuple[tuple[str, float], ...] = ()
    """Comparison and GiB that must be free on a GPU."""

    EMPTY: ClassVar["Filter"]

    def __bool__(self) -> bool:
        return bool(self.words or self.bounds)

    def gpus_of(self, host: Host, host_text: str, gpu_texts: tuple[str, ...]) -> tuple[int, ...] | None:
        """Positions in `host.gpus` of those that are left; None: the host is left out, too."""
        missing = [word for word in self.words if word not in host_text]
        if not missing and not self.bounds:
            return tuple(range(len(host.gpus)))
        kept = tuple(
            position
            for position, gpu in enumerate(host.gpus)
            if all(word in gpu_texts[position] for word in missing) and self._roomy(gpu)
        )
        return kept or None

    def _roomy(self, gpu: Gpu) -> bool:
        if not self.bounds:
            return True
        if gpu.total_bytes is None:
            return False
        free = (gpu.total_bytes if gpu.free_bytes is None else gpu.free_bytes) / GIB
        return all(_COMPARE[sign](free, bound) for sign, bound in self.bounds)


Filter.EMPTY = Filter()


def parse_filter(text: str) -> Filter:
    """`alice h100 free>40`."""
    words, bounds = [], []
    for word in text.split():
        found = _FREE.fullmatch(word)
        if found is not None:
            bounds.append((found.group(1), float(found.group(2))))
        else:
            words.append(word.casefold())
    return Filter(words=tuple(words), bounds=tuple(bounds))


def texts_of(host: Host, look: HostLook) -> tuple[str, tuple[str, ...]]:
    """What words are looked for in: of the host, and of each of its GPUs."""
    names = (host.name, host.address or "", label_words(host), status_of(host, look).text)
    failure = (host.failure.stage, host.failure.detail) if host.failure is not None else ()
    ours = ours_by_gpu(host)
    gpus = []
    for gpu in host.gpus:
        deployments = (share.container.deployment for share in ours_on(gpu, ours))
        owners = (
            text
            for process in gpu.processes
            for text in (process.name, process.user, process.container)
            if text
        )
        excluded = ("excluded",) if gpu.excluded else ()
        gpus.append("\n".join((gpu.name, gpu.profile or "", *deployments, *owners, *excluded)).casefold())
    return "\n".join((*names, *failure)).casefold(), tuple(gpus)
