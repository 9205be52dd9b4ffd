"""An inventory is read whole, or refused with file, line and key."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuplan.domain.inventory import DeclaredGpus, Inventory
from gpuplan.errors import ExitCode, InventoryError
from gpuplan.sources.inventory_yaml import find_inventory, inventory_schema, load
from gpuplan.units import GIB

EXAMPLE = Path(__file__).parents[3] / "inventory.example.yaml"


def read(tmp_path: Path, text: str | bytes) -> Inventory:
    path = tmp_path / "inventory.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path)


def refusal(tmp_path: Path, text: str | bytes) -> str:
    """The faults without the directory, so that they read as in a working directory."""
    with pytest.raises(InventoryError) as caught:
        read(tmp_path, text)
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.hint
    return caught.value.message.replace(f"{tmp_path}{os.sep}", "")


def test_every_key_arrives(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        """
defaults: {user: ubuntu, port: 2200, identity_file: ~/.ssh/key, model_dir: /data, labels: {site: x, zone: z},
  reserve: {ram: 4GiB}}
hosts:
  - name: h1
    address: 10.0.0.11
    interface: eth0
    data_address: 10.10.0.11
    jump: me@bastion:2222
    labels: {zone: a, rack: 1.10, spare: on}
    reserve: {vram: 1GiB}
    exclude_gpus: [7]
    gpus: {name: H100-80GB, count: 8}
    ram: 512GiB
  - {name: h2, port: 22, gpus: [{name: custom, memory: 24GiB, count: 2}, {name: L40S}]}
vllm: {image: repo/image:v1, shm_size: 12GiB, ray_ports: 50000-50999, service_ports: 8000-8010,
  env: {A: 1.50, B: text}}
