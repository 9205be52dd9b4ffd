"""The built-in catalogue of accelerators: loading it, finding a name in it, reading `--gpu`."""

import json
import pkgutil
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from gpuplan.domain.fleet import Basis, Gpu, Kind
from gpuplan.domain.hardware import Accelerator
from gpuplan.errors import UsageError
from gpuplan.sources.catalogue.names import listed, near_misses, squeeze, tokens
from gpuplan.sources.catalogue.sizes import kinds_of_size
from gpuplan.units import GIB, MIB, parse_size

MOST_GPUS = 4096
"""More GPUs than any placement of one model; a larger count is a slip of the finger."""
SMALLEST_MEMORY_BYTES = 64 * MIB
"""Below this a size was written without its unit."""

_NOISE = frozenset({"nvidia", "geforce", "tesla", "amd", "instinct", "radeon", "huawei", "ascend"})
_CUSTOM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+()/-]{0,63}")
_GIGABYTES = re.compile(r"(\d+)gi?b?")
_OTHER_HARDWARE = "`gpuplan gpus` lists the catalogue; for other hardware write NAME=SIZE, as custom=79.19GiB"
_SYNTAX = "write NAME[:COUNT], for example H100-80GB:2"


@cache
def load() -> tuple[Accelerator, ...]:
    """Every accelerator of the catalogue, in its order; read once."""
    content = pkgutil.get_data(__package__, "accelerators.json")  # importlib.resources takes 30 ms to import
    if content is None:
        raise FileNotFoundError("accelerators.json is missing from the installed package")
    return tuple(_accelerator(row) for row in json.loads(content)["accelerators"])


def find(name: str) -> Accelerator:
    """The accelerator a user names.

    Case, spaces, dashes and the maker's name do not matter; a short form is accepted where one accelerator
    answers to it (`L40S`, `RTX 4090`, `H100 NVL`). Raises UsageError that lists the choices or near misses.
    """
    matches = _matches(name)
    if len(matches) == 1:
        return matches[0]
    shown = _shown(name)
    if matches:
        choices = [accelerator.name for accelerator in matches]
        raise UsageError(
            f"the GPU name {shown!r} fits several accelerators: {listed(choices)}",
            hint=f"name one of them, for example {choices[0]}",
        )
    known = {spelling: entry.name for entry in load() for spelling in (entry.name, *entry.aliases)}
    near = tuple(dict.fromkeys(known[spelling] for spelling in near_misses(name, known)))
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(f"no accelerator is called {shown!r}{meant}", hint=_OTHER_HARDWARE)


def by_device_name(device_name: str, memory_bytes: int | None = None) -> Accelerator | None:
    """The accelerator whose driver prints `device_name`, or that answers to it as a catalogue name.

    `memory_bytes`, the total the driver reports, decides between sizes sold under one name. None when the
    name is unknown, when it stays open, or when the memory is not that card's (a slice, a modified card).
    """
    key = _key(device_name)
    matches = _exact(key, index=_device_names()) or _exact(key, index=_spellings())
    if memory_bytes is not None:
        nearest = _nearest(matches, memory_bytes)
        matches = [
            entry for entry in nearest if abs(memory_bytes - entry.memory_bytes) <= entry.memory_bytes // 10
        ]
    return matches[0] if len(matches) == 1 else None


def parse_gpu_option(text: str) -> tuple[Accelerator, int]:
    """Read `--gpu NAME[=SIZE][:COUNT]`: the accelerator and how many of it.

    With SIZE the name may be free; a catalogue name keeps its facts and takes the given memory, a free one is
    taken for what reports such a size (`taken_for`). Raises UsageError that quotes the part that is wrong.
    """
    what, colon, count_text = text.partition(":")
    name, equals, size_text = (part.strip() for part in what.partition("="))
    if not name:
        raise UsageError(f"--gpu {_shown(text)!r} names no GPU", hint=_SYNTAX)
    count = _count(count_text, text) if colon else 1
    return (_with_memory(name, size_text, text) if equals else find(name)), count


def as_gpus(accelerator: Accelerator, count: int, *, first_index: int = 0) -> tuple[Gpu, ...]:
    """Declared hardware as the devices of one host, all memory free."""
    return tuple(
        Gpu(
            index=index,
            name=accelerator.device_name,
            vendor=accelerator.vendor,
            backend=accelerator.backend,
            compute_capability=accelerator.compute_capability,
            total_bytes=accelerator.memory_bytes,
            free_bytes=accelerator.memory_bytes,
            bandwidth_bytes_per_second=accelerator.bandwidth_bytes_per_second,
            unified=accelerator.unified,
            kinds=tuple(_kind(card) for card in accelerator.taken_for),
        )
        for index in range(first_index, first_index + count)
    )


def _kind(card: Accelerator) -> Kind:
    return Kind(name=card.device_name, compute_capability=card.compute_capability, unified=card.unified)


def _accelerator(row: dict[str, Any]) -> Accelerator:
    """One row of the file: sizes there are MiB, other sizes logged GiB, rates GB/s and TFLOP/s."""
    return Accelerator(
        name=row["name"],
        memory_bytes=row["memory_mib"] * MIB,
        memory_basis=Basis(row["memory_basis"]),
        source=row["source"],
        also_bytes=tuple(round(size * GIB) for size in row.get("also_gib", ())),
        variant_of=row.get("variant_of"),
        device_names=tuple(row["device_names"]),
        aliases=tuple(row.get("aliases", ())),
        vendor=row["vendor"],
        backend=row["backend"],
        compute_capability=row.get("compute_capability"),
        architecture=row.get("architecture"),
        reported_mib=row.get("reported_mib"),
        bandwidth_bytes_per_second=_scaled(row.get("bandwidth_gb_per_s"), 1e9),
        link=row.get("link"),
        link_bytes_per_second=_scaled(row.get("link_gb_per_s"), 1e9),
        unified=row.get("unified", False),
        half_flops=_scaled(row.get("half_tflops"), 1e12),
        fp8_flops=_scaled(row.get("fp8_tflops"), 1e12),
        tdp_watts=row.get("tdp_watts"),
    )


