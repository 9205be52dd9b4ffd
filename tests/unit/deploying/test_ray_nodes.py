"""What a Ray cluster tells of its nodes."""

import json

from gpuplan.deploying.ray_nodes import MARK, PROGRAM, RayNode, missing, parse

_TWO = (RayNode(address="10.0.0.1", alive=True, gpus=8), RayNode(address="10.0.0.2", alive=True, gpus=4))


def test_the_program_is_one_python_takes() -> None:
    compile(PROGRAM, "program", "exec")


def test_the_answer_is_found_among_other_lines() -> None:
    said = [
        {"address": "10.0.0.1", "alive": True, "gpus": 8.0},
        {"address": "10.0.0.2", "alive": True, "gpus": 4.0},
    ]
    output = f"2026-11-22 01:02:03 INFO worker.py: Connecting\n{MARK}{json.dumps(said)}\nFutureWarning: …\n"
    assert parse(output) == _TWO


def test_no_answer_is_not_an_empty_cluster() -> None:
    assert parse("") is None
    assert parse("Traceback (most recent call last):\n") is None
    assert parse(f"{MARK}[{{") is None
    assert parse(f'{MARK}[{{"address": "10.0.0.1"}}]') is None
    assert parse(f"{MARK}[]") == ()


def test_what_is_planned_and_not_there() -> None:
    planned = (("gpu-a", "10.0.0.1", 8), ("gpu-b", "10.0.0.2", 8), ("gpu-c", "10.0.0.3", 8))
    assert missing(_TWO, planned) == (("gpu-b", "10.0.0.2", 8, 4), ("gpu-c", "10.0.0.3", 8, 0))
    assert missing(_TWO, (("gpu-a", "10.0.0.1", 8), ("gpu-b", "10.0.0.2", 4))) == ()


def test_a_node_that_came_back_counts_once() -> None:
    dead = RayNode(address="10.0.0.1", alive=False, gpus=8)
    planned = (("gpu-a", "10.0.0.1", 8),)
    assert missing((dead, _TWO[0]), planned) == ()
    assert missing((dead,), planned) == (("gpu-a", "10.0.0.1", 8, 0),)


def test_a_node_without_gpus_is_still_to_be_there() -> None:
    assert missing((), (("gpu-a", "10.0.0.1", 0),)) == (("gpu-a", "10.0.0.1", 0, 0),)
