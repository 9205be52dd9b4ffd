"""`config.toml`, the person's own file: read whole or refused with file, line and key; changed only where they ask for it."""

import os
import re
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuplan.errors import GpuplanError, InventoryError
from gpuplan.sources.documents import Faults, Location, decode, did_you_mean, location, read_bytes
from gpuplan.sources.inventory_yaml import config_directory
from gpuplan.sources.key_tables import Findings, Key, Kind, list_of, scalar, table, whole

FILE = "config.toml"
MAX_BYTES = 1024**2
MAX_FAULTS = 50
REFRESH_SECONDS = 2.0
FASTEST, SLOWEST = 0.5, 3600.0
_HINT = "docs/tui.md lists every key; without the file the defaults are used"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a person has set."""

    theme: str | None = None
    """None: the app's own choice."""
    refresh_seconds: float = REFRESH_SECONDS
    """Between two looks at the GPUs while the app is open."""
    mouse: bool = True
    keymap: tuple[tuple[str, str], ...] = ()
    """Command id and the keys it has instead of its own, comma between alternatives."""
    plan: tuple[tuple[str, Any], ...] = ()
    """Options of a plan by their names in `ServingOptions`, as on the command line."""


DEFAULTS = Settings()


def settings_path(environ: Mapping[str, str]) -> Path | None:
    """`$XDG_CONFIG_HOME/gpuplan/config.toml`; None where there is no home."""
    directory = config_directory(environ)
    return directory / FILE if directory is not None else None


def load_settings(path: Path, commands: Iterable[str] = ()) -> Settings:
    """Read the file; a missing one holds the defaults. With `commands`, other ids in the keymap are faults.

    Raises InventoryError with file, line and key of what is wrong.
    """
    if not path.exists():
        return DEFAULTS
    text = decode(path, read_bytes(path, limit=MAX_BYTES, missing_hint=_HINT))
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, text, error) from None
    findings = Findings(MAX_FAULTS)
    keys: Mapping[str, Any] = SETTINGS.read(document, (), findings)
    known = frozenset(commands)
    for at, command in _named_commands(document):
        if known and command not in known:
            findings.add(at, f"there is no command {command!r}{did_you_mean(command, known)}")
    faults = Faults(path=str(path), hint=_HINT)
    faults.uncounted = findings.uncounted
    lines = _lines(text)
    for where, problem in findings.found:
        faults.add(location(where), problem, _line(where, lines))
    faults.raise_if_any()
    ui, plan = keys["ui"], keys["plan"]
    return Settings(
        theme=ui["theme"],
        refresh_seconds=ui["refresh_seconds"],
        mouse=ui["mouse"],
        keymap=tuple(ui["keymap"].items()),
        plan=tuple(
            (word.replace("-", "_"), tuple(value) if isinstance(value, list) else value)
            for word, value in plan.items()
            if value not in (None, ())
        ),
    )