""",
    )
    first, second = inventory.hosts
    assert (first.user, first.port, first.identity_file, first.model_dir) == (
        "ubuntu",
        2200,
        "~/.ssh/key",
        "/data",
    )
    assert (first.address, first.interface, first.data_address, first.jump) == (
        "10.0.0.11",
        "eth0",
        "10.10.0.11",
        "me@bastion:2222",
    )
    assert first.labels == (("rack", "1.10"), ("site", "x"), ("spare", "on"), ("zone", "a"))
    assert (first.reserve_vram_bytes, first.reserve_ram_bytes) == (GIB, 4 * GIB)
    assert first.exclude_gpus == (7,)
    assert first.ram_bytes == 512 * GIB
    assert (second.address, second.port) == ("h2", 22)
    assert second.gpus == (
        DeclaredGpus(name="custom", count=2, memory_bytes=24 * GIB),
        DeclaredGpus(name="L40S", count=1),
    )
    assert inventory.vllm.image == "repo/image:v1"
    assert inventory.vllm.shm_size_bytes == 12 * GIB
    assert (inventory.vllm.ray_ports, inventory.vllm.service_ports) == ((50000, 50999), (8000, 8010))
    assert inventory.vllm.env == (("A", "1.50"), ("B", "text"))


def test_the_smallest_inventory_has_the_documented_defaults(tmp_path: Path) -> None:
    inventory = read(tmp_path, "hosts:\n  - name: h1\n    labels:\n    jump:\n")
    (host,) = inventory.hosts
    assert (host.address, host.port, host.labels, host.gpus, host.jump) == ("h1", None, (), (), None)
    assert inventory.vllm.ray_ports == (41000, 41999)
    assert inventory.vllm.service_ports == (40000, 40063)
    assert inventory.vllm.shm_size_bytes == 10 * GIB


def test_anchors_and_merge_keys_are_understood(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        "hosts:\n- &one {name: a, user: u, gpus: {name: L4, count: 2}}\n"
        "- {<<: *one, name: b, address: 10.0.0.2}\n",
    )
    assert [(host.name, host.user, host.gpus[0].count) for host in inventory.hosts] == [
        ("a", "u", 2),
        ("b", "u", 2),
    ]


HOST = "hosts:\n  - name: h1\n    "


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (HOST + "lables: {a: b}", "inventory.yaml:3: hosts[0].lables: unknown key; did you mean 'labels'?"),
        (HOST + "lables:", "inventory.yaml:3: hosts[0].lables: unknown key; did you mean 'labels'?"),
        ("hots: []", "inventory.yaml:1: hots: unknown key; did you mean 'hosts'?"),
        (
            HOST + "reserve:\n      vrm: 1GiB",
            "inventory.yaml:4: hosts[0].reserve.vrm: unknown key; did you mean 'vram'?",
        ),
        (
            HOST + "gpus:\n      nam: L4",
            "inventory.yaml:4: hosts[0].gpus.nam: unknown key; did you mean 'name'?",
        ),
        (
            HOST + "gpus:\n      - name: L4\n        cuont: 2",
            "inventory.yaml:5: hosts[0].gpus[0].cuont: unknown key",
        ),
        (
            "vllm: {imag: x}\nhosts: [{name: a}]",
            "inventory.yaml:1: vllm.imag: unknown key; did you mean 'image'?",
        ),
        ("defaults: {name: x}\nhosts: [{name: a}]", "inventory.yaml:1: defaults.name: unknown key"),
        ("hosts:\n  - address: x", "inventory.yaml:2: hosts[0].name: this key is required"),
        ("hosts: []", "inventory.yaml:1: hosts: must not be empty"),
        ("hosts:", "inventory.yaml:1: hosts: this key is required"),
        ("hosts: {a: {}}", "inventory.yaml:1: hosts: must be a list"),
        ("hosts: [h1]", "inventory.yaml:1: hosts[0]: must be a mapping of keys to values"),
        ("- name: h1", "inventory.yaml:1: must be a mapping with the key 'hosts'"),
        ("just text", "inventory.yaml:1: must be a mapping with the key 'hosts'"),
        ("", "inventory.yaml: is empty"),
        ("# nothing yet\n", "inventory.yaml: is empty"),
        ("hosts: [{name: a}]\n---\nhosts: []", "inventory.yaml:2: a second document starts here"),
        (
            "hosts:\n- name: a\n  port: 22\n  port: 23",
            "inventory.yaml:4: the key 'port' is repeated, first on line 3",
        ),
        (
            "hosts:\n- name: a\n- name: A",
            "inventory.yaml:3: hosts[1].name: 'A' is already the name of hosts[0]",
        ),
        (
            "hosts:\n- {name: a, address: x}\n- {name: b, address: X.}",
            "inventory.yaml:3: hosts[1].address: is the same",
        ),
        (
            "hosts:\n- {name: a, address: b}\n- {name: b}",
            "inventory.yaml:3: hosts[1].name: is the same machine",
        ),
        (
            "hosts:\n- {name: a, address: localhost}\n- {name: b, address: 127.0.0.1}",
            "is the same machine as hosts[0]",
        ),
        (HOST + "port: 70000", "inventory.yaml:3: hosts[0].port: must be at most 65535"),
        (HOST + "port: 0", "hosts[0].port: must be at least 1"),
        (HOST + "port: ssh", "hosts[0].port: must be a whole number"),
        (HOST + "port: true", "hosts[0].port: must be a whole number"),
        (HOST + "reserve: {vram: lots}", "inventory.yaml:3: hosts[0].reserve.vram: 'lots' is not a size"),
        (HOST + "reserve: {vram: 8}", "hosts[0].reserve.vram: '8' has no unit; write for example 8GiB"),
        (HOST + "reserve: {ram: -1GiB}", "hosts[0].reserve.ram: '-1GiB' is not a size"),
        (HOST + "reserve: 8GiB", "hosts[0].reserve: must be a mapping"),
        (HOST + "gpus: {name: L4, count: 0}", "hosts[0].gpus.count: must be at least 1"),
        (HOST + "gpus: {name: L4, count: -2}", "hosts[0].gpus.count: must be at least 1"),
        (HOST + "gpus: {name: L4, count: 100000}", "hosts[0].gpus.count: must be at most 256"),
        (
            HOST + "gpus: {name: L4, count: 999999999999999999999999}",
            "hosts[0].gpus.count: must be a whole number",
        ),
        (HOST + "gpus: {name: L4, count: 1.5}", "hosts[0].gpus.count: must be a whole number"),
        (HOST + "gpus: {count: 1}", "hosts[0].gpus.name: this key is required"),
        (HOST + "gpus: 8", "hosts[0].gpus: must be a list"),
        (HOST + "gpus: {name: L4, memory: 0GiB}", "hosts[0].gpus.memory: must be at least"),
        (HOST + "gpus: [{name: L4, count: 200}, {name: L4, count: 200}]", "hosts[0].gpus: declares 400 GPUs"),
        (HOST + "gpus:\n      name: Z9000X", "inventory.yaml:4: hosts[0].gpus.name: "),
        (
            HOST + "gpus: {name: L4, count: 2}\n    exclude_gpus: [2]",
            "inventory.yaml:4: hosts[0].exclude_gpus[0]: GPU 2",
        ),
        (HOST + "exclude_gpus: [1, 1]", "hosts[0].exclude_gpus[1]: GPU 1 is listed twice"),
        (HOST + "exclude_gpus: [-1]", "hosts[0].exclude_gpus[0]: must be at least 0"),
        (HOST + "jump: h1", "hosts[0].jump: a host cannot be its own jump host"),
        (HOST + "address: -oProxyCommand=x", "hosts[0].address: '-oProxyCommand=x' is not an address"),
        ("hosts: [{name: 'a b'}]", "hosts[0].name: 'a b' is not a name"),
        (HOST + "labels: {a=b: c}", "hosts[0].labels.a…: is not a label"),
        (HOST + "labels: {a: [1]}", "hosts[0].labels.a: must be a text"),
        (
            "hosts: [{name: a}]\nvllm: {ray_ports: 9-5}",
            "inventory.yaml:2: vllm.ray_ports: 9-5 is not a range",
        ),
        ("hosts: [{name: a}]\nvllm: {ray_ports: 41000}", "vllm.ray_ports: must be a range of ports"),
        (
            "hosts: [{name: a}]\nvllm: {ray_ports: 1-70000}",
            "vllm.ray_ports: 1-70000 is not a range within 1-65535",
        ),
        (
            "hosts: [{name: a}]\nvllm: {ray_ports: 40050-40900}",
            "Ray's ports 40050-40900 overlap the service ports",
        ),
        (
            "hosts: [{name: a}]\nvllm:\n  env:\n    A: [1]",
            "inventory.yaml:4: vllm.env.A: must be a text or a number",
        ),
        (
            "hosts: [{name: a}]\nvllm: {env: {A: true}}",
            "vllm.env.A: must be a text or a number; write the value in quotes",
        ),
        ("hosts: [{name: a}]\nvllm: {env: {A: }}", "vllm.env.A: must be a text or a number"),
        ("hosts: [{name: a}]\nvllm: {env: {'A B': x}}", "vllm.env.A B: is not a variable name"),
        ("hosts:\n\t- name: a", "inventory.yaml:2: not valid YAML: a tab is used for indentation"),
        ("hosts: [{name: a}", "not valid YAML"),
        ("hosts: *nowhere", "inventory.yaml:1: an alias has no anchor before it"),
        ("hosts: &x [*x]", "inventory.yaml:1: an alias refers to what it is part of"),
        ("hosts: !!python/object:os.system [x]", "inventory.yaml:1: a tag is not supported"),
        ("hosts: !env SECRET", "inventory.yaml:1: a tag is not supported"),
        ("? [a, b]\n: c", "inventory.yaml:1: a key must be a word"),
        ("[" * 100_000, "inventory.yaml:1: nested more than 32 levels deep"),
        (b"\x7fELF\x02\x01\x00\x00", "inventory.yaml:1: is not text: it holds the control character U+007F"),
        (b"hosts:\n\xff\xfe", "inventory.yaml:2: is not UTF-8 text"),
    ],
)
def test_a_fault_names_its_place(tmp_path: Path, text: str | bytes, fault: str) -> None:
    assert fault in refusal(tmp_path, text)


def test_an_unknown_gpu_is_refused_with_its_line_and_the_way_out(tmp_path: Path) -> None:
    message = refusal(tmp_path, HOST + "gpus:\n      - {name: L4}\n      - {name: H100-81GB}")
    assert message.startswith("inventory.yaml:5: hosts[0].gpus[1].name: ")
    assert "H100-80GB" in message
    assert "memory: 80GiB" in message


def test_several_faults_come_together_and_are_counted_beyond_ten(tmp_path: Path) -> None:
    hosts = "".join(f"  - {{name: h{n}, portt: 1}}\n" for n in range(14))
    lines = refusal(tmp_path, f"hosts:\n{hosts}").splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("inventory.yaml:2: hosts[0].portt")
    assert lines[-1] == "inventory.yaml: and 4 more"


UNQUOTED = (
    "{HF_TOKEN:hf_s3cret: }",
    "{HF_TOKEN=hf_s3cret, B}",
    "{A: !hf_s3cret}",
    "{A: *hf_s3cret}",
    "{A: !hf_s3cret [x]}",
)


def test_a_secret_is_never_repeated(tmp_path: Path) -> None:
    for env in (
        "{HF_TOKEN: [hf_s3cret]}",
        "{hf-token: hf_s3cret}",
        "hf_s3cret",
        "{A: {b: hf_s3cret}}",
        *UNQUOTED,
    ):
        assert "s3cret" not in refusal(tmp_path, f"hosts: [{{name: a}}]\nvllm: {{env: {env}}}")


def test_aliases_cannot_blow_up(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    started = time.process_time()
    message = refusal(tmp_path, bomb)
    assert "once aliases are expanded" in message
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "text",
    [
        "hosts:\n- {name: a, " + ", ".join(f"lable{n}: 1" for n in range(20_000)) + "}",
        "hosts: [" + "{nam: x}," * 12_000 + "]",
        "hosts: [{name: a, exclude_gpus: [" + "0," * 80_000 + "]}]",
        "hosts: [" + "{name: a, gpus: {name: L4, count: 256}}," * 10_000 + "]",
        "x: {<<: [" + ", ".join(f"{{k{n}: 1}}" for n in range(20_000)) + "]}",
    ],
    ids=["unknown keys", "bad hosts", "exclusions", "same hosts", "merges"],
)
def test_a_hostile_file_is_refused_in_bounded_time(tmp_path: Path, text: str) -> None:
    started = time.process_time()
    assert len(refusal(tmp_path, text)) < 5000
    assert time.process_time() - started < 15


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="no such file") as caught:
        load(tmp_path / "absent.yaml")
    assert "gpuplan schema inventory" in str(caught.value.hint)
    assert "absent.yaml" in caught.value.message
    for path in (tmp_path, Path("/dev/zero"), "nul\0byte"):
        with pytest.raises(InventoryError):
            load(path)


def test_a_pipe_nobody_writes_to_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InventoryError, match="is empty"):
        load(tmp_path / "pipe")


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 1024**2)
    with pytest.raises(InventoryError, match="larger than 8 MiB"):
        load(path)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbfhosts:\r\n  - name: h1\r\n").hosts[0].name == "h1"


def test_a_thousand_hosts_are_quick(tmp_path: Path) -> None:
    hosts = "".join(
        f"- {{name: h{n}, gpus: {{name: H100-80GB, count: 8}}, labels: {{zone: a}}}}\n" for n in range(1000)
    )
    started = time.process_time()
    assert len(read(tmp_path, f"hosts:\n{hosts}").hosts) == 1000
    assert time.process_time() - started < 3


def test_a_plan_on_an_inventory_is_made_without_pydantic() -> None:
    """It takes a fifth of a second to import, more than all the rest of a plan."""
    program = (
        "import contextlib, io, sys\n"
        "from gpuplan.cli.app import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    run(['plan', 'Qwen/Qwen3-4B', '-i', sys.argv[1], '--no-probe', '-o', 'json'])\n"
        "print(sorted(name for name in sys.modules if name.startswith('pydantic')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


class TestSearch:
    def test_order(self, tmp_path: Path) -> None:
        here, config = tmp_path / "here", tmp_path / "config"
        (config / "gpuplan").mkdir(parents=True)
        here.mkdir()
        environ = {"XDG_CONFIG_HOME": str(config), "HOME": str(tmp_path)}
        assert find_inventory(None, environ, here) is None
        (config / "gpuplan" / "inventory.yaml").touch()
        assert find_inventory(None, environ, here) == config / "gpuplan" / "inventory.yaml"
        (here / "inventory.yaml").touch()
        assert find_inventory(None, environ, here) == here / "inventory.yaml"
        environ["GPUPLAN_INVENTORY"] = "~/named.yaml"
        assert find_inventory(None, environ, here) == tmp_path / "named.yaml"
        assert find_inventory("given.yaml", environ, here) == Path("given.yaml")

    def test_the_config_directory_defaults_to_the_home(self, tmp_path: Path) -> None:
        place = tmp_path / ".config" / "gpuplan" / "inventory.yaml"
        place.parent.mkdir(parents=True)
        place.touch()
        environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "GPUPLAN_INVENTORY": ""}
        assert find_inventory(None, environ, tmp_path) == place
        assert find_inventory(None, {}, tmp_path) is None


class TestExample:
    def test_it_declares_three_hosts_and_every_key(self) -> None:
        inventory = load(EXAMPLE)
        assert len(inventory.hosts) == 3
        assert all(host.gpus for host in inventory.hosts)
        text = EXAMPLE.read_text()
        for keys in (inventory_schema(), *inventory_schema()["$defs"].values()):
            for key in keys["properties"]:
                assert f"{key}:" in text, f"{key} is not documented"

    def test_the_schema_forbids_unknown_keys_and_shows_both_forms_of_gpus(self) -> None:
        schema = inventory_schema()
        assert schema["additionalProperties"] is False
        host = schema["$defs"]["HostKeys"]
        assert host["required"] == ["name"]
        assert {"$ref": "#/$defs/GpusKeys"} in host["properties"]["gpus"]["anyOf"]
