"""What of a candidate can be copied or saved, as texts by file name. Secrets are masked in all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from gpuplan.deploying import export
from gpuplan.deploying.compile import default_name
from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.plan import Plan
from gpuplan.domain.secret_text import MASK
from gpuplan.present.command_lines import deploy_command, serve_command
from gpuplan.tui.live_deploy import candidate_at, plan_file

MOST_COPIED = 74_994
"""Bytes many terminals take by OSC 52: 100,000 of base64, the sequence around them."""


class Kind(StrEnum):
    PLAN = "plan"
    SERVE = "serve"
    DEPLOY = "deploy"
    COMPOSE = "compose"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """One thing to copy or save, as it is listed."""

    kind: Kind
    title: str
    about: str


OFFERED = (
    Offered(kind=Kind.PLAN, title="plan JSON", about="this candidate chosen; `gpuplan deploy FILE` runs it"),
    Offered(kind=Kind.SERVE, title="vllm serve", about="the engine's command"),
    Offered(kind=Kind.DEPLOY, title="gpuplan deploy", about="asks the same on the command line"),
    Offered(kind=Kind.COMPOSE, title="docker compose", about="the containers, a file for each host"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Texts by file name."""

    kind: Kind
    title: str
    files: Mapping[str, str]

    @property
    def text(self) -> str:
        """All of them, one after the other."""
        return "\n".join(self.files.values())

    @property
    def masked(self) -> bool:
        """Whether a secret has to be written in place of `***` before it works."""
        return self.kind is not Kind.COMPOSE and MASK in self.text

    @property
    def default_name(self) -> str:
        """Of the file; of the directory where there are several."""
        return next(iter(self.files)) if len(self.files) == 1 else "."


def title_of(kind: Kind) -> str:
    return next(one.title for one in OFFERED if one.kind is kind)


def export_of(
    kind: Kind, plan: Plan, choice: tuple[int, int], *, spec: DeploymentSpec | None, inventory: str | None
) -> Export:
    """One thing of a candidate; `spec` (what would run) is needed for Compose alone."""
    name = default_name(str(plan.model["name"]))
    files: Mapping[str, str]
    match kind:
        case Kind.PLAN:
            files = {f"{name}-plan.json": plan_file(plan, choice) + "\n"}
        case Kind.SERVE:
            files = {f"{name}-serve.sh": serve_command(candidate_at(plan, choice)) + "\n"}
        case Kind.DEPLOY:
            files = {f"{name}-deploy.sh": deploy_command(plan.request, inventory=inventory) + "\n"}
        case Kind.COMPOSE:
            assert spec is not None
            files = export.compose(spec)
        case _:
            assert_never(kind)
    return Export(kind=kind, title=title_of(kind), files=files)
