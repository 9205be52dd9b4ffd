"""The YAML file of `vllm serve --config FILE`, as the words the engine makes of it.

vLLM `utils/argparse_utils.py` (FlexibleArgumentParser._pull_args_from_config, load_config_file): a key is a flag, `true` the
flag alone, `false` nothing, a list the flag with its items, a mapping (in newer releases) one JSON value. They are put after
the model and before the other arguments, so that what is on the command line wins.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuplan.errors import UsageError
from gpuplan.sources.documents import Faults, decode, read_bytes
from gpuplan.units import MIB

FLAG = "--config"
FLAG_MODEL = "--model"
HINT = "the file holds arguments by their long names, for example `tensor-parallel-size: 4`"
MOST_BYTES = MIB
COMMAND = (("vllm", "serve"), ("serve",))


def with_file(words: Sequence[str]) -> tuple[str, ...]:
    """The command with the file's arguments in place of `--config FILE`; as it is where it names none that is here.

    Raises UsageError for what the engine would refuse of the file, and GpuplanError for one that cannot be read.
    """
    if words.count(FLAG) > 1:
        raise UsageError(
            "--config is given twice", hint="the engine reads one file: put all arguments into it"
        )
    if FLAG not in words:
        return tuple(words)
    at = words.index(FLAG)
    path = words[at + 1] if at + 1 < len(words) else ""
    if not path or (Path(path).suffix in (".yaml", ".yml") and not Path(path).expanduser().exists()):
        return tuple(words)
    read = read_words(path)
    before, after = tuple(words[:at]), tuple(words[at + 2 :])
    start = next((len(named) for named in COMMAND if before[: len(named)] == named), 0)
    if len(before) > start and not before[start].startswith("-"):
        start += 1
        if FLAG_MODEL in read:
            read = _without_model(read)
    return (*before[:start], *read, *before[start:], *after)


def _without_model(words: tuple[str, ...]) -> tuple[str, ...]:
    """The model on the command line is the one that counts."""
    at = words.index(FLAG_MODEL)
    return (*words[:at], *words[at + 2 :])


def read_words(path: str) -> tuple[str, ...]:
    """The arguments in a file. Raises UsageError and GpuplanError."""
    if Path(path).suffix not in (".yaml", ".yml"):
        raise UsageError(f"--config {path}: vLLM reads files that end in .yaml or .yml only", hint=HINT)
    text = decode(path, read_bytes(Path(path).expanduser(), limit=MOST_BYTES, missing_hint=HINT))
    return tuple(_words(_mapping(path, text)))


def _mapping(path: str, text: str) -> dict[str, Any]:
    """The file as PyYAML reads it for the engine (`yes` and `on` are true), within the bounds of our own documents."""
    import yaml

    from gpuplan.sources.yaml_tree import compose

    faults = Faults(path=path, hint=HINT)
    compose(text, faults)
    faults.raise_if_any()
    value = yaml.safe_load(text)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise UsageError(f"--config {path}: must be a mapping of argument names to values", hint=HINT)
    return value


def _words(values: dict[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        match value:
            case bool():
                if value:
                    yield f"--{key}"
            case list():
                if value:
                    yield f"--{key}"
                    yield from (str(item) for item in value)
            case dict():
                yield f"--{key}"
                yield json.dumps(value, default=str)
            case _:
                yield f"--{key}"
                yield str(value)
