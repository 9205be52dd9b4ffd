"""Secrets planted in every place they may come from, then looked for in everything a deploy writes, prints or starts."""

import base64
import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.hosts.containers import ask
from tests.hosts.deploying import Running, Site, lay_site
from tests.hosts.fleet import STAND_IN, Fleet, TestHost
from tests.hosts.images import archive
from tests.registry import registry_at

OWN = secrets.token_hex(4)
"""In every planted value: command lines of another run of these tests on this machine are not this one's."""
KEY = f"sk-planted-0123456789abcdefghij{OWN}"
OTHER_KEY = f"planted-word-of-a-key-4711-{OWN}"
TOKEN = f"hf_PlantedAbCdEfGhIjKlMnOpQrStUv{OWN}"
UNUSED = f"hf_UnusedQwErTyUiOpAsDfGhJkLzXcVb{OWN}"
PASSWORD = f"planted correct-horse battery {OWN}"
REGISTRY = f"planted-registry-password-{OWN}"
SECRETS = (KEY, OTHER_KEY, TOKEN, UNUSED, PASSWORD, REGISTRY)
ENCODED = base64.b64encode(f"robot:{REGISTRY}".encode()).decode()
PLACE = "/run/gpuplan/secrets"
ON_A = ("--gpus", "gpu-a:0")


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    """With a token and a password in the inventory, a token in the environment, a login in Docker's configuration."""
    laid = lay_site(
        deploy_fleet, tmp_path, env={"HF_TOKEN": TOKEN, "CORP_PASSWORD": PASSWORD, "PLAIN": "seen"}
    )
    docker = deploy_fleet.home / ".docker"
    docker.mkdir(exist_ok=True)
    (docker / "config.json").write_text(json.dumps({"auths": {"registry.example:5000": {"auth": ENCODED}}}))
    return laid


def found_in(text: str) -> list[str]:
    """The planted values that a text has, as they are or encoded."""
    return [secret for secret in (*SECRETS, ENCODED) if secret in text]


def assert_not_in(where: str, text: str) -> None:
    assert not found_in(text), f"{found_in(text)} in {where}:\n{text[:3000]}"


def assert_no_file(directory: Path) -> int:
    """No file below holds one; how many were looked into."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    for path in files:
        assert_not_in(str(path), path.read_bytes().decode(errors="replace"))
    return len(files)


def assert_quiet(host: TestHost) -> None:
    """Nothing Docker tells or keeps of a container, no command line and no file of a login holds one."""
    listed = host.text("docker", "ps", "-aq").split()
    if listed:
        assert_not_in(f"docker inspect on {host.name}", host.text("docker", "inspect", *listed))
    assert_not_in(f"ps on {host.name}", host.text("ps", "-efww"))
    pattern = "\\|".join(re.escape(secret) for secret in (*SECRETS, ENCODED))
    places = "/srv/docker/containers /srv/home /srv/logs /tmp/gpuplan-*.lock"
    found = host.run("sh", "-c", f'grep -rlsa "$1" {places}', "sh", pattern, check=False)
    assert not found.stdout, found.stdout.decode()


def command_lines(but: Sequence[int]) -> str:
    """Of every process here, the hosts' among them, but for some."""
    lines = []
    own = {Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in but}
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words not in own:  # a child that is about to run something else still has its parent's
            lines.append(words)
    return "\n".join(lines)


def watched(site: Site, running: Running) -> None:
    """Look at everything at each step of a deploy, until it has ended."""
    for phase in ("create", "load", "answer"):
        running.until(event="phase_started", phase=phase)
        assert_not_in("command lines", command_lines((running.process.pid,)))
        assert_quiet(site.fleet["gpu-a"])
    assert running.end() == 0
    assert_not_in("events", json.dumps(running.lines))
    assert_not_in("stderr", (site.directory / "stderr.txt").read_text())


def read_inside(host: TestHost, container: str, name: str) -> str:
    return host.text("docker", "exec", container, "cat", f"{PLACE}/{name}")


def said(*runs: CompletedProcess[str]) -> str:
    return "".join(done.stdout + done.stderr for done in runs)


def test_an_api_key_of_the_command_line_is_only_where_the_engine_reads_it(site: Site) -> None:
    running = site.begin(*ON_A, engine=("--api-key", KEY))
    watched(site, running)
    host = site.fleet["gpu-a"]
    member = running.lines[-1]["members"][0]["container"]
    endpoint = running.lines[-1]["endpoint"]
    assert ask(f"{endpoint}/v1/models")[0] == 401
    assert ask(f"{endpoint}/v1/models", key=KEY)[0] == 200
    assert read_inside(host, member, "VLLM_API_KEY") == KEY
    assert read_inside(host, member, "HF_TOKEN") == TOKEN
    assert read_inside(host, member, "CORP_PASSWORD") == PASSWORD
    assert host.text("docker", "exec", member, "stat", "-c", "%a", f"{PLACE}/HF_TOKEN") == "400"
    env = host.text("docker", "inspect", "-f", "{{json .Config.Env}}", member)
    assert "PLAIN=seen" in env
    told = said(
        site.run("status"),
        site.run("status", "-o", "json"),
        site.run("logs", "tiny"),
        site.run("probe", "-o", "json"),
    )
    assert_not_in("status, logs and probe", told)
    stopped = site.run("stop", "tiny", "--yes")
    assert_not_in("stop", said(stopped))
    assert assert_no_file(site.directory / "state") >= 2
    assert_no_file(site.directory / "cache")
    assert_quiet(host)


