"""Where a model lies: the script run by this machine's shell, and its lines read."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuplan.deploying.weights_probe import FoundPlace, Located, Place, PlaceKind, Room, parse, script
from tests.model_files import COMMIT, in_cache, in_directory, model_files, shard

SHELLS = [["sh"], ["bash", "--posix"], *([["busybox", "sh"]] if shutil.which("busybox") else [])]
FIRST = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"


def looked(
    places: Sequence[Place], home: Path, *, rooms: Sequence[str] = (), shell: Sequence[str] = ("sh",)
) -> Located:
    done = subprocess.run(
        [*shell, "-s"],
        input=script(places, rooms),
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        check=True,
    )
    answer = parse(done.stdout.decode(), places)
    assert answer is not None, done
    return answer


def directory(path: Path | str) -> Place:
    return Place(kind=PlaceKind.DIRECTORY, path=str(path))


def cache(path: Path | str, revision: str = "main") -> Place:
    return Place(kind=PlaceKind.CACHE, path=str(path), revision=revision)


def only(answer: Located) -> FoundPlace:
    assert len(answer.places) == 1
    return answer.places[0]


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_directory_and_its_files(tmp_path: Path, shell: Sequence[str]) -> None:
    files = model_files()
    path = in_directory(tmp_path / "it's a model", {**files, ".hidden": b"x", "original/big.pth": b"x"})
    answer = looked([directory(tmp_path / "none"), directory(path)], tmp_path, shell=shell)
    place = only(answer)
    assert (place.kind, place.path, place.asked) == (PlaceKind.DIRECTORY, str(path), str(path))
    assert dict(place.files) == {name: len(content) for name, content in files.items()} | {
        "original/big.pth": 1
    }
    assert place.indexed == (FIRST, SECOND)
    assert dict(place.promised) == {FIRST: len(shard(0)), SECOND: len(shard(1))}
    assert dict(place.digests) == {
        name: hashlib.sha256(files[name]).hexdigest()
        for name in ("config.json", "model.safetensors.index.json")
    }
    assert place.broken == place.outside == ()
    assert (answer.home, answer.uid, answer.gid) == (str(tmp_path), os.getuid(), os.getgid())


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_cache_with_broken_links_and_a_download_under_way(tmp_path: Path, shell: Sequence[str]) -> None:
    snapshot = in_cache(tmp_path / "hf", "org/model")
    blobs = snapshot.parents[1] / "blobs"
    (snapshot / SECOND).resolve().unlink()
    (blobs / "abc.incomplete").write_bytes(b"x" * 500)
    place = only(looked([cache("~/hf/hub/models--org--model")], tmp_path, shell=shell))
    assert (place.path, place.revision) == (str(snapshot), COMMIT)
    assert place.broken == (SECOND,)
    assert place.incomplete_bytes == 500
    assert dict(place.files)[FIRST] == len(shard(0))
    assert place.outside == ()


def test_a_cache_by_its_commit_and_without_the_revision(tmp_path: Path) -> None:
    in_cache(tmp_path, "org/model")
    root = tmp_path / "hub" / "models--org--model"
    assert only(looked([cache(root, COMMIT)], tmp_path)).revision == COMMIT
    assert looked([cache(root, "v2")], tmp_path).places == ()


def test_files_cut_off_and_files_that_are_none(tmp_path: Path) -> None:
    files = model_files(4)
    names = sorted(name for name in files if name.endswith(".safetensors"))
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n"
    files |= {names[0]: files[names[0]][:-7], names[1]: pointer, names[2]: b"", names[3]: b"\x00" * 20}
    place = only(looked([directory(in_directory(tmp_path / "m", files))], tmp_path))
    assert dict(place.promised) == {names[0]: len(shard(0)), names[1]: -1, names[2]: -1, names[3]: -1}
    assert dict(place.files)[names[0]] == len(shard(0)) - 7


def test_links_that_lead_out_of_a_directory(tmp_path: Path) -> None:
    elsewhere = in_directory(tmp_path / "elsewhere")
    path = tmp_path / "m"
    path.mkdir()
    for file in elsewhere.iterdir():
        (path / file.name).symlink_to(file)
    (path / "own.json").write_bytes(b"{}")
    (path / "copy.json").symlink_to("own.json")
    place = only(looked([directory(path)], tmp_path))
    assert set(place.outside) == set(model_files())
    link = tmp_path / "link"
    link.symlink_to(elsewhere)
    assert only(looked([directory(link)], tmp_path)).path == str(elsewhere)


def test_the_revision_a_download_into_a_directory_noted(tmp_path: Path) -> None:
    path = in_directory(tmp_path / "m")
    noted = path / ".cache" / "huggingface" / "download" / "config.json.metadata"
    noted.parent.mkdir(parents=True)
    noted.write_text(f"{COMMIT}\netag\n1700000000.0\n")
    assert only(looked([directory(path)], tmp_path)).revision == COMMIT


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_room_where_nothing_is_yet(tmp_path: Path, shell: Sequence[str]) -> None:
    answer = looked([], tmp_path, rooms=("~/not/there", "/"), shell=shell)
    free = os.statvfs(tmp_path)
    first = answer.rooms[0]
    assert first.path == f"{tmp_path}/not/there"
    assert abs(first.free_bytes - free.f_bavail * free.f_frsize) < 1024**3
    assert first.device
    assert len(answer.rooms) == 2


def test_what_others_print_is_left_out_and_an_answer_cut_off_is_none() -> None:
    text = "Welcome!\ngpuplan-model\thome\t/root\t0\t0\ngpuplan-model\tplace\nmodel\ngpuplan-model\tend\n"
    assert parse(text, [directory("/m")]) == Located(home="/root", uid=0, gid=0)
    assert parse(text.replace("\tend", ""), [directory("/m")]) is None
    wide = "gpuplan-model\troom\t/data\tnas:/export/with space  99 1 42 1% /mnt/a b\ngpuplan-model\tend\n"
    answer = parse(wide, [])
    assert answer is not None
    assert answer.rooms == (Room(path="/data", device="nas:/export/with space", free_bytes=42 * 1024),)
