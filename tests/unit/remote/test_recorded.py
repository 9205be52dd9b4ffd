"""Recorded hosts answer as the host did, section by section, and miss what was not recorded."""

import json
from pathlib import Path

import pytest

from gpuplan.probing.command import Command
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.probing.script import script, sections
from gpuplan.remote.connection import Completed, ConnectionFailed, SocketRefused
from gpuplan.remote.docker_engine import Cause, EngineFailed, RequestRefused, engine
from gpuplan.remote.recorded import RecordedConnection, Recording, load

COMMANDS = tuple(Command(name=name, shell="echo 'it''s'") for name in ("uname", "smi", "hung", "last"))
LONG = 60.0


def test_a_command_is_answered_by_its_words() -> None:
    recorded = Completed(exit_code=3, stdout=b"0123456789", stderr=b"e")
    connection = RecordedConnection(Recording(commands={("a", "b c"): recorded}))

    assert connection.run(("a", "b c"), timeout=LONG) == recorded
    assert connection.run(("a", "b", "c"), timeout=LONG).exit_code == 127
    cut = connection.run(("a", "b c"), timeout=LONG, limit=4)
    assert (cut.stdout, cut.truncated) == (b"0123", True)


def test_a_script_is_answered_section_by_section() -> None:
    recording = Recording(
        sections={
            "uname": Completed(exit_code=0, stdout=b"Linux\n"),
            "smi": Completed(exit_code=9, stdout=b"couldn't communicate\n"),
            "last": Completed(exit_code=0, stdout=b"end"),
        }
    )

    completed = RecordedConnection(recording).run(
        ("sh", "-s"), stdin=script(COMMANDS, "gpmark"), timeout=LONG
    )

    assert completed.exit_code == 0
    assert sections(completed.stdout, COMMANDS, "gpmark") == {
        "uname": Output(text="Linux\n"),
        "smi": Output(text="couldn't communicate\n", exit_code=9),
        "hung": Output(text="not recorded", exit_code=127),
        "last": Output(text="end"),
    }


def test_a_host_that_hung_in_the_middle_hangs_there_again(tmp_path: Path) -> None:
    (tmp_path / "uname.txt").write_text("Linux\n")
    (tmp_path / "smi.txt").write_text("GPU 0")
    (tmp_path / "hung.txt").write_text("so far")
    (tmp_path / "exit_codes.json").write_text(json.dumps({"smi": None, "hung": 1}))
    lost = Recording(
        sections={**load(tmp_path).sections, "hung": Completed(exit_code=None, stdout=b"so far")}
    )

    hung = RecordedConnection(load(tmp_path)).run(("sh",), stdin=script(COMMANDS, "gpmark"), timeout=LONG)
    gone = RecordedConnection(lost).run(("sh",), stdin=script(COMMANDS, "gpmark"), timeout=LONG)

    told = sections(hung.stdout, COMMANDS, "gpmark")
    assert told["smi"] == Output(text="GPU 0", exit_code=None, timed_out=True)
    assert told["hung"] == Output(text="so far", exit_code=1)
    assert (gone.exit_code, gone.timed_out) == (None, True)
    told = sections(gone.stdout, COMMANDS, "gpmark")
    assert told["hung"] == Output(text="so far", exit_code=None, timed_out=True)
    assert told["last"] == NOT_RUN


def test_an_engine_is_recorded_by_its_documents(tmp_path: Path) -> None:
    documents = {"/version": {"ApiVersion": "1.51", "MinAPIVersion": "1.24"}, "/info": {"Driver": "overlay2"}}
    (tmp_path / "sockets.json").write_text(json.dumps({"/run/docker.sock": documents}))
    connection = RecordedConnection(load(tmp_path))

    docker = engine(connection, socket_path="/run/docker.sock", cli=False, timeout=LONG)
    assert docker.get("/info", {"a": "b"}, newest=True) == {"Driver": "overlay2"}
    assert docker.get("/info") == {"Driver": "overlay2"}
    with pytest.raises(RequestRefused, match="/images/json: not recorded"):
        docker.get("/images/json")
    docker.close()

    with pytest.raises(EngineFailed) as failed:
        engine(connection, socket_path="/elsewhere.sock", cli=True, timeout=LONG)
    assert failed.value.cause is Cause.NO_SOCKET


def test_what_was_not_recorded_is_refused_and_nothing_is_said_after_the_end() -> None:
    connection = RecordedConnection()

    with pytest.raises(SocketRefused):
        connection.open_port("10.0.0.1", 80, timeout=LONG)
    with pytest.raises(SocketRefused):
        connection.open_command(("docker",), timeout=LONG)
    connection.close()
    with pytest.raises(ConnectionFailed):
        connection.run(("true",), timeout=LONG)


def test_a_recording_that_is_no_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sockets.json").write_text("[]")

    with pytest.raises(ValueError, match="not an object"):
        load(tmp_path)
