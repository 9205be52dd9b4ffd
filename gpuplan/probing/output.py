"""What one command of a probe printed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Both streams of one command, decoded as UTF-8 with replacement."""

    text: str
    exit_code: int | None = 0
    """127: the command is not there. None: no answer (hung, or the connection was lost)."""
    timed_out: bool = False
    truncated: bool = False


NOT_RUN = Output(text="", exit_code=None)
"""The probe did not come to this command."""
