"""A person at the app, on real hosts, in a real terminal: from the fleet to a deployment and back to empty hosts."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.deploying import Site, lay_site
from tests.hosts.fleet import Fleet
from tests.hosts.waiting import wait_for
from tests.terminal import Terminal

DEPLOYED = 180
"""Seconds after which a deploy of the stand-in has failed to end, as the screen tells it."""
TOO_LITTLE = "0.002"
"""Of a GPU's memory for the engine: the weights fit in it, a context worth having does not."""
CONTAINER = "gpuplan-tiny-s0n0"


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    return lay_site(deploy_fleet, tmp_path)


@contextmanager
def opened(site: Site, *words: str) -> Iterator[Terminal]:
    """The app, once every host is read."""
    command = [sys.executable, "-m", "gpuplan", "tui", *words, "-i", str(site.inventory)]
    environment = site.environment(XDG_CONFIG_HOME=str(site.directory / "config"))
    with Terminal(command, environment=environment, directory=site.directory) as terminal:
        terminal.until("3 hosts, 24 GPUs", "live")
        yield terminal


def plan_the_model(terminal: Terminal, site: Site) -> None:
    terminal.press("2")
    terminal.until("▸2 Plan", "No model is chosen")
    terminal.press("o")
    terminal.until("hub id", "DeepSeek")
    terminal.type(str(site.model))
    terminal.until("/tiny", "0 of 200 models")
    terminal.press("Enter")
    terminal.until("Recommended: single GPU", "✓ fits  single GPU")


def deploy(terminal: Terminal) -> None:
    """Agree to what is under the cursor, and see it begin."""
    terminal.press("d")
    terminal.until("Deploy tiny", CONTAINER, "Keep alive", "Cancel")
    terminal.press("Right", "Enter")
    terminal.until("Deploy tiny", "Events", "Take back")


def leave(terminal: Terminal) -> None:
    terminal.press("q")
    assert terminal.exit_status() == 0
    assert terminal.is_restored


# ---------------------------------------------------------------------- all of it


def test_from_the_fleet_to_a_deployment_and_its_end(site: Site) -> None:
    with opened(site) as terminal:
        filter_hosts(terminal)
        plan_the_model(terminal, site)
        mend_what_does_not_fit(terminal)
        agree_only_the_second_time(terminal, site)
        watch_it_come_up(terminal)
        look_at_it(terminal)
        stop_it(terminal, site)
        leave(terminal)


def filter_hosts(terminal: Terminal) -> None:
    terminal.until("gpu-a", "gpu-b", "gpu-c")
    terminal.press("/")
    terminal.until("words of a host")
    terminal.type("gpu-b")
    screen = terminal.until("filtered: 1 of 3 hosts")
    assert "▾ gpu-b  ok" in screen
    assert "gpu-a" not in screen
    terminal.press("Enter")
    terminal.until("filtered", "Sort")
    terminal.press("Escape")
    terminal.until("gpu-a", "gpu-b", "gpu-c")


def mend_what_does_not_fit(terminal: Terminal) -> None:
    """Ask for far too little memory, and have what the plan says made of it."""
    terminal.press("e")
    terminal.until("KV dtype", "Back to the strategies")
    for name in ("concurrency", "GPU memory"):
        terminal.move("Down", f" {name} ")
    terminal.type(TOO_LITTLE)
    terminal.until(f"GPU memory {TOO_LITTLE}", "Nothing fits", "✗ no fit")
    terminal.press("Escape")
    terminal.until("Why not", "GP203", "--gpu-memory-utilization 0.02")
    terminal.press("a")
    terminal.until("Recommended: single GPU", "u: undo", "GPU memory 0.02", "✓ fits  single GPU")


def agree_only_the_second_time(terminal: Terminal, site: Site) -> None:
    """Enter is Cancel, and starts nothing."""
    terminal.press("d")
    screen = terminal.until("Deploy tiny", CONTAINER, "Keep alive", "Cancel")
    assert "Steps" in screen
    terminal.press("Enter")
    terminal.until_gone("Keep alive")
    terminal.until("▸2 Plan", "Recommended")
    assert site.all_ours() == []
    deploy(terminal)


def watch_it_come_up(terminal: Terminal) -> None:
    screen = terminal.until("It has ended", "tiny serves", "predicted", "actual", seconds=DEPLOYED)
    assert f"{CONTAINER} (single) running" in screen
    assert "weights" in screen
    terminal.press("Enter")
    terminal.until("▸3 Deployments")