def _scaled(value: float | None, unit: float) -> int | None:
    return None if value is None else round(value * unit)


def _words(name: str) -> tuple[str, ...]:
    """The words that tell accelerators apart; `80G`, `80GiB` and `80GB` are one word."""
    words = (_GIGABYTES.fullmatch(word) or word for word in tokens(name))
    plain = [word if isinstance(word, str) else f"{word[1]}gb" for word in words]
    return tuple(word for word in plain if word not in _NOISE) or tuple(plain)


def _key(name: str) -> str:
    return squeeze("".join(_words(name[:200])))


def _index(spelled: Iterable[tuple[str, Accelerator]]) -> dict[str, tuple[Accelerator, ...]]:
    index: dict[str, tuple[Accelerator, ...]] = {}
    for spelling, accelerator in spelled:
        key = _key(spelling)
        if accelerator not in index.get(key, ()):
            index[key] = (*index.get(key, ()), accelerator)
    return index


@cache
def _device_names() -> dict[str, tuple[Accelerator, ...]]:
    return _index((device, entry) for entry in load() for device in entry.device_names)


@cache
def _spellings() -> dict[str, tuple[Accelerator, ...]]:
    return _index((spelling, entry) for entry in load() for spelling in (entry.name, *entry.aliases))


def _exact(key: str, *, index: dict[str, tuple[Accelerator, ...]]) -> list[Accelerator]:
    return list(index.get(key, ())) if key else []


def _matches(name: str) -> list[Accelerator]:
    """Who answers to a name: by catalogue name or alias, by device name, else by the words it shares."""
    key = _key(name)
    return _exact(key, index=_spellings()) or _exact(key, index=_device_names()) or _sharing_words(name)


def _sharing_words(name: str) -> list[Accelerator]:
    """Accelerators all words of `name` belong to, at least one of them a model's (`H100`, not `80GB`)."""
    wanted = set(_words(name[:200]))
    return [entry for entry in load() if wanted & _model_words(entry) and wanted <= _all_words(entry)]


def _model_words(entry: Accelerator) -> set[str]:
    return {word for word in _words(entry.name) if any(map(str.isdigit, word)) and not word.endswith("gb")}


def _all_words(entry: Accelerator) -> set[str]:
    spellings = (entry.name, *entry.aliases, *entry.device_names)
    return {word for spelling in spellings for word in _words(spelling)}


def _nearest(entries: list[Accelerator], memory_bytes: int) -> list[Accelerator]:
    return sorted(entries, key=lambda entry: abs(entry.memory_bytes - memory_bytes))[:1]


def _with_memory(name: str, size_text: str, option: str) -> Accelerator:
    """`NAME=SIZE`: what the catalogue knows of that name, if anything, with this memory."""
    size = _size(size_text, option)
    given = f"given as {name}={size_text}"
    known = _nearest(_matches(name), size)
    if known:
        return replace(known[0], memory_bytes=size, memory_basis=Basis.EXACT, source=given, reported_mib=None)
    if not _CUSTOM_NAME.fullmatch(name):
        raise UsageError(
            f"--gpu {_shown(option)!r}: a GPU's name is at most 64 letters, digits, spaces and ._+()/-",
            hint="for example custom=79.19GiB:2",
        )
    return _of_size(name, size, given)


def _of_size(name: str, size: int, given: str) -> Accelerator:
    """Hardware outside the catalogue: where such a size tells the card, what is known of that card is assumed of it."""
    kinds = kinds_of_size(load(), size)
    likely = kinds[0] if kinds else None
    return Accelerator(
        name=name,
        memory_bytes=size,
        memory_basis=Basis.EXACT,
        source=given,
        vendor=likely.vendor if likely else "nvidia",
        backend=likely.backend if likely else "cuda",
        compute_capability=likely.compute_capability if likely else None,
        architecture=likely.architecture if likely else None,
        unified=likely is not None and likely.unified,
        taken_for=kinds,
    )


def _size(text: str, option: str) -> int:
    try:
        size = parse_size(text[:200])
    except ValueError as error:
        raise UsageError(f"--gpu {_shown(option)!r}: {error}", hint="for example custom=79.19GiB:2") from None
    if size >= SMALLEST_MEMORY_BYTES:
        return size
    wrong = "a GPU without memory" if size == 0 else f"{size} bytes is less memory than any GPU has"
    raise UsageError(f"--gpu {_shown(option)!r}: {wrong}", hint="write size and unit, for example 24GiB")


def _count(text: str, option: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        problem = f"{_shown(digits)!r} is not a number of GPUs"
    elif len(digits) > 9 or int(digits) > MOST_GPUS:
        problem = f"at most {MOST_GPUS} GPUs can be asked for"
    elif int(digits) == 0:
        problem = "at least one GPU is needed"
    else:
        return int(digits)
    raise UsageError(f"--gpu {_shown(option)!r}: {problem}", hint=_SYNTAX)


def _shown(text: str) -> str:
    """What the user typed, cut where it gets long."""
    return text if len(text) <= 60 else f"{text[:57]}..."
