"""What `plan --since` and `plan --diff` say below a plan, and what a priced plan says of its cost.

`GPUPLAN_UPDATE_GOLDEN=1` writes the files anew.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.test_cli import FLEETS, compare, outline, printed, transcript

ROOT = Path(__file__).parents[2]
PRICED = "-i tests/golden/cases/fleets/priced.yaml --no-probe"
MIXED = "tests/golden/cases/fleets/mixed.json"
BUSY = "tests/golden/cases/fleets/busy.json"
QWEN = "plan Qwen/Qwen3-32B"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A directory for saved plans, with nothing learned; its name is as long everywhere, so that lines break alike."""
    directory = tempfile.mkdtemp(prefix="gpuplan-", dir="/tmp")
    monkeypatch.setenv("XDG_STATE_HOME", directory)
    yield directory
    shutil.rmtree(directory)


class Shell:
    """Commands run one after the other; files of `place` are written `@name`."""

    def __init__(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self._monkeypatch = place, monkeypatch

    def run(self, command: str) -> tuple[int, str, str]:
        return printed(command.replace("@", f"{self.place}/"), self._monkeypatch)

    def save(self, name: str, command: str) -> dict[str, Any]:
        _, out, _ = self.run(_as_json(command))
        Path(self.place, name).write_text(out)
        document: dict[str, Any] = json.loads(out)
        return document

    def since(self, command: str) -> str:
        """What stands below the plan, with the command."""
        status, out, _ = self.run(command)
        below = out.partition("\nsince ")[2] if "--since" in command else out
        text = f"since {below}" if "--since" in command else below
        return transcript(command, status, text.replace(self.place, "/tmp/gpuplan-STATE000"), "")

    def document(self, command: str) -> dict[str, Any]:
        _, out, _ = self.run(_as_json(command))
        document: dict[str, Any] = json.loads(out)
        return document


@pytest.fixture
def shell(place: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(place, monkeypatch)


def test_a_longer_context_is_the_cause(shell: Shell) -> None:
    shell.save("plan.json", f"{QWEN} {PRICED}")
    compare("since/asked", shell.since(f"{QWEN} {PRICED} --context 38k --concurrency 4 --since @plan.json"))


def test_a_fleet_without_a_snapshot_is_what_is_left(shell: Shell) -> None:
    shell.save("plan.json", f"{QWEN} --snapshot {MIXED} --context 8k")
    compare("since/fleet-left", shell.since(f"{QWEN} --snapshot {BUSY} --context 8k --since @plan.json"))


def test_a_snapshot_names_the_hosts(shell: Shell) -> None:
    command = f"plan Qwen/Qwen3-4B --snapshot {BUSY} --context 8k --since {MIXED}"
    compare("since/snapshot", shell.since(command))


def test_plan_and_snapshot_take_back_each_change(shell: Shell) -> None:
    shell.save("plan.json", f"{QWEN} --snapshot {MIXED} --context 8k")
    command = f"{QWEN} --snapshot {BUSY} --context 16k --concurrency 4 --since @plan.json --since {MIXED}"
    compare("since/both", shell.since(command))
    document = shell.document(command)["since"]
    assert document["changed"] == "fits"
    assert document["conclusion"] == "found"
    assert [(one["kind"], one["restores"]) for one in document["causes"]] == [
        ("fleet", True),
        ("asked", False),
        ("asked", False),
    ]


def test_two_saved_plans(shell: Shell) -> None:
    shell.save("a.json", f"{QWEN} {PRICED}")
    shell.save("b.json", f"{QWEN} {PRICED} -- --gpu-memory-utilization 0.8")
    compare("since/diff", shell.since("plan --diff @a.json @b.json"))
    document = shell.document("plan --diff @a.json @b.json")
    assert next(iter(document)) == "schema_version"
    compare("since/diff-json", transcript("plan --diff a.json b.json -o json", 0, _shape(document), ""))


def test_memory_that_is_held_now_is_told_with_its_owner(shell: Shell) -> None:
    for name, fleet in (("a", MIXED), ("b", BUSY)):
        shell.save(f"{name}.json", f"{QWEN} --snapshot {fleet} --gpus h1:0 --context 8k --allow-overcommit")
    since = shell.document("plan --diff @a.json @b.json")
    held = [
        one["words"] for one in since["differences"] if one["kind"] == "fleet" and "claimed" in one["words"]
    ]
    assert held == [
        "h1:0: 79.65 GiB → 10.00 GiB can be claimed (−69.65); held now: 69.65 GiB by python of ada, pid 4711"
    ]
    back = shell.document("plan --diff @b.json @a.json")
    assert any("held then: 69.65 GiB by python of ada" in one["words"] for one in back["differences"])


def test_the_same_plan_twice(shell: Shell) -> None:
    shell.save("a.json", f"{QWEN} {PRICED}")
    assert shell.run("plan --diff @a.json @a.json")[:2] == (
        0,
        f"{shell.place}/a.json → {shell.place}/a.json\n  Nothing is different.\n",
    )
    document = shell.document(f"{QWEN} {PRICED} --since @a.json")["since"]
    assert (document["changed"], document["conclusion"], document["differences"]) == (None, "same", [])


def test_what_was_learned_since_is_told(shell: Shell) -> None:
    log = ROOT / "tests" / "data" / "logs" / "startup" / "Qwen3-Next-80B-A3B-Instruct_H200-TP2_0.10.2.log"
    Path(shell.place, "h200.yaml").write_text("hosts: [{name: h1, gpus: {name: H200, count: 2}, ram: 1TiB}]")
    command = (
        "plan Qwen/Qwen3-Next-80B-A3B-Instruct -i @h200.yaml --no-probe --vllm-version 0.10.2 --context 262144 {}"
        " -- -tp 2"
    )
    shell.save("plan.json", command.format(""))
    assert shell.run(f"learn {log} --gpu H200")[0] == 0
    document = shell.document(command.format("--since @plan.json"))["since"]
    rules = [one["words"] for one in document["differences"] if one["kind"] == "rules"]
    assert any("measured" in words for words in rules)
    assert not [one for one in document["differences"] if one["kind"] in ("asked", "model", "fleet")]


def test_a_model_whose_files_changed_is_what_is_left(shell: Shell) -> None:
    config = json.loads((ROOT / "tests" / "data" / "configs" / "Qwen__Qwen3-14B.json").read_text())
    path = Path(shell.place, "config.json")
    path.write_text(json.dumps(config))
    command = "plan @config.json -i tests/golden/cases/fleets/lab.yaml --no-probe --context 8k"
    assert shell.save("plan.json", command)["recommended"] is not None
    path.write_text(json.dumps({**config, "num_hidden_layers": 3 * config["num_hidden_layers"]}))
    since = shell.document(f"{command} --since @plan.json")["since"]
    assert (since["changed"], since["conclusion"]) == ("place", "left")
    assert since["before_answer"]["words"] == "single GPU on lab:0 (TP1), context 8,000"
    assert [one["kind"] for one in since["causes"]] == ["model"]
    assert any(one["words"].startswith("layers 40 → 120") for one in since["differences"])


def test_another_model_is_taken_back(shell: Shell) -> None:
    shell.save("plan.json", f"plan Qwen/Qwen3-4B {PRICED} --host lab --gpus lab:0")
    since = shell.document(f"{QWEN} {PRICED} --host lab --gpus lab:0 --since @plan.json")["since"]
    (cause,) = since["causes"]
    assert (cause["kind"], cause["restores"]) == ("model", True)
    assert cause["words"] == "model Qwen/Qwen3-4B → Qwen/Qwen3-32B"


def test_a_fleet_of_then_without_a_gpu_had_no_plan(shell: Shell) -> None:
    fleet = {"schema_version": 1, "hosts": [{"name": "h1", "status": "unreachable", "gpus": []}]}
    Path(shell.place, "dark.json").write_text(json.dumps(fleet))
    since = shell.document(f"plan Qwen/Qwen3-4B --snapshot {MIXED} --context 8k --since @dark.json")["since"]
    assert since["before_answer"]["words"].startswith("no plan: no usable GPU")
    assert (since["changed"], since["conclusion"]) == ("fits", "found")
    assert {one["words"].partition(" (")[0] for one in since["causes"]} <= {"host h1", "the fleet"}
    assert all(one["kind"] == "fleet" for one in since["differences"])


def test_hosts_left_out_are_taken_back(shell: Shell) -> None:
    shell.save("plan.json", f"{QWEN} {PRICED}")
    since = shell.document(f"{QWEN} {PRICED} --host lab --gpus lab:0 --since @plan.json")["since"]
    assert (since["changed"], since["conclusion"]) == ("fits", "found")
    assert [(one["words"], one["restores"]) for one in since["causes"]] == [
        ("gpus – → lab:0", True),
        ("hosts – → lab", False),
    ]


def test_secrets_of_a_saved_plan_are_not_needed(shell: Shell) -> None:
    shell.save("plan.json", f"{QWEN} {PRICED} -- --api-key quokka")
    status, out, err = shell.run(f"{QWEN} {PRICED} --context 38k --since @plan.json -- --api-key walrus")
    assert (status, err) == (0, "")
    assert [word for word in ("quokka", "walrus") if word in out] == []
    assert "because of context – → 38,000" in " ".join(out.split())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("plan", "error: gpuplan plan: MODEL is missing"),
        ("plan Qwen/Qwen3-4B --diff @a.json @a.json", "error: --diff reads two saved plans and nothing else"),
        (f"plan --diff @a.json {MIXED}", f"error: {MIXED}: is not a plan"),
        (f"{QWEN} {PRICED} --since @none.json", "none.json: no such file"),
        (f"{QWEN} {PRICED} --since README.md", "error: README.md:1:1: is not JSON"),
        (f"{QWEN} {PRICED} --since @a.json --since @a.json", "two plans of then are one too many"),
        (f"{QWEN} {PRICED} --since {MIXED} --since {BUSY}", "two snapshots of then are one too many"),
    ],
)
def test_what_cannot_be_compared_is_refused(shell: Shell, command: str, message: str) -> None:
    if "@a.json" in command:
        shell.save("a.json", f"{QWEN} {PRICED}")
    status, out, err = shell.run(command)
    assert (status, out) == (2, "")
    assert message in err
    assert "hint: " in err


