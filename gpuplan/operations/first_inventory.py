"""`gpuplan init`: a first inventory, from hosts that are named, from the SSH configuration, or for this machine."""

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuplan.domain.inventory import LOCAL
from gpuplan.errors import InventoryError, UsageError
from gpuplan.sources import inventory_yaml
from gpuplan.sources.documents import shown

_TARGET = re.compile(
    r"(?:(?P<name>[^=@]+)=)?(?:(?P<user>[^@=]+)@)?(?P<address>\[[0-9a-fA-F:.%]+\]|[^@:=\[\]]+|[0-9a-fA-F:]+::[0-9a-fA-F:]*)"
    r"(?::(?P<port>\d{1,5}))?"
)
_NOT_IN_A_NAME = re.compile(r"[\s:,=@/'\"\\]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A host as it was named on the command line."""

    name: str
    address: str | None = None
    """None: the name is the address."""
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What `init` did."""

    path: Path
    hosts: tuple[str, ...]
    source: str
    """Where the hosts come from, in words."""


def write_inventory(
    path: Path,
    targets: Sequence[str],
    *,
    aliases: Sequence[str] = (),
    defaults: Mapping[str, str] | None = None,
    replace: bool = False,
) -> Written:
    """Write an inventory of `targets`, else of the SSH configuration's `aliases`, else of this machine.

    Raises UsageError for a target that cannot be read, or a file that is there and not to be replaced.
    """
    if not replace and (path.exists() or path.is_symlink()):
        raise UsageError(
            f"{path}: is already there; nothing was written",
            hint="name another file with -i FILE, or replace it with --force",
        )
    hosts, source = _hosts(targets, aliases)
    text = inventory_text(hosts, defaults or {})
    _write(path, text)
    return Written(path=path, hosts=tuple(host.name for host in hosts), source=source)


def read_target(text: str) -> Target:
    """Read `[NAME=][USER@]ADDRESS[:PORT]`; an IPv6 address with a port stands in brackets."""
    match = _TARGET.fullmatch(text.strip())
    if match is None or not match["address"].strip("[]"):
        raise UsageError(
            f"{shown(text)}: is not a host",
            hint="write [NAME=][USER@]ADDRESS[:PORT], for example gpu1=ubuntu@10.0.0.11",
        )
    address = match["address"].strip("[]")
    name = _NOT_IN_A_NAME.sub("-", match["name"] or address).strip("-")
    if not name:
        raise UsageError(f"{shown(text)}: has no name", hint="write for example gpu1=10.0.0.11")
    return Target(
        name=name,
        address=address if address != name else None,
        user=match["user"],
        port=int(match["port"]) if match["port"] else None,
    )


def inventory_text(hosts: Sequence[Target], defaults: Mapping[str, str]) -> str:
    """The file: what is known, and as comments what is worth adding."""
    lines = [
        "# Written by `gpuplan init`. inventory.example.yaml documents every key; `gpuplan schema inventory` prints them.",
        "# Next: gpuplan probe, then gpuplan plan MODEL.",
    ]
    if defaults:
        lines += ["defaults:", *(f"  {key}: {_scalar(value)}" for key, value in sorted(defaults.items()))]
    lines.append("hosts:")
    for host in hosts:
        lines.append(f"  - name: {_scalar(host.name)}")
        if host.address is not None:
            lines.append(f"    address: {_scalar(host.address)}")
        if host.user is not None:
            lines.append(f"    user: {_scalar(host.user)}")
        if host.port is not None:
            lines.append(f"    port: {host.port}")
    return "\n".join(lines) + "\n"


def _hosts(targets: Sequence[str], aliases: Sequence[str]) -> tuple[list[Target], str]:
    if targets:
        return [read_target(text) for text in targets], "the command line"
    if aliases:
        return [read_target(alias) for alias in aliases], "the SSH configuration"
    return [Target(name=LOCAL)], "this machine"


def _scalar(value: str) -> str:
    """A text as YAML, quoted where it has to be."""
    import yaml

    return (
        yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
        .removesuffix("...\n")
        .strip()
    )


def _write(path: Path, text: str) -> None:
    """Put the file in its place only when it reads back: a half-written inventory is worse than none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".inventory-", suffix=".yaml", dir=path.parent)
    except OSError as error:
        raise InventoryError(
            f"{path}: cannot be written: {error.strerror}", hint="name another place with -i FILE"
        ) from error
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            inventory_yaml.load(draft)
        except InventoryError as error:
            raise UsageError(
                str(error.message).replace(str(draft), "the hosts"), hint="name each host once"
            ) from error
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as error:
        raise InventoryError(
            f"{path}: cannot be written: {error.strerror}", hint="name another place with -i FILE"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
