"""Whose key a host may show: known_hosts files, read line by line and indexed once.

A key that differs from a known one is refused whatever the policy. Host certificates are not checked: a host
known through its authority alone counts as unknown, and the refusal says why.
"""

import binascii
import hmac
import os
import threading
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.ssh_config_files import matches
from gpuplan.remote.ssh_settings import HostKeyPolicy
from gpuplan.remote.words import printable, system_words

REVOKED = "@revoked"
AUTHORITY = "@cert-authority"
ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""Signature algorithms of a key type, where they are not the type's own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """A key as it goes over the wire."""

    blob: bytes

    @property
    def kind(self) -> str:
        """`ssh-ed25519`; empty for what is no key."""
        size = int.from_bytes(self.blob[:4], "big")
        return self.blob[4 : 4 + size].decode("ascii", "replace") if size < len(self.blob) else ""

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        return "SHA256:" + b64encode(sha256(self.blob).digest()).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """One line of a known_hosts file."""

    key: HostKey
    marker: str
    """`@revoked`, `@cert-authority`, or empty."""
    place: str
    """FILE:LINE."""


@dataclass(slots=True)
class KnownHostsFile:
    """One file; lines that are damaged are left out. `names`: plain names and addresses, as they are written."""

    names: dict[str, list[KnownKey]] = field(default_factory=dict)
    hashed: list[tuple[bytes, bytes, KnownKey]] = field(default_factory=list)
    """Salt, hash of the name."""
    patterns: list[tuple[tuple[str, ...], KnownKey]] = field(default_factory=list)

    def add(self, line: str, place: str) -> None:
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in {"", REVOKED, AUTHORITY}:
            return
        hosts, kind, encoded = words[:3]
        try:
            key = HostKey(blob=binascii.a2b_base64(encoded))
            if key.kind != kind:
                return
            known = KnownKey(key=key, marker=marker, place=place)
            if hosts.startswith("|1|"):
                salt, digest = (binascii.a2b_base64(part) for part in hosts[3:].split("|", 1))
                self.hashed.append((salt, digest, known))
                return
        except (binascii.Error, ValueError):
            return
        names = tuple(hosts.lower().split(","))
        if any(letter in hosts for letter in "*?!"):
            self.patterns.append((names, known))
            return
        for name in names:
            self.names.setdefault(name, []).append(known)

    def lookup(self, name: str) -> list[KnownKey]:
        """Every line about this name (small letters; `[host]:port` where the port is not 22)."""
        encoded = name.encode("utf-8", "surrogateescape")
        return [
            *self.names.get(name, ()),
            *(known for salt, digest, known in self.hashed if hmac.digest(salt, encoded, "sha1") == digest),
            *(known for patterns, known in self.patterns if matches(name, patterns)),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the files say about one host."""

    name: str
    """As it stands, or would be written, in known_hosts."""
    keys: tuple[KnownKey, ...]
    elsewhere: tuple[KnownKey, ...] = ()
    """Lines about the same host at port 22: they can vouch for a key, and cannot contradict one."""

    def algorithms(self, supported: Sequence[str]) -> tuple[str, ...]:
        """The algorithms to propose: those of known keys first, so that a known key is the one we are shown."""
        kinds = [known.key.kind for known in (*self.keys, *self.elsewhere) if not known.marker]
        first = [name for kind in kinds for name in ALGORITHMS.get(kind, (kind,))]
        return tuple(dict.fromkeys((*(name for name in first if name in supported), *supported)))


class HostKeys:
    """The known_hosts files of many connections; safe to use from several threads."""

    def __init__(self, own: Path) -> None:
        """`own`: the file that accepted keys are added to."""
        self._own = own
        self._lock = threading.Lock()
        self._files: dict[Path, tuple[tuple[int, int, int], KnownHostsFile]] = {}

    def known(self, host: str, port: int, alias: str | None, files: Iterable[Path]) -> Known:
        """What gpuplan's own file and `files` know about a host. Raises ConnectionFailed for an unreadable file."""
        plain = (alias or host).lower()
        name = plain if port == 22 or alias else f"[{plain}]:{port}"
        with self._lock:
            read = [self._read(path) for path in dict.fromkeys((self._own, *files))]
        return Known(
            name=name,
            keys=tuple(key for file in read for key in file.lookup(name)),
            elsewhere=() if name == plain else tuple(key for file in read for key in file.lookup(plain)),
        )

    def _read(self, path: Path) -> KnownHostsFile:
        """You hold the lock. Read again only when the file was changed."""
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if path in self._files and self._files[path][0] == stamp:
                return self._files[path][1]
            text = path.read_bytes().decode("utf-8", "surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            return KnownHostsFile()
        except OSError as error:
            raise ConnectionFailed(Stage.HOST_KEY, f"{path} cannot be read: {system_words(error)}") from error
        file = KnownHostsFile()
        for number, line in enumerate(text.splitlines(), 1):
            file.add(line, f"{path}:{number}")
        self._files[path] = (stamp, file)
        return file

    def remember(self, name: str, key: HostKey) -> None:
        """Add a line to gpuplan's own file, which is created with mode 0600. Raises ConnectionFailed."""
        line = f"{name} {key.kind} {b64encode(key.blob).decode()}\n".encode()
        with self._lock:
            try:
                self._own.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                number = os.open(self._own, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    size = os.fstat(number).st_size
                    whole = not size or os.pread(number, 1, size - 1) == b"\n"
                    os.write(number, line if whole else b"\n" + line)
                finally:
                    os.close(number)
            except OSError as error:
                detail = f"the accepted key cannot be stored in {self._own}: {system_words(error)}"
                raise ConnectionFailed(Stage.HOST_KEY, detail) from error


def judge(known: Known, key: HostKey) -> bool:
    """Whether the key is a known one; False: the host is unknown. Raises ConnectionFailed when it is refused."""
    plain = [line for line in known.keys if not line.marker]
    revoked = next(
        (line for line in (*known.keys, *known.elsewhere) if line.marker == REVOKED and line.key == key), None
    )
    if revoked:
        raise ConnectionFailed(
            Stage.HOST_KEY, f"its key {key.kind} {key.fingerprint} is revoked by {revoked.place}"
        )
    if any(line.key == key for line in (*plain, *(e for e in known.elsewhere if not e.marker))):
        return True
    if plain:
        line = next((line for line in plain if line.key.kind == key.kind), plain[0])
        raise ConnectionFailed(
            Stage.HOST_KEY,
            f"the key of {known.name} has changed: {line.place} says {line.key.kind} {line.key.fingerprint}, "
            f"the host shows {key.kind} {key.fingerprint}. Someone may be in between; "
            "if the host was installed anew, remove that line",
        )
    return False


def refusal(known: Known, key: HostKey, policy: HostKeyPolicy, *, declined: bool) -> ConnectionFailed:
    """Why an unknown key was not accepted, and what can be done."""
    shown = f"{key.kind} {key.fingerprint}"
    if declined:
        return ConnectionFailed(Stage.HOST_KEY, f"the key of {known.name}, {shown}, was declined")
    authority = next((line for line in known.keys if line.marker == AUTHORITY), None)
    if authority:
        why = (
            f"{authority.place} trusts an authority for it, and host certificates are not checked here; "
            "add the key itself to known_hosts"
        )
    elif policy is HostKeyPolicy.STRICT:
        why = "add it to known_hosts (connect once with ssh), or accept new keys"
    else:
        why = "nobody can be asked here; connect once with ssh, or accept new keys"
    return ConnectionFailed(
        Stage.HOST_KEY, f"its key is unknown: {printable(known.name, 100)} shows {shown}; {why}"
    )
