"""Failures of the hub client as errors a user can act on, told apart without importing the client."""

import socket
from collections.abc import Iterator

from gpuplan.errors import ModelError
from gpuplan.sources.deadline import DeadlineExceeded

_LOCAL_WAYS = "or give a local directory, a config.json or a catalogue name (gpuplan models)"
_PASSING = (408, 429, 500, 502, 503, 504)


def status_of(error: BaseException) -> int | None:
    """The HTTP status the server answered with; None when it did not answer."""
    return getattr(getattr(error, "response", None), "status_code", None)


def is_passing(error: BaseException) -> bool:
    """Whether the failure may pass: no answer in time, no connection, an overloaded server."""
    status = status_of(error)
    return status is None or status in _PASSING


def explain(error: BaseException, *, repository: str, revision: str, endpoint: str) -> ModelError:
    """The error to show for a failure while reading `repository` from `endpoint`."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = status_of(error)
    page = f"{endpoint}/{repository}"
    if "GatedRepoError" in kinds:
        return ModelError(
            f"{repository}: gated on {endpoint} (HTTP {status}): this account may not read it",
            hint=f"accept the licence at {page}, then log in: hf auth login (or set HF_TOKEN)",
        )
    if "RevisionNotFoundError" in kinds:
        return ModelError(
            f"{repository}: no revision {revision!r} on {endpoint}",
            hint=f"branches, tags and commits are listed at {page}/commits/main",
        )
    if "DisabledRepoError" in kinds:
        return ModelError(
            f"{repository}: its owner or {endpoint} disabled it", hint=f"give another model, {_LOCAL_WAYS}"
        )
    if "RepositoryNotFoundError" in kinds or status == 404:
        return ModelError(
            f"{repository}: not found on {endpoint} (HTTP {status}), or private",
            hint="check the spelling (gpuplan models lists known names); for a private model: hf auth login",
        )
    if status in (401, 403):
        return ModelError(
            f"{repository}: {endpoint} refuses access (HTTP {status})",
            hint=f"log in with a token that may read {page}: hf auth login (or set HF_TOKEN)",
        )
    if status == 429:
        return ModelError(
            f"{repository}: {endpoint} limits the rate of requests (HTTP 429)",
            hint=f"try again in a few minutes, log in (hf auth login), {_LOCAL_WAYS}",
        )
    if status is not None:
        return ModelError(
            f"{repository}: {endpoint} answered HTTP {status}", hint=f"try again, {_LOCAL_WAYS}"
        )
    return _no_answer(error, kinds, repository, endpoint)


def _no_answer(error: BaseException, kinds: set[str], repository: str, endpoint: str) -> ModelError:
    chain = list(_causes(error))
    hint = f"check the network, the proxy and HF_ENDPOINT, {_LOCAL_WAYS}"
    if isinstance(error, DeadlineExceeded) or "TimeoutException" in kinds or isinstance(error, TimeoutError):
        return ModelError(
            f"{repository}: {endpoint} did not answer in time",
            hint=f"try again (HF_HUB_DOWNLOAD_TIMEOUT sets the seconds per request), {_LOCAL_WAYS}",
        )
    if any(isinstance(cause, socket.gaierror) for cause in chain):
        return ModelError(f"{repository}: the name of {endpoint} cannot be resolved (DNS)", hint=hint)
    if any(isinstance(cause, ConnectionRefusedError) for cause in chain):
        return ModelError(f"{repository}: {endpoint} refused the connection", hint=hint)
    if "ProxyError" in kinds:
        return ModelError(f"{repository}: the proxy did not let a request to {endpoint} through", hint=hint)
    text = " ".join(str(error).split())[:200] or type(error).__name__
    return ModelError(f"{repository}: {endpoint} cannot be read: {text}", hint=hint)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
