"""Which GPUs no placement may use now, although they are there, and why (S4.5, S4.10)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Gpu, Host
from gpuplan.planning.allocatable import Ours, OurShare, ours_on

MOST_DEPLOYMENTS = 3
"""Deployments on one GPU (S4.10)."""
MOST_UNTRUSTED = 1
"""The same where what is free cannot be trusted: memory shared with the host, or free memory nobody reported."""
LOST = "GP608"
WITHOUT_SLICES = "GP615"
FABRIC = "GP616"
COMPUTE_MODE = "GP617"
UNFIT = frozenset((LOST, WITHOUT_SLICES, FABRIC, COMPUTE_MODE))
"""States of a GPU for which it may be left out."""


class Hindrance(StrEnum):
    """Why a GPU is left out; the value is its step of the funnel."""

    LOST = "answering"
    BARRED = "open to CUDA"
    """No process can start on it: the NVSwitch fabric is not set up, or the compute mode lets nobody in."""
    DIVIDED = "not divided into MIG slices"
    LOADING = "not loading"
    FULL = "room for a deployment"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One GPU that is left out."""

    host: str
    index: int
    hindrance: Hindrance
    deployments: tuple[str, ...] = ()
    """The deployment that is loading, or those that fill the GPU."""
    code: str | None = None
    """The state that bars it."""


def hindrances(host: Host, gpus: Sequence[Gpu], ours: Ours) -> Iterator[LeftOut]:
    """The GPUs of a host that are left out, each for its first hindrance."""
    divided: set[int | None] = {gpu.parent for gpu in host.gpus if gpu.parent is not None}
    conditions = host.facts.conditions
    if not (divided or conditions or ours):
        return
    lost = {fact.subject.get("gpu") for fact in conditions if fact.code == LOST}
    divided |= {fact.subject.get("gpu") for fact in conditions if fact.code == WITHOUT_SLICES}
    barring = [fact for fact in conditions if fact.code in {FABRIC, COMPUTE_MODE}]
    for gpu in gpus:
        here = ours_on(gpu, ours)
        barred = _barred(gpu, here, barring) if barring and gpu.index not in lost else None
        if barred is not None:
            yield LeftOut(host=host.name, index=gpu.index, hindrance=Hindrance.BARRED, code=barred)
            continue
        found = _hindrance(gpu, here, lost=lost, divided=divided)
        if found is not None:
            hindrance, deployments = found
            yield LeftOut(
                host=host.name, index=gpu.index, hindrance=hindrance, deployments=tuple(sorted(deployments))
            )


def _barred(gpu: Gpu, ours: tuple[OurShare, ...], barring: Sequence[Fact]) -> str | None:
    """The state for which CUDA would refuse a process on the GPU, or on the card it is a slice of.

    Without its fabric CUDA fails with error 802. In prohibited mode no process is let in, in exclusive mode one at a
    time: whoever holds the card keeps the next one out.
    """
    for fact in barring:
        if fact.subject.get("gpu") not in (gpu.index, gpu.parent):
            continue
        mode = str(fact.figures.get("mode", ""))
        if (
            fact.code == FABRIC
            or mode == "prohibited"
            or (mode.startswith("exclusive") and (ours or gpu.processes))
        ):
            return fact.code
    return None


def _hindrance(
    gpu: Gpu, ours: tuple[OurShare, ...], *, lost: set[int | None], divided: set[int | None]
) -> tuple[Hindrance, set[str]] | None:
    if gpu.index in lost or (gpu.parent is not None and gpu.parent in lost):
        return Hindrance.LOST, set()
    if gpu.parent is None and gpu.index in divided:
        return Hindrance.DIVIDED, set()
    loading = {share.container.deployment for share in ours if share.container.loading}
    if loading:
        return Hindrance.LOADING, loading
    running = {share.container.deployment for share in ours}
    untrusted = gpu.unified or gpu.free_bytes is None
    if len(running) >= (MOST_UNTRUSTED if untrusted else MOST_DEPLOYMENTS):
        return Hindrance.FULL, running
    return None
