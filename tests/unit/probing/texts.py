"""Texts for property tests: any text, and recordings torn apart, so that parsers get past their first check."""

from collections.abc import Sequence

from hypothesis import strategies as st

from gpuplan.probing.command import Command
from gpuplan.probing.output import Output
from tests.unit.probing.recorded_cases import ROOT

_MOST = 3_000


def _fragments(prefix: str) -> list[str]:
    files = sorted(ROOT.glob(f"*/*/{prefix}.txt"))
    return [path.read_text()[:_MOST] for path in files]


@st.composite
def _torn(draw: st.DrawFn, whole: Sequence[str]) -> str:
    """A recording with a piece cut out or replaced by something else."""
    text = draw(st.sampled_from(whole))
    begin = draw(st.integers(0, len(text)))
    end = draw(st.integers(begin, min(len(text), begin + 200)))
    return (
        text[:begin]
        + draw(st.text(max_size=12) | st.sampled_from(["-1", "1e999", "NaN", "null", "[]"]))
        + text[end:]
    )


def outputs_of(commands: Sequence[Command]) -> st.SearchStrategy[dict[str, Output]]:
    """Outputs of some of the commands: any text, or a torn recording, with any status."""

    def output(name: str) -> st.SearchStrategy[Output]:
        whole = _fragments(name)
        texts = st.text() | (_torn(whole) if whole else st.nothing())
        return st.builds(
            Output, text=texts, exit_code=st.sampled_from([0, 1, 127, None]), timed_out=st.booleans()
        )

    return st.fixed_dictionaries({}, optional={command.name: output(command.name) for command in commands})
