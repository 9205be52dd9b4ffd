"""A preflight as data: the rungs of every host in order, then those across hosts."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import Any

from gpuplan.planning.preflight_report import Preflight, Rung
from gpuplan.present.check_words import tell

SCHEMA_VERSION = 1


def check_document(report: Preflight) -> dict[str, Any]:
    """What `gpuplan check -o json` prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": report.ok,
        "image": report.image,
        "model": report.model,
        "hosts": [
            {
                "name": ladder.host,
                "status": ladder.status.value,
                "rungs": [_rung(rung, ladder.host) for rung in ladder.rungs],
            }
            for ladder in report.hosts
        ],
        "across": [_rung(rung, None) for rung in report.across],
    }


def _rung(rung: Rung, host: str | None) -> dict[str, Any]:
    told = tell(rung, host)
    return {
        "name": rung.name.value,
        "status": rung.status.value,
        "reason": rung.reason,
        "codes": list(dict.fromkeys(fact.code for fact in rung.facts)),
        "headline": told.headline,
        "because": list(told.because),
        "fix": told.fix,
        "figures": _plain(rung.figures),
    }


def _plain(value: Any) -> Any:
    """Figures as JSON takes them."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return value
