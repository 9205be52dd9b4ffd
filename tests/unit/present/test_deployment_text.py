"""A dry run tells every step and every command, in the columns, with no secret and nothing that moves the cursor."""

import shlex
from dataclasses import replace

import pytest

from gpuplan.deploying.docker_run import docker_create, docker_run
from gpuplan.deploying.steps import StopOld, steps
from gpuplan.domain.deployment import ContainerRole, DeploymentSpec, Member
from gpuplan.present.deployment_text import confirm_text, dry_run_text, step_words
from gpuplan.present.document import Role, text_of, width_of
from tests.unit.deploying.shapes import SECRETS, SHAPES
from tests.unit.deploying.specs import ALL, SINGLE, deployed

OLD = Member(host="h100-a", container="gpuplan-qwen3-n0", role=ContainerRole.SINGLE, state="running")


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("spec", ALL.values(), ids=list(ALL))
def test_lines_stay_within_the_columns_but_for_words_of_commands(spec: DeploymentSpec, width: int) -> None:
    for row in dry_run_text(spec, width):
        if not any(span.role is Role.COMMAND for span in row):
            assert width_of("".join(span.text for span in row)) <= width


@pytest.mark.parametrize("name", SHAPES)
def test_commands_can_be_pasted(name: str) -> None:
    spec = SHAPES[name]()
    rows = dry_run_text(spec, 100)
    text = "\n".join(
        "".join(span.text for span in row) for row in rows if row and row[0].role is Role.COMMAND
    )
    words = shlex.split(text.replace("\\\n", " "))
    for container in spec.containers:
        wanted = list(docker_create(container) if container.secrets else docker_run(container))
        starts = [number for number, word in enumerate(words) if word == "docker"]
        assert any(words[number : number + len(wanted)] == wanted for number in starts)


def test_every_step_is_told_once_where_hosts_do_the_same() -> None:
    spec = ALL["ray"]
    text = text_of(dry_run_text(spec, 120, (OLD,)))
    for step in steps(spec, (OLD,)):
        assert text.count(step_words(step)) >= 1
    assert text.count("lock it against other deploys") == 1


def test_what_is_replaced_is_told() -> None:
    text = text_of(dry_run_text(deployed(SINGLE), 120, (OLD,)))
    assert step_words(StopOld(host=OLD.host, container=OLD.container)) in text
    asked = text_of(confirm_text(deployed(SINGLE), (OLD,), 120))
    assert "stops h100-a:gpuplan-qwen3-n0" in asked
    assert "docker run" not in asked


def test_added_arguments_stand_apart_from_the_users() -> None:
    text = text_of(dry_run_text(SHAPES["tensor-pipeline"](), 300))
    (added,) = [row for row in text.splitlines() if row.startswith("added by gpuplan:")]
    (yours,) = [row for row in text.splitlines() if row.startswith("yours:")]
    assert "--port" in added
    assert "--port" not in yours


@pytest.mark.parametrize("name", SHAPES)
def test_no_secret_is_in_a_dry_run(name: str) -> None:
    text = text_of(dry_run_text(SHAPES[name](), 100))
    for value in (*SECRETS.values(), "planted-aws-value"):
        assert value not in text


def test_secrets_are_named_and_put_as_files() -> None:
    text = text_of(dry_run_text(SHAPES["secrets"](), 100))
    assert "put AWS_SECRET_ACCESS_KEY, HF_TOKEN, VLLM_API_KEY into" in text
    assert "| docker cp - " in text


def test_words_from_elsewhere_move_no_cursor() -> None:
    nasty = replace(deployed(SINGLE), model="a\x1b[31m", notes=("x\x1b]0;t\x07",), served_name="s\u202e")
    text = text_of(dry_run_text(nasty, 100))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
