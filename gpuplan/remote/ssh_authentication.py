"""Which keys are offered, in which order, when a person is asked, and what is said when nothing was accepted.

Order: the inventory's key, the configuration's, the agent's, the usual files of `~/.ssh`. Where the agent holds
a named key it signs. A passphrase is asked for only once the server has said that it would take the key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuplan.remote.agent import Agent, AgentFailed, AgentKey
from gpuplan.remote.asking import SharedAnswers
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.identities import Identity, IdentityUnusable, KeyFile, KeyFiles, identity, public_blob
from gpuplan.remote.ssh_userauth import Reply, UserAuth
from gpuplan.remote.words import printable

USUAL_FILES = ("id_ed25519", "id_ecdsa", "id_rsa")
"""Of those that OpenSSH tries when no IdentityFile is named, the types that can be used here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What may be offered to one host."""

    user: str
    host: str
    """As it is named to a person."""
    inventory_file: Path | None = None
    config_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str | None = None
    """Path of the agent's socket."""
    home: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A key to offer: ready, or an encrypted file whose passphrase is not known yet."""

    label: str
    blob: bytes | None
    """None: the public half of an encrypted file that does not show it."""
    ready: Identity | None = None
    locked: KeyFile | None = None
    certificate: bytes | None = None


@dataclass(slots=True)
class Attempts:
    """What happened so far, for the words at the end."""

    refused: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    locked: list[Path] = field(default_factory=list)
    """Encrypted files that were not opened, wanted ones first."""
    methods: tuple[str, ...] = ("publickey",)
    """What the server offers; until it says so, keys are tried."""

    def note(self, reply: Reply) -> None:
        self.methods = reply.methods


class Authenticator:
    """Proves to many servers who we are; files and answers are shared between them."""

    def __init__(self, files: KeyFiles, answers: SharedAnswers | None) -> None:
        self._files = files
        self._answers = answers

    def authenticate(self, server: UserAuth, credentials: Credentials) -> None:
        """Raises ConnectionFailed (stage AUTHENTICATE) with what was tried and what the server offers."""
        attempts = Attempts()
        try:
            server.begin()
            if self._with_keys(server, credentials, attempts) or self._with_password(
                server, credentials, attempts
            ):
                return
        except ConnectionFailed as failure:
            if failure.stage is not Stage.AUTHENTICATE:
                raise
            tried = _listed("tried: ", attempts.refused)
            raise ConnectionFailed(Stage.AUTHENTICATE, f"{failure.detail}{tried}") from failure
        raise ConnectionFailed(Stage.AUTHENTICATE, _refused(credentials, attempts, server.banner))

    def _with_keys(self, server: UserAuth, credentials: Credentials, attempts: Attempts) -> bool:
        for offer in self._offers(credentials, attempts):
            if "publickey" not in attempts.methods:
                return False
            ready = offer.ready or self._unlocked(server, offer, attempts)
            if ready is None:
                continue
            try:
                reply = server.publickey(ready)
            except AgentFailed as failure:
                attempts.unusable.append(str(failure))
                continue
            if reply.accepted:
                return True
            attempts.note(reply)
            if reply.partial:
                return False
            attempts.refused.append(offer.label)
        return False

    def _unlocked(self, server: UserAuth, offer: Offer, attempts: Attempts) -> Identity | None:
        """The key of an encrypted file, if the server would take it and someone knows the passphrase."""
        file = offer.locked
        if file is None:
            return None
        if offer.blob is not None and file.opened is None:
            reply = server.would_take(offer.blob)
            if isinstance(reply, Reply):
                attempts.note(reply)
                attempts.refused.append(offer.label)
                return None
        passphrase = None
        if file.opened is None:
            passphrase = self._answers.passphrase(str(file.path)) if self._answers else None
            if not passphrase:
                attempts.locked.insert(0 if offer.blob else len(attempts.locked), file.path)
                return None
        try:
            return identity(self._files.opened(file, passphrase), offer.label, offer.certificate)
        except IdentityUnusable as problem:
            attempts.unusable.append(str(problem))
            return None

    def _with_password(self, server: UserAuth, credentials: Credentials, attempts: Attempts) -> bool:
        answers = self._answers
        if answers is None:
            if not {"password", "keyboard-interactive"}.isdisjoint(attempts.methods):
                attempts.unusable.append("nobody can be asked for a password here")
            return False
        who = f"{credentials.user}@{credentials.host}"

        def respond(prompts: Sequence[str]) -> Sequence[str] | None:
            if len(prompts) > 1:
                attempts.unusable.append(f"it asks for {', '.join(prompts)}, which cannot be answered here")
                return None
            password = answers.password(who) if prompts else None
            return None if prompts and password is None else [password] if password is not None else []

        if "password" in attempts.methods:
            password = answers.password(who)
            if password is not None:
                reply = server.password(password)
                if reply.accepted:
                    return True
                attempts.note(reply)
                attempts.refused.append("password")
        elif "keyboard-interactive" in attempts.methods:
            answer = server.interactive(respond)
            if answer is not None and answer.accepted:
                return True
            if answer is not None:
                attempts.note(answer)
                attempts.refused.append("keyboard-interactive")
        return False

    def _offers(self, credentials: Credentials, attempts: Attempts) -> Iterator[Offer]:
        """Every key once, in order; the agent is asked only when it comes to it."""
        seen: set[bytes] = set()
        agent = _AskedAgent(credentials.agent, attempts)
        named = [credentials.inventory_file] if credentials.inventory_file else []
        for path in (*named, *credentials.config_files):
            offer = self._file_offer(path, credentials, agent, attempts, wanted=path in named)
            if offer is not None and (offer.blob is None or offer.blob not in seen):
                seen.add(offer.blob or b"")
                yield offer
        if not credentials.identities_only:
            for key in agent.listed():
                if key.blob not in seen:
                    seen.add(key.blob)
                    yield agent.offer(key)
        if credentials.config_files or (named and credentials.identities_only):
            return
        for name in USUAL_FILES:
            offer = self._file_offer(
                credentials.home / ".ssh" / name, credentials, agent, attempts, wanted=False
            )
            if offer is not None and (offer.blob is None or offer.blob not in seen):
                seen.add(offer.blob or b"")
                yield offer

    def _file_offer(
        self,
        path: Path,
        credentials: Credentials,
        agent: "_AskedAgent",
        attempts: Attempts,
        *,
        wanted: bool,
    ) -> Offer | None:
        """What a file gives. `wanted`: the inventory names it, so that it must be there."""
        try:
            file = self._files.read(path)
        except IdentityUnusable as problem:
            attempts.unusable.append(str(problem))
            return None
        beside = path.with_name(f"{path.name}.pub")
        public = file.public if file else public_blob(path) or public_blob(beside)
        held = agent.holding(public) if public and (file is None or file.encrypted) else None
        if held is not None:
            return agent.offer(held)
        if file is None:
            if wanted:
                attempts.unusable.append(f"{path}, named in the inventory, does not exist")
            return None
        certificate = self._certificate(path, file, credentials)
        if file.encrypted and file.opened is None:
            return Offer(label=str(path), blob=certificate or public, locked=file, certificate=certificate)
        try:
            ready = identity(self._files.opened(file, None), str(path), certificate)
        except IdentityUnusable as problem:
            attempts.unusable.append(str(problem))
            return None
        return Offer(label=str(path), blob=ready.blob, ready=ready)

    def _certificate(self, path: Path, file: KeyFile, credentials: Credentials) -> bytes | None:
        """A certificate for this key: beside it, or the CertificateFile that contains its public half."""
        beside = self._files.certificate(path.with_name(f"{path.name}-cert.pub"))
        if beside is not None:
            return beside
        inner = file.public[-32:] if file.public else None
        for name in credentials.certificate_files:
            blob = self._files.certificate(name)
            if blob is not None and inner is not None and inner in blob:
                return blob
        return None


class _AskedAgent:
    """The agent of one attempt, asked for its keys at most once."""

    def __init__(self, path: str | None, attempts: Attempts) -> None:
        self._agent = Agent(path=path) if path else None
        self._attempts = attempts
        self._keys: tuple[AgentKey, ...] | None = None

    def listed(self) -> tuple[AgentKey, ...]:
        if self._keys is None:
            self._keys = ()
            if self._agent is not None:
                try:
                    self._keys = self._agent.keys()
                except AgentFailed as failure:
                    self._attempts.unusable.append(str(failure))
        return self._keys

    def holding(self, public: bytes) -> AgentKey | None:
        return next((key for key in self.listed() if key.blob == public), None)

    def offer(self, key: AgentKey) -> Offer:
        """The agent signs; called only for keys that it named."""
        agent = self._agent
        label = f"agent key {key.comment}".rstrip()

        def sign(text: bytes, algorithm: str) -> bytes:
            if agent is None:
                raise AgentFailed("there is no ssh-agent")
            return agent.sign(key.blob, text, algorithm)

        return Offer(label=label, blob=key.blob, ready=Identity(blob=key.blob, label=label, sign=sign))


def _refused(credentials: Credentials, attempts: Attempts, banner: str) -> str:
    """Everything a person needs to see why: tried, not tried, offered."""
    parts = [
        f"{printable(credentials.user, 60)} was not let in; the server takes {', '.join(attempts.methods)}"
    ]
    parts.append(_listed("", attempts.refused).removeprefix("; ") or "no key or password was offered")
    if attempts.refused:
        parts[-1] = f"refused: {parts[-1]}"
    parts += attempts.unusable[:4]
    if attempts.locked:
        path = attempts.locked[0]
        parts.append(f"{path} is encrypted and nobody gave its passphrase: run `ssh-add {path}` first")
    if banner:
        parts.append(f"it says '{printable(banner, 100)}'")
    return "; ".join(parts)


def _listed(start: str, labels: Sequence[str]) -> str:
    """`; tried: a, b and 3 more`; empty for none."""
    if not labels:
        return ""
    more = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
    return f"; {start}{', '.join(labels[:6])}{more}"
