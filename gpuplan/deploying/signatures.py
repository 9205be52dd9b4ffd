"""The table of failure signatures and one search for all of them: every match of every line, in the order printed.

The search looks for fixed words first, in the whole text at once, and tries a pattern only on a line that has them: its time
grows with the text and the table, never with what a line is made of.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gpuplan.deploying.signature import Signature, compiled
from gpuplan.deploying.signatures_arguments import ARGUMENTS, REFUSED
from gpuplan.deploying.signatures_container import CONTAINER
from gpuplan.deploying.signatures_gpu import GPU
from gpuplan.deploying.signatures_memory import MEMORY
from gpuplan.deploying.signatures_model import MODEL
from gpuplan.deploying.signatures_network import NETWORK
from gpuplan.deploying.signatures_ray import RAY
from gpuplan.engine.log_line import LONGEST, plain, strip
from gpuplan.units import GIB, parse_size

SIGNATURES: tuple[Signature, ...] = (*MEMORY, *GPU, *ARGUMENTS, *MODEL, *CONTAINER, *NETWORK, *RAY, *REFUSED)
"""Of two that match one line, the weightier is meant, then the one that stands first."""

MOST = 200
"""Lines per signature and log that are looked at: a loop prints the same line for hours."""

Figure = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A line that a signature describes."""

    signature: Signature
    index: int
    """Of the line among those searched."""
    text: str
    """The line without prefixes and escape sequences; secrets are still in it."""
    figures: Mapping[str, Figure]


def scan(lines: Sequence[str]) -> tuple[Match, ...]:
    """Every line that some signature describes, in order; one match a line."""
    whole = [_searchable(line) for line in lines]
    text = "\n".join(whole)
    starts = list(accumulate((len(line) + 1 for line in whole), initial=0))
    best: dict[int, tuple[int, int, Match]] = {}
    for order, signature in enumerate(SIGNATURES):
        for index in _lines_with(signature.needles, text, starts):
            rank = (signature.weight.value, order)
            if index in best and best[index][:2] <= rank:
                continue
            match = _match(signature, index, whole[index])
            if match is not None:
                best[index] = (*rank, match)
    return tuple(best[index][2] for index in sorted(best))


def recognise(text: str) -> Match | None:
    """The weightiest signature in what Docker answered: `State.Error`, or the message of its API."""
    matches = scan(text.splitlines())
    return min(matches, key=lambda match: (match.signature.weight, match.index), default=None)


def _searchable(line: str) -> str:
    if len(line) <= 2 * LONGEST and "\x1b" not in line and "\r" not in line and "\n" not in line:
        return line
    return plain(line.replace("\r", " ").replace("\n", " "))


def _lines_with(needles: Sequence[str], text: str, starts: Sequence[int]) -> Iterator[int]:
    for needle in needles:
        found, seen = text.find(needle), 0
        while found >= 0 and seen < MOST:
            index = bisect_right(starts, found) - 1
            yield index
            seen += 1
            found = text.find(needle, starts[index + 1])


def _match(signature: Signature, index: int, line: str) -> Match | None:
    text = strip(line)
    if _quoted(text):
        return None
    found = compiled(signature.pattern).search(text) if signature.pattern else None
    if signature.pattern and found is None:
        return None
    figures = _figures(found.groupdict()) if found is not None else {}
    return Match(signature=signature, index=index, text=text.strip(), figures=figures)


_DUMPS = (
    "Received request ",
    "non-default args:",
    "args: Namespace(",
    "Initializing a V1 LLM engine",
    "Initializing an LLM engine",
    "Error retrieving ",
)


def _quoted(text: str) -> bool:
    """A line that only repeats words: a prompt, the arguments, a question asked again, a traceback's line of source."""
    if text.startswith(_DUMPS):
        return True
    source = text.lstrip()
    return len(text) - len(source) >= 4 and source.startswith(
        (
            "raise ",
            "assert ",
            "return ",
            "if ",
            "logger.",
            '"',
            'f"',
            "'",
            "f'",
            'r"',
            'msg = "',
            'msg = f"',
            "...<",
        )
    )


def _figures(groups: Mapping[str, str | None]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name, text in groups.items():
        if text is None:
            continue
        stem, _, kind = name.rpartition("_")
        match kind:
            case "gib":
                figures[f"{stem}_bytes"] = round(_number(text) * GIB)
            case "size":
                figures[f"{stem}_bytes"] = _size(text)
            case "n":
                figures[stem] = int(text)
            case "x":
                figures[stem] = _number(text)
            case _:
                figures[name] = text
    return figures


def _size(text: str) -> int:
    """`1.29 GiB`, `0 bytes`."""
    try:
        return parse_size(text.replace("bytes", "b"))
    except ValueError:
        return 0


def _number(text: str) -> float:
    """`7.76`; a full stop that ended the sentence is not part of it."""
    try:
        return float(text.rstrip("."))
    except ValueError:
        return 0.0
