"""A person's settings and what is remembered for them, kept in files where there are any; blocking calls, for threads."""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Self

from gpuplan.errors import GpuplanError
from gpuplan.sources import remembered as memory
from gpuplan.sources.remembered import NOTHING, Remembered, load_remembered, save_remembered
from gpuplan.sources.settings import DEFAULTS, Settings, load_settings, save_theme, settings_path
from gpuplan.sources.state import state_directory


class Preferences:
    """What the app starts with. Nothing is written without the files."""

    def __init__(
        self,
        settings: Settings = DEFAULTS,
        remembered: Remembered = NOTHING,
        *,
        file: Path | None = None,
        memory_file: Path | None = None,
        problem: GpuplanError | None = None,
    ) -> None:
        self.settings = settings
        self.remembered = remembered
        self.problem = problem
        """Why the defaults are used instead of the file."""
        self._file = file
        self._memory_file = memory_file
        self._writing = Lock()
        self._theme: str | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """From the user's files; a broken one is a `problem`, never a failure."""
        file = settings_path(environ)
        problem, settings = None, DEFAULTS
        if file is not None:
            try:
                settings = load_settings(file)
            except GpuplanError as error:
                problem = error
        memory_file = state_directory(environ) / memory.FILE
        kept = load_remembered(memory_file)
        return cls(settings, kept, file=file, memory_file=memory_file, problem=problem)

    def keep_theme(self, name: str) -> str | None:
        """Write the theme into the person's file; why it could not be, else None. Of many calls the latest counts."""
        self._theme = name
        with self._writing:
            if self._file is None or self._theme is None:
                return None
            if self.problem is not None:
                return f"{self._file}: the theme is not kept: the file has a mistake"
            theme, self._theme = self._theme, None
            try:
                save_theme(self._file, theme)
            except GpuplanError as error:
                return error.message
        return None

    def keep(self) -> str | None:
        """Write down what is remembered; why that failed, else None."""
        with self._writing:
            if self._memory_file is None:
                return None
            return save_remembered(self._memory_file, self.remembered)
