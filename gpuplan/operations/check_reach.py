"""Every host listens for a moment and connects to the others, over the connections there are.

What failed is tried once more, so that one lost packet or one slow host is not taken for a firewall.
"""

import secrets
from collections.abc import Mapping, Sequence
from functools import partial

from gpuplan.domain.fleet import Host
from gpuplan.operations.across import in_time
from gpuplan.planning.preflight_host import data_address
from gpuplan.planning.preflight_measures import HostMeasures, Reach, Reachability, ReachOutcome, Wanted
from gpuplan.probing.reachability import (
    AT_ONCE,
    CONNECT_SECONDS,
    LISTEN_SECONDS,
    PORTS_TRIED,
    Listener,
    ListenerFailed,
    Pair,
    Target,
    Try,
    directions,
)
from gpuplan.remote.connection import Connection, ConnectionFailed

NOT_IN_TIME = "the host did not answer in time"


def measure_reachability(
    hosts: Sequence[Host],
    connections: Mapping[str, Connection],
    wanted: Wanted,
    measures: Mapping[str, HostMeasures],
) -> Reachability:
    """Try the directions between the hosts' data addresses; a host without one is named."""
    addresses = {host.name: address for host in hosts if (address := data_address(host, wanted)) is not None}
    ports = {host.name: free_ports(host, wanted, measures.get(host.name)) for host in hosts}
    pairs = directions([host.name for host in hosts if host.name in addresses])
    tries = {}
    if pairs:
        tries = _tried(pairs, connections, addresses, ports)
        again = tuple(pair for pair in pairs if tries[pair].outcome is not ReachOutcome.REACHED)
        if again:
            tries |= _tried(again, connections, addresses, ports)
    return Reachability(
        tries=tuple(tries[pair] for pair in pairs),
        pairs=len(hosts) * (len(hosts) - 1),
        unaddressed=tuple(host.name for host in hosts if host.name not in addresses),
    )


def free_ports(host: Host, wanted: Wanted, measures: HostMeasures | None) -> tuple[int, ...]:
    """The first ports of the service range that nothing was seen on."""
    first, last = wanted.settings.service_ports
    taken = set(host.facts.listening_ports)
    if measures is not None and measures.ports is not None:
        taken |= {port for port, _ in measures.ports.busy}
    return tuple(port for port in range(first, last + 1) if port not in taken)[:PORTS_TRIED]


def _tried(
    pairs: Sequence[Pair],
    connections: Mapping[str, Connection],
    addresses: Mapping[str, str],
    ports: Mapping[str, tuple[int, ...]],
) -> dict[Pair, Reach]:
    """One round: all listen, then all connect, then all end."""
    names = tuple(dict.fromkeys(name for pair in pairs for name in pair))
    words = {name: secrets.token_hex(8) for name in names}
    opened = in_time(
        {
            name: partial(_listen, connections[name], addresses[name], ports[name], words[name])
            for name in names
        },
        seconds=2 * LISTEN_SECONDS + 5,
    )
    listeners = {name: found for name, found in opened.items() if isinstance(found, Listener)}
    why = {name: found.why if isinstance(found, Listener) else found for name, found in opened.items()}
    try:
        found = _answers(pairs, listeners, addresses, words)
    finally:
        for listener in listeners.values():
            listener.close()
    return {
        pair: _reach(pair, found.get(pair), listeners.get(pair[1]), addresses[pair[1]], why) for pair in pairs
    }


def _answers(
    pairs: Sequence[Pair],
    listeners: Mapping[str, Listener],
    addresses: Mapping[str, str],
    words: Mapping[str, str],
) -> dict[Pair, Try]:
    """What every host that runs the program reports of the targets that listen."""
    targets: dict[str, list[Target]] = {name: [] for name in listeners}
    for source, name in pairs:
        port = listeners[name].port if name in listeners else None
        if source in listeners and port is not None:
            targets[source].append(Target(host=name, address=addresses[name], port=port, word=words[name]))
    most = max((len(items) for items in targets.values()), default=0)
    answers = in_time(
        {name: partial(listeners[name].connect, items) for name, items in targets.items() if items},
        seconds=-(-most // AT_ONCE) * (CONNECT_SECONDS + 2) + 10,
    )
    return {(source, item.host): item for source, items in answers.items() for item in items}


def _reach(
    pair: Pair, tried: Try | None, listener: Listener | None, address: str, why: Mapping[str, str]
) -> Reach:
    source, target = pair
    port = listener.port if listener is not None else None
    if tried is not None:
        outcome, detail, milliseconds = tried.outcome, tried.detail, tried.milliseconds
    else:
        silent = target if port is None else source
        outcome = ReachOutcome.NO_LISTENER if port is None else ReachOutcome.NO_ANSWER
        detail, milliseconds = why.get(silent) or NOT_IN_TIME, None
    return Reach(
        source=source,
        target=target,
        address=address,
        port=port,
        outcome=outcome,
        milliseconds=milliseconds,
        detail=detail,
    )


def _listen(connection: Connection, address: str, ports: Sequence[int], word: str) -> Listener | str:
    """The listener, or why there is none."""
    try:
        return Listener.open(connection, address, ports, word)
    except ListenerFailed as failed:
        return str(failed)
    except ConnectionFailed as failed:
        return failed.detail
