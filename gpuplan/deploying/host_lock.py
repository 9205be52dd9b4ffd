"""The lock of a host: one shell that holds it for as long as gpuplan is heard, in text, and how its answers read.

A directory of /tmp, named after engine and machine, is locked (`flock`) by a shell at the other end of an SSH session.
The kernel takes the lock from a shell that ended for whatever reason; the shell ends when the session does (gpuplan was
killed: end of file) or when nothing was heard for a while (the network is cut). So no lock is left that nobody holds.
What a killed shell leaves is the file `holder`, which says who it was and locks nothing.

The scripts are a single line without exclamation marks and doubled backslashes, so that any login shell (csh and fish
too) passes them on quoted; they are run by `sh -c SCRIPT NAME …`, whose words tell our shells from other processes.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

NAME = "gpuplan-lock"
"""What our shells are called in a process list."""
SILENCE_SECONDS = 60
"""After so long without a word the shell lets go."""
BEAT_SECONDS = 15
"""How often gpuplan is heard."""
GO, BEAT, END = b"go\n", b"on\n", b"end\n"
"""What the shell is told: take the lock; I am here; let go."""
PACKAGES = {"flock": "util-linux", "timeout": "coreutils", "head": "coreutils"}
"""Packages of the programs the shell needs."""
LONGEST_HOLDER = 2000
"""Bytes of a `holder` that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lock, for whom it is in the way of. Texts of other machines: printable, short, never markup."""

    who: str
    """`user@machine` gpuplan runs as and on."""
    pid: int = 0
    """Of gpuplan there."""
    since: str = ""
    """ISO 8601, UTC, by the clock of that machine."""
    deployment: str = ""
    generation: str = ""
    purpose: str = "deploy"
    """`deploy` or `stop`."""
    run: str = ""
    """Of one run: two names of one machine are locked once."""
    remote_pid: int = 0
    """Of the shell that holds it, on the host."""
    login: str = ""
    """The host's user that shell runs as."""


NOBODY = Holder(who="")
"""A lock whose holder cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """It is ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Somebody else's."""

    holder: Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Nobody's; `left` is what a killed run left behind."""

    left: Holder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlockable:
    """It cannot be told or taken: `missing` names a program the host lacks, else the host's words."""

    detail: str
    missing: str | None = None


Answer = Held | Busy | Free | Unlockable
_MARK = f"{NAME}: "
"""Before each answer: a login shell may print what it likes."""


def prefix(engine_id: str) -> str:
    """Where the lock of an engine is, but for the machine's part, which the scripts add.

    Engines of one machine are told apart by the first twelve letters and digits of their ids (`ID` of `GET /info`),
    machines that share a /tmp by their machine-id and their network: those made of one image may have the same ids.
    """
    safe = re.sub(r"[^a-z0-9]", "", engine_id.lower())[:12]
    return f"/tmp/gpuplan-{safe or 'engine'}"


def hold_command(place: str, holder: Holder, silence: int = SILENCE_SECONDS) -> tuple[str, ...]:
    """The shell that takes a lock and keeps it; it waits for `GO`, then answers in one line.

    After `held` it prints a dot for each line it hears, and ends when told to, at the end of its input, or `silence`
    seconds after the last line.
    """
    return ("sh", "-c", _HOLD, NAME, place, str(silence), _written(holder))


def read_command(place: str) -> tuple[str, ...]:
    """Tells whether a lock is held, and by whom. It shares a free one for an instant, which `hold_command` sits out."""
    return ("sh", "-c", _READ, f"{NAME}-read", place)


def break_command(place: str, remote_pid: int) -> tuple[str, ...]:
    """Ends the shell that holds a lock, when it is one of ours, and tells what became of the lock."""
    return ("sh", "-c", _BREAK, f"{NAME}-break", place, str(remote_pid))


def parse(printed: str) -> Answer | None:
    """A script's answer, in what it and a talkative login shell printed; None until there is one."""
    lines = [line for line in printed.splitlines(keepends=True) if line.startswith(_MARK)]
    if not lines or not lines[0].endswith("\n"):
        return None
    word, _, rest = lines[0].removeprefix(_MARK).strip().partition(" ")
    match word:
        case "held":
            return Held()
        case "busy":
            return Busy(holder=read_holder(rest) or NOBODY)
        case "free":
            return Free(left=read_holder(rest))
        case "missing":
            return Unlockable(detail=f"{_plain(rest)} is missing", missing=_plain(rest))
        case _:
            return Unlockable(detail=_plain(rest))


