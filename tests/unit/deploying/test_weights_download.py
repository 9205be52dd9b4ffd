"""The container that downloads: its program run by this interpreter against a hub of this machine, its lines read."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuplan.deploying.weights_download import (
    PROGRAM,
    Ending,
    Told,
    heard,
    helper_body,
    helper_name,
)
from gpuplan.domain.deployment import HubModel
from tests.hub_server import COMMIT, Hub, running_hub
from tests.model_files import model_files

ID = "org/model"
MODEL = HubModel(id=ID)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as running:
        yield running


def downloaded(
    hub: Hub, home: Path, *, commit: str = "", config_only: str = "no", token: str | None = None
) -> tuple[Told, int]:
    home.mkdir(exist_ok=True)
    environment = {
        "HF_HOME": str(home),
        "HF_ENDPOINT": hub.endpoint,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_ETAG_TIMEOUT": "5",
        "PATH": "/usr/bin:/bin",
    }
    if token is not None:
        (home / "secret").write_text(token)
        environment["HF_TOKEN_PATH"] = str(home / "secret")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ID, "main", commit, config_only],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = Told()
    for line in done.stdout.splitlines():
        told = heard(line, told)
    return told, done.returncode


def snapshot(home: Path) -> Path:
    return home / "hub" / "models--org--model" / "snapshots" / COMMIT


def test_the_files_an_engine_reads_are_fetched_and_no_others(hub: Hub, tmp_path: Path) -> None:
    files = model_files()
    others = {"pytorch_model.bin": b"b" * 99, "consolidated.safetensors": b"c", "original/a.pth": b"d"}
    hub.add(ID, {**files, **others})
    told, code = downloaded(hub, tmp_path / "home")
    assert (told.ending, code, told.detail) == (Ending.COMPLETE, 0, COMMIT)
    wanted = {name for name in files if name != "README.md"}
    assert {path.name for path in snapshot(tmp_path / "home").iterdir()} == wanted
    assert told.total_bytes == sum(len(files[name]) for name in wanted)
    assert told.done_bytes > 0
    sent = hub.sent_of(".safetensors")
    again, _ = downloaded(hub, tmp_path / "home")
    assert again.ending is Ending.COMPLETE
    assert hub.sent_of(".safetensors") == sent


def test_a_commit_is_found_by_the_branch_afterwards(hub: Hub, tmp_path: Path) -> None:
    hub.add(ID, model_files())
    told, _ = downloaded(hub, tmp_path / "home", commit=COMMIT)
    assert told.ending is Ending.COMPLETE
    reference = tmp_path / "home" / "hub" / "models--org--model" / "refs" / "main"
    assert reference.read_text() == COMMIT


def test_configuration_alone(hub: Hub, tmp_path: Path) -> None:
    hub.add(ID, model_files())
    told, _ = downloaded(hub, tmp_path / "home", config_only="yes")
    assert told.ending is Ending.COMPLETE
    assert hub.sent_of(".safetensors") == 0


def test_how_it_fails(hub: Hub, tmp_path: Path) -> None:
    assert downloaded(hub, tmp_path / "a")[0].ending is Ending.NOT_FOUND
    hub.add(ID, model_files(), token="hf_right")
    assert downloaded(hub, tmp_path / "b")[0].ending is Ending.GATED
    assert downloaded(hub, tmp_path / "c", token="hf_right\n")[0].ending is Ending.COMPLETE
    hub.add(ID, model_files())
    assert downloaded(hub, tmp_path / "d", commit="a" * 40)[0].ending is Ending.NO_REVISION
    hub.close()
    told, code = downloaded(hub, tmp_path / "e")
    assert (told.ending, code) == (Ending.NETWORK, 4)


def test_a_cache_that_cannot_be_written(hub: Hub, tmp_path: Path) -> None:
    hub.add(ID, model_files())
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hub").write_text("")
    told, _ = downloaded(hub, tmp_path / "home")
    assert told.ending in {Ending.OTHER, Ending.UNWRITABLE}
    assert told.detail


def test_lines() -> None:
    told = Told()
    for line in ("Fetching 5 files", "gpuplan-download total 100", "gpuplan-download done 30", ""):
        told = heard(line, told)
    assert told == Told(done_bytes=30, total_bytes=100)
    assert heard("gpuplan-download failed full os error 28", told).ending is Ending.FULL
    assert heard("gpuplan-download failed", told).ending is Ending.OTHER
    assert heard("gpuplan-download done many", told) is told
    assert heard("gpuplan-download dance", told) is told


def test_a_name_an_engine_accepts_and_that_is_the_same_each_time() -> None:
    name = helper_name(HubModel(id="org/Model.7B_x (1)"))
    assert name.startswith("gpuplan-helper-weights-org-Model.7B_x-1-")
    assert name == helper_name(HubModel(id="org/Model.7B_x (1)"))
    assert len(helper_name(HubModel(id="a" * 300))) < 100


def test_the_token_is_read_from_a_file() -> None:
    body = helper_body(
        MODEL,
        host="h1",
        image_id="sha256:0",
        cache_home="/c",
        user=None,
        env=(("HF_TOKEN", "x"),),
        token=True,
    )
    assert "HF_TOKEN_PATH=/run/gpuplan/secrets/HF_TOKEN" in body["Env"]
    assert not any(item.startswith("HF_TOKEN=") for item in body["Env"])
    assert "User" not in body
