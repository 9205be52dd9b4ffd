"""Options several commands share, written once."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from gpuplan.operations.fleet import FleetOptions


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


def _output_format(text: str) -> OutputFormat:
    if text not in list(OutputFormat):
        raise UsageError(
            f"--output {text[:40]}: neither table nor json",
            hint="write -o json, or leave it out for the table",
        )
    return OutputFormat(text)


def _whole(option: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise UsageError(
                f"{option} {text[:40]}: not a whole number", hint=f"write for example {option} 4"
            ) from None

    return read


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Hugging Face id, directory, config.json or catalogue name.")
]
OptionalModel = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="Hugging Face id, directory, config.json or catalogue name."),
]
Since = Annotated[
    list[str] | None,
    typer.Option(
        "--since",
        metavar="FILE",
        help="Saved plan (-o json) or snapshot of then, or one of each: say what changed, and why (repeatable).",
    ),
]
PlanDiff = Annotated[
    tuple[str, str] | None,
    typer.Option("--diff", metavar="A B", help="What changed from saved plan A to B; nothing is planned."),
]
Solve = Annotated[
    bool,
    typer.Option(
        "--solve", help="What it takes: the fewest GPUs of the fleet, and of each card of the catalogue."
    ),
]
ModelsFile = Annotated[
    str | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="Place the models of this file together, instead of one MODEL."
    ),
]
Output = Annotated[
    OutputFormat,
    typer.Option(
        "--output",
        "-o",
        parser=_output_format,
        metavar="table|json",
        help="table for people, json for scripts.",
    ),
]
Inventory = Annotated[
    str | None,
    typer.Option(
        "--inventory",
        "-i",
        metavar="FILE",
        help="Inventory (default: $GPUPLAN_INVENTORY, ./inventory.yaml, user config).",
    ),
]
Snapshot = Annotated[
    str | None, typer.Option("--snapshot", metavar="FILE", help="Plan from a saved probe; no network.")
]
HostKey = Annotated[
    str | None,
    typer.Option(
        "--host-key",
        metavar="POLICY",
        help="Unknown SSH host keys: ask, strict, accept-new (default: ask on a terminal, else strict).",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", parser=_whole("--jobs"), metavar="N", help="Hosts probed at once (default 64)."),
]
NoProbe = Annotated[bool, typer.Option("--no-probe", help="Use declared hardware only.")]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", metavar="NAME", help="Only this host (repeatable).")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="K=V", help="Only hosts with this label (repeatable)."),
]
Gpus = Annotated[
    list[str] | None,
    typer.Option(
        "--gpus", metavar="HOST:IDX[,IDX]", help="Select GPUs by hand, by index or UUID (repeatable)."
    ),
]
Strategies = Annotated[
    list[str] | None,
    typer.Option("--strategy", metavar="NAME", help="Recommend only this strategy (repeatable)."),
]
Context = Annotated[
    str | None,
    typer.Option("--context", metavar="N|max", help="Tokens per request (default: the longest that fits)."),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        parser=_whole("--concurrency"),
        metavar="N",
        help="Requests of that length at once.",
    ),
]
KvCacheDtype = Annotated[str | None, typer.Option("--kv-cache-dtype", metavar="TYPE", help="auto, fp8, …")]
Replicas = Annotated[
    int,
    typer.Option("--replicas", parser=_whole("--replicas"), metavar="N", help="Copies on disjoint GPUs."),
]
PlacementOption = Annotated[
    str | None, typer.Option("--placement", metavar="spread|binpack", help="Where replicas and ties go.")
]
NoDistributed = Annotated[bool, typer.Option("--no-distributed", help="Keep a replica on one host.")]
Executor = Annotated[
    str, typer.Option("--executor", metavar="auto|ray|mp", help="How ranks on several hosts are started.")
]
AllowOvercommit = Annotated[
    bool, typer.Option("--allow-overcommit", help="Recommend a selection that does not fit, too.")
]
NoCalibration = Annotated[bool, typer.Option("--no-calibration", help="Ignore what earlier starts measured.")]
CategoryOption = Annotated[
    str | None,
    typer.Option(
        "--category",
        metavar="NAME",
        help="llm, embedding, reranker, speech_to_text, text_to_speech, image, omni.",
    ),
]
Image = Annotated[
    str | None,
    typer.Option("--image", metavar="IMAGE", help="Container image; its tag tells the vLLM version."),
]
VllmVersion = Annotated[
    str | None, typer.Option("--vllm-version", metavar="X.Y.Z", help="Rules of this vLLM release.")
]
VramClaim = Annotated[
    str | None,
    typer.Option(
        "--vram-claim", metavar="SIZE", help="The model needs this much VRAM in all; nothing is estimated."
    ),
]
RamClaim = Annotated[
    str | None, typer.Option("--ram-claim", metavar="SIZE", help="Host RAM needed on every host.")
]


def fleet_options(
    *,
    inventory: str | None,
    snapshot: str | None,
    no_probe: bool = False,
    hosts: list[str] | None,
    labels: list[str] | None,
    host_key: str | None,
    jobs: int | None,
) -> "FleetOptions":
    """Which fleet is meant and how it is reached, from the options every command on a fleet shares."""
    import os
    from pathlib import Path

    from gpuplan.cli.progress import ProbeProgress
    from gpuplan.cli.reaching import probe_options
    from gpuplan.operations.fleet import FleetOptions

    return FleetOptions(
        environ=os.environ,
        cwd=_working_directory(),
        inventory=Path(inventory) if inventory is not None else None,
        snapshot=Path(snapshot) if snapshot is not None else None,
        no_probe=no_probe,
        hosts=tuple(hosts or ()),
        labels=tuple(labels or ()),
        reach=lambda: probe_options(host_key, jobs),
        watch=ProbeProgress,
    )


def _working_directory() -> "Path":
    """The working directory; a relative one where it was removed."""
    from pathlib import Path

    try:
        return Path.cwd()
    except OSError:
        return Path()