def test_a_plan_is_priced_and_a_snapshot_of_it_prices_the_same(shell: Shell) -> None:
    document = shell.save("plan.json", f"{QWEN} {PRICED} --concurrency 8")
    cost = _recommended(document)["cost"]
    compare("since/cost-json", transcript(f"{QWEN} {PRICED} -o json", 0, _shape(cost), ""))
    from gpuplan.operations.fleet import declared
    from gpuplan.sources.inventory_yaml import load
    from gpuplan.sources.snapshot_json import dumps

    Path(shell.place, "fleet.json").write_text(dumps(declared(load(FLEETS / "priced.yaml"))))
    again = shell.document(f"{QWEN} --snapshot @fleet.json --concurrency 8")
    assert _recommended(again)["cost"] == cost
    _, out, _ = shell.run(f"{QWEN} {PRICED} --concurrency 8")
    line = next(row for row in out.splitlines() if row.startswith("  costs "))
    assert line.startswith(f"  costs {cost['per_hour']:.2f} USD an hour, ")


def _as_json(command: str) -> str:
    own, dashes, engine = command.partition(" -- ")
    return f"{own} -o json{dashes}{engine}"


def _recommended(document: dict[str, Any]) -> dict[str, Any]:
    chosen = document["recommended"]
    result = next(one for one in document["strategies"] if one["strategy"] == chosen["strategy"])
    candidate: dict[str, Any] = result["candidates"][chosen["candidate"]]
    return candidate


def _shape(document: Any) -> str:
    return f"{json.dumps(outline(document), indent=1, ensure_ascii=False)}\n"
