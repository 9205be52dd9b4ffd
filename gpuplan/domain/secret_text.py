"""Secrets in texts of a host: command lines, error messages. What is masked here is never stored and never shown.

Masked are values whose name speaks of a secret, tokens of a known form, and logins in addresses; and, in all texts
of a host, every value of at least `SHORTEST` characters that one of them gave away.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuplan.domain.fleet import Gpu, Host

MASK = "***"
SHORTEST = 8
"""Characters of a value that is masked wherever else it stands; shorter ones are ordinary words too often."""

_NAME = r"(?:token(?!s\b|iz)|secret|passw|api[_-]?key|credential|auth(?!ors?\b|orit|enti))"
_VALUE = r"(?:\"[^\"]*\"?|'[^']*'?|[^\s\"'&]+)"
_MEMBER = r"(?:\"[^\"]*\"?|'[^']*'?|[^\s\"'&,}\]]+)"
_FORMS = (
    # `--api-key A B`: the flag takes several values
    re.compile(
        rf"(?P<kept>(?<!\S)--?api[_-]?key(?:\s+|=))(?P<value>(?!-){_VALUE}(?:\s+(?!-){_VALUE})*)",
        re.IGNORECASE,
    ),
    # `--hf-token VALUE`
    re.compile(
        rf"(?P<kept>(?<!\S)--?[\w-]{{0,60}}?{_NAME}[\w-]{{0,40}}\s+)(?P<value>(?!-){_VALUE})", re.IGNORECASE
    ),
    # `Authorization: Bearer VALUE`
    re.compile(
        rf"(?P<kept>\bauthorization[\"']?:\s*[\"']?(?:(?:bearer|basic|token)\s+)?)(?P<value>{_VALUE})",
        re.IGNORECASE,
    ),
    # `HF_TOKEN=VALUE`, `token:VALUE`
    re.compile(rf"(?P<kept>{_NAME}[\w-]{{0,40}}(?:=|:(?!//)))(?P<value>{_VALUE})", re.IGNORECASE),
    # `"api_key": "VALUE"`
    re.compile(
        rf"(?P<kept>{_NAME}[\w-]{{0,40}}[\"']\s{{0,8}}[:=]\s{{0,8}})(?P<value>{_MEMBER})", re.IGNORECASE
    ),
    # `https://user:VALUE@host`
    re.compile(r"(?P<kept>://)(?P<value>[^/\s@:]{0,200}:[^/\s@]{1,500})(?=@)"),
    re.compile(
        r"(?P<kept>(?<![A-Za-z0-9]))(?P<value>hf_[A-Za-z0-9]{20,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}"
        r"|github_pat_\w{20,}|glpat-[\w-]{16,}|nvapi-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}"
        r"|eyJ[\w-]{10,}\.[\w-]{4,}\.[\w-]*)"
    ),
)


def masked(text: str) -> str:
    """The text with `***` in the place of each secret; masking twice changes nothing."""
    return _masked(text, set())


_SECRET_FLAG = re.compile(r"--?[\w-]*(?:token|secret|passw\w*|api[_-]?key|credential)", re.IGNORECASE)


def is_secret_flag(flag: str) -> bool:
    """Whether the values of a flag are masked whatever they are: its name ends in what a secret is called."""
    return _SECRET_FLAG.fullmatch(flag) is not None


def masked_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command with `***` for each value of a flag whose name ends in what a secret is called."""
    shown: list[str] = []
    secret = False
    for word in words:
        flag, equals, _value = word.partition("=")
        if word.startswith("-"):
            secret = is_secret_flag(flag)
            shown.append(f"{flag}={MASK}" if secret and equals else masked(word))
        else:
            shown.append(MASK if secret else masked(word))
    return tuple(shown)


def without_secrets(host: Host) -> Host:
    """The host with the secrets in its process names, its failure and its conditions masked."""
    seen: set[str] = set()
    host = _changed(host, lambda text: _masked(text, seen))
    values = sorted((value for value in seen if len(value) >= SHORTEST), key=len, reverse=True)
    if not values:
        return host
    anywhere = re.compile("|".join(map(re.escape, values)))
    return _changed(host, lambda text: anywhere.sub(MASK, text))


def _masked(text: str, seen: set[str]) -> str:
    def mask(match: re.Match[str]) -> str:
        seen.update(word.strip("\"'") for word in match["value"].split() if MASK not in word)
        quote = match["value"][0] if match["value"][0] in "\"'" else ""
        return f"{match['kept']}{quote}{MASK}{quote}"

    for form in _FORMS:
        text = form.sub(mask, text)
    return text


def _changed(host: Host, change: Callable[[str], str]) -> Host:
    failure = host.failure
    conditions = tuple(
        replace(fact, figures={key: _value(value, change) for key, value in fact.figures.items()})
        for fact in host.facts.conditions
    )
    return replace(
        host,
        failure=replace(failure, detail=change(failure.detail)) if failure is not None else None,
        gpus=tuple(_gpu(gpu, change) for gpu in host.gpus),
        facts=replace(host.facts, conditions=conditions) if conditions else host.facts,
    )


def _gpu(gpu: Gpu, change: Callable[[str], str]) -> Gpu:
    if not gpu.processes:
        return gpu
    return replace(
        gpu, processes=tuple(replace(process, name=change(process.name)) for process in gpu.processes)
    )


def _value(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {key: _value(item, change) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_value(item, change) for item in value)
        case _:
            return value
