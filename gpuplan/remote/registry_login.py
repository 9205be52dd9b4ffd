"""The logins this machine has for registries, as `docker login` stored them; sent with a pull, stored nowhere else."""

import base64
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuplan.remote.connection import HostCallFailed
from gpuplan.remote.words import printable


class LoginUnreadable(HostCallFailed):
    """The stored logins of this machine make no sense, or their credential helper does not work."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """Name and password, or token, for one registry."""

    registry: str
    """`docker.io`, `registry.example.com:5000`."""
    secret: Mapping[str, str | None] = field(repr=False, compare=False)
    """As the Engine API takes it."""

    def header(self) -> str:
        """The value of `X-Registry-Auth`: base64 of JSON, URL-safe."""
        return base64.urlsafe_b64encode(json.dumps(dict(self.secret)).encode()).decode()


def registry_login(reference: str, environ: Mapping[str, str]) -> RegistryLogin | None:
    """The login for the registry of an image, from `$DOCKER_CONFIG/config.json` or `~/.docker/config.json`.

    Credential helpers named there are run, and may ask for a passphrase. None: there is none. Raises LoginUnreadable.
    """
    home = environ.get("HOME")
    default = Path(home) / ".docker" if home else Path("~/.docker").expanduser()
    path = Path(environ.get("DOCKER_CONFIG") or default) / "config.json"
    if not path.is_file():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # of the SDK, about a helper that is missing: raised as well
        return _found(path, reference, environ)


def _found(path: Path, reference: str, environ: Mapping[str, str]) -> RegistryLogin | None:
    from docker.auth import load_config, resolve_authconfig, resolve_repository_name
    from docker.errors import DockerException

    try:
        registry, _ = resolve_repository_name(reference)
        stored = load_config(config_path=str(path), credstore_env=dict(environ))
        found = resolve_authconfig(stored, registry, credstore_env=dict(environ))
    except (DockerException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoginUnreadable(f"{path}: {printable(str(error)) or type(error).__name__}") from error
    return RegistryLogin(registry=registry, secret=dict(found)) if found else None
