"""All commands of a probe as one script through one session, and its output taken apart again.

One round trip instead of one for each command. What the login shell prints before the first mark is thrown away;
a command's output ends with its status, so that a host that stops answering in the middle loses only the rest.
Time limits are `timeout`'s, from coreutils or busybox; where there is none, the caller's own deadline ends it all.
"""

import re
import shlex
from collections.abc import Sequence

from gpuplan.probing.command import Command
from gpuplan.probing.output import NOT_RUN, Output

SECTION_LIMIT = 4 * 1024**2
"""Bytes kept of one command; the host sends no more."""
OUTPUT_LIMIT = 4 * SECTION_LIMIT
"""Bytes kept of the whole script, what a login shell prints before it included."""
_KILL_AFTER = 2
_HUNG = frozenset({124, 137})
"""Exit status of `timeout` when the time was over: ended, or killed."""

_HEAD = """\
export LC_ALL=C LANG=C
exec 2>&1 4>&1
case ":$PATH:" in *:/usr/sbin:*) ;; *) PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; export PATH ;; esac
if timeout -k 1 5 true >/dev/null 2>&1; then
  gp_limit() { gp_s=$1; shift; timeout -k {kill} "$gp_s" "$@"; }
elif timeout 5 true >/dev/null 2>&1; then
  gp_limit() { gp_s=$1; shift; timeout "$gp_s" "$@"; }
else
  gp_limit() { shift; "$@"; }
fi
gp_hung=' '
gp_run() {
  case "$gp_hung" in *" $4 "*) return ;; esac
  printf '\\n%s begin %s\\n' '{mark}' "$1"
  gp_r=$({ { gp_limit "$2" sh -c "$3" </dev/null 2>&1 3>&- 4>&-; echo $? >&3; } | head -c {most} >&4; } 3>&1)
  printf '\\n%s end %s %s\\n' '{mark}' "$1" "$gp_r"
  case "$gp_r" in 124|137) [ "$4" = - ] || gp_hung="$gp_hung$4 " ;; esac
}
"""


def script(commands: Sequence[Command], mark: str) -> bytes:
    """The POSIX shell text that runs them one after the other; `mark` is a word no output contains."""
    head = (
        _HEAD.replace("{mark}", mark)
        .replace("{kill}", str(_KILL_AFTER))
        .replace("{most}", str(SECTION_LIMIT + 1))
    )
    calls = (
        f"gp_run {command.name} {max(1, round(command.timeout))} {shlex.quote(command.shell)} {command.group or '-'}"
        for command in commands
    )
    return "\n".join((head, *calls, "exit 0", "")).encode()


def longest(commands: Sequence[Command]) -> float:
    """Seconds the script takes at most: of every group only the first command can run out of time."""
    alone = sum(command.timeout + _KILL_AFTER for command in commands if not command.group)
    groups = {command.group: 0.0 for command in commands if command.group}
    for command in commands:
        if command.group:
            groups[command.group] = max(groups[command.group], command.timeout + _KILL_AFTER)
    return alone + 2 * sum(groups.values())


def sections(printed: bytes, commands: Sequence[Command], mark: str) -> dict[str, Output]:
    """What every command printed; `NOT_RUN` for those the script did not come to.

    A command that began and did not end lost its host: its output so far, without a status, out of time.
    """
    found: dict[str, Output] = dict.fromkeys((command.name for command in commands), NOT_RUN)
    begins = re.compile(rb"^" + re.escape(mark.encode()) + rb" begin (\w+)\r?\n", re.MULTILINE)
    for begin in begins.finditer(printed):
        name = begin.group(1).decode()
        if name not in found:
            continue
        end = re.compile(rb"\n" + re.escape(mark.encode()) + rb" end " + begin.group(1) + rb" (\d+)\r?\n")
        ended = end.search(printed, begin.end() - 1)
        stop = ended.start() if ended is not None else len(printed)
        body = printed[begin.end() : max(stop, begin.end())]
        code = int(ended.group(1)) if ended is not None else None
        found[name] = Output(
            text=body[:SECTION_LIMIT].decode(errors="replace"),
            exit_code=None if code in _HUNG else code,
            timed_out=code is None or code in _HUNG,
            truncated=len(body) > SECTION_LIMIT,
        )
    return found
