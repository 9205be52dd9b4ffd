"""What the app remembers by itself between two runs, in the state directory: losing it costs nothing but convenience."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from gpuplan.errors import GpuplanError, InventoryError
from gpuplan.sources.documents import read_bytes
from gpuplan.sources.settings import replace_file

FILE = "app.json"
MAX_BYTES = 256 * 1024
MOST_MODELS = 20
LONGEST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What was chosen last."""

    models: tuple[str, ...] = ()
    """References that were planned, the latest first."""
    sorts: tuple[tuple[str, str], ...] = ()
    """The order chosen for a list, by the list's name."""

    def with_model(self, reference: str) -> Self:
        """With this reference as the latest."""
        others = (model for model in self.models if model != reference)
        return replace(self, models=(reference, *others)[:MOST_MODELS])

    def with_sort(self, name: str, order: str) -> Self:
        """With this order of a list."""
        return replace(self, sorts=tuple(sorted({**dict(self.sorts), name: order}.items())))


NOTHING = Remembered()


def load_remembered(path: Path) -> Remembered:
    """What was kept; nothing where the file is missing or makes no sense."""
    try:
        document = json.loads(read_bytes(path, limit=MAX_BYTES, missing_hint=""))
    except (InventoryError, ValueError, RecursionError):
        return NOTHING
    if not isinstance(document, dict):
        return NOTHING
    sorts = document.get("sorts")
    pairs = [pair for pair in sorts if _texts(pair, 2)] if isinstance(sorts, list) else []
    models = document.get("models")
    named = [model for model in models if _texts([model], 1)] if isinstance(models, list) else []
    return Remembered(models=tuple(named[:MOST_MODELS]), sorts=tuple((name, order) for name, order in pairs))


def save_remembered(path: Path, remembered: Remembered) -> str | None:
    """Keep it; why it could not be, else None."""
    try:
        replace_file(path, json.dumps(asdict(remembered)) + "\n")
    except GpuplanError as error:
        return error.message
    return None


def _texts(value: Any, count: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == count
        and all(isinstance(text, str) and len(text) <= LONGEST for text in value)
    )
