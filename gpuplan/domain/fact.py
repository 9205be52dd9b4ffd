"""One thing worth telling, as data; `present` puts it into words by its code."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing worth telling, as data: `present.findings` puts it into words by its code."""

    code: str
    severity: Severity
    subject: Mapping[str, Any]
    """Host, GPU indexes, stage, flag: what it is about."""
    figures: Mapping[str, Any]
    """The numbers behind the sentence: bytes and tokens as int, shares as float."""
