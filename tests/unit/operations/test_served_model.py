"""Where the model is served from: directories, the hub's cache, and hosts that differ; looked for by a real shell."""

from pathlib import Path

import pytest

from gpuplan.deploying.weights_probe import PlaceKind
from gpuplan.domain.deployment import DirectoryModel, HubModel
from gpuplan.domain.workload import Category
from gpuplan.operations.models import Model, nothing_known
from gpuplan.operations.served_model import ModelPlace, WantedModel, locate, wanted_model
from tests.local_hosts import LocalHosts
from tests.model_files import COMMIT, in_cache, in_directory, model_files

ID = "org/model"
FIRST = "model-00001-of-00002.safetensors"
SECOND = "model-00002-of-00002.safetensors"


def model(path: str) -> Model:
    return Model(profile=nothing_known(path), category=Category.LLM, path=path)


@pytest.fixture
def hosts(tmp_path: Path) -> LocalHosts:
    return LocalHosts(tmp_path, "h1", "h2")


def located(
    hosts: LocalHosts,
    reference: str = ID,
    *,
    path: str | None = None,
    revision: str | None = None,
    config_only: bool = False,
) -> ModelPlace:
    return locate(
        reference,
        model(path or reference.partition("@")[0]),
        hosts.inventory,
        hosts,
        tuple(hosts.entries),
        revision=revision,
        config_only=config_only,
    )


def told(place: ModelPlace) -> list[tuple[str, str]]:
    return [(item.code, item.subject["host"]) for item in place.facts]


def cached(hosts: LocalHosts, name: str, files: dict[str, bytes] | None = None, commit: str = COMMIT) -> Path:
    return in_cache(hosts.homes[name] / ".cache" / "huggingface", ID, files, commit=commit)


# ---------------------------------------------------------------------- what MODEL means


def test_what_a_reference_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_directory(tmp_path / "tiny")
    (tmp_path / "alone.json").write_text("{}")
    monkeypatch.chdir(tmp_path)

    def means(reference: str, path: str | None = None, revision: str | None = None) -> WantedModel:
        return wanted_model(reference, model(path or reference), revision)

    here = WantedModel(name="tiny", path=f"{tmp_path}/tiny")
    assert means(f"{tmp_path}/tiny/") == means("./tiny") == means("tiny/config.json") == here
    assert means("/data/models/elsewhere") == WantedModel(name="elsewhere", path="/data/models/elsewhere")
    assert means("~/models/m/config.json") == WantedModel(name="m", path="~/models/m")
    assert means("alone.json") == WantedModel(name="alone")
    assert means(ID) == WantedModel(name="model", id=ID)
    assert means("org/model@v2", ID) == WantedModel(name="model", id=ID, revision="v2")
    assert means("org/model@v2") == WantedModel(name="model", id=ID, revision="v2")
    assert means(ID, ID, "v3").revision == "v3"
    assert means("Model-7B", "org/Model-7B") == WantedModel(name="Model-7B", id="org/Model-7B")


# ---------------------------------------------------------------------- directories


def test_one_path_on_all_hosts(hosts: LocalHosts, tmp_path: Path) -> None:
    path = in_directory(tmp_path / "shared" / "m")
    place = located(hosts, str(path))
    assert place.model == DirectoryModel(paths={"h1": str(path), "h2": str(path)}, inside="/models/m")
    assert (place.facts, place.missing) == ((), ())


def test_a_path_of_this_machine_is_below_model_dir_elsewhere(hosts: LocalHosts) -> None:
    for root in hosts.model_dirs.values():
        in_directory(root / "m")
    place = located(hosts, "/somewhere/else/m")
    paths = {name: f"{root}/m" for name, root in hosts.model_dirs.items()}
    assert place.model == DirectoryModel(paths=paths, inside="/models/m")


def test_a_directory_is_missing_on_one_host(hosts: LocalHosts) -> None:
    in_directory(hosts.model_dirs["h1"] / "m")
    place = located(hosts, "/somewhere/else/m")
    assert (place.model, told(place)) == (None, [("GP840", "h2")])
    figures = place.facts[0].figures
    assert figures["looked"] == ("/somewhere/else/m", f"{hosts.model_dirs['h2']}/m")
    assert figures["have"] == ("h1",)


def test_a_file_is_missing_and_another_short_on_one_host(hosts: LocalHosts) -> None:
    files = model_files()
    in_directory(hosts.model_dirs["h1"] / "m", files)
    second = in_directory(hosts.model_dirs["h2"] / "m", {**files, FIRST: files[FIRST][:-1]})
    (second / SECOND).unlink()
    place = located(hosts, "/x/m")
    assert told(place) == [("GP841", "h2"), ("GP842", "h2")]
    assert place.facts[1].figures["bytes"] == len(files[FIRST]) - 1


