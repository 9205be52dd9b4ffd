"""One question a probe asks a host."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A piece of POSIX shell, run on the host under its own time limit with `LC_ALL=C`."""

    name: str
    """Key of its output; unique over all probes."""
    shell: str
    timeout: float = 15
    """Seconds."""
    group: str = ""
    """After one command of a group ran out of time the others are not run: they would hang as well."""
