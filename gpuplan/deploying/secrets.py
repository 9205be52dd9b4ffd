"""Which words and variables are secrets: they leave argv and environment and travel as `SecretValues`.

A secret is put into a file of the container (`SECRETS_DIRECTORY`/NAME). Two are read from there by those who need them
(`HF_TOKEN_PATH`, `RAY_AUTH_TOKEN_PATH`); the others are exported by the entrypoint's wrapper.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuplan.deploying.user_words import taken_out
from gpuplan.domain.deployment import SECRETS_DIRECTORY
from gpuplan.domain.secret_text import MASK, SHORTEST, masked, masked_words
from gpuplan.errors import UsageError

API_KEY = "VLLM_API_KEY"
HUB_TOKEN = "HF_TOKEN"
RAY_TOKEN = "RAY_AUTH_TOKEN"
READ_FROM_FILE = {HUB_TOKEN: "HF_TOKEN_PATH", RAY_TOKEN: "RAY_AUTH_TOKEN_PATH"}
"""Secret to the variable that names its file: huggingface_hub, and Ray from 2.52."""
_BY_FLAG = {"api_key": API_KEY, "hf_token": HUB_TOKEN}
_SECRET_NAME = re.compile(
    r"TOKEN(?!S|IZ)|SECRET|PASSW|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIAL|(?:^|_)AUTH(?:_|$)", re.IGNORECASE
)
_NOT_SECRET = re.compile(
    r"_(?:PATH|FILE|DIR|MODE|URL|TIMEOUT\w*|ENABLED|TTL)$|^HF_HUB_DISABLE_", re.IGNORECASE
)


def split(words: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The words without `--api-key` and `--hf-token`, and their values by the secret's name.

    Raises UsageError for several API keys: the engine reads one from its environment (vLLM 0.33,
    `entrypoints/openai/api_server.py`).
    """
    kept, found = taken_out(words, _BY_FLAG)
    values: dict[str, str] = {}
    for destination, given in found.items():
        if len(set(given)) > 1:
            raise UsageError(
                f"--{destination.replace('_', '-')} is given {len(given)} values; a deployment has one",
                hint="give one key, or put several behind `api-key` in the file of --config",
            )
        if given and given[0]:
            values[_BY_FLAG[destination]] = given[0]
    return kept, values


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable holds a secret: by its name, or a value that is one by its form (a login in an address)."""
    if _SECRET_NAME.search(name) and not _NOT_SECRET.search(name):
        return True
    return bool(value) and MASK in masked(value) and MASK not in value


def split_environment(
    variables: Iterable[tuple[str, str]],
) -> tuple[tuple[tuple[str, str], ...], dict[str, str]]:
    """The variables that may be seen in `docker inspect`, and the others by name."""
    seen: list[tuple[str, str]] = []
    values: dict[str, str] = {}
    for name, value in variables:
        if is_secret(name, value):
            values[name] = value
        else:
            seen.append((name, value))
    return tuple(seen), {name: value for name, value in values.items() if value}


def secrets_of(words: Sequence[str], variables: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Every secret among the user's words and the inventory's variables; words win."""
    return {**split_environment(variables)[1], **split(words)[1]}


def exported(names: Iterable[str]) -> tuple[str, ...]:
    """Those the wrapper must export, sorted."""
    return tuple(sorted(set(names) - set(READ_FROM_FILE)))


def file_variables(names: Iterable[str]) -> dict[str, str]:
    """Variables that name the files of secrets which are read from there."""
    return {
        READ_FROM_FILE[name]: f"{SECRETS_DIRECTORY}/{name}"
        for name in sorted(names)
        if name in READ_FROM_FILE
    }


def without_values(document: Any, values: Mapping[str, str]) -> Any:
    """The document with every secret value in its texts masked, and every flag's that is called like one.

    A short value is masked as a word of its own: elsewhere it may be part of an ordinary one.
    """
    match document:
        case str():
            for value in sorted(values.values(), key=len, reverse=True):
                bounds = ("", "") if len(value) >= SHORTEST else (r"(?<!\w)", r"(?!\w)")
                document = re.sub(re.escape(value).join(bounds), MASK, document)
            return masked(document)
        case Mapping():
            return {key: without_values(item, values) for key, item in document.items()}
        case list() | tuple():
            items = masked_words(document) if all(isinstance(item, str) for item in document) else document
            return [without_values(item, values) for item in items]
        case _:
            return document
