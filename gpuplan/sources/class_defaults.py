"""transformers' configuration classes, for what a config.json leaves to their defaults.

Only classes that ship with the installed transformers are used, by `model_type`; `auto_map` is ignored and
code of a repository never runs.
"""

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

_LARGEST_INT = 2**40
_LARGEST_COUNT = 20_000
_COUNTS = ("layer", "block", "depth", "label", "expert", "level", "stage")
_NOT_COUNTS = ("size", "dim", "vocab", "token", "_id")
_NOT_ABOUT_THE_MODEL = frozenset(
    {
        "_name_or_path",
        "architectures",
        "auto_map",
        "chunk_size_feed_forward",
        "dtype",
        "id2label",
        "label2id",
        "name_or_path",
        "output_attentions",
        "output_hidden_states",
        "problem_type",
        "return_dict",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
_WRAPPERS = ("text_config", "llm_config", "language_config", "thinker_config")


class Filled(NamedTuple):
    """A configuration with defaults filled in."""

    config: dict[str, Any]
    names: tuple[str, ...]
    """What was filled in, nested names dotted: `text_config.head_dim`."""
    note: str | None
    """Why nothing could be filled in; None when the class was used."""


def needs_class_defaults(config: Mapping[str, Any], required: Iterable[str]) -> bool:
    """Whether one of `required` is missing or null at the top and in the text model's configuration."""
    places = [config, *(config[key] for key in _WRAPPERS if isinstance(config.get(key), Mapping))]
    nested = [place[key] for place in places[1:] for key in _WRAPPERS if isinstance(place.get(key), Mapping)]
    return any(all(place.get(name) is None for place in (*places, *nested)) for name in required)


def with_class_defaults(config: Mapping[str, Any]) -> Filled:
    """Fill in what the config leaves to transformers' class defaults; what it says is never changed.

    Importing transformers takes about a second, once. An unknown `model_type`, values the class refuses and
    values that would make it allocate without bound leave the config unchanged, with a note.
    """
    unchanged = dict(config)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        return Filled(unchanged, (), "config.json names no model_type")
    if (absurd := _absurd_value(config)) is not None:
        return Filled(unchanged, (), f"{absurd} is beyond any model; class defaults were not asked for")
    complete, note = _through_class(model_type, unchanged)
    if complete is None:
        return Filled(unchanged, (), note)
    names: list[str] = []
    return Filled(_filled(unchanged, complete, names, ""), tuple(names), None)


def _absurd_value(config: Mapping[str, Any]) -> str | None:
    """The first integer a class might loop over that is too large to loop over."""
    for name, value in _integers(config, 0):
        if abs(value) > _LARGEST_INT or (value > _LARGEST_COUNT and _is_count(name)):
            return f"{name} = {str(value)[:30]}"
    return None


def _is_count(name: str) -> bool:
    return any(word in name for word in _COUNTS) and not any(word in name for word in _NOT_COUNTS)


def _integers(value: Any, depth: int) -> Iterator[tuple[str, int]]:
    if depth > 16 or not isinstance(value, Mapping):
        return
    for key, item in value.items():
        if isinstance(item, int) and not isinstance(item, bool):
            yield str(key), item
        else:
            yield from _integers(item, depth + 1)


def _through_class(model_type: str, config: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """The config as its class completes it, or None and the reason."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from huggingface_hub.errors import StrictDataclassError
            from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
        except ImportError as error:
            return None, f"transformers is not usable: {error}"
        if model_type not in CONFIG_MAPPING_NAMES:
            return None, f"the installed transformers knows no model_type {model_type!r}"
        disabled = logging.root.manager.disable
        logging.disable(logging.ERROR)
        try:
            made = CONFIG_MAPPING[model_type].from_dict(_copied(config))
            complete = made.to_dict()
            _add_standard_names(made, complete)
        except (
            ArithmeticError,
            AssertionError,
            AttributeError,
            ImportError,
            LookupError,
            RuntimeError,
            StrictDataclassError,
            TypeError,
            ValueError,
        ) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
            return None, f"transformers' class for {model_type!r} refuses this config: {reason}"
        finally:
            logging.disable(disabled)
    return complete, None


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _add_standard_names(made: Any, complete: dict[str, Any]) -> None:
    """`num_hidden_layers` beside a class's own `n_layer`, for it and its parts."""
    for standard, own in dict(getattr(made, "attribute_map", None) or {}).items():
        if own in complete:
            complete.setdefault(standard, complete[own])
    for key in getattr(made, "sub_configs", None) or {}:
        part, nested = getattr(made, key, None), complete.get(key)
        if part is not None and isinstance(nested, dict):
            _add_standard_names(part, nested)


def _is_part(key: str) -> bool:
    return key.endswith("_config") and key != "quantization_config"


def _filled(
    config: dict[str, Any], complete: Mapping[str, Any], names: list[str], prefix: str
) -> dict[str, Any]:
    result = dict(config)
    for key, value in complete.items():
        current = result.get(key)
        if isinstance(current, dict) and isinstance(value, Mapping) and _is_part(key):
            result[key] = _filled(current, value, names, f"{prefix}{key}.")
        elif current is None and value is not None and key not in _NOT_ABOUT_THE_MODEL:
            result[key] = value
            names.append(f"{prefix}{key}")
    return result
