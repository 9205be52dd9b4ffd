"""Recorded outputs under `tests/data/probes/<probe>/<case>/`, and reports in a form to compare with them.

A case holds `<command>.txt` for every command that was run, `expected.json` with the fields that differ from their
defaults, `source.txt`, and where needed `status.json` (exit status and time-out by command) and `given.json`
(further arguments).
"""

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Any

from gpuplan.probing.output import Output

ROOT = Path(__file__).parents[2] / "data" / "probes"
_OURS = frozenset({"source.txt"})


def names(probe: str) -> list[str]:
    return sorted(path.name for path in (ROOT / probe).iterdir() if path.is_dir())


def outputs(probe: str, case: str) -> dict[str, Output]:
    """What the commands printed, as the probe would hand it to a parser."""
    folder = ROOT / probe / case
    status = _json(folder / "status.json")
    files = sorted(path for path in folder.glob("*.txt") if path.name not in _OURS)
    return {path.stem: Output(text=path.read_text(), **status.get(path.stem, {})) for path in files}


def expected(probe: str, case: str) -> Any:
    return _json(ROOT / probe / case / "expected.json")


def given(probe: str, case: str) -> dict[str, Any]:
    return _json(ROOT / probe / case / "given.json")


def source(probe: str, case: str) -> str:
    return (ROOT / probe / case / "source.txt").read_text()


def plain(value: object) -> Any:
    """A report as JSON would hold it; fields at their default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        told = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: plain(held) for field, held in told if held != field.default}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}
