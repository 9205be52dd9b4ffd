"""How a command reaches hosts: SSH settings from the environment and the options, a person asked where one is there."""

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.cli.progress import STATUS
from gpuplan.errors import UsageError

if TYPE_CHECKING:
    from gpuplan.operations.probe import ProbeOptions
    from gpuplan.remote.ssh_settings import Questions

KNOWN_HOSTS = "known_hosts"


def probe_options(
    host_key: str | None, jobs: int | None, person: "Questions | None" = None
) -> "ProbeOptions":
    """Options of a probe; `host_key` is ask, strict or accept-new. UsageError for anything else.

    `person` is asked instead of whoever sits at the terminal.
    """
    from gpuplan.operations.probe import JOBS, MOST_JOBS, ProbeOptions
    from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
    from gpuplan.sources.inventory_yaml import config_directory

    policies = [policy.value for policy in HostKeyPolicy]
    if host_key is not None and host_key not in policies:
        raise UsageError(
            f"--host-key {host_key[:40]}: not one of {', '.join(policies)}",
            hint="leave it out to be asked on a terminal and to refuse unknown keys elsewhere",
        )
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise UsageError(
            f"--jobs {jobs}: must lie between 1 and {MOST_JOBS}", hint=f"leave --jobs out for {JOBS}"
        )
    home = Path(os.environ.get("HOME") or "~").expanduser()
    return ProbeOptions(
        ssh=SshSettings(
            known_hosts=(config_directory(os.environ) or home / ".config" / "gpuplan") / KNOWN_HOSTS,
            home=home,
            policy=HostKeyPolicy(host_key or HostKeyPolicy.ASK),
            questions=person or _questions(),
            environ=os.environ,
        ),
        jobs=jobs or JOBS,
    )


class _Aside:
    """Asks with the status line out of the way."""

    def __init__(self, person: "Questions") -> None:
        self._person = person

    def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        with STATUS.aside():
            return self._person.trust_host_key(host, key_type, fingerprint)

    def passphrase(self, path: str) -> str | None:
        with STATUS.aside():
            return self._person.passphrase(path)

    def password(self, user_at_host: str) -> str | None:
        with STATUS.aside():
            return self._person.password(user_at_host)


def _questions() -> "Questions | None":
    """Somebody to ask: only where a person watches."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    from gpuplan.cli.questions import TerminalQuestions

    person = TerminalQuestions.open()
    if person is None:
        return None
    atexit.register(person.close)  # whoever interrupts a hidden question gets the terminal back as it was
    return _Aside(person)
