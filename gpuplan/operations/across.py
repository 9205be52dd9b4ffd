"""The same for many hosts at once; a host that fails or does not answer in time is an outcome, never an exception."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from gpuplan.domain.secret_text import masked
from gpuplan.errors import GpuplanError
from gpuplan.sources.deadline import Deadline, DeadlineExceeded, as_finished

AT_ONCE = 64
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Why a host has no answer."""

    why: str
    error: Exception | None = None
    """None: it did not answer in time."""

    @property
    def lost(self) -> bool:
        """The connection is gone, or nothing was heard: the host itself may be."""
        from gpuplan.remote.connection import ConnectionFailed, SocketRefused
        from gpuplan.remote.docker_engine import EngineFailed

        return self.error is None or isinstance(self.error, (ConnectionFailed, SocketRefused, EngineFailed))

    @property
    def unheard(self) -> bool:
        """Nothing came over the connection: another one may go well. An engine that is away is no reason for one."""
        from gpuplan.remote.connection import ConnectionFailed

        return self.error is None or isinstance(self.error, ConnectionFailed)


def on_each(calls: Mapping[str, Callable[[], T]], seconds: float) -> dict[str, T | Outcome]:
    """The result of each call by name, all at once; what is not done within `seconds` is abandoned."""
    names = list(calls)
    done: dict[str, T | Outcome] = {
        name: Outcome(why=f"no answer within {seconds:.0f} s", error=None) for name in names
    }
    finished = as_finished(
        [calls[name] for name in names], workers=min(AT_ONCE, max(1, len(names))), deadline=Deadline(seconds)
    )
    try:
        with closing(finished):
            for call in finished:
                done[names[call.number]] = _result(call.result)
    except DeadlineExceeded:
        pass
    return done


def in_time(calls: Mapping[str, Callable[[], T]], *, seconds: float) -> dict[str, T]:
    """The results that came in time, by name; the others are left out. `seconds` is for each batch of `AT_ONCE`."""
    batches = -(-len(calls) // AT_ONCE)
    found = on_each(calls, max(1, batches) * seconds)
    return {name: result for name, result in found.items() if not isinstance(result, Outcome)}


def _result(result: Callable[[], T]) -> T | Outcome:
    from gpuplan.remote.connection import ConnectionFailed, SocketRefused
    from gpuplan.remote.docker_engine import EngineFailed, RequestRefused

    try:
        return result()
    except ConnectionFailed as failed:
        return Outcome(why=masked(f"the SSH connection failed: {failed.detail}"), error=failed)
    except (SocketRefused, EngineFailed) as failed:
        return Outcome(why=masked(f"Docker does not answer: {failed}"), error=failed)
    except RequestRefused as failed:
        return Outcome(why=masked(failed.detail), error=failed)
    except GpuplanError as failed:
        return Outcome(why=failed.message, error=failed)
