"""The user's own words of `vllm serve`: which words belong to a flag, in any of its spellings."""

from collections.abc import Collection, Iterator, Sequence

from gpuplan.engine.arguments import looks_like_flag
from gpuplan.engine.flags import Flag, completions, spellings


def taken_out(
    words: Sequence[str], destinations: Collection[str]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The words without those of the named arguments, and the values that went with them.

    `--api-key A B`, `--api_key=A`, `--api-k A` and dotted keys (`--speculative-config.model X`) are all found; of an
    argument given twice the last values are told, as the engine reads it.
    """
    kept: list[str] = []
    found: dict[str, tuple[str, ...]] = {}
    for flag, group in _grouped(words):
        if flag is None or flag.destination not in destinations:
            kept += group
            continue
        _name, equals, value = group[0].partition("=")
        found[flag.destination] = (*((value,) if equals else ()), *group[1:])
    return tuple(kept), found


def _grouped(words: Sequence[str]) -> Iterator[tuple[Flag | None, list[str]]]:
    """Each flag with its values; words without one by themselves."""
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        flag = _flag(word) if looks_like_flag(word) else None
        group = [word]
        if flag is not None and "=" not in word and (flag.takes_value or "." in word):
            most = len(words) if flag.arity == "+" and "." not in word else 1
            while position < len(words) and len(group) <= most and not looks_like_flag(words[position]):
                group.append(words[position])
                position += 1
        yield flag, group


def _flag(word: str) -> Flag | None:
    name = word.partition("=")[0]
    if name.startswith("--"):
        name = name.partition(".")[0].replace("_", "-")
    known = spellings().get(name)
    if known is not None:
        return known.flag
    meant = {spellings()[match].flag for match in completions(name)}
    return meant.pop() if len(meant) == 1 else None