def test_another_revision_on_one_host(hosts: LocalHosts) -> None:
    in_directory(hosts.model_dirs["h1"] / "m")
    in_directory(hosts.model_dirs["h2"] / "m", {**model_files(), "config.json": b"{}"})
    assert told(located(hosts, "/x/m")) == [("GP843", "h2")]


def test_dummy_weights_need_no_weights(hosts: LocalHosts) -> None:
    for root in hosts.model_dirs.values():
        in_directory(root / "m", {"config.json": b"{}"})
    assert told(located(hosts, "/x/m")) == [("GP841", "h1"), ("GP841", "h2")]
    assert located(hosts, "/x/m", config_only=True).failures == ()


# ---------------------------------------------------------------------- ids of the hub


@pytest.mark.parametrize("below", [ID, "model", "org--model"])
def test_an_id_of_the_hub_is_served_from_a_directory_all_have(hosts: LocalHosts, below: str) -> None:
    for root in hosts.model_dirs.values():
        in_directory(root / below)
    place = located(hosts)
    paths = {name: f"{root}/{below}" for name, root in hosts.model_dirs.items()}
    assert place.model == DirectoryModel(paths=paths, inside="/models/model")


def test_an_id_of_the_hub_is_served_from_the_cache(hosts: LocalHosts) -> None:
    snapshots = {name: cached(hosts, name) for name in hosts.homes}
    place = located(hosts)
    assert place.model == HubModel(id=ID)
    assert {name: found.path for name, found in place.found.items()} == {
        name: str(path) for name, path in snapshots.items()
    }
    assert (place.missing, place.facts) == ((), ())
    assert place.cache_homes["h2"] == f"{hosts.homes['h2']}/.cache/huggingface"
    room = place.room("h2")
    assert room is not None
    assert room.free_bytes > 0


def test_hosts_whose_cache_lacks_it_or_part_of_it_are_to_download(hosts: LocalHosts) -> None:
    assert located(hosts).missing == ("h1", "h2")
    snapshot = cached(hosts, "h1")
    assert located(hosts).missing == ("h2",)
    cached(hosts, "h2")
    (snapshot / SECOND).resolve().unlink()
    place = located(hosts)
    assert (place.missing, place.facts, place.model) == (("h1",), (), HubModel(id=ID))
    assert place.found["h1"].kind is PlaceKind.CACHE


def test_a_short_file_in_the_cache_is_not_mended_by_a_download(hosts: LocalHosts) -> None:
    cached(hosts, "h1")
    files = model_files()
    cached(hosts, "h2", {**files, FIRST: files[FIRST][:-3]})
    place = located(hosts)
    assert (place.missing, told(place)) == ((), [("GP842", "h2")])


def test_caches_of_other_revisions(hosts: LocalHosts) -> None:
    cached(hosts, "h1")
    cached(hosts, "h2", {**model_files(), "config.json": b"{}"}, commit="a" * 40)
    place = located(hosts)
    assert told(place) == [("GP843", "h2")]
    assert place.facts[0].figures["other_revision"] == COMMIT
    assert located(hosts, revision=COMMIT).missing == ("h2",)
    assert located(hosts, f"{ID}@{COMMIT}", path=ID).missing == ("h2",)


def test_a_directory_some_have_is_not_downloaded_by_the_others(hosts: LocalHosts) -> None:
    in_directory(hosts.model_dirs["h1"] / "model")
    place = located(hosts)
    assert (place.model, place.missing, told(place)) == (None, (), [("GP840", "h2")])


def test_whole_caches_go_before_a_directory_some_have(hosts: LocalHosts) -> None:
    in_directory(hosts.model_dirs["h1"] / "model")
    for name in hosts.homes:
        cached(hosts, name)
    assert located(hosts).model == HubModel(id=ID)


def test_a_directory_of_unknown_revision_does_not_stand_for_one_that_is_asked_for(hosts: LocalHosts) -> None:
    for root in hosts.model_dirs.values():
        in_directory(root / "model")
    assert located(hosts, revision=COMMIT).missing == ("h1", "h2")


def test_a_host_without_model_dir(hosts: LocalHosts) -> None:
    hosts.without_model_dir("h1", "h2")
    assert located(hosts).missing == ("h1", "h2")
    assert told(located(hosts, "/x/m")) == [("GP840", "h1"), ("GP840", "h2")]


def test_a_host_that_is_lost_is_told(hosts: LocalHosts) -> None:
    hosts.connections["h2"].lost = True
    place = located(hosts)
    assert (place.model, told(place)) == (None, [("GP636", "h2")])