def look_at_it(terminal: Terminal) -> None:
    screen = terminal.until("1 deployment on 3 hosts", "● running")
    assert "tiny" in screen
    terminal.press("Enter")
    screen = terminal.until("predicted", "actual", "weights", CONTAINER)
    terminal.press("l")
    terminal.until("Logs of tiny", "following", "APIServer")
    terminal.press("Escape")
    terminal.until("predicted", "actual")
    terminal.press("Escape")
    terminal.until("1 deployment on 3 hosts")


def stop_it(terminal: Terminal, site: Site) -> None:
    """Enter is Cancel here, too."""
    terminal.press("x")
    terminal.until("Stop tiny", CONTAINER, "Wait for requests")
    terminal.press("Enter")
    terminal.until_gone("Wait for requests")
    assert site.all_ours() == [CONTAINER]
    terminal.press("x")
    terminal.until("Wait for requests")
    terminal.press("Right", "Enter")
    terminal.until("1 container on 1 host stopped and removed", "Close", seconds=DEPLOYED)
    assert site.all_ours() == []
    terminal.press("Enter")
    terminal.until("nothing is deployed on 3 hosts")


# ---------------------------------------------------------------------- leaving while it is under way


def signal_engine(site: Site, name: str) -> None:
    """Have the engine stand still, or go on."""
    (host,) = (host for host, found in site.ours().items() if found)
    site.fleet[host].run("docker", "kill", "--signal", name, CONTAINER)


def hold_engines(site: Site) -> None:
    """Engines that load for ever."""
    for host in site.fleet:
        site.faults(host.name, {"all": {"hang_after": "weights"}})


def begun(terminal: Terminal, site: Site) -> None:
    """A deploy whose container runs, and goes on loading."""
    terminal.press("2")
    terminal.until("▸2 Plan", "Recommended: single GPU")
    deploy(terminal)
    terminal.until(f"{CONTAINER} (single): running", "▶ load", seconds=DEPLOYED)
    assert site.all_ours() == [CONTAINER]


def test_a_deploy_goes_on_without_the_app_and_the_next_app_shows_it(site: Site) -> None:
    for host in site.fleet:
        site.faults(host.name, {"all": {"slow_seconds": 1.5}})
    with opened(site, str(site.model)) as terminal:
        begun(terminal, site)
        signal_engine(site, "STOP")
        terminal.press("q")
        terminal.until("tiny", "Stay", "Leave it running", "Take it back and quit")
        terminal.press("Enter")
        terminal.until_gone("Leave it running")
        terminal.press("q")
        terminal.until("Leave it running")
        terminal.press("Right", "Enter")
        assert terminal.exit_status() == 0
    with opened(site) as terminal:
        terminal.until("deploying tiny")
        terminal.press("C-d")
        terminal.until("Deploy tiny", "Events", "▶ load")
        signal_engine(site, "CONT")
        terminal.until("It has ended", "tiny serves", seconds=DEPLOYED)
        terminal.press("Enter")
        terminal.until("1 deployment on 3 hosts", "● running")
        leave(terminal)
    assert [(one["name"], one["state"]) for one in site.status()] == [("tiny", "running")]


def test_a_deploy_is_taken_back_while_it_is_under_way(site: Site) -> None:
    hold_engines(site)
    with opened(site, str(site.model)) as terminal:
        begun(terminal, site)
        terminal.press("x")
        terminal.until("Let it go on", "Take back")
        terminal.press("Enter")
        terminal.until_gone("Let it go on")
        assert site.all_ours() == [CONTAINER]
        terminal.press("x")
        terminal.until("Let it go on")
        terminal.press("Right", "Enter")
        terminal.until("not deployed", "It has ended", seconds=DEPLOYED)
        assert site.all_ours() == []
        terminal.press("Enter")
        terminal.until("nothing is deployed on 3 hosts")
        leave(terminal)


def test_leaving_can_take_it_back_first(site: Site) -> None:
    hold_engines(site)
    with opened(site, str(site.model)) as terminal:
        begun(terminal, site)
        terminal.press("q")
        terminal.until("Stay", "Take it back and quit")
        terminal.press("Right")
        terminal.press("Right")
        terminal.press("Enter")
        assert terminal.exit_status(DEPLOYED) == 0
        assert terminal.is_restored
    assert site.all_ours() == []
    wait_for("free hosts", lambda: "free" in site.run("unlock").stdout)
