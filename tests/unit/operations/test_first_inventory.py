"""`gpuplan init` writes an inventory that reads back, or says what is wrong and writes nothing."""

from pathlib import Path

import pytest

from gpuplan.errors import GpuplanError
from gpuplan.operations.first_inventory import Target, read_target, write_inventory
from gpuplan.remote.ssh_config_files import host_names
from gpuplan.sources import inventory_yaml


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("gpu1", Target(name="gpu1")),
        ("10.0.0.11", Target(name="10.0.0.11")),
        ("ubuntu@10.0.0.11:2222", Target(name="10.0.0.11", user="ubuntu", port=2222)),
        ("a=ubuntu@10.0.0.11", Target(name="a", address="10.0.0.11", user="ubuntu")),
        ("a=[fd00::11]:22", Target(name="a", address="fd00::11", port=22)),
        ("fd00::11", Target(name="fd00-11", address="fd00::11")),
        ("local", Target(name="local")),
    ],
)
def test_a_host_is_read_as_it_is_written(text: str, target: Target) -> None:
    assert read_target(text) == target


@pytest.mark.parametrize(
    "text", ["", " ", "@", "a=", "user@", "a b c:", "gpu1:port", "gpu1:99999999", "a=b=c"]
)
def test_what_is_no_host_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(GpuplanError) as caught:
        write_inventory(tmp_path / "inventory.yaml", [text])
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "inventory.yaml"
    targets = ["a=ubuntu@10.0.0.11:2222", "fd00::12", "yes", "0x10", "local"]
    written = write_inventory(path, targets, defaults={"user": "on", "model_dir": "/data/my models: #1"})
    inventory = inventory_yaml.load(path)
    assert (
        [host.name for host in inventory.hosts]
        == list(written.hosts)
        == ["a", "fd00-12", "yes", "0x10", "local"]
    )
    first, second, *_ = inventory.hosts
    assert (first.address, first.user, first.port, first.model_dir) == (
        "10.0.0.11",
        "ubuntu",
        2222,
        "/data/my models: #1",
    )
    assert (second.address, second.user) == ("fd00::12", "on")
    assert inventory.hosts[-1].address == "local"


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("precious")
    with pytest.raises(GpuplanError, match="already there"):
        write_inventory(path, ["a"])
    assert path.read_text() == "precious"
    write_inventory(path, ["a"], replace=True)
    assert inventory_yaml.load(path).hosts[0].name == "a"


def test_hosts_named_twice_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(GpuplanError, match="already the name of"):
        write_inventory(tmp_path / "inventory.yaml", ["a", "a"])
    assert list(tmp_path.iterdir()) == []


def test_without_names_the_ssh_configuration_and_then_this_machine_are_taken(tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "more").mkdir(parents=True)
    lines = [
        "Include more/*",
        "Host gpu1 gpu2 !gpu3 lab-*\n  User x\n  ProxyJump me@door:22,bastion",
        "Host door bastion\n  User me",
        "Host *\n  Port 22",
        "Host github.com\n  User git",
    ]
    (tmp_path / ".ssh" / "config").write_text("\n".join(lines))
    (tmp_path / ".ssh" / "more" / "one").write_text("Host gpu0\n  HostName 10.0.0.1\n")
    names = host_names(tmp_path)
    assert names == ("gpu0", "gpu1", "gpu2")
    written = write_inventory(tmp_path / "a.yaml", [], aliases=names)
    assert (written.hosts, written.source) == (names, "the SSH configuration")
    written = write_inventory(tmp_path / "b.yaml", [])
    assert inventory_yaml.load(tmp_path / "b.yaml").hosts[0].address == "local"
    assert written.source == "this machine"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuplanError, match="cannot be written"):
        write_inventory(tmp_path / "file" / "inventory.yaml", ["a"])
