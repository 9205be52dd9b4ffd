"""What MODEL names: an existing path, a catalogue name or a hub id, in this order."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.domain.repository import Repository
from gpuplan.errors import ModelError
from gpuplan.sources.local_files import exists, read_config_file, read_directory

if TYPE_CHECKING:
    from gpuplan.sources.huggingface import HubAccess

_HUB_ID = re.compile(r"[A-Za-z0-9_]([\w.-]*[A-Za-z0-9_])?(/[A-Za-z0-9_]([\w.-]*[A-Za-z0-9_])?)?", re.ASCII)
_REVISION = re.compile(r"[\w./-]{1,200}", re.ASCII)
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")


def open_model(
    reference: str,
    *,
    catalogue_lookup: Callable[[str], Repository | None],
    near_names: Callable[[str], Sequence[str]] = lambda _: (),
    hub: "HubAccess | None" = None,
) -> Repository:
    """Read the model MODEL names: a directory, a `.json` file, a catalogue name or `org/name[@revision]`.

    `near_names` gives catalogue names that look like a name that was not found. Raises ModelError.
    """
    if not reference.strip() or "\0" in reference:
        raise ModelError(
            "MODEL is empty", hint="give a hub id, a directory, a config.json or a catalogue name"
        )
    path = Path(os.path.expanduser(reference))  # noqa: PTH111 - leaves an unknown user as it is
    if exists(path):
        return _open_path(path, reference)
    if (found := catalogue_lookup(reference)) is not None:
        return found
    near = tuple(near_names(reference))
    name, _, revision = reference.partition("@")
    _check_hub_id(reference, name, revision, near)
    from gpuplan.sources.huggingface import HubAccess, read_hub_repository

    try:
        return read_hub_repository(name, revision=revision or None, access=hub or HubAccess())
    except ModelError as error:
        if not near:
            raise
        hint = f"{error.hint}; or did you mean the catalogue's {_listed(near)}?" if error.hint else None
        raise ModelError(error.message, hint=hint or f"did you mean {_listed(near)}?") from error


def _open_path(path: Path, location: str) -> Repository:
    if path.is_dir():
        return read_directory(path, location=location)
    if path.suffix.lower() == ".json":
        return read_config_file(path, location=location)
    if path.suffix.lower() in _WEIGHTS:
        raise ModelError(
            f"{location}: is a file of weights",
            hint=f"give the directory it is in: {path.parent}, with its config.json",
        )
    raise ModelError(
        f"{location}: not a model", hint="give a model's directory or its config.json (a .json file)"
    )


def _check_hub_id(reference: str, name: str, revision: str, near: tuple[str, ...]) -> None:
    if _looks_like_path(reference):
        raise ModelError(
            f"{reference}: no such file or directory",
            hint="a hub id has the form org/name; gpuplan models lists the catalogue",
        )
    valid = _HUB_ID.fullmatch(name) and "--" not in name and ".." not in name and not name.endswith(".git")
    if not valid or len(name) > 96 or (revision and not _REVISION.fullmatch(revision)):
        raise ModelError(
            f"{reference[:200]!r} is no file, not in the catalogue and no hub id (org/name[@revision])",
            hint=f"did you mean {_listed(near)}?" if near else "gpuplan models lists the catalogue",
        )
    if near and "/" not in name:
        raise ModelError(
            f"no model {reference!r}: neither a file nor in the catalogue",
            hint=f"did you mean {_listed(near)}? A hub id has the form org/name",
        )


def _looks_like_path(reference: str) -> bool:
    starts = reference.startswith(("/", "./", "../", "~"))
    ends = reference.lower().endswith((".json", *_WEIGHTS, "/"))
    return starts or ends or "\\" in reference or reference.partition("@")[0].count("/") > 1


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3])
