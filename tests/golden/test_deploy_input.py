"""What `gpuplan deploy` refuses before it touches anything, and what it shows without touching anything."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuplan.errors import ExitCode
from tests.golden.test_bad_input import refused, result

ROOT = Path(__file__).parents[2]
MODEL = "Qwen/Qwen3-32B"
FLEET = ("-i", "inventory.example.yaml", "--no-probe")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("words", "said", "way_out"),
    [
        (("--yes",), "--no-probe", "--dry-run"),
        (("--yes", "--snapshot", "fleet.json"), "--snapshot", "--dry-run"),
        (("--export", "helm"), "helm", "compose"),
        (("--dry-run", "--name", "Not A Name"), "Not A Name", "--name"),
        (("--dry-run", "--executor", "k8s"), "k8s", "--executor"),
    ],
)
def test_a_wrong_option_names_the_way_out(words: Sequence[str], said: str, way_out: str) -> None:
    error, hint = refused(("deploy", MODEL, *FLEET, *words))
    assert said in error
    assert way_out in hint


def test_without_a_terminal_it_wants_yes() -> None:
    error, hint = refused(("deploy", MODEL, "-i", "inventory.example.yaml"))
    assert "no terminal" in error
    assert "--yes" in hint


def test_nothing_that_fits_is_exit_3_with_the_plan() -> None:
    status, out, err = result(
        ("deploy", "deepseek-ai/DeepSeek-R1", *FLEET, "--dry-run", "--strategy", "single_host")
    )
    assert status == ExitCode.NO_FIT
    assert "nothing fits" in err
    assert "single_host" in out or "single host" in out


def test_a_dry_run_is_data() -> None:
    status, out, err = result(("deploy", MODEL, *FLEET, "--dry-run", "-o", "json"))
    assert (status, err) == (ExitCode.DONE, "")
    document = json.loads(out)
    body = document["containers"][0]["create"]
    assert (body["Entrypoint"] + body["Cmd"])[:3] == ["vllm", "serve", MODEL]
    assert body["HostConfig"]["NetworkMode"] == "host"
    assert not body["HostConfig"].get("Privileged")


@pytest.mark.parametrize("kind", ["compose", "systemd", "script"])
def test_an_export_never_writes_over_a_file(kind: str, tmp_path: Path) -> None:
    words = ("deploy", MODEL, *FLEET, "--export", kind, "--into", str(tmp_path))
    status, out, _ = result(words)
    assert status == ExitCode.DONE
    written = [Path(line) for line in out.splitlines()]
    assert written
    assert all(path.stat().st_size for path in written)
    before = [path.read_text() for path in written]
    error, hint = refused(words)
    assert "is there already" in error
    assert "--into" in hint
    assert [path.read_text() for path in written] == before


def test_secrets_of_the_command_line_are_in_no_output(tmp_path: Path) -> None:
    secret = "sk-planted-0123456789abcdef"
    for extra in (
        ("--dry-run",),
        ("--dry-run", "-o", "json"),
        ("--export", "script", "--into", str(tmp_path)),
    ):
        status, out, err = result(("deploy", MODEL, *FLEET, *extra, "--", "--api-key", secret))
        assert status == ExitCode.DONE
        assert secret not in out + err
    assert [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_text()] == []