def read_holder(text: str) -> Holder | None:
    """The content of `holder`; None where it is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, Mapping) or not isinstance(document.get("who"), str):
        return None
    return Holder(**{field.name: _typed(document.get(field.name), field.default) for field in fields(Holder)})


def _typed(value: Any, default: Any) -> Any:
    if isinstance(default, int):
        return value if isinstance(value, int) and not isinstance(value, bool) else 0
    return _plain(value) if isinstance(value, str) else ""


def _written(holder: Holder) -> str:
    """The JSON object without its first brace: the shell puts its own pid and login before it.

    Only characters that every login shell leaves alone between single quotes.
    """
    document = {
        field.name: getattr(holder, field.name)
        for field in fields(holder)
        if field.name not in {"remote_pid", "login"}
    }
    document |= {key: _safe(value) for key, value in document.items() if isinstance(value, str)}
    return json.dumps(document)[1:]


def _safe(text: str) -> str:
    return re.sub(r"[^\w.:@+/ -]", "?", text, flags=re.ASCII)[:120]


def _plain(text: str) -> str:
    return "".join(char for char in text if char.isprintable())[:200]


def _one_line(script: str) -> str:
    """csh takes no line end in a quoted word."""
    return " ".join(line.strip() for line in script.strip().splitlines())


_SAY = rf"""say() {{ printf "{_MARK}%s\n" "$*"; }};"""
_NEEDS = "for t in $needed; do command -v $t >/dev/null 2>&1 || { say missing $t; exit 3; }; done;"
_PLACE = "d=$1-$(head -c 8 /etc/machine-id 2>/dev/null)-$(readlink /proc/self/ns/net 2>/dev/null | tr -cd 0-9).lock;"
_TAKE = 'flock -n 9 && [ "$d" -ef /proc/$$/fd/9 ]'
"""Held only where the path still leads to what was locked: whoever lets go removes the directory."""
_OPEN = r"""
    [ -d "$d" ] || { say free; exit 0; };
    [ -r "$d" ] || { say refused $d cannot be read by $(id -un); exit 3; };
    command exec 9<"$d" || { say free; exit 0; };
    """
_HOLDER = f'"$(head -c {LONGEST_HOLDER} "$d/holder" 2>/dev/null | tr -d "[:cntrl:]")"'
_HOLD = _one_line(
    # A directory that is gone after three tries was let go of that instant, by one who came first all the same.
    rf"""
    {_PLACE} silence=$2; me=$3; needed="flock timeout head"; {_SAY} {_NEEDS}
    go=$(timeout $silence head -n 1);
    [ "$go" = go ] || exit 0;
    got=;
    for n in 1 2 3; do
    if [ $n = 2 ]; then sleep 1; fi;
    mkdir -m 0777 "$d" 2>/dev/null;
    if [ -L "$d" ]; then say refused $d is a link; exit 3; fi;
    if [ -d "$d" ] && [ -r "$d" ] && [ -w "$d" ] && command exec 9<"$d" && {_TAKE}; then got=1; break; fi;
    done;
    if [ -z "$got" ]; then
    if [ -r "$d" ] && [ -w "$d" ] && [ -d "$d" ] && [ -d /proc/$$/fd ]; then say busy {_HOLDER};
    elif [ -e "$d" ]; then say refused $d is no directory $(id -un) can use;
    elif [ -w "${{d%/*}}" ]; then say busy;
    else say refused $d cannot be made by $(id -un); fi; exit 0; fi;
    rm -f "$d/holder";
    (umask 022; set -C; printf "%s\n" "{{\"remote_pid\": $$, \"login\": \"$(id -un)\", $me" >"$d/holder") 2>/dev/null;
    say held;
    while line=$(exec 9<&-; exec timeout $silence head -n 1); do
    case "$line" in on) echo .;; *) break;; esac; done;
    rm -f "$d/holder"; rmdir "$d" 2>/dev/null
    """
)
_READ = _one_line(
    rf"""
    {_PLACE} needed=flock; {_SAY} {_NEEDS} {_OPEN}
    word=busy; if flock -s -n 9; then word=free; fi; say $word {_HOLDER}
    """
)
_BREAK = _one_line(
    rf"""
    {_PLACE} pid=$2; needed=flock; {_SAY} {_NEEDS} {_OPEN}
    freed() {{ flock -n 9 && rm -f "$d/holder" && {{ rmdir "$d" 2>/dev/null; say free; }}; }};
    freed && exit 0;
    words=$(tr "\000" " " 2>/dev/null </proc/$pid/cmdline);
    case "$words" in *" {NAME} $1 "*) :;; *) say refused process $pid is not the shell that holds it; exit 3;; esac;
    kill $pid 2>/dev/null || {{ say refused process $pid is of another user; exit 3; }};
    for n in 1 2 3 4 5; do freed && exit 0; sleep 1; done;
    say busy {_HOLDER}
    """
)
