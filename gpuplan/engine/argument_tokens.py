"""From the ways arguments are written to one argv, and from an argv to occurrences of flags.

Two stages. `flatten` undoes how entries were typed: `"--a 1"`, `" --a=1"`, `"--a =1"`, `"--a = 1"` all
become `--a`, `1` or `--a=1` (S2.6). `normalize` does what vLLM's parser does before argparse sees an argv:
underscores become dashes, `-O3` becomes `--optimization-level 3`, dotted keys are gathered into one JSON
value (vLLM 0.33, `utils/argparse_utils.py`).
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpuplan.engine.argument_values import human_readable
from gpuplan.errors import UsageError

_OPTION = re.compile(r"\s*--?[A-Za-z]")
_NAME = re.compile(r"--?[A-Za-z][\w.+-]*")
_OPEN = re.compile(r"--?[A-Za-z][\w.+-]*=")
_ASSIGNED = re.compile(r"--?[A-Za-z][\w.+-]*=[^{\[].*", re.DOTALL)
_LITERAL = re.compile(r"--?[A-Za-z][\w.+-]*=[^\s'\"{\[][^\s]*")
"""An assignment without spaces whose value does not start with a quote is passed on as it stands."""
_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")
_NESTING_LIMIT = 64
_DECODER = json.JSONDecoder()


def flatten(entries: Iterable[str]) -> tuple[str, ...]:
    """One argv from entries that may hold several words, quotes, or spaces around `=` (S2.6).

    Only entries that start with a flag are taken apart: a value of its own (`{"a": 1}`, `my model`) is never
    touched, and neither is JSON after a flag. In `--a=b c` the whole `b c` is the value, as the shell would
    have passed it. Raises UsageError when a quote is not closed.
    """
    tokens: list[str] = []
    for entry in entries:
        words = _words(entry) if _OPTION.match(entry) and not _LITERAL.fullmatch(entry) else [entry]
        for word in words:
            _append(tokens, word)
    return tuple(tokens)


def _append(tokens: list[str], word: str) -> None:
    """Join `--a`, `=1` and `--a`, `=`, `1` into `--a=1`."""
    previous = tokens[-1] if tokens else ""
    starts = word.startswith("=") and _NAME.fullmatch(previous)
    if starts or (_OPEN.fullmatch(previous) and not word.startswith("-")):
        tokens[-1] = previous + word
    else:
        tokens.append(word)


def _words(entry: str) -> list[str]:
    words: list[str] = []
    position = 0
    while position < len(entry):
        if entry[position].isspace():
            position += 1
            continue
        word, position = _word(entry, position)
        if words and (words[-1] == "=" or _OPEN.fullmatch(words[-1])) and not word.startswith("--"):
            words[-1] += word
        elif words and _ASSIGNED.fullmatch(words[-1]) and not word.startswith("-"):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def _word(entry: str, position: int) -> tuple[str, int]:
    """The word at `position` and where it ends; shell quoting, and JSON after a flag taken as it stands."""
    named = _NAME.match(entry, position)
    start = position
    if named and entry[named.end() : named.end() + 1] == "=":
        start = named.end() + 1
    elif entry[position] == "=":
        start = position + 1
    json_end = _json_end(entry, start)
    if json_end is not None:
        return entry[position:json_end], json_end
    if start > position and entry[start : start + 1] == "{":
        return entry[position:].rstrip(), len(entry)
    return _shell_word(entry, position)


def _json_end(entry: str, start: int) -> int | None:
    if entry[start : start + 1] not in ("{", "["):
        return None
    try:
        return _DECODER.raw_decode(entry, start)[1]
    except (ValueError, RecursionError):
        return None


def _shell_word(entry: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while position < len(entry) and not entry[position].isspace():
        character = entry[position]
        if character in "'\"":
            text, position = _quoted(entry, position)
            parts.append(text)
        elif character == "\\" and position + 1 < len(entry):
            parts.append(entry[position + 1])
            position += 2
        else:
            parts.append(character)
            position += 1
    return "".join(parts), position


def _quoted(entry: str, start: int) -> tuple[str, int]:
    quote = entry[start]
    parts: list[str] = []
    position = start + 1
    while position < len(entry):
        character = entry[position]
        if character == quote:
            return "".join(parts), position + 1
        if character == "\\" and quote == '"' and entry[position + 1 : position + 2] in ('"', "\\"):
            position += 1
            character = entry[position]
        parts.append(character)
        position += 1
    raise UsageError(
        f"quote {quote} is not closed in {shorten(entry)!r}",
        hint="close it, or pass the value as its own word",
    )


def shorten(text: str, limit: int = 60) -> str:
    """Text of bounded length for a message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def grouped(words: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The words of a command, each flag with its values; what stands before the first flag is a group too."""
    group: tuple[str, ...] = ()
    for word in words:
        if group and _NAME.match(word):
            yield group
            group = ()
        group = (*group, word)
    if group:
        yield group


def flag_of(group: Sequence[str]) -> str:
    """The flag of a group, with dashes: `--max-model-len`."""
    return group[0].partition("=")[0].replace("_", "-")


def is_number(token: str) -> bool:
    """A negative number is a value, not a flag."""
    return _NUMBER.fullmatch(token) is not None


def normalize(argv: Sequence[str], *, compilation_shorthand: bool = False) -> list[str]:
    """The argv argparse is given: names with dashes, `-O` expanded, dotted keys gathered at the end.

    `compilation_shorthand`: `-O` means the compilation configuration, as it did up to 0.11. Raises
    UsageError when a dotted key has no value.
    """
    return _gather_dotted(_spelled(argv, compilation_shorthand))


def _spelled(argv: Sequence[str], compilation_shorthand: bool) -> list[str]:
    spelled: list[str] = []
    for position, token in enumerate(argv):
        following = argv[position + 1] if position + 1 < len(argv) else ""
        if token.startswith("--"):
            spelled.append(_dashed(token))
        elif token.startswith("-O") and (token != "-O" or following[:1] in ("0", "1", "2", "3", "{")):
            spelled.append("--compilation-config" if compilation_shorthand else "--optimization-level")
            if token != "-O":
                spelled.append(token[2:].removeprefix("="))
        else:
            spelled.append(token)
    return spelled


def _dashed(token: str) -> str:
    """Underscores become dashes up to the first dot of the name: keys inside a value keep theirs."""
    name, equals, value = token.partition("=")
    head, dot, keys = name.partition(".")
    return head.replace("_", "-") + dot + keys + equals + value


def _gather_dotted(argv: list[str]) -> list[str]:
    kept: list[str] = []
    gathered: dict[str, dict[str, Any]] = {}
    position = 0
    while position < len(argv):
        token = argv[position]
        name, equals, value = token.partition("=")
        position += 1
        if not name.startswith("-") or "." not in name or is_number(token) or _NAME.match(name) is None:
            kept.append(token)
            continue
        if not equals:
            if position == len(argv):
                raise UsageError(f"{shorten(name)} needs a value", hint=f"write {shorten(name)} VALUE")
            value = argv[position]
            position += 1
        flag, _, path = name.removesuffix("+").partition(".")
        keys = path.split(".")
        if len(keys) > _NESTING_LIMIT:
            raise UsageError(
                f"{shorten(name)} is nested more than {_NESTING_LIMIT} levels deep",
                hint="no argument of vLLM has that many levels",
            )
        _merge(
            gathered.setdefault(flag, {}),
            keys,
            value.split(",") if name.endswith("+") else dotted_value(value),
        )
    for flag, value_by_key in gathered.items():
        try:
            kept += [flag, json.dumps(value_by_key)]
        except RecursionError:
            raise UsageError(
                f"{shorten(flag)} is nested too deep to be read",
                hint="no argument of vLLM has that many levels",
            ) from None
    return kept


def dotted_value(text: str) -> Any:
    """The value of a dotted key: JSON, else a human-readable number, else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return human_readable(text)
    except ValueError:
        return text


def _merge(target: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = target.get(key)
        if not isinstance(inner, dict):
            inner = target[key] = {}
        target = inner
    existing = target.get(keys[-1])
    if isinstance(existing, list) and isinstance(value, list):
        target[keys[-1]] = existing + value
    elif isinstance(existing, dict) and isinstance(value, dict):
        for key, inner in value.items():
            _merge(existing, [key], inner)
    else:
        target[keys[-1]] = value
