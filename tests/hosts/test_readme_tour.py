"""The README's tour on real hosts, command by command, in the order it is written."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.golden.test_readme import examples, is_offline
from tests.hosts.fleet import Fleet

CHECK_FOUND_FAULTS = 1
"""The hosts have none of the models the tour asks for, and no GPU: a red rung is no failure of the command."""


def test_the_tour_as_it_is_written(fleet: Fleet, tmp_path: Path) -> None:
    for name, user in (("h100-a", "ubuntu"), ("h100-b", "ubuntu")):
        fleet[name].add_user(user, groups=["docker"])
    (fleet.home / ".ssh" / "config").write_text(f"Host *\n  IdentityFile {fleet.identity}\n")
    hosts = {"10.0.0.11": fleet["h100-a"].address, "10.0.0.12": fleet["h100-b"].address}
    root = Path(__file__).parents[2]
    (tmp_path / "inventory.example.yaml").symlink_to(root / "inventory.example.yaml")
    ran = []
    for example in examples():
        words = example
        for written, real in hosts.items():
            words = words.replace(written, real)
        done = subprocess.run(
            [sys.executable, "-m", "gpuplan", *shlex.split(words)],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(fleet.home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        allowed = {0, CHECK_FOUND_FAULTS} if example.startswith("check") else {0}
        assert done.returncode in allowed, f"{example}: {done.stdout}{done.stderr}"
        assert done.stdout.strip(), example
        ran += [] if is_offline(example) else [example.split()[0]]
    assert ran[:4] == ["init", "probe", "check", "plan"]
    (fleet.home / ".ssh" / "config").unlink()
