"""The shape every sentence about a fact has."""

from collections.abc import Callable, Mapping
from typing import Any

Words = tuple[str, tuple[str, ...], str | None]
"""Headline, evidence, and the way out."""
Given = Mapping[str, Any]
"""Subject or figures of a fact."""
Worder = Callable[[Given, Given], Words]
"""From the subject and the figures of a fact to its words."""


def told(headline: str, because: tuple[str, ...], hint: str | None) -> Words:
    """The words of a finding."""
    return headline, because, hint
