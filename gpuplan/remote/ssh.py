"""SSH: one connection for each host, used for everything, with the user's own configuration, keys and trust."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from gpuplan.domain.inventory import HostEntry
from gpuplan.remote.asking import SharedAnswers
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.dialing import ProxyProcess, dial, resolve
from gpuplan.remote.hops import Hops, Lease
from gpuplan.remote.host_keys import HostKey, HostKeys, Known, judge, refusal
from gpuplan.remote.identities import KeyFiles
from gpuplan.remote.ssh_authentication import Authenticator
from gpuplan.remote.ssh_channels import PROHIBITED, ChannelRefused, StreamChannel, open_channel, to_port
from gpuplan.remote.ssh_config import SshConfig
from gpuplan.remote.ssh_connection import SshConnection
from gpuplan.remote.ssh_route import Route, jump_entry, route_to
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
from gpuplan.remote.ssh_transport import SshTransport, Wire
from gpuplan.remote.ssh_userauth import UserAuth
from gpuplan.remote.words import printable

NO_HOSTS: Mapping[str, HostEntry] = MappingProxyType({})
LONGEST_WAY = 8
"""Jump hosts on the way to one host."""


def connect(
    entry: HostEntry, settings: SshSettings, hosts: Mapping[str, HostEntry] = NO_HOSTS
) -> SshConnection:
    """Connect to a host of the inventory; `hosts`: those of the inventory by name, for `jump`.

    Connections under the same `settings` share what they read, what was answered and their jump hosts.
    Raises ConnectionFailed: the stage, and one line that says what to do where something can be done.
    """
    shared = settings.shared
    with shared.lock:
        client = shared.client = shared.client or SshClient(settings)
    return client.connect(entry, hosts)


class _Link:
    """A transport and everything that carries it, closed together."""

    def __init__(self, transport: SshTransport, closers: list[Callable[[], None]]) -> None:
        self.transport = transport
        self._closers = closers

    def close(self) -> None:
        """Safe to call again, from any thread."""
        while self._closers:
            try:
                closer = self._closers.pop()
            except IndexError:
                return
            closer()


class SshClient:
    """What connections have in common: configuration, known keys, identities, answers, jump hosts."""

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings
        self._timeouts = settings.timeouts
        self._cancellation = settings.cancellation
        self._config = SshConfig(settings.home, settings.system_config, settings.environ)
        self._host_keys = HostKeys(settings.known_hosts)
        self._hops = Hops(settings.cancellation)
        self._answers = (
            SharedAnswers(settings.questions, settings.cancellation) if settings.questions else None
        )
        self._authenticator = Authenticator(KeyFiles(), self._answers)

    def connect(self, entry: HostEntry, hosts: Mapping[str, HostEntry]) -> SshConnection:
        """See `connect` above."""
        with self._cancellation.explaining():
            self._cancellation.check()
            route = route_to(entry, self._settings, self._config)
            link = self._link(route, hosts, (entry.name,))
        return SshConnection(link, self._cancellation, self._timeouts.command)

    def _link(self, route: Route, hosts: Mapping[str, HostEntry], trail: tuple[str, ...]) -> _Link:
        """Reach a host, know it, be known to it. Whatever fails, nothing is left open."""
        closers: list[Callable[[], None]] = []
        try:
            wire, explained = self._wire(route, hosts, trail, closers)
            transport = SshTransport(wire)
            closers.append(transport.close)
            closers.append(self._cancellation.register(transport.abandon))
            link = _Link(transport, closers)
            try:
                self._greet(transport, route)
            except ConnectionFailed as failure:
                said = explained() if failure.stage is Stage.CONNECT else ""
                raise ConnectionFailed(failure.stage, said or failure.detail) from failure
            server = UserAuth(
                transport, route.credentials.user, self._timeouts.authenticate, self._cancellation
            )
            self._authenticator.authenticate(server, route.credentials)
            transport.set_keepalive(route.keepalive)
        except BaseException:
            for close in reversed(closers):
                close()
            raise
        return link

    def _greet(self, transport: SshTransport, route: Route) -> None:
        """Agree on keys and look at the host's. Raises ConnectionFailed."""
        known = self._known(route)
        transport.kinds = known.algorithms(transport.kinds)
        key = transport.negotiate(self._timeouts.banner, self._cancellation)
        if not judge(known, key):
            self._decide(known, key, route)

    def _known(self, route: Route) -> Known:
        return self._host_keys.known(route.host, route.port, route.host_key_alias, route.known_hosts)

    def _decide(self, known: Known, key: HostKey, route: Route) -> None:
        """What becomes of a key that is not known. Raises ConnectionFailed unless it is accepted."""
        policy = self._settings.policy
        if policy is HostKeyPolicy.ASK and self._answers is not None:
            if not self._answers.trust_host_key(known.name, key.kind, key.fingerprint):
                raise refusal(known, key, policy, declined=True)
        elif policy is not HostKeyPolicy.ACCEPT_NEW:
            raise refusal(known, key, policy, declined=False)
        if not judge(self._known(route), key):
            self._host_keys.remember(known.name, key)

    def _wire(
        self,
        route: Route,
        hosts: Mapping[str, HostEntry],
        trail: tuple[str, ...],
        closers: list[Callable[[], None]],
    ) -> tuple[Wire, Callable[[], str]]:
        """What carries the connection, and words for a failure that only the carrier knows."""
        if route.jumps:
            lease = self._hop(route.jumps, hosts, trail)
            closers.append(lease.close)
            channel = self._through(lease, route)
            return channel, str
        if route.proxy_command is not None:
            proxy = ProxyProcess(route.proxy_command, self._settings.environ)
            closers.append(proxy.close)
            command = printable(route.proxy_command, 80)
            return proxy.sock, lambda: f"ProxyCommand `{command}` gives no SSH server: {proxy.said()}".rstrip(
                ": "
            )
        addresses = resolve(route.host, route.port, self._timeouts.resolve, self._cancellation)
        sock = dial(addresses, route.connect_seconds, self._cancellation)
        closers.append(sock.close)
        return sock, str

    def _hop(self, jumps: tuple[str, ...], hosts: Mapping[str, HostEntry], trail: tuple[str, ...]) -> Lease:
        """The connection to the last of the jump hosts, through those before it. Failures are stage JUMP."""
        *before, last = jumps
        entry = jump_entry(last, hosts)
        name = printable(last, 100)
        if len(trail) > LONGEST_WAY or entry.name in trail:
            way = " → ".join((*trail, entry.name))
            raise ConnectionFailed(
                Stage.JUMP, f"jump host {name}: the way leads in a circle: {printable(way, 200)}"
            )
        try:
            route = route_to(entry, self._settings, self._config, tuple(before) or None)
            return self._hops.lease(route, partial(self._link, route, hosts, (*trail, entry.name)))
        except ConnectionFailed as failure:
            if failure.stage in {Stage.CANCELLED, Stage.JUMP}:
                raise
            stage = failure.stage.value.replace("_", " ")
            raise ConnectionFailed(Stage.JUMP, f"jump host {name} ({stage}): {failure.detail}") from failure

    def _through(self, lease: Lease, route: Route) -> StreamChannel:
        """A channel of the jump host to the host behind it."""
        jump, place = printable(route.jumps[-1], 100), f"{printable(route.host, 100)}:{route.port}"
        try:
            return open_channel(
                lease.transport,
                "direct-tcpip",
                StreamChannel,
                self._cancellation,
                route.connect_seconds,
                to_port(route.host, route.port),
            )
        except ChannelRefused as refused:
            if refused.reason == PROHIBITED:
                raise ConnectionFailed(
                    Stage.JUMP,
                    f"jump host {jump} forbids forwarding to {place} (AllowTcpForwarding, PermitOpen)",
                ) from refused
            why = refused.words or "refused"
            raise ConnectionFailed(
                Stage.CONNECT, f"jump host {jump} could not reach {place}: {why}"
            ) from refused
        except ConnectionFailed as failure:
            if failure.stage is Stage.CANCELLED:
                raise
            detail = f"jump host {jump} did not reach {place}: {failure.detail.partition(': ')[2] or failure.detail}"
            raise ConnectionFailed(Stage.CONNECT, detail) from failure
