"""Errors a user can act on. Everything else that is raised is a bug and stays loud."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit status means; scripts depend on these numbers."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    NO_FIT = 3
    NO_HOST = 4
    DEPLOYMENT_FAILED = 5
    FLEET_CHANGED = 6
    INTERRUPTED = 130


class GpuplanError(Exception):
    """An expected failure: one sentence that names the place, and the way out."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GpuplanError):
    """A flag, an argument or an argument's value is wrong."""


class NoDeployment(UsageError):
    """No host knows a deployment of that name."""


class InventoryError(GpuplanError):
    """The inventory or a snapshot is wrong; the message starts with file, line and key where they are known."""


class ModelError(GpuplanError):
    """The model cannot be read: not found, gated, offline, or its files make no sense."""


class ConfigError(ModelError):
    """A value of a model's configuration is wrong: `keys` lead to it, `problem` completes the sentence."""

    def __init__(self, place: str, keys: tuple[str, ...], problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{place}: {'.'.join(keys)} {problem}", hint=hint)
        self.document = place
        self.keys = keys
        self.problem = problem


class NoHostError(GpuplanError):
    """No usable host: none reachable, or none with a GPU."""

    exit_code = ExitCode.NO_HOST
