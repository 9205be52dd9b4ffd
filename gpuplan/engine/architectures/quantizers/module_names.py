"""Matching of a checkpoint's module names against vLLM's own: the same module, whatever wrapper its path is spelled with.

Checkpoints name modules as transformers does (`model.language_model.layers.0.…`), vLLM as its classes nest them
(`language_model.model.layers.0.…`) and maps the former to the latter (`hf_to_vllm_mapper` of each model class). Here both
are reduced to the part the two spellings share (`layers.0.…`).
"""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from functools import lru_cache

from gpuplan.errors import ModelError

WRAPPERS = ("model.", "language_model.", "backbone.", "thinker.", "llm.", "text_model.", "transformer.")
SYNONYMS = {"head": "lm_head", "embed": "embed_tokens", "embeddings": "embed_tokens"}
LONGEST_PATTERN = 1000
MOST_REPEATS = 8
"""Unbounded repeats one pattern may hold: matching time grows with the path length to this power at worst."""

_LAYER = re.compile(r"(?:^|\.)(layers\.\d+\.)")
_NESTED_REPEAT = re.compile(r"[*+}]\)*\)[*+{]")
_REPEAT = re.compile(r"(?<!\\)[*+]|\{\d*,\d*\}")


def bare(name: str) -> str:
    """The module's path without the wrappers the two spellings differ in."""
    stripped = name
    while stripped.startswith(WRAPPERS):
        stripped = stripped.partition(".")[2]
    return SYNONYMS.get(stripped, stripped)


def shards(path: str, fused: tuple[str, ...]) -> tuple[str, ...]:
    """Paths of the checkpoint's matrices that the layer at `path` stacks; the path itself when it stacks none."""
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


@lru_cache(maxsize=4096)
def wildcard(pattern: str) -> Callable[[str], bool]:
    """Matcher of a shell-style pattern; ModelError when it holds too many stars."""
    collapsed = re.sub(r"\*+", "*", pattern)
    if collapsed.count("*") > MOST_REPEATS or len(collapsed) > LONGEST_PATTERN:
        raise ModelError(
            f"quantization config: the pattern {pattern[:60]!r} is too complex to be matched safely",
            hint="rewrite it with fewer stars",
        )
    compiled = re.compile(translate(collapsed))
    return lambda path: compiled.match(path) is not None


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


class LayerIndex:
    """Patterns filed under the decoder layer they name, so that a list of thousands costs one look-up per module."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._filed: dict[str, list[str]] = {}
        self._general: list[str] = []
        for pattern in dict.fromkeys(patterns):
            found = _LAYER.search(pattern)
            literal = found is not None and not set("*?[") & set(pattern[: found.end()])
            if found is not None and literal:
                self._filed.setdefault(found[1], []).append(pattern)
            else:
                self._general.append(pattern)

    def candidates(self, path: str) -> list[str]:
        found = _LAYER.search(path)
        return self._general + self._filed.get(found[1], []) if found else self._general


class Fragments:
    """Names matched anywhere inside a path (AWQ's `modules_to_not_convert`)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._index = LayerIndex(bare(name) for name in names if name)

    def hold(self, path: str, fused: tuple[str, ...] = ()) -> bool:
        return all(self._inside(bare(name)) for name in shards(path, fused)) or self._inside(bare(path))

    def _inside(self, path: str) -> bool:
        return any(name in path for name in self._index.candidates(path))


class ExcludedModules:
    """ModelOpt's `exclude_modules`: exact names, fragments and shell patterns (`is_layer_excluded`, modelopt.py)."""

    def __init__(self, names: Iterable[str]) -> None:
        spelled: list[str] = []
        for name in names:
            if len(name) >= 2 and name[-1] == "*" and name[-2] != ".":
                spelled += [name[:-1], name[:-1] + ".*", name]
            else:
                spelled.append(name)
        self._anchored = {bare(name) for name in spelled if bare(name) != name}
        self._exact = ExactNames(spelled)
        self._index = LayerIndex(bare(name) for name in spelled)

    def hold(self, path: str, fused: tuple[str, ...] = ()) -> bool:
        return self._exact.hold(path, fused) or self._matches(bare(path), path)

    def _matches(self, path: str, whole: str) -> bool:
        for name in self._index.candidates(path):
            inside = path.startswith(name) if name in self._anchored else name in path or name in whole
            if inside or ("*" in name and (wildcard(name)(path) or wildcard(name)(whole))):
                return True
        return False
