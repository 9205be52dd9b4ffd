"""Tokens per second as JSON: part of every candidate."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.throughput import DecodeSpeed, NoThroughput, Throughput


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DecodeSpeedDocument:
    """Tokens per second while `users` users are answered at once, each with `context` tokens in the cache."""

    users: int
    context: int
    decode_tokens_per_second: float
    """All users together."""
    per_user_tokens_per_second: float
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ThroughputDocument:
    """Tokens per second, with what the figures rest on and how far they may be off."""

    decode_tokens_per_second: float
    """All users together."""
    per_user_tokens_per_second: float
    users: int
    context: int
    bound: str
    low: float
    """The true figures lie between `low` and `high` times the estimate in four of five public measurements."""
    high: float
    others: tuple[DecodeSpeedDocument, ...]
    prefill_tokens_per_second: float
    prefill_bound: str
    first_token_seconds: float
    basis: str
    formula: str
    inputs: Mapping[str, Any]
    source: str
    notes: tuple[str, ...]


def throughput_document(told: Throughput | NoThroughput | None) -> ThroughputDocument | None:
    """The estimate as data; None where there is none."""
    if not isinstance(told, Throughput):
        return None
    decode = _decode_speed(told.decode)
    return ThroughputDocument(
        decode_tokens_per_second=decode.decode_tokens_per_second,
        per_user_tokens_per_second=decode.per_user_tokens_per_second,
        users=decode.users,
        context=decode.context,
        bound=decode.bound,
        low=told.low,
        high=told.high,
        others=tuple(_decode_speed(other) for other in told.others),
        prefill_tokens_per_second=round(told.prefill_tokens_per_second, 1),
        prefill_bound=told.prefill_bound.value,
        first_token_seconds=round(told.first_token_seconds, 4),
        basis=told.basis.value,
        formula=told.formula,
        inputs=dict(told.inputs),
        source=told.source,
        notes=told.notes,
    )


def _decode_speed(speed: DecodeSpeed) -> DecodeSpeedDocument:
    return DecodeSpeedDocument(
        users=speed.users,
        context=speed.context,
        decode_tokens_per_second=round(speed.total, 2),
        per_user_tokens_per_second=round(speed.per_user, 2),
        bound=speed.bound.value,
    )
