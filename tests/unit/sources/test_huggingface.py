"""The hub through the real huggingface_hub client, against a server on this machine."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.domain.repository import Evidence, Origin
from gpuplan.errors import ModelError
from gpuplan.sources.huggingface import HubAccess, read_hub_repository
from tests.hub_server import COMMIT, Hub, running_hub
from tests.safetensors_files import safetensors_file, with_header

NAME = "org/model"
CONFIG = {"model_type": "llama", "num_hidden_layers": 2}
SHARDS = 12


def _shard(number: int) -> bytes:
    return safetensors_file({f"layers.{number}.weight": ("BF16", (512, 64))})


def _files() -> dict[str, bytes]:
    weight_map = {f"layers.{number}.weight": f"model-{number:05}.safetensors" for number in range(SHARDS)}
    index = {"metadata": {"total_size": SHARDS * 65536}, "weight_map": weight_map}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "hf_quant_config.json": b'{"quantization": {"quant_algo": "FP8"}}',
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{f"model-{number:05}.safetensors": _shard(number) for number in range(SHARDS)},
    }


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as server:
        yield server


@pytest.fixture
def access(hub: Hub, tmp_path: Path) -> HubAccess:
    return HubAccess(
        endpoint=hub.endpoint,
        cache_dir=tmp_path / "hub",
        summaries=tmp_path / "summaries",
        request_seconds=2,
        total_seconds=10,
    )


def _failure(access: HubAccess, name: str = NAME, revision: str | None = None) -> ModelError:
    with pytest.raises(ModelError) as failure:
        read_hub_repository(name, revision=revision, access=access)
    assert failure.value.hint
    return failure.value


def test_headers_are_read_by_range_and_nothing_else_of_the_weights(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, _files())
    repository = read_hub_repository(NAME, access=access)
    assert repository.evidence is Evidence.SAFETENSORS_HEADERS
    assert repository.tensors is not None
    assert len(repository.tensors) == SHARDS
    assert repository.tensors.total_bytes == repository.index_total_bytes == SHARDS * 65536
    assert repository.config == CONFIG
    assert repository.quantization == {"quantization": {"quant_algo": "FP8"}}
    assert (repository.origin, repository.revision, repository.notes) == (Origin.HUB, COMMIT, ())
    headers = SHARDS * (len(_shard(0)) - 65536)
    assert hub.sent_of(".safetensors") <= headers + 2 * SHARDS
    weights = [request for request in hub.requests if request.path.endswith(".safetensors")]
    assert all(request.range for request in weights)


def test_a_single_file_and_a_server_without_listing(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, {"config.json": b"{}", "model.safetensors": _shard(0)}, listing=False)
    repository = read_hub_repository(NAME, access=access)
    assert repository.evidence is Evidence.SAFETENSORS_HEADERS
    assert repository.index_total_bytes is None


def test_a_server_that_ignores_ranges_is_read_no_further_than_the_header(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, {"config.json": b"{}", "model.safetensors": _shard(0)}, ranges=False)
    repository = read_hub_repository(NAME, access=access)
    assert repository.tensors is not None
    assert repository.tensors.total_bytes == 65536


def test_other_weight_formats_leave_the_config(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, {"config.json": b"{}", "pytorch_model.bin": b"0" * 100})
    repository = read_hub_repository(NAME, access=access)
    assert repository.evidence is Evidence.CONFIG
    assert hub.sent_of(".bin") == 0


def test_the_second_reading_asks_only_whether_anything_changed(hub: Hub, access: HubAccess) -> None:
    hosted = hub.add(NAME, _files())
    first = read_hub_repository(NAME, access=access)
    hub.requests.clear()
    assert read_hub_repository(NAME, access=access) == first
    assert [request.method for request in hub.requests] == ["HEAD"]
    hosted.commit = "0" * 40
    hosted.files["config.json"] = b'{"changed": true}'
    assert read_hub_repository(NAME, access=access).config == {"changed": True}


def test_offline_answers_from_what_was_read(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, _files())
    first = read_hub_repository(NAME, access=access)
    hub.requests.clear()
    offline = replace(access, offline=True)
    assert read_hub_repository(NAME, access=offline) == first
    assert read_hub_repository(NAME, revision=COMMIT, access=offline) == first
    assert hub.requests == []
    assert "HF_HUB_OFFLINE" in _failure(offline, "org/other").message
    assert "HF_HUB_OFFLINE" in _failure(offline, revision="v2").message


def test_offline_uses_weights_in_the_clients_cache(hub: Hub, access: HubAccess, tmp_path: Path) -> None:
    from huggingface_hub import hf_hub_download

    hub.add(NAME, {"config.json": b"{}", "model.safetensors": _shard(0)})
    for file in ("config.json", "model.safetensors"):
        hf_hub_download(NAME, file, endpoint=hub.endpoint, cache_dir=tmp_path / "hub")
    repository = read_hub_repository(NAME, access=replace(access, offline=True))
    assert repository.evidence is Evidence.SAFETENSORS_HEADERS
    assert (repository.name, repository.origin, repository.revision) == (NAME, Origin.HUB, COMMIT)
    hub.requests.clear()
    read_hub_repository(NAME, access=access)
    assert hub.sent_of(".safetensors") == 0


def test_a_hub_that_went_away_is_answered_for_by_the_copy(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, _files())
    first = read_hub_repository(NAME, access=access)
    hub.repositories[NAME].status = 503
    copy = read_hub_repository(NAME, access=access)
    assert copy.tensors == first.tensors
    assert "503" in copy.notes[-1]


def test_damaged_summaries_are_read_again(hub: Hub, access: HubAccess, tmp_path: Path) -> None:
    hub.add(NAME, _files())
    first = read_hub_repository(NAME, access=access)
    for damage in (b"", b"\x1f\x8b broken", b"{}"):
        for path in (tmp_path / "summaries").rglob("*.json.gz"):
            path.write_bytes(damage)
        assert read_hub_repository(NAME, access=access) == first


def test_a_gated_repository(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, _files(), token="hf_right")
    for token in (None, "hf_wrong"):
        failure = _failure(replace(access, token=token))
        assert "gated" in failure.message
        assert "hf auth login" in (failure.hint or "")
        assert f"{hub.endpoint}/{NAME}" in (failure.hint or "")
    assert read_hub_repository(NAME, access=replace(access, token="hf_right")).tensors is not None


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "401"), (403, "403"), (404, "not found"), (429, "429"), (500, "500"), (418, "418")],
)
def test_a_bare_status_is_explained(hub: Hub, access: HubAccess, status: int, says: str) -> None:
    hub.add(NAME, _files(), status=status)
    assert says in _failure(access).message


def test_what_does_not_exist_is_named(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, _files())
    unknown = _failure(access, "org/modle")
    assert "org/modle: not found" in unknown.message
    assert "gpuplan models" in (unknown.hint or "")
    assert "no revision 'v9'" in _failure(access, revision="v9").message
    hub.add("org/mistral", {"params.json": b"{}", "consolidated.safetensors": _shard(0)})
    assert "params.json" in _failure(access, "org/mistral").message
    hub.add("org/empty", {"README.md": b""}, listing=False)
    assert "org/empty" in _failure(access, "org/empty").message


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("config.json", b"<html>", "org/model/config.json:1:1: not JSON"),
        ("config.json", b"[]", "found a list"),
        ("model.safetensors.index.json", b"{}", "weight_map"),
        ("model-00003.safetensors", with_header(b"{}", length=2**60), "claims 1152921504606846976"),
        ("model-00003.safetensors", b"", "fewer than the 8"),
        ("model-00003.safetensors", with_header(b"nonsense"), "model-00003.safetensors"),
        ("model-00003.safetensors", _shard(3)[:-1], "truncated"),
    ],
)
def test_a_broken_file_is_named(hub: Hub, access: HubAccess, file: str, content: bytes, says: str) -> None:
    hub.add(NAME, {**_files(), file: content})
    assert says in _failure(access).message


def test_a_header_cut_off_on_the_way(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, _files(), truncate={"model-00003.safetensors": 30})
    repository = read_hub_repository(NAME, access=access)
    assert repository.tensors is None
    assert repository.evidence is Evidence.SAFETENSORS_INDEX
    assert "could not be read" in repository.notes[0]


def test_a_shard_that_is_not_there_leaves_the_index(hub: Hub, access: HubAccess) -> None:
    files = _files()
    del files["model-00003.safetensors"]
    hub.add(NAME, files)
    repository = read_hub_repository(NAME, access=access)
    assert repository.evidence is Evidence.SAFETENSORS_INDEX
    assert "1 of 12 safetensors files are not in the repository" in repository.notes[0]


def test_a_huge_config_is_not_downloaded(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, _files(), claimed_size={"config.json": 500_000_000})
    assert "500000000 bytes" in _failure(access).message
    assert hub.sent_of("config.json") == 0


def test_a_page_in_the_hubs_place(hub: Hub, access: HubAccess) -> None:
    hub.html = b"<html>Please log in to the network</html>"
    assert "does not answer like a Hugging Face hub" in _failure(access).message


def test_a_slow_hub_ends_at_the_deadline(hub: Hub, access: HubAccess) -> None:
    hub.add(NAME, _files(), delay=1.0)
    began = time.monotonic()
    assert "in time" in _failure(replace(access, request_seconds=0.3)).message
    hub.repositories[NAME].delay = 0
    hub.repositories[NAME].trickle = 0.1
    assert "in time" in _failure(replace(access, total_seconds=0.8)).message
    assert time.monotonic() - began < 10


def test_no_server_no_name_and_no_address(access: HubAccess) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    assert "refused the connection" in _failure(replace(access, endpoint=f"http://127.0.0.1:{port}")).message
    unresolved = _failure(replace(access, endpoint="http://no-such-host.invalid", total_seconds=5))
    assert "no-such-host.invalid" in unresolved.message
    for endpoint in ("nonsense", "ftp://x", "http://", "http://a:b", "http://a b"):
        assert "HF_ENDPOINT" in _failure(replace(access, endpoint=endpoint)).message


def test_a_read_only_cache_does_not_stop_the_reading(hub: Hub, access: HubAccess, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    hub.add(NAME, _files())
    blocked = replace(access, summaries=tmp_path / "file" / "below")
    assert read_hub_repository(NAME, access=blocked).tensors is not None


def test_the_environment_of_the_client_is_honoured(hub: Hub, tmp_path: Path) -> None:
    hub.add(NAME, _files(), token="hf_from_environment")
    script = (
        "from gpuplan.sources.huggingface import read_hub_repository\n"
        "from gpuplan.errors import GpuplanError\n"
        f"try: print(read_hub_repository({NAME!r}).evidence.label)\n"
        "except GpuplanError as error: print(error.message)\n"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HF_TOKEN": "hf_from_environment",
    }

    def run(**changes: str) -> str:
        result = subprocess.run(
            [sys.executable, "-c", script],
            env={**environment, **changes},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert result.stderr == ""
        return result.stdout.strip()

    assert "HF_HUB_OFFLINE" in run(HF_HUB_OFFLINE="1")
    assert run() == "safetensors_headers"
    assert run(HF_HUB_OFFLINE="1") == "safetensors_headers"
    assert "gated" in run(HF_TOKEN="hf_other")
    assert "HF_HUB_DOWNLOAD_TIMEOUT" in run(HF_HUB_DOWNLOAD_TIMEOUT="soon")
    assert any((tmp_path / "home" / "hub").rglob("config.json"))
