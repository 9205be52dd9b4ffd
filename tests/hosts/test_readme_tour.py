"""The README's tour on real hosts, command by command, in the order it is written."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.golden.test_readme import examples, is_offline
from tests.hosts.deploying import containers
from tests.hosts.fleet import Fleet
from tests.hosts.models import DIRECTORY, tiny_tensors
from tests.safetensors_files import safetensors_file

CHECK_FOUND_FAULTS = 1
"""The hosts have no way to a registry: a red rung is no failure of the command."""
CONFIG = Path(__file__).parents[1] / "data" / "configs" / "Qwen__Qwen3-32B.json"
MODEL = "Qwen/Qwen3-32B"


def test_the_tour_as_it_is_written(deploy_fleet: Fleet, tmp_path: Path) -> None:
    hosts = {"10.0.0.11": deploy_fleet["gpu-a"], "10.0.0.12": deploy_fleet["gpu-b"]}
    for host in hosts.values():
        host.add_user("ubuntu", groups=["docker"])
        host.write(f"{DIRECTORY}/{MODEL}/config.json", json.dumps(json.loads(CONFIG.read_text())))
        host.write(f"{DIRECTORY}/{MODEL}/model.safetensors", safetensors_file(tiny_tensors()))
    settings = deploy_fleet.home / ".ssh" / "config"
    settings.write_text(f"Host *\n  IdentityFile {deploy_fleet.identity}\n")
    root = Path(__file__).parents[2]
    for name in ("inventory.example.yaml", "docs"):
        (tmp_path / name).symlink_to(root / name)
    meant = {"/data/models": DIRECTORY, **{written: host.address for written, host in hosts.items()}}
    ran = []
    for example in examples():
        words = example
        for written, real in meant.items():
            words = words.replace(written, real)
        done = subprocess.run(
            [sys.executable, "-m", "gpuplan", *shlex.split(words)],
            cwd=tmp_path,
            env={
                **os.environ,
                "HOME": str(deploy_fleet.home),
                "XDG_STATE_HOME": str(deploy_fleet.home / "state"),
                "HF_HUB_OFFLINE": "1",
                "PYTHONPATH": str(root),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        allowed = {0, CHECK_FOUND_FAULTS} if example.startswith("check") else {0}
        assert done.returncode in allowed, f"{example}: {done.stdout}{done.stderr}"
        assert done.stdout.strip(), example
        if not is_offline(example):
            verb = example.split()[0]
            ran.append(verb)
            there = [name for host in hosts.values() for name in containers(host)]
            assert bool(there) == (verb in {"deploy", "status", "logs", "restart", "sweep"}), (
                f"{example}: {there}"
            )
    assert ran[:4] == ["init", "probe", "check", "plan"]
    assert ran[-7:] == ["deploy", "status", "status", "logs", "restart", "sweep", "stop"]
    settings.unlink()
