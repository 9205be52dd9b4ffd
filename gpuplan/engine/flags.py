"""The arguments `vllm serve` knows: one `Flag` per argument, found by any of its names, in any release
since 0.8.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gpuplan.engine.config_keys import CONFIG_KEYS
from gpuplan.engine.flag_table import CURRENT, REMOVED
from gpuplan.engine.versions import EngineVersion

_PAIRS = (("--enable-", "--disable-"), ("--disable-", "--enable-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One argument as the engine's parser declares it."""

    names: tuple[str, ...]
    """The long name first."""
    kind: str
    """switch, bool, int, float, str, name, size, length, json, json_or_str or config"""
    optional: bool = False
    """The texts `None` and empty are read as no value."""
    arity: str = ""
    """empty: one value, `+`: one or more, `~`: one or none"""
    choices: tuple[str, ...] = ()
    absent_in: EngineVersion | None = None
    """Newest release read that lacks it."""
    added_in: EngineVersion | None = None
    """First release read that has it, where `absent_in` is known."""
    last_in: EngineVersion | None = None
    """Last release read that has it; None while the newest still does."""
    removed_in: EngineVersion | None = None
    """First release read without it again."""
    instead: str = ""
    """What replaces a removed argument."""

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def destination(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def takes_value(self) -> bool:
        return self.kind not in ("switch", "bool")


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to write a flag, and whether it says no (`--no-enforce-eager`, `--disable-lora`)."""

    flag: Flag
    negative: bool = False


@lru_cache(maxsize=64)
def _version(text: str) -> EngineVersion | None:
    return EngineVersion.parse(text) if text else None


@lru_cache(maxsize=64)
def _kind(text: str) -> tuple[str, bool, str]:
    arity = text[-1] if text[-1] in "+~" else ""
    text = text.removesuffix(arity)
    return text.removesuffix("?"), text.endswith("?"), arity


def _current(line: str) -> Flag:
    names, kind, window, choices = [part.strip() for part in (line + " | | ").split("|")][:4]
    base, optional, arity = _kind(kind)
    absent, _, added = window.partition("<")
    return Flag(
        names=tuple(names.split()),
        kind=base,
        optional=optional,
        arity=arity,
        choices=tuple(choices.split()),
        absent_in=_version(absent),
        added_in=_version(added),
    )


def _removed(line: str) -> Flag:
    name, kind, _first, last, removed, instead = [part.strip() for part in (line + " |").split("|")][:6]
    base, optional, arity = _kind(kind)
    return Flag(
        names=(name,),
        kind=base,
        optional=optional,
        arity=arity,
        last_in=_version(last),
        removed_in=_version(removed),
        instead=instead,
    )


@lru_cache(maxsize=1)
def flags() -> tuple[Flag, ...]:
    """Every known flag: those of 0.33 first, then those only older releases have."""
    current = CURRENT.replace("\n    ", " ").splitlines()
    return tuple(_current(line) for line in current) + tuple(_removed(line) for line in REMOVED.splitlines())


@lru_cache(maxsize=1)
def spellings() -> Mapping[str, Spelling]:
    """Every way to write a flag.

    A boolean `--x` can be denied as `--no-x`; `--enable-x` and `--disable-x` are each other's negation
    (vLLM 0.33, `utils/argparse_utils.py:EnableDisableAction`; releases before it have `--no-…` only).
    """
    known: dict[str, Spelling] = {}
    negations: dict[str, Spelling] = {}
    for flag in flags():
        for name in flag.names:
            known.setdefault(name, Spelling(flag))
            if flag.kind != "bool" or not name.startswith("--"):
                continue
            negations["--no-" + name.removeprefix("--")] = Spelling(flag, True)
            for prefix, inverse in _PAIRS:
                if name.startswith(prefix):
                    negations[inverse + name.removeprefix(prefix)] = Spelling(flag, True)
    return {**negations, **known}


@lru_cache(maxsize=1)
def flags_by_destination() -> Mapping[str, Flag]:
    return {flag.destination: flag for flag in reversed(flags())}


@lru_cache(maxsize=1)
def config_keys() -> Mapping[str, tuple[str, ...]]:
    """The top-level keys of each JSON configuration, by destination."""
    lines = (line.partition(" | ") for line in CONFIG_KEYS.replace("\n    ", " ").splitlines())
    return {name.removeprefix("--").replace("-", "_"): tuple(keys.split()) for name, _, keys in lines}


def completions(prefix: str) -> tuple[str, ...]:
    """The spellings an abbreviation can stand for, in order (argparse's `allow_abbrev`, which vLLM leaves
    on).

    Only arguments the newest release has can be abbreviated.
    """
    if len(prefix) < 2 or prefix == "--":
        return ()
    candidates = (name for name, spelling in spellings().items() if spelling.flag.removed_in is None)
    return tuple(sorted(name for name in candidates if name.startswith(prefix)))


def nearest(name: str) -> str | None:
    """The known spelling most like `name`, for "did you mean"; bounded work for any length of input."""
    matches = difflib.get_close_matches(name[:80], list(spellings()), n=1, cutoff=0.75)
    return matches[0] if matches else None
