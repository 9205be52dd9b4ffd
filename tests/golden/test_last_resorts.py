"""What `plan` prints where nothing fits whole: whose stop makes room (S4.6), what stays in host memory (S4.3).

`GPUPLAN_UPDATE_GOLDEN=1` writes the files anew.
"""

import json

import pytest

from tests.golden.test_cli import compare, printed, transcript

ROOM = "--snapshot tests/golden/cases/fleets/room.json"
DESKS = "--snapshot tests/golden/cases/fleets/desks.json"
COMMANDS = {
    "plan-makes-room": (f"plan Qwen/Qwen3-32B {ROOM} --context 8k", 3),
    "plan-evict": (f"plan Qwen/Qwen3-32B {ROOM} --context 8k --strategy evict", 0),
    "plan-evict-not-even": (f"plan deepseek-ai/DeepSeek-R1 {ROOM} --context 8k --strategy evict", 3),
    "plan-offload": (f"plan Qwen/Qwen3-32B {DESKS} --host desk --context 8k", 0),
    "plan-offload-no-ram": (f"plan Qwen/Qwen3-32B {DESKS} --host laptop --context 8k", 3),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_plan_prints(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command, exit_code = COMMANDS[name]
    status, out, err = printed(command, monkeypatch)
    assert status == exit_code
    compare(name, transcript(command, status, out, err))


def test_s4_6_the_document_names_who_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = printed(f"{COMMANDS['plan-makes-room'][0]} -o json", monkeypatch)
    document = json.loads(out)
    assert document["recommended"] is None
    evict = next(one for one in document["strategies"] if one["strategy"] == "evict")
    (stopped,) = evict["candidates"][0]["evicts"]
    assert stopped == {
        "deployment": "embed",
        "gpus": [{"host": "h1", "index": 1, "bytes": 78678000000}],
        "running_requests": 0,
        "keep_alive_seconds": 1800,
    }
