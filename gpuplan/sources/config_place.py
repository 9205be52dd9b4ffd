"""Where a key of a configuration stands in its file, so that an error can name the line."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import assert_never

from gpuplan.domain.repository import Origin, Repository
from gpuplan.engine.architectures.config_view import CORRECT
from gpuplan.errors import ConfigError, ModelError
from gpuplan.sources.checkpoint import CONFIG_FILE, QUANTIZATION_FILE
from gpuplan.sources.config_json import read_bounded
from gpuplan.sources.local_files import exists

QUANTIZATION = "quantization config"
"""The document of errors in a quantization config: it stands in config.json or in a file beside it."""
QUANTIZATION_KEYS = ("quantization_config", "compression_config")

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


def located(error: ConfigError, repository: Repository, overridden: frozenset[str]) -> ModelError:
    """The same error with the place a user can open: `--hf-overrides`, file and line, or the repository's file."""
    keys, file_name = error.keys, CONFIG_FILE
    if error.document == QUANTIZATION:
        declared = next((key for key in QUANTIZATION_KEYS if repository.config.get(key)), None)
        keys = (declared, *keys) if declared is not None else keys
        file_name = CONFIG_FILE if declared is not None else QUANTIZATION_FILE
    name = ".".join(keys)
    override = "-- --hf-overrides '" + "".join(f'{{"{key}": ' for key in keys) + "…" + "}" * len(keys) + "'"
    if keys[0] in overridden:
        return ModelError(f"--hf-overrides: {name} {error.problem}", hint=f"write {override}")
    file = _file(repository, file_name)
    place = f"{file}{_line(file, keys)}" if file is not None else f"{repository.name}/{file_name}"
    ways = ["correct the file"] if file is not None else []
    # vLLM replaces quantization_config as a whole: one value of it cannot be overridden.
    ways += [f"override the value: {override}"] if error.document != QUANTIZATION else []
    hint = (
        error.hint if error.hint != CORRECT else ", or ".join(ways) or "plan another checkpoint of the model"
    )
    return ModelError(f"{place}: {name} {error.problem}", hint=hint)


def _file(repository: Repository, name: str) -> Path | None:
    """The file on this machine; None for a model of the hub or the catalogue."""
    path = Path(repository.location).expanduser()
    match repository.origin:
        case Origin.DIRECTORY:
            return path / name
        case Origin.FILE if name == CONFIG_FILE:
            return path
        case Origin.FILE:
            own = path.with_name(f"{path.stem}.{name}")
            return own if exists(own) else path.with_name(name)
        case Origin.HUB | Origin.CATALOGUE:
            return None
        case _ as never:
            assert_never(never)


def _line(file: Path, keys: tuple[str, ...]) -> str:
    try:
        number = line_of(read_bounded(file).decode("utf-8-sig", "replace"), keys)
    except ModelError:
        return ""
    return f":{number}" if number is not None else ""


def line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """The line, counted from 1, of the key these `keys` lead to: from the document's root if it is there, else
    from wherever they first do."""
    wanted = tuple(key.partition("[")[0] for key in keys)
    inner: int | None = None
    for path, offset in _keys(text):
        if path == wanted:
            return text.count("\n", 0, offset) + 1
        if inner is None and path[-len(wanted) :] == wanted:
            inner = offset
    return None if inner is None else text.count("\n", 0, inner) + 1


def _keys(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Every key of every object with the keys that lead to it."""
    path: list[str] = []
    current = ""
    tokens = list(_TOKEN.finditer(text))
    for match, following in zip(tokens, [*tokens[1:], None], strict=True):
        token = match.group()
        if token in "{[":
            path.append(current)
            current = ""
        elif token in "}]":
            current = path.pop() if path else ""
        elif token[0] == '"' and following is not None and following.group() == ":":
            current = str(json.loads(token, strict=False))
            yield (*(key for key in path if key), current), match.start()
