"""Exported files: read back by who reads them, they start what `deploy` starts."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.deploying import export
from gpuplan.deploying.docker_run import docker_create, options
from gpuplan.deploying.systemd import quoted
from gpuplan.deploying.yaml_text import yaml_text
from gpuplan.domain.deployment import (
    SECRETS_DIRECTORY,
    ContainerRole,
    ContainerSpec,
    DeploymentSpec,
    HealthCheck,
)
from tests.unit.deploying.shapes import SECRETS, SHAPES
from tests.unit.deploying.specs import ALL, SECRET, SINGLE, deployed, native, ray

CASES = [(name, host) for name, spec in ALL.items() for host in spec.hosts]

values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), values, max_size=5))
def test_yaml_reads_as_what_was_written(document: dict[str, Any]) -> None:
    assert (yaml.safe_load(yaml_text(document)) or {}) == json.loads(json.dumps(document))


@pytest.mark.parametrize(
    "text", ["no", "1e3", "0x10", "12:30", "~", "null", "- a", "a: b", "#x", "\x85\u2028\ufeff", "*"]
)
def test_a_text_stays_a_text(text: str) -> None:
    assert yaml.safe_load(yaml_text({"key": text, text: [text]})) == {"key": text, text: [text]}


def read(name: str, host: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(export.compose(ALL[name])[f"compose-{host}.yaml"])
    return document


KEYS = {
    "cap_add", "command", "container_name", "depends_on", "deploy", "devices", "entrypoint", "environment", "group_add",
    "healthcheck", "image", "init", "ipc", "labels", "logging", "network_mode", "pid", "restart", "security_opt",
    "shm_size", "stop_grace_period", "stop_signal", "ulimits", "user", "volumes", "volumes_from",
}  # fmt: skip
"""Of a service in the Compose Specification."""


@pytest.mark.parametrize(("name", "host"), CASES)
def test_compose_has_every_container_of_the_host(name: str, host: str) -> None:
    document = read(name, host)
    assert set(document) == {"name", "services"}
    assert re.fullmatch("[a-z0-9][a-z0-9_-]*", document["name"])
    containers = {one.name: one for one in ALL[name].containers if one.host == host}
    assert set(document["services"]) == set(containers)
    for key, service in document["services"].items():
        one = containers[key]
        assert set(service) <= KEYS
        plain = json.loads(json.dumps(service).replace("$$", "$"))
        assert plain["container_name"] == one.name
        assert [*plain["entrypoint"], *plain["command"]] == [*one.entrypoint, *one.command]
        assert plain.get("environment", {}) == dict(one.env)
        assert plain["labels"] == dict(one.labels)
        assert (plain["network_mode"], plain["restart"], plain["image"]) == ("host", "no", one.image)
        assert plain["init"] is (one.pid_from is None)


def test_compose_reserves_the_gpus_by_their_ids() -> None:
    service = read("single", "h100-a")["services"]["gpuplan-qwen3-n0"]
    reserved = service["deploy"]["resources"]["reservations"]["devices"]
    assert reserved == [{"driver": "nvidia", "device_ids": list(SINGLE.gpus), "capabilities": ["gpu"]}]
    assert service["ulimits"]["memlock"] == {"soft": -1, "hard": -1}
    assert service["user"] == "1000:1000"
    assert service["healthcheck"]["test"][0] == "CMD"
    assert "deploy" not in read("amd", "mi300")["services"]["gpuplan-amd-n0"]


def test_compose_mounts_files_with_secrets_and_makes_no_directory() -> None:
    service = read("native", "h100-a")["services"]["gpuplan-qwen3-n0"]
    binds = {item["target"]: item for item in service["volumes"]}
    secret = binds[f"{SECRETS_DIRECTORY}/HF_TOKEN"]
    assert (secret["source"], secret["read_only"]) == ("./secrets/HF_TOKEN", True)
    assert all(item["bind"] == {"create_host_path": False} for item in binds.values())
    assert binds["/m"]["source"] == '/data/a,b "c"'


def test_compose_shares_process_ids_and_volumes_by_service() -> None:
    services = read("ray", "h100-a")["services"]
    server = services["gpuplan-qwen3-n0"]
    assert server["pid"] == "service:gpuplan-qwen3-ray"
    assert server["volumes_from"] == server["depends_on"] == ["gpuplan-qwen3-ray"]
    assert {"type": "volume", "target": "/tmp"} in services["gpuplan-qwen3-ray"]["volumes"]


def test_compose_takes_no_dollar_for_a_variable() -> None:
    text = export.compose(ALL["native"])["compose-h100-a.yaml"]
    assert not re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", text.replace("$$", ""))
    assert "$$HOME" in text


def unquoted(line: str) -> list[str]:
    """A command line as systemd reads it (systemd.service(5) and systemd.syntax(7)), without variables set."""
    words: list[str] = []
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"|(\S+)', line):
        text = match[1] if match[2] is None else match[2]
        data = re.sub(
            r"\\(x[0-9a-f]{2}|.)",
            lambda found: (
                {"n": "\n", "t": "\t", "r": "\r"}.get(found[1])
                or (chr(int(found[1][1:], 16)) if found[1][0] == "x" else found[1])
            ),
            text,
        )
        assert not re.search(r"(?<!\$)\$(?!\$)", data.replace("$$", ""))
        raw = data.replace("$$", "$").replace("%%", "%")
        words.append(raw.encode("latin-1").decode() if "\\x" in text else raw)
    return words


@given(st.text(st.characters(max_codepoint=0x24F, exclude_characters="\0"), max_size=20))
def test_systemd_reads_a_word_back(word: str) -> None:
    assert "\n" not in quoted(word)
    if not re.search(r"[^\x20-\x7e\n\t\r]", word):
        assert unquoted(quoted(word)) == [word]


@pytest.mark.parametrize("spec", ALL.values(), ids=list(ALL))
def test_units_run_the_containers(spec: DeploymentSpec) -> None:
    files = export.systemd(spec)
    assert len(files) == len(spec.containers)
    for container in spec.containers:
        text = files[f"{container.host}/{container.name}.service"]
        command = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", text, re.MULTILINE)
        assert command is not None
        words = unquoted(command[1].replace("\\\n", " "))
        for option in options(container):
            where = [number for number, word in enumerate(words) if word == option[0]]
            assert any(tuple(words[number : number + len(option)]) == option for number in where), option
        assert words[-len(container.command) :] == list(container.command)
        assert f"ExecStop=/usr/bin/docker stop -t {container.stop_seconds} {container.name}" in text


def test_units_wait_for_each_other_and_a_group_is_not_restarted() -> None:
    files = export.systemd(ray())
    server = files["h100-a/gpuplan-qwen3-n0.service"]
    assert "\nAfter=docker.service network-online.target gpuplan-qwen3-ray.service\n" in server
    assert "\nRequires=docker.service gpuplan-qwen3-ray.service\n" in server
    assert all("\nRestart=no\n" in text for text in files.values())
    (alone,) = export.systemd(deployed(SINGLE)).values()
    assert "\nRestart=on-failure\n" in alone
    assert "\nExecStartPre=/usr/bin/install -d -o 1000 -g 1000 /data/cache/gpuplan\n" in alone


def test_no_file_leaves_its_comment_or_directory() -> None:
    host = "../h\n1"
    spec = replace(deployed(replace(SINGLE, host=host)), notes=("a\nb: c",))
    for files in (export.compose(spec), export.systemd(spec), export.script(spec)):
        for name, text in files.items():
            assert not name.startswith((".", "/"))
            assert ".." not in name
            assert "\nb: c" not in text


SSH = '#!/bin/sh\nshift 2\nprintf "%s\\n" "$1" >> hosts\nshift\nexec sh -c "$*"\n'
DOCKER = """\
#!/bin/sh
{ printf '%s\\0' docker "$@"; printf '\\036'; } >> calls
case $1 in
    cp) cat > archive ;;
    inspect) test "$MODE" = fails && echo "exited " || echo "running healthy" ;;
