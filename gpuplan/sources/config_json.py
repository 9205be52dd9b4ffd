"""config.json and its like: one JSON object of bounded size and depth; a fault has a line and a column."""

import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from gpuplan.errors import ModelError, UsageError

MAX_BYTES = 16 * 1024**2
MAX_DEPTH = 64

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


class _Repeated(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def read_config(path: Path) -> dict[str, Any]:
    """Read a JSON object of at most 16 MiB from a regular file.

    Raises ModelError with path, line and column.
    """
    return parse_config(read_bounded(path), where=str(path))


def read_bounded(path: Path, *, limit: int = MAX_BYTES) -> bytes:
    """Content of a regular file of at most `limit` bytes. Raises ModelError, for a pipe or a device too."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelError(f"{path}: not a regular file", hint="save the configuration to a file first")
            content = stream.read(limit + 1)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > limit:
        raise too_large(str(path), max(status.st_size, len(content)), limit)
    return content


def too_large(where: str, size: int, limit: int = MAX_BYTES) -> ModelError:
    """The error for a configuration of `size` bytes."""
    return ModelError(
        f"{where}: {size} bytes; a model's configuration has at most {limit // 1024**2} MiB",
        hint="give the model's config.json or its directory",
    )


def parse_config(content: bytes, *, where: str, limit: int = MAX_BYTES) -> dict[str, Any]:
    """Parse one JSON object of at most `limit` bytes.

    `Infinity` is accepted, as published Mamba configurations hold it, and so is a byte order mark. NaN is
    refused, and so is a key given twice with unlike values.
    Raises ModelError whose message starts with `where:line:column`.
    """
    if len(content) > limit:
        raise too_large(where, len(content), limit)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelError(f"{where}: not UTF-8 text (byte {error.start})", hint=_HINT) from error
    document = _parse(text, where)
    if not isinstance(document, dict):
        raise ModelError(
            f"{where}:1:1: expected a JSON object, found {_kind_of(document)}",
            hint=_HINT,
        )
    return document


def parse_overrides(text: str, *, where: str = "--hf-overrides") -> dict[str, Any]:
    """Parse the JSON object of `--hf-overrides`. Raises UsageError."""
    try:
        return parse_config(text.encode("utf-8", "surrogateescape"), where=where)
    except ModelError as error:
        raise UsageError(
            error.message, hint="""for example --hf-overrides '{"num_hidden_layers": 4}'"""
        ) from error


def apply_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A new configuration with `overrides` applied as vLLM applies `--hf-overrides`.

    A nested configuration (`text_config`, `vision_config`, …) is merged to any depth; any other value,
    dictionaries such as `rope_parameters` and `quantization_config` included, is replaced as a whole
    (vLLM 0.33 `ModelConfig._apply_dict_overrides`).
    """
    return _merged(config, overrides, merges=_is_nested_config)


_HINT = "a model's config.json is one JSON object, as published with its weights"


def _is_nested_config(key: str) -> bool:
    return key.endswith("_config") and key not in ("quantization_config", "compression_config")


def _always(key: str) -> bool:
    del key
    return True


def _merged(
    current: Mapping[str, Any], updates: Mapping[str, Any], *, merges: Callable[[str], bool] = _always
) -> dict[str, Any]:
    """`merges` says which keys' dictionaries are merged rather than replaced; below them all are."""
    result = dict(current)
    for key, value in updates.items():
        nested = result.get(key)
        if isinstance(value, Mapping) and isinstance(nested, Mapping) and merges(key):
            result[key] = _merged(nested, value)
        else:
            result[key] = value
    return result


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _parse(text: str, where: str) -> Any:
    def refuse_nan(constant: str) -> float:
        if constant == "NaN":
            raise _Repeated("NaN")
        return math.inf if constant == "Infinity" else -math.inf

    try:
        _check_depth(text, where)
        return json.loads(text, object_pairs_hook=_object, parse_constant=refuse_nan)
    except _Repeated as fault:
        _raise_located(text, where, fault.key)
    except json.JSONDecodeError as error:
        raise ModelError(
            f"{where}:{error.lineno}:{error.colno}: not JSON: {error.msg}", hint=_HINT
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{where}: not a usable JSON document: {str(error)[:120]}", hint=_HINT) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen and seen[key] != value:
                raise _Repeated(key)
            seen[key] = value
    return result


def _check_depth(text: str, where: str) -> None:
    """Refuse what is nested beyond MAX_DEPTH before a parser recurses into it."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    depth = 0
    for match in _TOKEN.finditer(text):
        if (token := match.group()) in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                line, column = _position(text, match.start())
                raise ModelError(
                    f"{where}:{line}:{column}: nested deeper than {MAX_DEPTH} levels", hint=_HINT
                )
        elif token in "}]":
            depth -= 1


def _raise_located(text: str, where: str, key: str) -> NoReturn:
    """Find the NaN, or the second of two unlike values of `key` in one object, and say where it stands."""
    seen: list[set[str]] = []
    tokens = list(_TOKEN.finditer(text))
    for number, match in enumerate(tokens):
        token = match.group()
        if key == "NaN" and token == "NaN":
            line, column = _position(text, match.start())
            raise ModelError(
                f"{where}:{line}:{column}: NaN is not a value a configuration can have", hint=_HINT
            )
        if token in "{[":
            seen.append(set())
        elif token in "}]" and seen:
            seen.pop()
        elif token[0] == '"' and seen and number + 1 < len(tokens) and tokens[number + 1].group() == ":":
            name = json.loads(token, strict=False)
            if name == key and name in seen[-1]:
                line, column = _position(text, match.start())
                raise ModelError(
                    f"{where}:{line}:{column}: {key!r} is given twice with unlike values", hint=_HINT
                )
            seen[-1].add(name)
    raise ModelError(f"{where}: {key!r} is given twice with unlike values", hint=_HINT)


def _position(text: str, offset: int) -> tuple[int, int]:
    line = text.count("\n", 0, offset) + 1
    return line, offset - text.rfind("\n", 0, offset)


def _kind_of(value: Any) -> str:
    match value:
        case list():
            return "a list"
        case str():
            return "a string"
        case None:
            return "null"
        case bool():
            return "true or false"
        case _:
            return "a number"