def save_theme(path: Path, theme: str) -> None:
    """Write the theme into the file, all else in it kept as it stands; a file that cannot be read is left alone.

    Raises GpuplanError when it cannot be read or written.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    text = decode(path, read_bytes(path, limit=MAX_BYTES, missing_hint=_HINT)) if path.exists() else ""
    try:
        document = tomlkit.parse(text)
        ui = document.setdefault("ui", tomlkit.table())
        ui["theme"] = theme
        written = tomlkit.dumps(document)
    except (TOMLKitError, TypeError) as error:
        raise InventoryError(f"{path}: the theme is not kept: {error}", hint="mend the file") from None
    if written != text:
        replace_file(path, written)


def replace_file(path: Path, text: str) -> None:
    """Put a text where the file is, at once and readable by its owner alone; links are followed.

    Raises GpuplanError when it cannot be written.
    """
    path = path.resolve()
    beside: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(beside).replace(path)
    except OSError as error:
        if beside is not None:
            Path(beside).unlink(missing_ok=True)
        raise GpuplanError(f"{path}: cannot be written: {error.strerror or error}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text in quotes")
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("must be a number of seconds")
    if not FASTEST <= value <= SLOWEST:
        raise ValueError(f"must lie between {FASTEST:g} and {SLOWEST:g} seconds")
    return float(value)


def _context(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError('must be a number of tokens or "max"')
    return value


def _keymap(value: Any, at: Location, findings: Findings) -> dict[str, str]:
    """Command ids with their keys; `fleet.sort = "s"` without quotes is a table of tables to TOML."""
    if not isinstance(value, dict):
        findings.add(at, 'must be a table of command ids and keys, for example "fleet.filter" = "f"')
        return {}
    held: dict[str, str] = {}
    for word, keys in value.items():
        if isinstance(keys, dict):
            inner = _keymap(keys, (*at, word), findings)
            held |= {f"{word}.{rest}": text for rest, text in inner.items()}
        elif isinstance(keys, str) and all(key.strip() for key in keys.split(",")):
            held[word] = ",".join(key.strip() for key in keys.split(","))
        else:
            findings.add((*at, word), 'must be keys, for example "f" or "ctrl+f,f5"')
    return held


def _named_commands(document: Mapping[str, Any]) -> list[tuple[Location, str]]:
    """Where the keymap names a command, and which."""
    ui = document.get("ui")
    keymap = ui.get("keymap") if isinstance(ui, dict) else None
    found: list[tuple[Location, str]] = []

    def look(value: Any, at: Location, words: tuple[str, ...]) -> None:
        for word, inner in value.items():
            if isinstance(inner, dict):
                look(inner, (*at, word), (*words, word))
            else:
                found.append(((*at, word), ".".join((*words, word))))

    if isinstance(keymap, dict):
        look(keymap, ("ui", "keymap"), ())
    return found


TEXT = scalar(_text, {"type": "string"})
TRUTH = scalar(_truth, {"type": "boolean"})
COUNT = whole(1, 1_000_000)
UI = table(
    "Ui",
    {
        "theme": Key(TEXT, "gpuplan-dark, gpuplan-light, gpuplan-contrast, or one of Textual's."),
        "refresh_seconds": Key(
            scalar(_seconds, {"type": "number", "minimum": FASTEST, "maximum": SLOWEST}),
            "Between two looks at the GPUs' memory, utilisation and temperature.",
            default=REFRESH_SECONDS,
        ),
        "mouse": Key(TRUTH, "false: the terminal keeps the mouse, to select text with.", default=True),
        "keymap": Key(
            Kind(_keymap, {"type": "object"}, empty={}),
            "Command id and its keys, comma between alternatives.",
        ),
    },
)
PLAN = table(
    "Plan",
    {
        "context": Key(scalar(_context, {"type": ["integer", "string"]}), "Tokens per request, or max."),
        "concurrency": Key(COUNT, "Requests of that length at once."),
        "kv-cache-dtype": Key(TEXT, "auto, fp8, …"),
        "replicas": Key(COUNT, "Copies on disjoint GPUs."),
        "placement": Key(TEXT, "spread or binpack."),
        "executor": Key(TEXT, "auto, ray or mp."),
        "no-distributed": Key(TRUTH, "Keep a replica on one host."),
        "no-calibration": Key(TRUTH, "Ignore what earlier starts measured."),
        "allow-overcommit": Key(TRUTH, "Recommend a selection that does not fit, too."),
        "category": Key(TEXT, "llm, embedding, reranker, speech_to_text, text_to_speech, image, omni."),
        "image": Key(TEXT, "Container image."),
        "vllm-version": Key(TEXT, "Rules of this vLLM release."),
        "strategies": Key(list_of(TEXT), "Recommend only these."),
    },
)
SETTINGS = table("Settings", {"ui": Key(UI, "The app."), "plan": Key(PLAN, "What a plan asks at first.")})

_HEADER = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?")
_PAIR = re.compile(r"""^\s*((?:"[^"]*"|'[^']*'|[\w.-])+(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_WORD = re.compile(r""""([^"]*)"|'([^']*)'|([\w-]+)""")


def _lines(text: str) -> dict[Location, int]:
    """The line each key and table is written on."""
    lines: dict[Location, int] = {}
    table_at: Location = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table_at = _words(header.group(1))
            lines.setdefault(table_at, number)
        elif pair := _PAIR.match(line):
            lines.setdefault((*table_at, *_words(pair.group(1))), number)
    return lines


def _words(text: str) -> Location:
    return tuple("".join(match) for match in _WORD.findall(text))


def _line(where: Location, lines: Mapping[Location, int]) -> int | None:
    """Where it is written; where the nearest thing that holds it is, else."""
    for depth in range(len(where), 0, -1):
        number = lines.get(where[:depth])
        if number is not None:
            return number
    return None


def _not_toml(path: Path, text: str, error: tomllib.TOMLDecodeError) -> InventoryError:
    found = re.search(r"^(.*?) \(at line (\d+), column (\d+)\)$", str(error))
    if found is None:
        return InventoryError(f"{path}:{len(text.splitlines())}: is not TOML: {error}", hint=_HINT)
    problem, line, column = found.groups()
    return InventoryError(f"{path}:{line}:{column}: is not TOML: {problem}", hint=_HINT)
