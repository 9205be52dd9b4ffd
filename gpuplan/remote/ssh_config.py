"""What `~/.ssh/config` and the system's file say about one host.

The files are read here, once for all hosts: a process of `ssh -G` for each of a thousand hosts costs more than
their probes. The ssh client is asked only for what depends on running something (`Match exec`) or on
rewriting names (`CanonicalizeHostname`).
"""

import os
import pwd
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from pathlib import Path
from shutil import which

from gpuplan.remote.ssh_config_files import (
    Block,
    ConfigUnusable,
    Directive,
    expand_home,
    matches,
    read_blocks,
)
from gpuplan.remote.words import printable

LISTS = frozenset({"identityfile", "certificatefile"})
"""Keywords that add up; of every other the first value counts."""
CLIENT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """What the configuration says; None or empty where it is silent."""

    host_name: str
    """The name to connect to: the alias itself where no HostName is given."""
    user: str | None = None
    port: int | None = None
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None
    """Path of a socket; `none` turns the agent off."""
    proxy_jump: str | None = None
    proxy_command: str | None = None
    user_known_hosts: tuple[str, ...] | None = None
    global_known_hosts: tuple[str, ...] | None = None
    host_key_alias: str | None = None
    connect_timeout: float | None = None
    alive_interval: int | None = None


class _AskClient(Exception):
    """Only the ssh client itself can tell: FILE:LINE and what it is."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(what)
        self.place = place
        self.what = what


@lru_cache(maxsize=1)
def local_user() -> str:
    """The login name of who runs this, as the user database knows it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


