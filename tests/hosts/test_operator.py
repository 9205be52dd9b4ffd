"""What a tired operator meets: secrets on hosts, bug reports, two names for a machine, a wrong place to save."""

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from gpuplan.sources.snapshot_json import snapshot_schema
from tests.hosts.fleet import Fleet
from tests.hosts.test_probe import MODEL, gpuplan

SECRETS = ("sk-abcdefghijklmnop1234", "hf_abcdefghijklmnopqrstuvwxyz123456", "correct-horse")
AMD = Path(__file__).parents[1] / "data" / "probes" / "amd_smi" / "mi300x_x8_rocm64"
COMMAND = f"python serve.py --api-key={SECRETS[0]} --hf-token {SECRETS[1]} PASSWORD={SECRETS[2]}"


def said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def test_secrets_of_command_lines_are_nowhere(fleet: Fleet, tmp_path: Path) -> None:
    fleet["h100-b"].recorded("/home/alice/venv/bin/python3", COMMAND)
    hosts = ["-i", str(fleet.inventory(tmp_path / "inventory.yaml", "h100-b"))]
    saved = tmp_path / "fleet.json"
    texts = [
        said(gpuplan(fleet, "probe", *hosts, "--save", str(saved))),
        said(gpuplan(fleet, "probe", *hosts, "-o", "json")),
        said(gpuplan(fleet, "plan", MODEL, *hosts)),
        said(gpuplan(fleet, "plan", MODEL, *hosts, "-o", "json")),
        saved.read_text(),
    ]
    assert "serve.py --api-key=***" in texts[4], "the process itself is seen"
    assert [secret for secret in SECRETS for text in texts if secret in text] == []


def test_secrets_of_a_login_that_fails_are_masked(fleet: Fleet, tmp_path: Path) -> None:
    fleet["mixed"].force(f"#!/bin/sh\necho 'no login [bold] token={SECRETS[2]} \033[31m' >&2\nexit 1\n")
    inventory = fleet.inventory(tmp_path / "inventory.yaml", "mixed")
    for words in (["probe"], ["probe", "-o", "json"], ["check"]):
        text = said(gpuplan(fleet, *words, "-i", str(inventory), status=4))
        assert "no login [bold] token=***" in " ".join(text.split())
        assert SECRETS[2] not in text
        assert "\033" not in text


def test_a_redacted_fleet_names_nobody(fleet: Fleet, tmp_path: Path) -> None:
    hosts: list[dict[str, object]] = [
        {"name": "a", "address": fleet["h100-b"].address, "labels": {"owner": "carol"}},
        {"name": "db", "address": fleet.nobody()},
        {"name": "h1", "address": "fd00:99::17"},
        {"name": "behind", "address": "10.9.8.7", "jump": "db"},
        {"name": "far", "address": "10.9.8.6", "jump": "dave@bastion.acme.invalid"},
    ]
    inventory = fleet.inventory(tmp_path / "inventory.yaml", "spark", extra=hosts)
    saved = tmp_path / "redacted.json"
    table = said(gpuplan(fleet, "probe", "-i", str(inventory), "--redact", "--save", str(saved)))
    document = json.loads(saved.read_text())
    jsonschema.validate(document, snapshot_schema())
    given = ("spark", "behind", "alice", "carol", "dave", "acme", "bastion", "10.9.8", "fd00:99", "198.18.")
    assert [word for word in given if word in saved.read_text() + table] == []
    assert '"db"' not in saved.read_text()
    assert "jump host db" not in table
    assert [host["name"] for host in document["hosts"]] == [
        "host-6",
        "host-1",
        "host-3",
        "host-5",
        "host-2",
        "host-4",
    ]


@pytest.mark.parametrize("name", ["h100-a", "h100-b", "mixed", "mig", "spark"])
def test_a_live_probe_is_a_valid_snapshot(fleet: Fleet, tmp_path: Path, name: str) -> None:
    inventory = fleet.inventory(tmp_path / "inventory.yaml", name)
    done = gpuplan(fleet, "probe", "-i", str(inventory), "-o", "json")
    jsonschema.validate(json.loads(done.stdout), snapshot_schema())


def test_one_machine_under_an_alias_is_told_with_what_mends_it(fleet: Fleet, tmp_path: Path) -> None:
    config = fleet.home / ".ssh" / "config"
    config.write_text(f"Host again\n  HostName {fleet['spark'].address}\n")
    try:
        inventory = fleet.inventory(tmp_path / "inventory.yaml", "spark", extra=[{"name": "again"}])
        text = " ".join(said(gpuplan(fleet, "probe", "-i", str(inventory))).split())
    finally:
        config.unlink()
    assert "again failed – duplicate: is the machine that spark is" in text
    assert "take one of the names out of the inventory" in text
    assert "start-up files" not in text


def test_a_place_that_cannot_be_written_is_refused_before_the_probe(fleet: Fleet, tmp_path: Path) -> None:
    inventory = fleet.inventory(tmp_path / "inventory.yaml", "spark")
    for place in (tmp_path, tmp_path / "nowhere" / "fleet.json"):
        done = gpuplan(fleet, "probe", "-i", str(inventory), "--save", str(place), status=2)
        assert done.stdout == "", "nothing was probed"
        assert f"--save {place}: cannot be written" in done.stderr


def test_a_password_that_nobody_can_be_asked_for(fleet: Fleet, tmp_path: Path) -> None:
    fleet["spark"].restart_sshd(PasswordAuthentication="yes")
    missing = tmp_path / "missing"
    entry = {"user": "stranger", "identity_file": str(missing)}
    inventory = fleet.inventory(tmp_path / "inventory.yaml", "spark", entries={"spark": entry})
    text = " ".join(said(gpuplan(fleet, "probe", "-i", str(inventory), status=4)).split())
    assert "stranger was not let in" in text
    assert "nobody can be asked for a password here" in text
    assert f"{missing}, named in the inventory, does not exist" in text


def test_a_host_of_two_vendors_keeps_them_apart(fleet: Fleet, tmp_path: Path) -> None:
    host = fleet["mixed"]
    for part in ("static", "metric", "process", "topology"):
        host.write(f"/srv/amd-{part}", (AMD / f"amd_{part}.txt").read_bytes())
    host.put_tool("amd-smi", "exec cat /srv/amd-$1")
    inventory = str(fleet.inventory(tmp_path / "inventory.yaml", "mixed"))
    (seen,) = json.loads(gpuplan(fleet, "probe", "-i", inventory, "-o", "json").stdout)["hosts"]
    assert [(gpu["index"], gpu["vendor"], gpu["backend"]) for gpu in seen["gpus"]] == [
        *((index, "nvidia", "cuda") for index in range(3)),
        *((index, "amd", "rocm") for index in range(3, 11)),
    ]
    backends = {gpu["index"]: gpu["backend"] for gpu in seen["gpus"]}
    plan = json.loads(gpuplan(fleet, "plan", MODEL, "-i", inventory, "-o", "json").stdout)
    used = [
        {backends[gpu["index"]] for member in candidate["placement"] for gpu in member["gpus"]}
        for strategy in plan["strategies"]
        for candidate in strategy["candidates"]
    ]
    assert {"rocm"} in used
    assert all(len(mixed) == 1 for mixed in used), "no placement spans two vendors"
