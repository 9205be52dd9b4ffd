"""A model's files as they were read: configuration, quantization file, tensor headers; nothing is derived."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any


class Origin(StrEnum):
    HUB = "hub"
    DIRECTORY = "directory"
    FILE = "file"
    CATALOGUE = "catalogue"


class Evidence(IntEnum):
    """What the size of the weights rests on; a smaller number is better evidence."""

    SAFETENSORS_HEADERS = 1
    SAFETENSORS_INDEX = 2
    CONFIG = 3
    NAME = 4

    @property
    def label(self) -> str:
        """The name documents and JSON use, `safetensors_headers`."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorKind:
    """What all tensors of one type, shape and size share."""

    dtype: str
    """As safetensors writes it: `BF16`, `F8_E4M3`, …; a name unknown here is kept as it was written."""
    shape: tuple[int, ...]
    bytes: int
    """Bytes in the file."""

    @property
    def elements(self) -> int:
        """Product of the shape; a packed type (I32 of AWQ, U8 of NVFP4) counts its containers."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorIndex:
    """Every tensor of a checkpoint in two columns: `kinds[i]`, which tensors share, belongs to `names[i]`."""

    names: tuple[str, ...] = ()
    kinds: tuple[TensorKind, ...] = ()

    def __post_init__(self) -> None:
        if len(self.names) != len(self.kinds):
            raise ValueError("a tensor index needs one kind per name")

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """(name, dtype, shape) of each tensor, in file order."""
        return ((name, kind.dtype, kind.shape) for name, kind in zip(self.names, self.kinds, strict=True))

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(kind.bytes * count for kind, count in self._kind_counts().items())

    @property
    def count_by_dtype(self) -> dict[str, int]:
        """Number of tensors per stored type."""
        counts: Counter[str] = Counter()
        for kind, count in self._kind_counts().items():
            counts[kind.dtype] += count
        return dict(counts)

    @property
    def bytes_by_dtype(self) -> dict[str, int]:
        """Bytes per stored type."""
        sizes: Counter[str] = Counter()
        for kind, count in self._kind_counts().items():
            sizes[kind.dtype] += kind.bytes * count
        return dict(sizes)

    @property
    def elements_by_dtype(self) -> dict[str, int]:
        """Stored elements per type; see `TensorKind.elements` for packed types."""
        elements: Counter[str] = Counter()
        for kind, count in self._kind_counts().items():
            elements[kind.dtype] += kind.elements * count
        return dict(elements)

    def by_name(self) -> dict[str, TensorKind]:
        """A new mapping from each tensor's name to its kind."""
        return dict(zip(self.names, self.kinds, strict=True))

    def _kind_counts(self) -> dict[TensorKind, int]:
        # Few objects stand for many tensors: counting them by identity spares a hash of every shape.
        distinct = {id(kind): kind for kind in self.kinds}
        counts: Counter[TensorKind] = Counter()
        for number, count in Counter(map(id, self.kinds)).items():
            counts[distinct[number]] += count
        return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """One model's files. `config` and `quantization` are shared: nobody writes to them."""

    name: str
    """The hub id, the directory's name, the file's stem, or the catalogue name."""
    origin: Origin
    location: str
    """The hub id, or the path as the user wrote it."""
    config: Mapping[str, Any]
    """config.json as written: every value may be missing, of the wrong type, or absurd."""
    quantization: Mapping[str, Any] | None = None
    """hf_quant_config.json (ModelOpt) as written; None without one."""
    tensors: TensorIndex | None = None
    """All tensors of the checkpoint; None when a single header is missing, never a part of them."""
    index_total_bytes: int | None = None
    """`metadata.total_size` of model.safetensors.index.json."""
    evidence: Evidence = Evidence.CONFIG
    revision: str | None = None
    """The commit on the hub; None for files."""
    notes: tuple[str, ...] = ()
    """What the reader should know about how the files were read."""
