"""Reading files of the form of ssh_config(5): blocks under `Host` and `Match`, with `Include` read in its place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from gpuplan.remote.words import printable, system_words

DEEPEST = 16
"""Includes within includes, as in OpenSSH's readconf.c."""
REST_OF_LINE = frozenset({"proxycommand", "localcommand", "remotecommand", "knownhostscommand"})
"""Their value is the rest of the line, not words."""


class ConfigUnusable(Exception):
    """The configuration cannot be used: `place` is FILE or FILE:LINE."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """One setting; the keyword in small letters."""

    keyword: str
    words: tuple[str, ...]
    place: str
    """FILE:LINE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What stands under one `Host` or `Match`, or at the top of a file (no condition)."""

    condition: Directive | None
    body: list["Directive | tuple[Block, ...]"] = field(default_factory=list)
    """An `Include` is the blocks of what it names."""


def read_blocks(path: Path, includes: Path, home: Path, depth: int = 0) -> tuple[Block, ...]:
    """The blocks of one file; none when it is not there.

    `includes` is the directory that relative Includes start from. Raises ConfigUnusable.
    """
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise ConfigUnusable(str(path), f"cannot be read: {system_words(error)}") from error
    blocks = [Block(condition=None)]
    for number, line in enumerate(text.splitlines(), 1):
        directive = _directive(line, f"{path}:{number}")
        if directive is None:
            continue
        if directive.keyword in {"host", "match"}:
            blocks.append(Block(condition=directive))
        elif directive.keyword == "include":
            if depth >= DEEPEST:
                raise ConfigUnusable(directive.place, f"more than {DEEPEST} Includes within each other")
            for included in _included(directive.words, includes, home):
                blocks[-1].body.append(read_blocks(included, includes, home, depth + 1))
        else:
            blocks[-1].body.append(directive)
    return tuple(blocks)


def host_names(home: Path) -> tuple[str, ...]:
    """The hosts a user's configuration names, in its order: no patterns, code forges (`User git`) or jump hosts.

    Raises ConfigUnusable.
    """
    directory = home / ".ssh"
    blocks = read_blocks(directory / "config", directory, home)
    jumps = {hop.rpartition("@")[2].partition(":")[0] for hop in _jumps(blocks)}
    return tuple(name for name in dict.fromkeys(_names(blocks)) if name not in jumps)


def _jumps(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        for entry in block.body:
            if isinstance(entry, tuple):
                yield from _jumps(entry)
            elif entry.keyword == "proxyjump":
                yield from (hop for word in entry.words for hop in word.split(","))


def _names(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        settings = [entry for entry in block.body if isinstance(entry, Directive)]
        forge = any(entry.keyword == "user" and entry.words[:1] == ("git",) for entry in settings)
        if block.condition is not None and block.condition.keyword == "host" and not forge:
            yield from (word for word in block.condition.words if not set(word) & set("*?!"))
        for entry in block.body:
            if isinstance(entry, tuple):
                yield from _names(entry)


def _included(patterns: Sequence[str], includes: Path, home: Path) -> Iterator[Path]:
    for pattern in patterns:
        whole = expand_home(pattern, home)
        path = Path(whole) if whole.startswith("/") else includes / whole
        try:
            yield from sorted(Path("/").glob(str(path).lstrip("/")))
        except (ValueError, OSError):
            continue


def expand_home(text: str, home: Path) -> str:
    """`~` and `~/…` from `home`."""
    return f"{home}{text[1:]}" if text == "~" or text.startswith("~/") else text


def _directive(line: str, place: str) -> Directive | None:
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    end = next((at for at, letter in enumerate(line) if letter in ' \t="'), len(line))
    keyword, rest = line[:end].lower(), line[end:].lstrip()
    if rest.startswith("="):
        rest = rest[1:].lstrip()
    if not keyword:
        raise ConfigUnusable(place, f"cannot be understood: {printable(line, 80)}")
    if keyword in REST_OF_LINE:
        return Directive(keyword=keyword, words=(rest,) if rest else (), place=place)
    words = _split(rest)
    if words is None:
        raise ConfigUnusable(place, f"a quote is not closed: {printable(line, 80)}")
    if not words:
        raise ConfigUnusable(place, f"{keyword} has no value")
    return Directive(keyword=keyword, words=tuple(words), place=place)


def _split(text: str) -> list[str] | None:
    """Words as OpenSSH's argv_split makes them: quotes of both kinds, `#` at the start of a word ends the line."""
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in " \t":
            at += 1
            continue
        if text[at] == "#":
            break
        word, quote = "", ""
        while at < len(text) and (quote or text[at] not in " \t"):
            letter, following = text[at], text[at + 1 : at + 2]
            if letter == "\\" and following and (following in "\\\"'" or (following == " " and not quote)):
                word += following
                at += 1
            elif quote and letter == quote:
                quote = ""
            elif not quote and letter in "\"'":
                quote = letter
            else:
                word += letter
            at += 1
        if quote:
            return None
        words.append(word)
    return words


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern fits and none with a `!` does (PATTERNS in ssh_config(5): only `*` and `?` are special)."""
    found = False
    for pattern in patterns:
        negated = pattern.startswith("!")
        bare = pattern[1:] if negated else pattern
        if bare == name or (("*" in bare or "?" in bare) and fnmatchcase(name, bare.replace("[", "[[]"))):
            if negated:
                return False
            found = True
    return found
