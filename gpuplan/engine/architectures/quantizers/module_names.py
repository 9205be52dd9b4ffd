"""A checkpoint's module names against vLLM's own: the same module, whatever wrapper its path is spelled with.

Checkpoints name modules as transformers does (`model.language_model.layers.0.…`), vLLM as its classes nest
them (`language_model.model.layers.0.…`) and maps the former to the latter (`hf_to_vllm_mapper` of each model
class). Here both are reduced to the part the two spellings share (`layers.0.…`).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from typing import Generic, TypeVar

from gpuplan.errors import ModelError

Item = TypeVar("Item")

WRAPPERS = ("model.", "language_model.", "backbone.", "thinker.", "llm.", "text_model.", "transformer.")
SYNONYMS = {"head": "lm_head", "embed": "embed_tokens", "embeddings": "embed_tokens"}
LONGEST_PATTERN = 1000
MOST_REPEATS = 8
"""Unbounded repeats one pattern may hold: matching time grows with the path length to this power at worst."""

MOST_PATTERNS = 1000
MOST_NAMES = 20_000
"""Patterns and fragments tried on every module, beside those filed under one layer."""

_LAYER = re.compile(r"(?:^|\.)((?:layers|blocks)\.\d+\.)")
_NESTED_REPEAT = re.compile(r"[*+}]\)*\)[*+{]")
_REPEAT = re.compile(r"(?<!\\)[*+]|\{\d*,\d*\}")


def bare(name: str) -> str:
    """The module's path without the wrappers the two spellings differ in."""
    stripped = name
    while stripped.startswith(WRAPPERS):
        stripped = stripped.partition(".")[2]
    return SYNONYMS.get(stripped, stripped)


def shards(path: str, fused: tuple[str, ...]) -> tuple[str, ...]:
    """Paths of the matrices that the layer at `path` stacks; the path itself when it stacks none."""
    parent = path.rpartition(".")[0]
    return tuple(f"{parent}.{name}" if parent else name for name in fused) or (path,)


def regex(pattern: str) -> re.Pattern[str]:
    """Compile a `re:` pattern of a checkpoint; ModelError when it is wrong or could take unbounded time."""
    collapsed = re.sub(r"(\.\*\??)+", ".*", pattern)
    unsafe = (
        len(collapsed) > LONGEST_PATTERN
        or _NESTED_REPEAT.search(collapsed) is not None
        or len(_REPEAT.findall(collapsed)) > MOST_REPEATS
    )
    if unsafe:
        raise ModelError(
            f"quantization config: the pattern {pattern[:60]!r} is too complex to be matched safely",
            hint="rewrite it with fewer repetitions",
        )
    try:
        return re.compile(collapsed)
    except (re.error, OverflowError, RecursionError) as error:
        raise ModelError(
            f"quantization config: {pattern[:60]!r} is not a regular expression: {error}",
            hint="correct the pattern in the checkpoint's quantization config",
        ) from None


def wildcard(pattern: str) -> re.Pattern[str]:
    """Compile a shell-style pattern; ModelError when it holds too many stars."""
    collapsed = re.sub(r"\*+", "*", pattern)
    if collapsed.count("*") > MOST_REPEATS or len(collapsed) > LONGEST_PATTERN:
        raise ModelError(
            f"quantization config: the pattern {pattern[:60]!r} is too complex to be matched safely",
            hint="rewrite it with fewer stars",
        )
    return re.compile(translate(collapsed))


class ExactNames:
    """vLLM's `is_layer_skipped` with its exact mode (layers/quantization/utils/quant_utils.py)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {bare(name) for name in names}
        self._experts: set[str] = set()
        for name in self._names:
            start = name.find("experts")
            if start >= 0:
                ends = [at for at in range(start, len(name)) if name[at] == "."] + [len(name)]
                self._experts.update(name[:end] for end in ends[:8])

    def hold(self, path: str, fused: tuple[str, ...] = ()) -> bool:
        """Whether the layer at `path` is named: itself, or everything it stacks."""
        own = bare(path)
        if own in self._names:
            return True
        if fused:
            return all(name in self._names for name in shards(own, fused))
        return "experts" in own and own in self._experts


class LayerIndex(Generic[Item]):
    """Items filed under the layer their text names: a list of thousands costs one look-up per module."""

    def __init__(self, items: Iterable[tuple[str, Item]]) -> None:
        self._filed: dict[str, list[Item]] = {}
        self._general: list[Item] = []
        for text, item in items:
            found = _LAYER.search(text)
            if found is not None and not set("*?[") & set(text[: found.end()]):
                self._filed.setdefault(found[1], []).append(item)
            else:
                self._general.append(item)
        most = MOST_NAMES if all(isinstance(item, str) for item in self._general) else MOST_PATTERNS
        if len(self._general) > most:
            raise ModelError(
                f"quantization config: more than {most} patterns that name no decoder layer",
                hint="name the layers, or join the patterns",
            )

    def candidates(self, path: str) -> Iterator[Item]:
        """The items that name no layer, and those of the path's layer."""
        yield from self._general
        found = _LAYER.search(path)
        if found is not None:
            yield from self._filed.get(found[1], ())


class Fragments:
    """Names matched anywhere inside a path (AWQ's `modules_to_not_convert`)."""

    def __init__(self, names: Iterable[str]) -> None:
        fragments = dict.fromkeys(bare(name) for name in names if name)
        self._index = LayerIndex((name, name) for name in fragments)

    def hold(self, path: str, fused: tuple[str, ...] = ()) -> bool:
        """Whether a name stands in the path, or in that of everything the layer stacks."""
        return all(self._inside(bare(name)) for name in shards(path, fused)) or self._inside(bare(path))

    def _inside(self, path: str) -> bool:
        return any(name in path for name in self._index.candidates(path))


@dataclass(frozen=True, slots=True)
class _Exclusion:
    """One pattern of modules left alone."""

    text: str
    anchored: bool
    """A wrapper was taken off: the text must stand at the beginning."""
    pattern: re.Pattern[str] | None


class ExcludedModules:
    """ModelOpt's `exclude_modules`: names, fragments and shell patterns (`is_layer_excluded`, modelopt.py).

    A star at the end of a name takes the module and all below it, which the name as a fragment does too.
    """

    def __init__(self, names: Iterable[str]) -> None:
        spelled = dict.fromkeys(
            name[:-1] if len(name) > 1 and name.endswith("*") and not name.endswith(".*") else name
            for name in names
        )
        self._exact = ExactNames(spelled)
        self._index = LayerIndex((bare(name), self._exclusion(name)) for name in spelled if name)

    @staticmethod
    def _exclusion(name: str) -> _Exclusion:
        text = bare(name)
        return _Exclusion(text, text != name, wildcard(text) if set("*?[") & set(text) else None)

    def hold(self, path: str, fused: tuple[str, ...] = ()) -> bool:
        """Whether the layer at `path` is excluded: by its own name, or by those of everything it stacks."""
        return self._exact.hold(path, fused) or self._matches(bare(path), path)

    def _matches(self, path: str, whole: str) -> bool:
        for item in self._index.candidates(path):
            if item.pattern is not None:
                if item.pattern.match(path) or item.pattern.match(whole):
                    return True
            elif path.startswith(item.text) if item.anchored else item.text in path or item.text in whole:
                return True
        return False
