"""Keys to prove who we are with: files, opened once for all hosts, and the ssh-agent's."""

import binascii
import threading
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from gpuplan.remote.agent import packed
from gpuplan.remote.words import printable, system_words

CERTIFICATE = "-cert-v01@openssh.com"
_MAGIC = b"openssh-key-v1\0"
PrivateKey = ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
_HASHES = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}


class IdentityUnusable(Exception):
    """A key file cannot be used: one sentence naming it."""


def kind_of(blob: bytes) -> str:
    """The type a public key names itself."""
    return blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A key that can be offered: its public half, and a way to sign."""

    blob: bytes
    label: str
    """Where it is from, as a person knows it."""
    sign: Callable[[bytes, str], bytes]
    """Text and signature algorithm to the signature in SSH's form."""


@dataclass(slots=True)
class KeyFile:
    """A private key file as it was found; opened when it is first needed."""

    path: Path
    data: bytes
    encrypted: bool
    public: bytes | None
    """The public half, where it can be read without the passphrase."""
    opened: PrivateKey | None = None

    def open(self, passphrase: str | None = None) -> PrivateKey:
        """Raises IdentityUnusable."""
        if self.opened is None:
            self.opened = _private_key(self, passphrase)
        return self.opened


class KeyFiles:
    """Reads every key file once, whatever the number of hosts; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, KeyFile] = {}
        self._certificates: dict[Path, bytes | None] = {}

    def read(self, path: Path) -> KeyFile | None:
        """None when there is no such file. Raises IdentityUnusable."""
        with self._lock:
            if path not in self._files:
                try:
                    data = path.read_bytes()
                except (FileNotFoundError, NotADirectoryError):
                    return None
                except OSError as error:
                    raise IdentityUnusable(f"{path} cannot be read: {system_words(error)}") from error
                self._files[path] = _examined(path, data)
            return self._files[path]

    def certificate(self, path: Path) -> bytes | None:
        """The blob of a `.pub` file or certificate; None when it is not there or is not one."""
        with self._lock:
            if path not in self._certificates:
                self._certificates[path] = public_blob(path)
            return self._certificates[path]

    def opened(self, file: KeyFile, passphrase: str | None) -> PrivateKey:
        """Deriving the key of an encrypted file is slow by design: done once. Raises IdentityUnusable."""
        with self._lock:
            return file.open(passphrase)


def public_blob(path: Path) -> bytes | None:
    """What a one-line public key or certificate file holds; None when that cannot be had."""
    try:
        words = path.read_text("utf-8", "replace").split()
        blob = b64decode(words[1], validate=True)
    except (OSError, IndexError, binascii.Error, ValueError):
        return None
    return blob if kind_of(blob) == words[0] else None


def _examined(path: Path, data: bytes) -> KeyFile:
    """Whether it is encrypted, and its public half: OpenSSH's format has both in the open (PROTOCOL.key)."""
    start, end = b"-----BEGIN OPENSSH PRIVATE KEY-----", b"-----END"
    if start not in data:
        encrypted = b"ENCRYPTED" in data
        return KeyFile(path, data, encrypted, public_blob(path.with_name(f"{path.name}.pub")))
    try:
        body = b64decode(b"".join(data.split(start, 1)[1].split(end, 1)[0].split()))
    except (binascii.Error, ValueError) as error:
        raise IdentityUnusable(f"{path} is not a private key: damaged") from error
    if not body.startswith(_MAGIC):
        raise IdentityUnusable(f"{path} is not a private key: damaged")
    fields, rest = [], body[len(_MAGIC) :]
    for _ in range(3):
        size = int.from_bytes(rest[:4], "big")
        fields.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    size = int.from_bytes(rest[4:8], "big")
    return KeyFile(path, data, fields[0] != b"none", rest[8 : 8 + size] or None)


def _private_key(file: KeyFile, passphrase: str | None) -> PrivateKey:
    password = passphrase.encode() if file.encrypted and passphrase is not None else None
    openssh = b"OPENSSH PRIVATE KEY" in file.data
    load = serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
    try:
        key = load(file.data, password)
    except TypeError as error:  # how `cryptography` says that a passphrase is missing
        raise IdentityUnusable(f"{file.path} is encrypted") from error
    except UnsupportedAlgorithm as error:
        raise IdentityUnusable(f"{file.path} cannot be used: {printable(str(error))}") from error
    except ValueError as error:
        why = "the passphrase is wrong" if password is not None else "it is not a private key, or damaged"
        raise IdentityUnusable(f"{file.path} cannot be opened: {why}") from error
    if isinstance(key, ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        return key
    raise IdentityUnusable(f"{file.path} cannot be used: a key of its type is not supported")


def identity(key: PrivateKey, label: str, certificate: bytes | None = None) -> Identity:
    """An identity of an opened key; with a certificate that is what the host is shown."""
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return Identity(
        blob=certificate or b64decode(public.split()[1]),
        label=label,
        sign=lambda text, algorithm: sign(key, text, algorithm),
    )


def sign(key: PrivateKey, text: bytes, algorithm: str) -> bytes:
    """A signature in SSH's form (RFC 4253 6.6, RFC 5656 3.1.2, RFC 8332, RFC 8709)."""
    algorithm = algorithm.removesuffix(CERTIFICATE)
    if isinstance(key, ed25519.Ed25519PrivateKey):
        signature = key.sign(text)
    elif isinstance(key, rsa.RSAPrivateKey):
        hashing = hashes.SHA512() if algorithm == "rsa-sha2-512" else hashes.SHA256()
        signature = key.sign(text, padding.PKCS1v15(), hashing)
    else:
        numbers = decode_dss_signature(key.sign(text, ec.ECDSA(_HASHES[key.curve.key_size])))
        signature = b"".join(packed(_positive(number)) for number in numbers)
    return packed(algorithm.encode()) + packed(signature)


def _positive(number: int) -> bytes:
    """A positive number as SSH's mpint: a leading zero byte keeps it so."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big")
