"""The authentication messages (RFC 4252, 4256) over a paramiko transport.

paramiko's own handler repeats the service request for each attempt, signs before it knows whether a key would
do, and cannot ask first. Here a request is sent from the caller's thread and its answer waited for there.
"""

import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import paramiko
from paramiko.common import (
    MSG_SERVICE_ACCEPT,
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_INFO_REQUEST,
    MSG_USERAUTH_SUCCESS,
    cMSG_SERVICE_REQUEST,
    cMSG_USERAUTH_INFO_RESPONSE,
    cMSG_USERAUTH_REQUEST,
)
from paramiko.message import Message

from gpuplan.remote.cancellation import STEP, Cancellation
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.identities import CERTIFICATE, Identity, kind_of
from gpuplan.remote.ssh_transport import SshTransport
from gpuplan.remote.words import printable, seconds

RSA = ("rsa-sha2-512", "rsa-sha2-256")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The server's answer: accepted, or the methods it would go on with."""

    accepted: bool
    partial: bool = False
    """The method was right, and another one is wanted as well."""
    methods: tuple[str, ...] = ()


class UserAuth:
    """Stands in for paramiko's handler: its thread delivers messages, ours waits for them."""

    def __init__(
        self, transport: SshTransport, user: str, timeout: float, cancellation: Cancellation
    ) -> None:
        self.banner = ""
        self._transport = transport
        self._user = user
        self._left = timeout
        self._timeout = timeout
        self._cancellation = cancellation
        self._answers: queue.SimpleQueue[tuple[int, Message]] = queue.SimpleQueue()
        self._authenticated = False
        self._handler_table = {
            number: self._deliverer(number)
            for number in (
                MSG_SERVICE_ACCEPT,
                MSG_USERAUTH_FAILURE,
                MSG_USERAUTH_SUCCESS,
                MSG_USERAUTH_BANNER,
                MSG_USERAUTH_INFO_REQUEST,
            )
        }
        inside: Any = transport
        inside.auth_handler = self

    def _deliverer(self, number: int) -> Callable[[Message], None]:
        def deliver(message: Message) -> None:
            if number == MSG_USERAUTH_BANNER:
                self.banner = printable(message.get_binary(), 200)
                return
            if number == MSG_USERAUTH_SUCCESS:
                self._authenticated = True
                inside: Any = self._transport
                inside._auth_trigger()
            self._answers.put((number, message))

        return deliver

    def is_authenticated(self) -> bool:
        return self._authenticated

    def get_username(self) -> str:
        return self._user

    def abort(self) -> None:
        """The transport came to its end; who waits notices by itself."""

    def begin(self) -> None:
        """Ask for the service. Raises ConnectionFailed."""
        message = Message()
        message.add_byte(cMSG_SERVICE_REQUEST)
        message.add_string("ssh-userauth")
        self._send(message)
        number, _message = self._answer()
        if number != MSG_SERVICE_ACCEPT:
            raise ConnectionFailed(Stage.AUTHENTICATE, "the server does not authenticate users")

    def algorithms(self, identity: Identity) -> tuple[str, ...]:
        """Signature algorithms for a key that the server takes (RFC 8308), best first; the key's own otherwise."""
        kind = kind_of(identity.blob)
        if "rsa" not in kind:
            return (kind,)
        inside: Any = self._transport
        said = inside.server_extensions.get("server-sig-algs", b"")
        offered = said.decode("ascii", "replace") if isinstance(said, bytes) else str(said)
        suffix = CERTIFICATE if kind.endswith(CERTIFICATE) else ""
        ours = tuple(name + suffix for name in RSA)
        agreed = tuple(name for name in ours if name in offered.split(","))
        return agreed or ours[:1]

    def would_take(self, blob: bytes) -> bool | Reply:
        """Whether the server would accept this key: True, or its refusal. Raises ConnectionFailed."""
        algorithm = self.algorithms(Identity(blob=blob, label="", sign=lambda _text, _name: b""))[0]
        message = self._request("publickey")
        message.add_boolean(False)
        message.add_string(algorithm)
        message.add_string(blob)
        self._send(message)
        number, answer = self._answer()
        # Number 60 means PK_OK after a publickey request, INFO_REQUEST after a keyboard-interactive one.
        return True if number == MSG_USERAUTH_INFO_REQUEST else self._reply(number, answer)

    def publickey(self, identity: Identity) -> Reply:
        """Sign at once: asking first would cost a round trip. Raises ConnectionFailed, AgentFailed."""
        algorithm = self.algorithms(identity)[0]
        message = self._request("publickey")
        message.add_boolean(True)
        message.add_string(algorithm)
        message.add_string(identity.blob)
        signed = Message()
        inside: Any = self._transport
        signed.add_string(inside.session_id)
        signed.add_bytes(message.asbytes())
        message.add_string(identity.sign(signed.asbytes(), algorithm))
        self._send(message)
        return self._reply(*self._answer())

    def password(self, password: str) -> Reply:
        """Raises ConnectionFailed."""
        message = self._request("password")
        message.add_boolean(False)
        message.add_string(password.encode())
        self._send(message)
        number, answer = self._answer()
        if number == MSG_USERAUTH_INFO_REQUEST:
            raise ConnectionFailed(
                Stage.AUTHENTICATE,
                f"the password of {printable(self._user, 60)} has expired: log in and change it",
            )
        return self._reply(number, answer)

    def interactive(self, respond: Callable[[Sequence[str]], Sequence[str] | None]) -> Reply | None:
        """`respond` answers the prompts, or None to give up, which is what comes back then."""
        message = self._request("keyboard-interactive")
        message.add_string("")
        message.add_string("")
        self._send(message)
        while True:
            number, answer = self._answer()
            if number != MSG_USERAUTH_INFO_REQUEST:
                return self._reply(number, answer)
            prompts = _prompts(answer)
            begun = time.monotonic()
            answers = respond(prompts)
            self._left += time.monotonic() - begun
            if answers is None:
                return None
            message = Message()
            message.add_byte(cMSG_USERAUTH_INFO_RESPONSE)
            message.add_int(len(answers))
            for text in answers:
                message.add_string(text.encode())
            self._send(message)

    def _request(self, method: str) -> Message:
        message = Message()
        message.add_byte(cMSG_USERAUTH_REQUEST)
        message.add_string(self._user.encode("utf-8", "surrogateescape"))
        message.add_string("ssh-connection")
        message.add_string(method)
        return message

    def _send(self, message: Message) -> None:
        inside: Any = self._transport
        try:
            inside._send_user_message(message)
        except (EOFError, OSError, paramiko.SSHException) as error:
            raise ConnectionFailed(Stage.AUTHENTICATE, self._transport.lost()) from error

    def _answer(self) -> tuple[int, Message]:
        begun = time.monotonic()
        try:
            while True:
                try:
                    return self._answers.get(timeout=STEP)
                except queue.Empty:
                    pass
                self._cancellation.check()
                if not self._transport.is_active() and self._answers.empty():
                    raise ConnectionFailed(Stage.AUTHENTICATE, self._transport.lost())
                if time.monotonic() - begun > self._left:
                    raise ConnectionFailed(
                        Stage.AUTHENTICATE,
                        f"the server did not answer within {seconds(self._timeout)} while authenticating",
                    )
        finally:
            self._left -= time.monotonic() - begun

    def _reply(self, number: int, message: Message) -> Reply:
        if number == MSG_USERAUTH_SUCCESS:
            return Reply(accepted=True)
        if number != MSG_USERAUTH_FAILURE:
            raise ConnectionFailed(Stage.AUTHENTICATE, f"the server answered with message {number}")
        names = printable(message.get_binary(), 200)
        methods = tuple(name for name in names.split(",") if name)
        return Reply(accepted=False, partial=message.get_boolean(), methods=methods)


def _prompts(message: Message) -> list[str]:
    """The prompts of an info request: what to ask, without name, instruction and language."""
    for _ in range(3):
        message.get_binary()
    prompts = []
    for _ in range(min(message.get_int(), 16)):
        prompts.append(printable(message.get_binary(), 80))
        message.get_boolean()
    return prompts
