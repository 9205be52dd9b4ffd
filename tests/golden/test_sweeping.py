"""The lines for cron and systemd in docs/sweeping.md: what they run is understood, and systemd takes the units."""

import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
import typer

from gpuplan.cli.app import application

DOCUMENT = Path(__file__).parents[2] / "docs" / "sweeping.md"
NAMES = ("service", "timer")
_FIELD = r"(\*|\d+)(/\d+)?"


def block(kind: str) -> str:
    (found,) = re.findall(
        rf"^```{kind}\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return str(found)


def options_of(words: str) -> dict[str, object]:
    """What gpuplan makes of a command line, without running it."""
    program, *rest = shlex.split(words)
    assert program.endswith("/bin/gpuplan")
    group = typer.main.get_command(application(["sweep"]))
    with group.make_context("gpuplan", rest) as context:
        name, command, left = group.resolve_command(context, rest)  # type: ignore[attr-defined]
        assert name == "sweep"
        with command.make_context(name, left, parent=context) as inner:
            return dict(inner.params)


def unit(kind: str) -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(block(f"systemd-{kind}"))
    return parser


def test_what_they_run_is_understood() -> None:
    (line,) = block("crontab").splitlines()
    fields = re.fullmatch(rf"(?:{_FIELD} ){{5}}(?P<command>\S.*)", line)
    assert fields is not None
    assert "%" not in line, "cron makes a new line of it"
    for words in (fields["command"], unit("service")["Service"]["ExecStart"]):
        meant = options_of(words)
        assert (meant["yes"], meant["quiet"]) == (True, True)
        assert str(meant["inventory"]).endswith("/inventory.yaml")


def test_the_units_belong_together() -> None:
    service = unit("service")["Service"]
    assert service["Type"] == "oneshot"
    assert service["Environment"] == "XDG_STATE_HOME=/var/lib"
    assert service["StateDirectory"] == "gpuplan", "that is where XDG_STATE_HOME leads"
    text = DOCUMENT.read_text(encoding="utf-8")
    assert {f"`/etc/systemd/system/gpuplan-sweep.{kind}`" in text for kind in NAMES} == {True}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    paths = []
    for kind in NAMES:
        path = tmp_path / f"gpuplan-sweep.{kind}"
        path.write_text(block(f"systemd-{kind}").replace("/usr/local/bin/gpuplan", "/bin/sh"))
        paths.append(str(path))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
