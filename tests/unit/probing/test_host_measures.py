"""Ports bound and model files listed for real on this machine, with each tool a host may have."""

import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpuplan.planning.preflight_measures import ModelFiles, PortState, PortTest
from gpuplan.probing.host_measures import model_command, model_of, model_places, ports_command, ports_of
from gpuplan.probing.output import Output

TOOLS = {"python": "python3", "perl": "perl"}


def shell(text: str, path: str | None = None, home: Path | None = None) -> Output:
    environment = {"PATH": path or os.environ["PATH"], "HOME": str(home or "/nonexistent"), "LC_ALL": "C"}
    done = subprocess.run(
        ["/bin/sh", "-c", text], env=environment, capture_output=True, timeout=30, check=False
    )
    return Output(text=(done.stdout + done.stderr).decode(), exit_code=done.returncode)


@pytest.fixture(params=TOOLS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A PATH with one tool that can bind, and what a shell needs."""
    for name in ("cat", TOOLS[request.param]):
        real = shutil.which(name)
        assert real is not None
        if name == "python3":
            real = subprocess.check_output(
                [real, "-c", "import sys; print(sys.executable)"], text=True
            ).strip()
        (tmp_path / name).symlink_to(real)
    return str(tmp_path)


def bound(ports: Sequence[tuple[int, int]], path: str) -> PortTest:
    return ports_of(shell(ports_command(ports).shell, path))


@pytest.fixture
def held() -> Iterator[dict[PortState, int]]:
    """A port in every state it is held in by a process."""
    listening = socket.create_server(("127.0.0.1", 0))
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    silent.bind(("127.0.0.1", 0))
    client = socket.create_connection(listening.getsockname())
    accepted, _ = listening.accept()
    yield {
        PortState.LISTENING: listening.getsockname()[1],
        PortState.BOUND: silent.getsockname()[1],
        PortState.CONNECTED: client.getsockname()[1],
    }
    for item in (listening, silent, client, accepted):
        item.close()


def test_a_taken_port_is_told_with_its_state(path: str, held: dict[PortState, int]) -> None:
    for state, port in held.items():
        assert dict(bound([(port, port)], path).busy) == {port: state}


def test_a_port_whose_last_connection_just_ended_is_closing(path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # the server closes first
        assert client.recv(1) == b""
        client.close()
    assert dict(bound([(port, port)], path).busy) == {port: PortState.CLOSING}


def test_a_free_port_is_not_told_and_the_tool_is(path: str) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    test = bound([(port, port), (1, 1)], path)
    assert test.tool in {"python3", "perl"}
    assert test.busy == ()


def test_a_host_without_a_tool_tells_nothing_of_ports(tmp_path: Path) -> None:
    assert bound([(40000, 40063)], str(tmp_path)) == PortTest()


def test_ports_kept_from_outgoing_connections() -> None:
    text = "reserved 40000-40063,41000\ntool perl\nbusy 41000 98 0A\nbusy 80 13 -\n"
    assert ports_of(Output(text=text)) == PortTest(
        busy=((41000, PortState.LISTENING),), tool="perl", reserved=((40000, 40063), (41000, 41000))
    )
    assert ports_of(Output(text="reserved \ntool perl\n")) == PortTest(tool="perl")


@pytest.mark.parametrize(
    "text", ["", "reserved 1-\n", "reserved x\n", "busy\n", "tool\n", "Segmentation fault\n"]
)
def test_junk_is_no_answer(text: str) -> None:
    assert ports_of(Output(text=text)) == PortTest()
    assert model_of(Output(text=text)) is None


def files_at(*places: str, home: Path | None = None) -> ModelFiles | None:
    return model_of(shell(model_command(places).shell, home=home))


def write(directory: Path, **files: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        place = directory / name.replace("__", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return directory


CONFIG = '{"model_type": "qwen3"}'


def test_the_files_of_a_plain_directory(tmp_path: Path) -> None:
    model = write(tmp_path / "a model's dir", config__json=CONFIG, weights__safetensors="12345")
    write(model / ".cache", junk="x")
    write(model / "sub", vocab__json="{}")
    found = files_at(str(tmp_path / "missing"), str(model))
    assert found == ModelFiles(
        path=str(model),
        files=(("config.json", len(CONFIG)), ("sub/vocab.json", 2), ("weights.safetensors", 5)),
        digests=(("config.json", hashlib.sha256(CONFIG.encode()).hexdigest()),),
    )


def test_the_hubs_cache_names_its_revision_and_leads_through_links(tmp_path: Path) -> None:
    cache = tmp_path / ".cache/huggingface/hub/models--Qwen--Qwen3-4B"
    blob = write(cache / "blobs", abc=CONFIG)
    snapshot = cache / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(blob / "abc")
    write(cache / "snapshots" / "older", config__json="{}")
    write(cache / "refs", main="0123abcd")
    found = files_at(*model_places("Qwen/Qwen3-4B", "Qwen/Qwen3-4B", None), home=tmp_path)
    assert found is not None
    assert (found.path, found.revision, found.files) == (
        str(snapshot),
        "0123abcd",
        (("config.json", len(CONFIG)),),
    )


def test_a_download_names_its_revision(tmp_path: Path) -> None:
    model = write(tmp_path / "models/Qwen3-4B", config__json=CONFIG)
    write(model / ".cache/huggingface/download", config__json__metadata="4567ef\netag\n1.5\n")
    found = files_at(*model_places("Qwen/Qwen3-4B", "Qwen/Qwen3-4B", f"{tmp_path}/models/"))
    assert found is not None
    assert (found.path, found.revision) == (str(model), "4567ef")


def test_a_model_that_is_nowhere(tmp_path: Path) -> None:
    write(tmp_path / "empty")
    assert files_at(str(tmp_path / "empty"), str(tmp_path / "none"), "~/x", home=tmp_path) is None


def test_where_a_model_may_be() -> None:
    assert model_places("Qwen/Qwen3-4B", "Qwen/Qwen3-4B", "/data/models") == (
        "/data/models/Qwen/Qwen3-4B",
        "/data/models/Qwen3-4B",
        "/data/models/models--Qwen--Qwen3-4B",
        "/data/models/hub/models--Qwen--Qwen3-4B",
        "~/.cache/huggingface/hub/models--Qwen--Qwen3-4B",
    )
    assert model_places("/srv/m/config.json", "m", None)[0] == "/srv/m"
