"""Keys a person chose: those that make sense are used, the others are told and leave the command its own key."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from textual.keys import KEY_NAME_REPLACEMENTS, Keys, _character_to_key, key_to_character

from gpuplan.present.document import visible
from gpuplan.sources.documents import did_you_mean
from gpuplan.tui.commands import Command, Place

MODIFIERS = frozenset({"ctrl", "alt", "shift", "super", "hyper", "meta"})
NAMED = frozenset({str(key.value) for key in Keys} | set(KEY_NAME_REPLACEMENTS.values()))
TAKEN = {
    **dict.fromkeys(("up", "down", "left", "right", "pageup", "pagedown", "home", "end"), "moves the cursor"),
    **dict.fromkeys("jkhlgG", "moves the cursor"),
    "enter": "opens what is under the cursor",
    "escape": "closes a dialog",
    "tab": "goes to the next part of the screen",
    "shift+tab": "goes to the part of the screen before",
    "ctrl+c": "copies",
}
"""Keys no command can have, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keymap:
    """What a keymap comes to."""

    keys: Mapping[str, str]
    """Command id → keys, in Textual's names."""
    complaints: tuple[str, ...] = ()
    """What is not used, and why."""


def normal_key(key: str) -> str:
    """A key as Textual names it: `?` is `question_mark`."""
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    return "+".join([*modifiers, _character_to_key(last) if len(last) == 1 else last])


def read_keymap(chosen: Iterable[tuple[str, str]], commands: tuple[Command, ...]) -> Keymap:
    """Check chosen keys against every command: unknown ids and keys, and keys another command has."""
    by_id = {command.id: command for command in commands}
    used: dict[str, str] = {}
    complaints: list[str] = []
    for name, keys in chosen:
        command = by_id.get(name)
        wanted = [normal_key(key.strip()) for key in keys.split(",")]
        if command is None:
            complaints.append(f"{visible(name)}: there is no such command{did_you_mean(name, by_id)}")
        elif unknown := [key for key in wanted if not _is_key(key)]:
            complaints.append(f"{name}: {visible(unknown[0])!r} is not a key")
        elif taken := [key for key in wanted if key in TAKEN]:
            complaints.append(f"{name}: {taken[0]} {TAKEN[taken[0]]}")
        else:
            used[name] = ",".join(wanted)
    for name in list(used):
        clash = _clash(by_id[name], commands, used)
        if clash is not None:
            key, other = clash
            complaints.append(f"{name}: {key} is the key of {other.id}")
            del used[name]
    return Keymap(keys=used, complaints=tuple(complaints))


def keys_of(command: Command, keymap: Mapping[str, str]) -> tuple[str, ...]:
    """The keys a command has, in Textual's names."""
    return tuple(normal_key(key.strip()) for key in keymap.get(command.id, command.key).split(",") if key)


def _clash(
    command: Command, commands: tuple[Command, ...], used: Mapping[str, str]
) -> tuple[str, Command] | None:
    """A key of a command that another one has where both work, and that other."""
    for other in commands:
        meets = Place.APP in (command.place, other.place) or command.place is other.place
        if other.id == command.id or not meets:
            continue
        for key in keys_of(command, used):
            if key in keys_of(other, used):
                return key, other
    return None


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+")
    return (
        set(modifiers) <= MODIFIERS and bool(last) and (last in NAMED or key_to_character(last) is not None)
    )
