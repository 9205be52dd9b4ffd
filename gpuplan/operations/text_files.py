"""Texts somebody wants to keep: for their owner alone, and never over a file unless that was said."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gpuplan.errors import GpuplanError, UsageError

MODE = 0o600


class AlreadyThere(GpuplanError):
    """A file of that name exists."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is there already", hint="name another file, or say that it is to be replaced"
        )
        self.path = path


def paths_for(name: str, files: Mapping[str, str]) -> dict[Path, str]:
    """Where the texts go: one of them to the file `name`, several to the directory `name`. Raises UsageError."""
    if not name.strip():
        raise UsageError("no name was given", hint="name a file to write to")
    try:
        place = Path(name.strip()).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{name}: {error}", hint="name the file by its whole path") from error
    if len(files) == 1:
        (text,) = files.values()
        return {place: text}
    return {place / file: text for file, text in files.items()}


def write_texts(name: str, files: Mapping[str, str], *, replace: bool = False) -> tuple[Path, ...]:
    """Write the texts by their file names, mode 0600; directories that are missing are made. Their paths.

    Raises AlreadyThere before anything is written, unless `replace`; UsageError with the reason for what cannot be
    written.
    """
    paths = paths_for(name, files)
    for path in paths:
        try:
            if not replace and (path.exists() or path.is_symlink()):
                raise AlreadyThere(path)
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise _refused(path, ValueError(f"{error.filename} is no directory")) from error
        except (OSError, ValueError) as error:
            raise _refused(path, error) from error
    for path, text in paths.items():
        try:
            _write(path, text, replace=replace)
        except (OSError, ValueError) as error:
            raise _refused(path, error) from error
    return tuple(paths)


def _write(path: Path, text: str, *, replace: bool) -> None:
    """The whole file or none."""
    whole = path.with_name(f".{path.name[:100]}.{secrets.token_hex(3)}") if replace else path
    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        if replace:
            whole.replace(path)
    except BaseException:
        with suppress(OSError):
            whole.unlink()
        raise


def _refused(path: Path, error: OSError | ValueError) -> UsageError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UsageError(
        f"{path} cannot be written: {reason}", hint="name a file in a directory you may write to"
    )
