"""Why a vendor's tool gave no devices: hung, not allowed, or failed; one fact each."""

import re
import unicodedata

from gpuplan.domain.fact import Fact, Severity
from gpuplan.probing.output import Output

MOST_DETAIL = 300
"""Characters of a host's own words in a fact."""

_FORBIDDEN = re.compile(
    r"permission denied|operation not permitted|access denied|insufficient permission|NO_PERM"
    r"|missing the following required groups|permission needed",
    re.IGNORECASE,
)
_UNLOADED = re.compile(r"error (?:while )?loading shared librar", re.IGNORECASE)
"""The words of the dynamic loader (glibc, musl), which ends with the status of a missing command."""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def failure(tool: str, output: Output, *, seconds: float, detail: str = "") -> Fact:
    """GP604 for a tool that gave no answer in time, GP605 for one that may not ask, GP606 for any other failure."""
    if output.timed_out:
        figures: dict[str, object] = {"tool": tool, "seconds": seconds}
        return Fact(code="GP604", severity=Severity.ERROR, subject={}, figures=figures)
    if _FORBIDDEN.search(output.text):
        figures = {"tool": tool, "detail": detail or telling_line(output.text)}
        return Fact(code="GP605", severity=Severity.ERROR, subject={}, figures=figures)
    figures = {"tool": tool, "exit_code": output.exit_code, "detail": detail or telling_line(output.text)}
    return Fact(code="GP606", severity=Severity.ERROR, subject={}, figures=figures)


def is_missing(output: Output) -> bool:
    """Whether the tool is not there; one that cannot be started (status 126, a library missing) is."""
    return output.exit_code == 127 and _UNLOADED.search(output.text) is None


def no_answer(what: str, output: Output, detail: str = "") -> Fact:
    """GP636: a part of the probe that told nothing while the rest did."""
    if not detail:
        detail = "no answer in time" if output.timed_out else telling_line(output.text)
    return Fact(
        code="GP636",
        severity=Severity.WARNING,
        subject={},
        figures={"what": what, "detail": one_line(detail)},
    )


def telling_line(text: str) -> str:
    """The line of an error message that says most: one about permission, the first error, else the last line."""
    lines = [line for line in (one_line(line) for line in text[:100_000].splitlines()) if line]
    for wanted in (_FORBIDDEN, re.compile(r"error|fail|unable|not found|not loaded", re.IGNORECASE)):
        for line in lines:
            if wanted.search(line) and not line.startswith("Traceback"):
                return line
    return lines[-1] if lines else ""


def one_line(text: str) -> str:
    """Text of a host on one line without control characters, at most `MOST_DETAIL` characters."""
    plain = _ESCAPE.sub("", text[: 8 * MOST_DETAIL])
    kept = "".join(" " if char.isspace() or unicodedata.category(char)[0] == "C" else char for char in plain)
    return " ".join(kept.split())[:MOST_DETAIL].rstrip()
