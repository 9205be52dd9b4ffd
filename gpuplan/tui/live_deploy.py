"""Deploying from the app: a candidate becomes a saved plan, and a process of its own deploys that."""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuplan.domain.plan import Candidate, Plan, Verdict
from gpuplan.domain.secret_text import MASK, masked_words
from gpuplan.engine.argument_tokens import flag_of, grouped
from gpuplan.errors import UsageError
from gpuplan.operations import deploy_process
from gpuplan.operations.deploy_prepare import look
from gpuplan.operations.deploy_request import DeployRequest
from gpuplan.operations.fleet import FleetOptions, load_inventory
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.probe import ProbeOptions
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.sources.plan_json import FROM_ENVIRONMENT
from gpuplan.sources.state import state_directory
from gpuplan.tui.services import Proposal, Run

Reach = Callable[[], ProbeOptions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a proposal was made from; nothing of it is shown."""

    document: str
    """The plan, secrets masked."""
    secret_args: tuple[str, ...]
    """Arguments of the engine that a plan file does not hold."""
    keep_alive_seconds: int | None

    def __repr__(self) -> str:
        return "Chosen(…)"


def candidate_at(plan: Plan, choice: tuple[int, int]) -> Candidate:
    """The candidate that is meant: index of the strategy, index among its candidates."""
    return plan.strategies[choice[0]].candidates[choice[1]]


def plan_file(plan: Plan, choice: tuple[int, int]) -> str:
    """The plan as `gpuplan plan -o json` writes it, with this candidate as the recommended one."""
    strategy = plan.strategies[choice[0]].strategy
    request: Mapping[str, Any] = plan.request
    if candidate_at(plan, choice).verdict is Verdict.OVERCOMMIT:
        request = {**request, "allow_overcommit": True}
    chosen = replace(plan, request=request, recommended=(strategy, choice[1]), recommended_because=())
    return json.dumps(plain(plan_document(chosen)), ensure_ascii=True)


def secret_args(words: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the user's arguments whose values a plan file masks."""
    groups = zip(grouped(words), grouped(masked_words(words)), strict=True)
    return tuple(word for group, shown in groups if any(MASK in one for one in shown) for word in group)


def proposal_of(
    options: FleetOptions,
    plan: Plan,
    choice: tuple[int, int],
    name: str | None,
    keep_alive_seconds: int | None,
    secrets: tuple[str, ...],
) -> Proposal:
    """What deploying it would do on the hosts as they are now.

    Raises StoppedByFacts, UsageError for a secret that the process list would show, and what planning raises.
    """
    _, told = _secrets_aside({}, secrets)
    if told:
        flags = ", ".join(dict.fromkeys(flag_of(group) for group in grouped(told)))
        raise UsageError(
            f"the secret of {flags} would be seen in the process list",
            hint="only --api-key and --hf-token have another way; put the value into a file the engine reads",
        )
    document = plan_file(plan, choice)
    with tempfile.TemporaryDirectory(prefix="gpuplan-") as directory:
        path = Path(directory) / deploy_process.PLAN
        deploy_process.write_private(path, document)
        prepared = look(
            DeployRequest(
                reference=str(path),
                fleet=options,
                serving=ServingOptions(engine_args=secrets),
                name=name,
                keep_alive_seconds=keep_alive_seconds,
            )
        )
    token = Chosen(document=document, secret_args=secrets, keep_alive_seconds=keep_alive_seconds)
    return Proposal(
        spec=prepared.spec,
        replaces=prepared.replaces,
        evicts=prepared.evicts,
        evicted=prepared.evicted_members,
        remarks=prepared.remarks,
        token=token,
    )


def begin(options: FleetOptions, reach: Reach, proposal: Proposal) -> Run:
    """Deploy a proposal in a process of its own. Raises CannotStart."""
    chosen = proposal.token
    assert isinstance(chosen, Chosen), "a proposal of another service"
    inventory = load_inventory(options)
    probe = reach()
    directory = deploy_process.new_directory(state_directory(options.environ))
    plan = directory / deploy_process.PLAN
    deploy_process.write_private(plan, chosen.document)
    environ, _ = _secrets_aside(options.environ, chosen.secret_args)
    command = deploy_process.deploy_command(
        plan,
        name=proposal.spec.name,
        inventory=inventory.path if inventory is not None else None,
        keep_alive_seconds=chosen.keep_alive_seconds,
        host_key=probe.ssh.policy.value,
        jobs=probe.jobs,
    )
    return deploy_process.start(
        directory,
        command,
        name=proposal.spec.name,
        inventory=inventory.path if inventory is not None else "",
        cwd=options.cwd,
        environ=environ,
    )


def runs(options: FleetOptions) -> tuple[Run, ...]:
    """Deploys under way, and those whose end nobody saw."""
    return deploy_process.find(state_directory(options.environ))


def _secrets_aside(
    environ: Mapping[str, str], words: tuple[str, ...]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Secrets that the engine takes from the environment travel there; the words of the others have no way."""
    given, rest = dict(environ), list[str]()
    for group in grouped(words):
        variable = FROM_ENVIRONMENT.get(flag_of(group))
        value = group[0].partition("=")[2] or (group[1] if len(group) == 2 else "")
        if variable is not None and value:
            given[variable] = value
        else:
            rest += group
    return given, tuple(rest)
