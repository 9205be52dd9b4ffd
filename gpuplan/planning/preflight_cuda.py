"""Which driver an image's CUDA needs, and which CUDA is in an image.

Drivers: CUDA Toolkit release notes, table 3 (Linux). Within a major release any driver of that release runs
programs of every minor release (CUDA compatibility, table 1). An older driver needs the forward-compatibility
package, which only data-center GPUs take. Images: the default `CUDA_VERSION` of vLLM's own Dockerfile by release.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from gpuplan.engine.versions import EngineVersion, stated_version

Cuda = tuple[int, int]

_DRIVERS: tuple[tuple[Cuda, str], ...] = (
    ((11, 0), "450.36.06"),
    ((11, 1), "455.23"),
    ((11, 2), "460.27.03"),
    ((11, 3), "465.19.01"),
    ((11, 4), "470.42.01"),
    ((11, 5), "495.29.05"),
    ((11, 6), "510.39.01"),
    ((11, 7), "515.43.04"),
    ((11, 8), "520.61.05"),
    ((12, 0), "525.60.13"),
    ((12, 1), "530.30.02"),
    ((12, 2), "535.54.03"),
    ((12, 3), "545.23.06"),
    ((12, 4), "550.54.14"),
    ((12, 5), "555.42.02"),
    ((12, 6), "560.28.03"),
    ((12, 8), "570.26"),
    ((12, 9), "575.51.03"),
    ((13, 0), "580.65.06"),
    ((13, 1), "590.44.01"),
    ((13, 2), "595.45.04"),
    ((13, 3), "610.43.02"),
)
_FLOORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
_FORWARD_FLOORS = {11: 418, 12: 450, 13: 535}
"""Oldest driver branch the forward-compatibility package of a major release is made for."""
_DATA_CENTER = re.compile(r"(?:NVIDIA )?(?:Tesla\b|GH200\b|GB[23]00\b|HGX\b|[ABHL]\d+[A-Z]*\b|T4G?\b)")
_IMAGES: tuple[tuple[EngineVersion, Cuda], ...] = (
    (EngineVersion(0, 20), (13, 0)),
    (EngineVersion(0, 11, 1), (12, 9)),
    (EngineVersion(0, 9), (12, 8)),
    (EngineVersion(0, 7), (12, 4)),
    (EngineVersion(0, 4), (12, 1)),
)
_TAGGED = re.compile(r"(?:^|[-_.])cu(?:da)?-?(\d{2})\.?(\d)")
_NUMBERS = re.compile(r"\d+")


class Service(StrEnum):
    """How a driver serves a CUDA release."""

    FULL = "full"
    MINOR = "minor"
    """By minor-version compatibility: with a limited feature set."""
    FORWARD = "forward"
    """Only with the forward-compatibility package in the image."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a driver is worth for a CUDA release."""

    service: Service
    wanted: str
    """The driver that serves the release in full."""
    floor: str
    """The oldest that serves it without a compatibility package."""


def judge_driver(driver: str, cuda: Cuda, *, data_center: bool) -> Verdict | None:
    """How a driver serves a CUDA release; None when its version is no version or the release is older than 11.

    A release newer than the table is judged by its major release's floor; of a major release newer than the table
    nothing is known: None.
    """
    version = _numbers(driver)
    floor = _FLOORS.get(cuda[0])
    if not version or floor is None:
        return None
    wanted = next((text for release, text in _DRIVERS if release >= cuda and release[0] == cuda[0]), None)
    told = wanted or f"newer than {_DRIVERS[-1][1]}"
    if wanted is not None and version >= _numbers(wanted):
        service = Service.FULL
    elif version >= _numbers(floor):
        service = Service.MINOR
    elif data_center and version[0] >= _FORWARD_FLOORS.get(cuda[0], _FORWARD_FLOORS[13]):
        service = Service.FORWARD
    else:
        service = Service.NONE
    return Verdict(service=service, wanted=told, floor=floor)


def is_data_center(names: Iterable[str]) -> bool:
    """Whether all cards are of the data-center lines; GeForce, RTX, Quadro, TITAN and GB10 are not."""
    found = list(names)
    return bool(found) and all(_DATA_CENTER.match(name) for name in found)


def cuda_of_text(text: str | None) -> Cuda | None:
    """`12.8`, `12.8.1`, `13.0`: the release in it."""
    numbers = _numbers(text or "")
    return (numbers[0], numbers[1]) if len(numbers) >= 2 else None


def cuda_of_tag(image: str) -> Cuda | None:
    """The CUDA a tag states, `v0.33.0-cu129`, or the default of the vLLM release it states."""
    tag = _tag(image)
    stated = _TAGGED.search(tag)
    if stated is not None:
        return int(stated.group(1)), int(stated.group(2))
    return cuda_of_vllm(tag) if "vllm" in image.partition("@")[0] else None


def cuda_of_vllm(version: str) -> Cuda | None:
    """The CUDA of the official image of a vLLM release."""
    release = stated_version(version)
    return next((cuda for first, cuda in _IMAGES if release is not None and release >= first), None)


def _tag(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBERS.findall(text)[:3])