def test_an_api_key_of_the_environment_and_a_failure_that_prints_it(site: Site) -> None:
    leaks = [f"ValueError: the key {OTHER_KEY} of {PASSWORD} is wrong, token {TOKEN}"]
    site.faults("gpu-a", {"all": {"exit_after": "weights", "say": leaks}})
    failed = site.deploy(*ON_A, status=5, VLLM_API_KEY=OTHER_KEY, HF_TOKEN=UNUSED, GPUPLAN_DEBUG="0")
    assert_not_in("a deploy that failed", said(failed.done))
    logs = failed.of("failed")[0]["logs"]
    assert "the key *** of *** is wrong" in Path(logs[0]).read_text()
    assert Path(logs[0]).stat().st_mode & 0o777 == 0o600
    words = site.run("deploy", str(site.model), "--yes", *ON_A, status=5, VLLM_API_KEY=OTHER_KEY)
    assert_not_in("a deploy that failed, in words", said(words))
    assert_no_file(site.directory / "state")
    assert_no_file(site.directory / "cache")
    assert_quiet(site.fleet["gpu-a"])


def test_the_password_of_a_registry_is_used_and_kept_nowhere(site: Site) -> None:
    host = site.fleet["gpu-a"]
    with registry_at(str(site.fleet.bridge.network[254])) as registry:
        pushed = registry.push("team/engine", "v0.33.0", archive(STAND_IN))
        registry.faults.login = ("robot", REGISTRY)
        configuration = site.fleet.home / ".docker" / "config.json"
        refused = site.run("deploy", str(site.model), "--yes", *ON_A, "--image", pushed.reference, status=5)
        assert registry.place in refused.stderr
        configuration.write_text(json.dumps({"auths": {registry.place: {"auth": ENCODED}}}))
        watched(site, site.begin(*ON_A, "--image", pushed.reference))
    assert not host.run(
        "sh", "-c", "cat /root/.docker/config.json /srv/home/root/.docker/*", check=False
    ).stdout
    assert_not_in("the saved events", said(refused))
    assert_no_file(site.directory / "state")
    assert_no_file(site.directory / "cache")


def test_nothing_that_is_written_without_starting_holds_one(site: Site) -> None:
    engine = ("--api-key", KEY)
    base = ("deploy", str(site.model), *ON_A)
    shown = [
        site.run(*base, "--dry-run", engine=engine, VLLM_API_KEY=OTHER_KEY, HF_TOKEN=UNUSED),
        site.run(*base, "--dry-run", "-o", "json", engine=engine, VLLM_API_KEY=OTHER_KEY, HF_TOKEN=UNUSED),
        site.run("plan", str(site.model), *ON_A, engine=engine, VLLM_API_KEY=OTHER_KEY, HF_TOKEN=UNUSED),
        site.run(
            "plan",
            str(site.model),
            "-o",
            "json",
            *ON_A,
            engine=engine,
            VLLM_API_KEY=OTHER_KEY,
            HF_TOKEN=UNUSED,
        ),
    ]
    for kind in ("compose", "systemd", "script"):
        into = site.directory / kind
        shown.append(
            site.run(
                *base,
                "--export",
                kind,
                "--into",
                str(into),
                engine=engine,
                VLLM_API_KEY=OTHER_KEY,
                HF_TOKEN=UNUSED,
            )
        )
        assert assert_no_file(into) >= 1
    assert_not_in("what is shown", said(*shown))
    plan = site.directory / "plan.json"
    plan.write_text(shown[3].stdout)
    lacking = site.run("deploy", str(plan), "--yes", status=None)
    assert lacking.returncode in {2, 5}
    assert "VLLM_API_KEY" in lacking.stderr or "--api-key" in lacking.stderr
    assert site.all_ours() == []
    served = site.run("deploy", str(plan), "--yes", "-o", "json", engine=engine)
    assert_not_in("a saved plan's deploy", said(served))
    endpoint = json.loads(served.stdout.splitlines()[-1])["endpoint"]
    assert ask(f"{endpoint}/v1/models", key=KEY)[0] == 200
    assert_no_file(site.directory / "state")
