"""A chosen candidate is a plan file that `gpuplan deploy` takes; secrets travel beside it."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuplan.domain.plan import StrategyName, Verdict
from gpuplan.errors import UsageError
from gpuplan.operations.deploy_process import DeployProcess
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.probe import ProbeOptions
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
from gpuplan.sources import plan_json
from gpuplan.tui.live_deploy import Chosen, _secrets_aside, begin, plan_file, proposal_of, runs, secret_args
from gpuplan.tui.services import Proposal, Question
from tests.tui.deploys import SPEC, chosen, overcommitted, plan_of
from tests.tui.fakes import EXAMPLE, ROOT, FakeServices

MODEL = str(ROOT / "tests/data/configs/Qwen__Qwen3-32B.json")
TOKEN = "sk-very-secret-0123456789"


def options(tmp_path: Path) -> FleetOptions:
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    return FleetOptions(environ=environ, cwd=ROOT, inventory=EXAMPLE, no_probe=True)


def test_the_choice_is_what_is_recommended() -> None:
    plan = plan_of()
    number = next(n for n, one in enumerate(plan.strategies) if one.strategy is StrategyName.MULTI_HOST)
    index = len(plan.strategies[number].candidates) - 1
    read = plan_json.parse(plan_file(plan, (number, index)).encode(), "plan.json")
    assert read.strategy is StrategyName.MULTI_HOST
    assert [host.host for host in read.candidate.placement] == [
        host.host for host in plan.strategies[number].candidates[index].placement
    ]
    assert read.serving["allow_overcommit"] is False


def test_an_overcommit_that_was_agreed_to_is_allowed() -> None:
    plan = overcommitted(plan_of())
    read = plan_json.parse(plan_file(plan, chosen(plan, Verdict.OVERCOMMIT)).encode(), "plan.json")
    assert read.serving["allow_overcommit"] is True
    assert read.candidate.verdict is Verdict.OVERCOMMIT


def test_a_proposal_is_what_a_dry_run_shows(tmp_path: Path) -> None:
    plan = plan_of()
    proposal = proposal_of(options(tmp_path), plan, chosen(plan), "mine", 600, ())
    assert proposal.spec.name == "mine"
    placed = plan.strategies[chosen(plan)[0]].candidates[chosen(plan)[1]].placement
    assert proposal.spec.hosts == tuple(host.host for host in placed)
    assert isinstance(proposal.token, Chosen)
    assert proposal.token.keep_alive_seconds == 600


def test_secrets_are_in_no_file_and_no_text(tmp_path: Path) -> None:
    services = FakeServices()
    serving = ServingOptions(context="8192", engine_args=(f"--api-key {TOKEN}", "--max-num-seqs", "4"))
    plan = services.plan(Question(reference=MODEL, serving=serving), services.answer)
    assert TOKEN not in plan_file(plan, chosen(plan))
    secrets = secret_args(("--api-key", TOKEN, "--max-num-seqs", "4"))
    assert secrets == ("--api-key", TOKEN)
    proposal = proposal_of(options(tmp_path), plan, chosen(plan), None, None, secrets)
    assert TOKEN not in repr(proposal)
    environ, words = _secrets_aside({"A": "b"}, secrets)
    assert (environ, words) == ({"A": "b", "VLLM_API_KEY": TOKEN}, ())
    environ, words = _secrets_aside({}, (f"--api-key={TOKEN}", "--other-token", "x"))
    assert (environ, words) == ({"VLLM_API_KEY": TOKEN}, ("--other-token", "x"))
    with pytest.raises(UsageError, match="--other-token would be seen") as refused:
        proposal_of(options(tmp_path), plan, chosen(plan), None, None, ("--other-token", TOKEN))
    assert TOKEN not in f"{refused.value.message}{refused.value.hint}"


def test_a_run_is_begun_with_what_was_agreed_to_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is the real one; in the place of Python stands a program that tells what it was given."""
    program = tmp_path / "program"
    program.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" >&2\necho "$VLLM_API_KEY" | wc -c >&2\npwd >&2\nexit 3\n'
    )
    program.chmod(0o700)
    monkeypatch.setattr("gpuplan.operations.deploy_process.sys", SimpleNamespace(executable=str(program)))
    settings = SshSettings(known_hosts=tmp_path / "k", home=tmp_path, policy=HostKeyPolicy.STRICT)
    token = Chosen(document="{}", secret_args=("--api-key", TOKEN), keep_alive_seconds=60)
    proposal = Proposal(spec=replace(SPEC, name="mine"), token=token)
    run = begin(options(tmp_path), lambda: ProbeOptions(ssh=settings, jobs=7), proposal)
    assert isinstance(run, DeployProcess)
    assert list(run.events()) == []
    outcome = run.outcome()
    assert outcome is not None
    words = outcome.message.split("\n")
    assert outcome.exit_code == 3
    assert words[:3] == ["-m", "gpuplan", "deploy"]
    assert words[words.index("--name") + 1] == "mine"
    assert words[words.index("-i") + 1] == str(EXAMPLE)
    assert words[words.index("--keep-alive") + 1] == "60"
    assert words[words.index("--host-key") + 1] == "strict"
    assert words[-2:] == [str(len(TOKEN) + 1), str(ROOT)]
    assert TOKEN not in outcome.message
    plan = Path(words[3])
    assert plan.parent == run.directory
    assert plan.stat().st_mode & 0o077 == 0
    assert [one.id for one in runs(options(tmp_path))] == [run.id]
    about = json.loads((run.directory / "run.json").read_text())
    assert about["name"] == "mine"
    assert about["inventory"] == str(EXAMPLE)
    assert all(TOKEN not in path.read_text() for path in run.directory.iterdir())
