"""Typed, bounded reading of a `config.json`: every wrong or absurd value is one error that names the key."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuplan.errors import ConfigError

LARGEST = 2**31
MISSING = "is missing"
CORRECT = "correct the file, or override the value with --hf-overrides"
_MISSING: Any = object()


class ConfigView:
    """One mapping of a config with the place it stands in."""

    def __init__(self, values: Mapping[str, Any], place: str = "config.json") -> None:
        self.values = values
        self.place = place
        """The document, and after a colon each the keys that lead to this mapping."""

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def error(self, key: str, problem: str) -> ConfigError:
        document, *outer = self.place.split(": ")
        return ConfigError(
            document,
            (*outer, key),
            problem,
            hint=CORRECT,
        )

    def raw(self, *keys: str) -> Any:
        """The first of `keys` that is present and not null, else None."""
        for key in keys:
            if self.values.get(key) is not None:
                return self.values[key]
        return None

    def _written(self, keys: tuple[str, ...]) -> str:
        """The one of `keys` the config holds, the first when it holds none."""
        return next((key for key in keys if self.values.get(key) is not None), keys[0])

    def integer(self, *keys: str, default: int | None = _MISSING, least: int = 1, most: int = LARGEST) -> int:
        """A whole number between `least` and `most`; `default` when none of `keys` is present."""
        value = self.raw(*keys)
        if value is None:
            if default is _MISSING or default is None:
                raise self.error(keys[0], MISSING)
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(self._written(keys), f"is {_shown(value)}, not a whole number")
        if not least <= value <= most:
            raise self.error(self._written(keys), f"is {value}; it must lie between {least} and {most}")
        return value

    def optional_integer(self, *keys: str, least: int = 0, most: int = LARGEST) -> int | None:
        return None if self.raw(*keys) is None else self.integer(*keys, least=least, most=most)

    def number(self, *keys: str, default: float) -> float:
        value = self.raw(*keys)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(self._written(keys), f"is {_shown(value)}, not a number")
        return float(value)

    def flag(self, *keys: str, default: bool = False) -> bool:
        value = self.raw(*keys)
        return default if value is None else bool(value)

    def text(self, *keys: str, default: str = "") -> str:
        value = self.raw(*keys)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(self._written(keys), f"is {_shown(value)}, not a text")
        return value

    def items(self, *keys: str) -> tuple[Any, ...]:
        """A list as a tuple; empty when absent."""
        value = self.raw(*keys)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self.error(self._written(keys), f"is {_shown(value)}, not a list")
        return tuple(value)

    def view(self, *keys: str) -> "ConfigView":
        """A nested mapping; an empty one when absent."""
        value = self.raw(*keys)
        if value is None:
            return ConfigView({}, f"{self.place}: {keys[0]}")
        if not isinstance(value, Mapping):
            raise self.error(self._written(keys), f"is {_shown(value)}, not an object")
        return ConfigView(value, f"{self.place}: {self._written(keys)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