esac
"""


def ran(
    tmp_path: Path, spec: DeploymentSpec, verb: str, **env: str
) -> tuple[int, list[tuple[str, ...]], str]:
    """Run the script with clients that note what they are asked; its status, the calls of docker, stderr."""
    for name, text in export.script(spec).items():
        (tmp_path / name).write_text(text)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("ssh", SSH), ("docker", DOCKER)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "secrets").mkdir()
    for name in ("HF_TOKEN", "VLLM_API_KEY", "RAY_AUTH_TOKEN"):
        (tmp_path / "secrets" / name).write_text("planted")
    env = {"PATH": f"{programs}:/usr/bin:/bin", **env}
    done = subprocess.run(
        ["/bin/sh", str(tmp_path / "script.sh"), verb], env=env, capture_output=True, timeout=60, check=False
    )
    calls = (tmp_path / "calls").read_bytes().decode() if (tmp_path / "calls").exists() else ""
    return (
        done.returncode,
        [tuple(call.split("\0")[:-1]) for call in calls.split("\x1e")[:-1]],
        done.stderr.decode(),
    )


def directory_free(spec: DeploymentSpec) -> DeploymentSpec:
    """The spec without directories to be made on this machine."""
    return replace(spec, containers=tuple(replace(one, mounts=()) for one in spec.containers))


@pytest.mark.parametrize("spec", [ray(), native(), directory_free(deployed(SINGLE))])
def test_the_script_does_what_deploy_does(spec: DeploymentSpec, tmp_path: Path) -> None:
    status, calls, errors = ran(tmp_path, spec, "up")
    assert (status, "not started" in errors) == (0, False)
    created = [call for call in calls if call[1] == "create"]
    assert sorted(created) == sorted(docker_create(container) for container in spec.containers)
    order = [call[1] for call in calls]
    assert order.index("start") > max(number for number, verb in enumerate(order) if verb in {"create", "cp"})
    assert len([verb for verb in order if verb == "start"]) == len(spec.containers)
    assert set((tmp_path / "hosts").read_text().split()) == set(spec.hosts)


def test_the_script_says_where_it_stopped(tmp_path: Path) -> None:
    status, calls, errors = ran(tmp_path, ray(), "up", MODE="fails")
    assert status != 0
    assert "gpuplan-qwen3-n0 on h100-a ended" in errors
    assert "down removes it" in errors
    assert ("docker", "logs", "--tail", "50", "gpuplan-qwen3-n0") in calls


def test_the_script_takes_down_what_it_put_up(tmp_path: Path) -> None:
    status, calls, _ = ran(tmp_path, ray(), "down")
    assert status == 0
    assert [call[-1] for call in calls if call[1] == "rm"] == [one.name for one in reversed(ray().containers)]


def test_the_script_wants_a_verb(tmp_path: Path) -> None:
    status, calls, errors = ran(tmp_path, ray(), "please")
    assert (status, calls) == (2, [])
    assert errors.startswith("usage:")


def test_words_of_several_lines_arrive_whole(tmp_path: Path) -> None:
    nasty: ContainerSpec = replace(
        SECRET,
        role=ContainerRole.SINGLE,
        secrets=(),
        command=("a\n  b 'c' \"d\" $HOME `id` \\ \n", "", "*"),
        health=HealthCheck(command=("/bin/sh", "-c", "test \"$1\" = 'x y'", "sh", "x y")),
    )
    status, calls, _ = ran(tmp_path, deployed(nasty), "up")
    assert status == 0
    assert docker_create(nasty) in calls


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_exported_without_a_secret(name: str) -> None:
    spec = SHAPES[name]()
    files = {**export.compose(spec), **export.systemd(spec), **export.script(spec)}
    for text in files.values():
        assert not [value for value in (*SECRETS.values(), "planted-aws-value") if value in text]
        assert "privileged" not in text
    for host in spec.hosts:
        services = yaml.safe_load(files[f"compose-{host}.yaml"])["services"]
        for one in (container for container in spec.containers if container.host == host):
            plain = json.loads(json.dumps(services[one.name]).replace("$$", "$"))
            assert [*plain["entrypoint"], *plain["command"]] == [*one.entrypoint, *one.command]
            assert plain["environment"] == dict(one.env)
    subprocess.run(["/bin/sh", "-n"], input=files["script.sh"].encode(), check=True)
