"""The containers of a spec as files for other tools."""

from pathlib import Path

from gpuplan.deploying import export
from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.errors import UsageError


def write(spec: DeploymentSpec, kind: str, into: str) -> tuple[str, ...]:
    """Write the files of one kind (compose, systemd, script) to a directory, none over another; their paths.

    Raises UsageError where a file is there already or cannot be written.
    """
    kinds = {"compose": export.compose, "systemd": export.systemd, "script": export.script}
    made = kinds[kind](spec)
    directory = Path(into)
    taken = [name for name in made if (directory / name).exists()]
    if taken:
        raise UsageError(
            f"--export {kind}: {directory / taken[0]} is there already",
            hint="name another directory with --into, or move the file away",
        )
    written = []
    try:
        for name, text in made.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                path.chmod(0o755)
            written.append(str(path))
    except OSError as error:
        raise UsageError(
            f"--export {kind}: {error.filename or directory} cannot be written: {error.strerror}",
            hint="name a directory you may write to with --into",
        ) from error
    return tuple(written)
