"""Blocking calls beside the event loop: in threads nobody has to wait for, so quitting is immediate."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class BrokenOff(Exception):
    """The call ended itself the way Ctrl-C would end it."""


async def in_thread(call: Callable[[], T]) -> T:
    """The result of a blocking call; when the caller is cancelled the call is abandoned, its result dropped.

    Raises what the call raises; BrokenOff instead of KeyboardInterrupt and SystemExit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None is a result where T has it

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except Exception as failed:  # noqa: BLE001 - raised again where it is awaited
            error = failed
        except BaseException as ended:  # noqa: BLE001 - would end the event loop
            error = BrokenOff(str(ended))
        with suppress(RuntimeError):  # the loop is closed: the app has quit
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, daemon=True).start()
    return await future