class SshConfig:
    """The configuration of one user, read when it is first needed."""

    def __init__(self, home: Path, system: Path, environ: Mapping[str, str]) -> None:
        self._home = home
        self._user_file = home / ".ssh" / "config"
        self._system_file = system
        self._environ = environ
        self._blocks: tuple[Block, ...] | None = None

    def lookup(self, alias: str, *, user: str | None = None, port: int | None = None) -> HostSettings:
        """Everything about `alias`; `user` and `port` are those already chosen, which win. Raises ConfigUnusable."""
        blocks = self._read()
        if not blocks:
            return HostSettings(host_name=alias, user=user, port=port)
        try:
            found = self._evaluate(blocks, alias, user, port)
        except _AskClient as reason:
            return self._ask_client(alias, user, port, reason)
        return _settings(alias, found, user, port, self._expander)

    def _read(self) -> tuple[Block, ...]:
        if self._blocks is None:
            self._blocks = (
                *read_blocks(self._user_file, self._user_file.parent, self._home),
                *read_blocks(self._system_file, self._system_file.parent, self._home),
            )
        return self._blocks

    def _evaluate(
        self, blocks: tuple[Block, ...], alias: str, user: str | None, port: int | None
    ) -> dict[str, list[Directive]]:
        lookup = _Lookup(alias=alias, user=user, port=port)
        lookup.walk(blocks)
        canonical = lookup.found.get("canonicalizehostname")
        if canonical and canonical[0].words[0].lower() not in {"no", "none", "false"}:
            raise _AskClient(canonical[0].place, "CanonicalizeHostname")
        if lookup.final_seen:
            lookup.final = True
            lookup.walk(blocks)
        return lookup.found

    def _expander(self, alias: str, host_name: str, user: str | None, port: int | None) -> "_Expander":
        return _Expander(
            tokens=_tokens(alias, host_name, user or local_user(), port or 22, self._home),
            environ=self._environ,
            home=self._home,
        )

    def _ask_client(self, alias: str, user: str | None, port: int | None, reason: _AskClient) -> HostSettings:
        client = which("ssh", path=self._environ.get("PATH"))
        if client is None:
            raise ConfigUnusable(
                reason.place, f"{reason.what} can be read by the ssh client only, which is not installed"
            )
        command = [client, "-G"]
        if self._home != Path(pwd.getpwuid(os.getuid()).pw_dir):
            command += ["-F", str(self._user_file)]
        command += ["-l", user] if user else []
        command += ["-p", str(port)] if port else []
        try:
            answer = subprocess.run(
                [*command, "--", alias],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env=dict(self._environ) or None,
                timeout=CLIENT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigUnusable(reason.place, f"`ssh -G` failed: {printable(str(error))}") from error
        if answer.returncode:
            raise ConfigUnusable(reason.place, f"`ssh -G` failed: {printable(answer.stderr)}")
        found: dict[str, list[Directive]] = {}
        for line in answer.stdout.decode("utf-8", "surrogateescape").splitlines():
            keyword, _, rest = line.partition(" ")
            words = (rest,) if keyword.startswith("proxy") else tuple(rest.split())
            if words:
                found.setdefault(keyword, []).append(Directive(keyword=keyword, words=words, place="ssh -G"))
        return _settings(alias, found, user, port, self._expander)


class _Lookup:
    """One walk through the blocks for one alias: what was found so far decides what matches next."""

    def __init__(self, *, alias: str, user: str | None, port: int | None) -> None:
        self.alias = alias
        self.found: dict[str, list[Directive]] = {}
        self.final = False
        self.final_seen = False
        for keyword, value in (("user", user), ("port", port)):
            if value is not None:
                self.found[keyword] = [Directive(keyword=keyword, words=(str(value),), place="inventory")]

    def walk(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            if block.condition is not None and not self._applies(block.condition):
                continue
            for part in block.body:
                if isinstance(part, tuple):
                    self.walk(part)
                elif part.keyword in LISTS:
                    self._add(part)
                else:
                    self.found.setdefault(part.keyword, [part])

    def _add(self, part: Directive) -> None:
        parts = self.found.setdefault(part.keyword, [])
        if all(part.words != other.words for other in parts):
            parts.append(part)

    def _applies(self, condition: Directive) -> bool:
        if condition.keyword == "host":
            return matches(self.alias, condition.words)
        criteria = list(_criteria(condition))
        return all(self._holds(condition, *criterion) for criterion in criteria)

    def _holds(self, condition: Directive, name: str, negated: bool, value: str) -> bool:
        patterns = value.split(",")
        match name:
            case "all":
                holds = True
            case "canonical":
                holds = False
            case "final":
                self.final_seen = True
                holds = self.final
            case "originalhost":
                holds = matches(self.alias, patterns)
            case "host":
                named = self.found.get("hostname")
                current = named[0].words[0].replace("%h", self.alias) if named else self.alias
                holds = matches(current.lower(), [p.lower() for p in patterns])
            case "user":
                users = self.found.get("user")
                holds = matches(users[0].words[0] if users else local_user(), patterns)
            case "localuser":
                holds = matches(local_user(), patterns)
            case _:
                raise _AskClient(condition.place, f"Match {printable(name, 40)}")
        return holds != negated


def _criteria(condition: Directive) -> Iterator[tuple[str, bool, str]]:
    """Name, whether negated, and argument of each criterion of a `Match`."""
    words = list(condition.words)
    while words:
        name, equals, value = words.pop(0).partition("=")
        negated = name.startswith("!")
        name = name.lstrip("!").lower()
        if name not in {"all", "canonical", "final"} and not equals:
            if not words:
                raise ConfigUnusable(condition.place, f"Match {name} has no argument")
            value = words.pop(0)
        yield name, negated, value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expander:
    """Replaces `%` tokens, `${NAME}` and `~` in a value."""

    tokens: Mapping[str, str]
    environ: Mapping[str, str]
    home: Path

    def text(self, directive: Directive, value: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            letter = match.group(1)
            if letter not in self.tokens:
                raise ConfigUnusable(directive.place, f"{directive.keyword} knows no %{letter}")
            return self.tokens[letter]

        return re.sub(r"%(.?)", replaced, value)

    def path(self, directive: Directive, value: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            if match.group(1) not in self.environ:
                raise ConfigUnusable(directive.place, f"the environment has no {match.group(1)}")
            return self.environ[match.group(1)]

        return re.sub(r"\$\{(\w+)\}", replaced, self.text(directive, expand_home(value, self.home)))


def _tokens(alias: str, host_name: str, user: str, port: int, home: Path) -> dict[str, str]:
    """TOKENS of ssh_config(5), those that are known before a connection is made."""
    full = socket.gethostname()
    joined = f"{full}{host_name}{port}{user}"
    return {
        "%": "%",
        "C": sha1(joined.encode(), usedforsecurity=False).hexdigest(),
        "d": str(home),
        "h": host_name,
        "i": str(os.getuid()),
        "k": alias,
        "L": full.split(".")[0],
        "l": full,
        "n": alias,
        "p": str(port),
        "r": user,
        "u": local_user(),
    }


def _settings(
    alias: str,
    found: Mapping[str, Sequence[Directive]],
    user: str | None,
    port: int | None,
    expander: Callable[[str, str, str | None, int | None], _Expander],
) -> HostSettings:
    """The values that matter, checked, with their tokens replaced."""

    def first(keyword: str) -> str | None:
        return found[keyword][0].words[0] if keyword in found else None

    def paths(keyword: str) -> tuple[str, ...] | None:
        if keyword not in found:
            return None
        words = ((directive, word) for directive in found[keyword] for word in directive.words)
        return tuple(tokens.path(directive, word) for directive, word in words if word.lower() != "none")

    def line(keyword: str) -> str | None:
        value = first(keyword)
        if value is None or value.lower() == "none":
            return None
        return tokens.text(found[keyword][0], value)

    host_name = first("hostname") or alias
    host_name = host_name.replace("%h", alias).replace("%%", "%").lower()
    user = user or first("user")
    port = port or _number(found, "port", 1, 65535)
    tokens = expander(alias, host_name, user, port)
    agent = first("identityagent")
    seconds = _number(found, "connecttimeout", 0, 10**6)
    # The first of the two that is named, even as `none`, rules out the other (ssh_config(5), ProxyJump).
    by_command = _precedes(found, "proxycommand", "proxyjump")
    return HostSettings(
        host_name=host_name,
        user=user,
        port=port,
        identity_files=paths("identityfile") or (),
        certificate_files=paths("certificatefile") or (),
        identities_only=(first("identitiesonly") or "no").lower() in {"yes", "true"},
        identity_agent=agent and _agent(found["identityagent"][0], agent, tokens),
        proxy_jump=None if by_command else line("proxyjump"),
        proxy_command=line("proxycommand") if by_command else None,
        user_known_hosts=paths("userknownhostsfile"),
        global_known_hosts=paths("globalknownhostsfile"),
        host_key_alias=first("hostkeyalias"),
        connect_timeout=float(seconds) if seconds else None,
        alive_interval=_number(found, "serveraliveinterval", 0, 10**6),
    )


def _precedes(found: Mapping[str, Sequence[Directive]], one: str, other: str) -> bool:
    """Whether `one` was found before `other`."""
    names = list(found)
    return one in found and (other not in found or names.index(one) < names.index(other))


def _agent(directive: Directive, value: str, tokens: _Expander) -> str | None:
    if value.lower() == "none":
        return "none"
    if value == "SSH_AUTH_SOCK":
        return None
    if value.startswith("$") and not value.startswith("${"):
        return tokens.environ.get(value[1:], "none")
    return tokens.path(directive, value)


def _number(found: Mapping[str, Sequence[Directive]], keyword: str, least: int, most: int) -> int | None:
    if keyword not in found:
        return None
    directive = found[keyword][0]
    word = directive.words[0]
    if keyword != "port" and word.lower() == "none":
        return None
    if not word.isascii() or not word.isdigit() or not least <= int(word) <= most:
        raise ConfigUnusable(
            directive.place, f"{keyword} is not a number from {least} to {most}: {printable(word, 40)}"
        )
    return int(word)
