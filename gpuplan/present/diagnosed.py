"""How a diagnosed failure is told: one record a code gives its sentences and its page.

In a headline or hint `{name}` is a figure (sizes in GiB); a part in square brackets is left out when one of its figures is
missing, and one without figures is said only when the part before it was left out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuplan.present.numbers import count, gib
from gpuplan.present.page import Page, page
from gpuplan.present.words import Given, Worder, Words, told


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that is said about one class of failure."""

    code: str
    title: str
    headline: str
    means: str
    """What happened; also the evidence beside the log's line."""
    matters: str
    hint: str
    """With the command to run."""
    do: str
    source: str

    def page(self) -> Page:
        """What `gpuplan explain` prints."""
        return page(self.code, self.title, self.means, self.matters, self.do, self.source)

    def worder(self) -> Worder:
        """From a fact to its words."""
        return self._words

    def _words(self, subject: Given, figures: Given) -> Words:
        deployment = subject.get("deployment") or "NAME"
        saved = subject.get("saved")
        known = {
            **figures,
            "logs": f"less {saved}/*.log" if saved else f"gpuplan logs {deployment}",
            "place": _place(subject),
            "host": subject.get("host") or "this host",
            "deployment": deployment,
        }
        return told(
            filled(self.headline, known),
            (*_quoted(figures), self.means),
            filled(self.hint, known),
        )


_PART = re.compile(r"\[([^\[\]]*)\]")
_FIELD = re.compile(r"\{(\w+)(:raw)?\}")
_COUNTED = frozenset(("max_model_len", "derived", "fitting", "heads", "wanted", "milliseconds"))


def filled(template: str, figures: Mapping[str, Any]) -> str:
    """The template with its figures; what is unknown outside of brackets is a question mark."""
    said: list[str] = []
    dropped = False
    for index, piece in enumerate(_PART.split(template)):
        names = [match[1] for match in _FIELD.finditer(piece)]
        if index % 2:
            if not names and not dropped:
                continue
            dropped = any(figures.get(name) is None for name in names)
            if dropped:
                continue
        said.append(_FIELD.sub(lambda match: _figure(match[1], figures.get(match[1]), bool(match[2])), piece))
    return "".join(said)


def _figure(name: str, value: Any, raw: bool) -> str:
    if value is None:
        return "?"
    if name.endswith("_bytes") and isinstance(value, (int, float)):
        return gib(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and name in _COUNTED and not raw:
        return count(value)
    return str(value)


def _place(subject: Given) -> str:
    """`h2 (follower 1)`; a server on one host is just its host."""
    host = str(subject.get("host") or "this host")
    role, rank = subject.get("role"), subject.get("rank")
    if role in (None, "single", "helper"):
        return host
    return f"{host} ({role} {rank})" if role == "follower" and rank else f"{host} ({role})"


def _quoted(figures: Given) -> tuple[str, ...]:
    """What the member itself said."""
    line, last = figures.get("line"), figures.get("lines")
    who = "Docker says" if figures.get("source") == "docker" else "its log says"
    first = (f"{who}: {line}",) if line else ()
    if isinstance(last, (list, tuple)):
        return (
            *first,
            *(f"last lines: {item}" if not index else str(item) for index, item in enumerate(last)),
        )
    return first
