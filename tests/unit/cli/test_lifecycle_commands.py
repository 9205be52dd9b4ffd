"""`status`, `logs`, `stop`, `sweep`, `restart`, `unlock`: what they refuse before any host is reached."""

from pathlib import Path

import pytest

from gpuplan.cli.app import run
from gpuplan.errors import ExitCode


@pytest.fixture(autouse=True)
def _inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("hosts: [{name: a, address: 192.0.2.1}]\n", encoding="utf-8")
    monkeypatch.setenv("GPUPLAN_INVENTORY", str(path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stop", "x"], "add --yes"),
        (["stop", "x", "--yes", "--drain", "-1"], "--drain -1: must not be negative"),
        (["stop", "x", "--yes", "--wait", "-5"], "--wait -5: must not be negative"),
        (["stop", "x", "--yes", "--drain", "soon"], "--drain soon: not a whole number"),
        (["stop"], "NAME is missing"),
        (["restart", "x"], "restart asks before it ends anything"),
        (["restart", "x", "--yes", "--drain", "-1"], "--drain -1: must not be negative"),
        (["restart", "x", "--yes", "--wait", "-5"], "--wait -5: must not be negative"),
        (["restart", "x", "--yes", "--drain", "soon"], "--drain soon: not a whole number"),
        (["restart"], "NAME is missing"),
        (["restart", "x", "--yes", "--host", "b"], "there is no such host"),
        (["sweep"], "sweep asks before it ends anything"),
        (["sweep", "--quiet"], "add --yes"),
        (["sweep", "--yes", "--drain", "-1"], "--drain -1: must not be negative"),
        (["sweep", "--dry-run", "--wait", "-5"], "--wait -5: must not be negative"),
        (["sweep", "--yes", "--idle-for", "-5"], "is not a duration"),
        (["sweep", "--yes", "--host", "b"], "there is no such host"),
        (["logs", "x", "--tail", "-1"], "--tail -1: must not be negative"),
        (["logs", "x", "--since", "yesterday"], "--since yesterday: neither a span nor a time"),
        (["logs"], "NAME is missing"),
        (["status", "--host", "b"], "there is no such host"),
        (["unlock", "--host", "b"], "there is no such host"),
    ],
)
def test_usage_is_refused_before_a_host_is_reached(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == ExitCode.USAGE
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""
