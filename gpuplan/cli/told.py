"""An end that is told by facts, as the error a command ends with: `operations` has the facts, `present` the words."""

from typing import TYPE_CHECKING

from gpuplan.errors import ExitCode, GpuplanError

if TYPE_CHECKING:
    from gpuplan.operations.stopped import StoppedByFacts

MOST_TOLD = 6


class Told(GpuplanError):
    """Facts in words, with the exit status they stand for."""

    def __init__(self, message: str, hint: str | None, exit_code: ExitCode) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


def worded(stopped: "StoppedByFacts") -> Told:
    """A headline each, the reasons of the first, the first hint there is."""
    from gpuplan.present.findings import word

    told = [word(fact) for fact in stopped.facts[:MOST_TOLD]]
    lines = [f"{stopped.about}: {told[0].headline if told else 'no reason was found'}"]
    lines += [f"  {reason}" for one in told[:1] for reason in one.because]
    lines += [f"also: {one.headline}" for one in told[1:]]
    hint = next((one.hint for one in told if one.hint), None)
    logs = getattr(stopped, "logs", ())
    if logs:
        lines.append(f"logs: {', '.join(logs[:4])}")
    return Told("\n".join(lines), hint, stopped.exit_code)
