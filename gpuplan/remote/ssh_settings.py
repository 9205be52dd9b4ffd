"""How gpuplan connects over SSH: whom it trusts, whom it may ask, how long it waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from gpuplan.remote.cancellation import Cancellation

if TYPE_CHECKING:
    from gpuplan.remote.ssh import SshClient


class HostKeyPolicy(StrEnum):
    """What becomes of a host whose key is not known. A changed key is refused under every policy."""

    ASK = "ask"
    """A person decides by the fingerprint; with nobody to ask, refused."""
    STRICT = "strict"
    ACCEPT_NEW = "accept-new"
    """Remembered and used."""


class Questions(Protocol):
    """A person at hand. Asked one question at a time, each once; `None` and False decline."""

    def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool: ...
    def passphrase(self, path: str) -> str | None: ...
    def password(self, user_at_host: str) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds for each phase. A command's own limit comes with the call."""

    resolve: float = 5.0
    connect: float = 10.0
    """`ConnectTimeout` of the SSH configuration wins over it."""
    banner: float = 10.0
    """From the connection to the server's greeting, and again to the end of the key exchange."""
    authenticate: float = 20.0
    """Time a person takes to answer is not counted."""
    command: float = 15.0
    """For the server to open a session or a channel, where the call's own limit is longer."""


NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


class Shared:
    """Room for what connections under one SshSettings have in common; `ssh.connect` fills it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.client: SshClient | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """Everything a connection takes from this machine; many connections share one of these."""

    known_hosts: Path
    """Accepted keys are kept here: created with the first one, mode 0600."""
    home: Path
    """Whose `.ssh` is read."""
    policy: HostKeyPolicy = HostKeyPolicy.ASK
    questions: Questions | None = None
    """None: nobody can be asked."""
    timeouts: Timeouts = Timeouts()
    environ: Mapping[str, str] = field(default_factory=lambda: NO_ENVIRONMENT)
    """Looked at for SSH_AUTH_SOCK, PATH and `${NAME}` in the SSH configuration."""
    cancellation: Cancellation = field(default_factory=Cancellation)
    system_config: Path = Path("/etc/ssh/ssh_config")
    system_known_hosts: tuple[Path, ...] = (
        Path("/etc/ssh/ssh_known_hosts"),
        Path("/etc/ssh/ssh_known_hosts2"),
    )
    shared: Shared = field(default_factory=Shared, init=False, compare=False, repr=False)
    """Files read once, answers given once, jump hosts in use. `dataclasses.replace` starts anew with it."""
