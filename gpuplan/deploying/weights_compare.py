"""Whether a model's files are whole, and the same on every host; what is wrong as facts (GP840 to GP843).

What must be there is what the weight index names, else the weights any of the hosts has; a file's right size is the
one its own header promises, else the largest any host has. Files no engine reads (README, other formats beside
safetensors) are not compared.
"""

from collections.abc import Iterable, Mapping, Sequence

from gpuplan.deploying.weights_probe import FoundPlace
from gpuplan.domain.fact import Fact, Severity

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
"""In the order an engine prefers them."""
_CONSOLIDATED = "consolidated"
"""Mistral's own format beside the usual one: a download may leave it out (vLLM weight_utils, `ignore_patterns`)."""
_TEXTS = frozenset(
    {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "special_tokens_map.json",
        "vocab.json",
        "merges.txt",
        "vocab.txt",
        "preprocessor_config.json",
        "processor_config.json",
        "video_preprocessor_config.json",
        "chat_template.json",
        "chat_template.jinja",
        "modules.json",
        "tekken.json",
    }
)
"""Small files by which hosts that differ would answer differently."""


def faults(found: Mapping[str, FoundPlace], *, config_only: bool = False) -> tuple[Fact, ...]:
    """What is missing, short or different on each host; empty when all have one whole model.

    `config_only`: `--load-format dummy` reads no weights.
    """
    weights = () if config_only else needed_weights(found.values())
    texts = sorted(
        {name for place in found.values() for name in (*dict(place.files), *place.broken) if name in _TEXTS}
    )
    needed = (*weights, *texts)
    sizes = {name: _right_size(name, found.values()) for name in weights}
    told: list[Fact] = []
    for host, place in found.items():
        others = [name for name in found if name != host]
        told += _missing(host, place, needed, others, found)
        told += _short(host, place, sizes, found)
        told += _outside(host, place, needed)
        if not config_only and not weights:
            told.append(_fact("GP841", host, place, missing=("weights (*.safetensors)",), have=(), broken=()))
    return (*told, *_different(found, texts))


def needed_weights(places: Iterable[FoundPlace]) -> tuple[str, ...]:
    """The files of weights an engine reads."""
    items = tuple(places)
    indexed = {name for place in items for name in place.indexed}
    if indexed:
        return tuple(sorted(indexed))
    names = {name for place in items for name in (*dict(place.files), *place.broken) if "/" not in name}
    for suffix in WEIGHTS:
        own = sorted(name for name in names if name.endswith(suffix))
        usual = [name for name in own if not name.startswith(_CONSOLIDATED)]
        if own:
            return tuple(usual or own)
    return ()


def weight_bytes(place: FoundPlace) -> int:
    """Bytes of the weights on a host."""
    sizes = dict(place.files)
    return sum(sizes.get(name, 0) for name in needed_weights((place,)))


def is_mendable(told: Fact) -> bool:
    """Whether a download into the cache brings what is missing; it leaves files that are there as they are."""
    return told.code == "GP841"


def _missing(
    host: str,
    place: FoundPlace,
    needed: Sequence[str],
    others: Sequence[str],
    found: Mapping[str, FoundPlace],
) -> list[Fact]:
    have = dict(place.files)
    missing = tuple(name for name in needed if name not in have)
    if not missing:
        return []
    owners = tuple(name for name in others if all(item in dict(found[name].files) for item in missing))
    broken = tuple(name for name in missing if name in place.broken)
    return [_fact("GP841", host, place, missing=missing, have=owners, broken=broken)]


def _short(
    host: str, place: FoundPlace, sizes: Mapping[str, int | None], found: Mapping[str, FoundPlace]
) -> list[Fact]:
    have, promised = dict(place.files), dict(place.promised)
    told = []
    for name, right in sizes.items():
        size = have.get(name)
        if size is None:
            continue
        if promised.get(name) == -1:
            told.append(
                _fact("GP842", host, place, file=name, bytes=size, expected_bytes=right, pointer=True)
            )
        elif right is not None and size != right:
            owner = next((other for other in found if dict(found[other].files).get(name) == right), None)
            told.append(_fact("GP842", host, place, file=name, bytes=size, expected_bytes=right, have=owner))
    return told


def _right_size(name: str, places: Iterable[FoundPlace]) -> int | None:
    items = tuple(places)
    promises = [size for place in items for file, size in place.promised if file == name and size > 0]
    sizes = [size for place in items for file, size in place.files if file == name]
    return max(promises, default=None) or max(sizes, default=None)


def _outside(host: str, place: FoundPlace, needed: Sequence[str]) -> list[Fact]:
    away = tuple(name for name in place.outside if name in needed)
    return [_fact("GP843", host, place, files=away, outside=True)] if away else []


def _different(found: Mapping[str, FoundPlace], texts: Sequence[str]) -> list[Fact]:
    """Hosts whose files are whole, but those of another revision; the first host is the measure."""
    hosts = list(found)
    if not hosts:
        return []
    first = found[hosts[0]]
    told = []
    for host in hosts[1:]:
        place = found[host]
        digests, sizes = dict(place.digests), dict(place.files)
        unlike = {name for name, digest in first.digests if name in digests and digests[name] != digest}
        unlike |= {
            name
            for name, size in first.files
            if name in texts and name in sizes and sizes[name] != size and name not in digests
        }
        if unlike:
            told.append(
                _fact(
                    "GP843",
                    host,
                    place,
                    files=tuple(sorted(unlike)),
                    other=hosts[0],
                    revision=place.revision,
                    other_revision=first.revision,
                )
            )
    return told


def _fact(code: str, host: str, place: FoundPlace, **figures: object) -> Fact:
    return Fact(
        code=code,
        severity=Severity.ERROR,
        subject={"host": host},
        figures={"path": place.path, "kind": place.kind.value, **figures},
    )
