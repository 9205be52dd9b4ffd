"""A plan, saved and read, is asked again on the fleet as it is then."""

import json
from dataclasses import replace
from pathlib import Path

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Verdict
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions, make_plan
from gpuplan.operations.replan import breaks, candidate_at, changes, request_again
from gpuplan.planning.planner import candidate_of
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.sources import plan_json, snapshot_json
from tests.fleets import host

ASKED = ServingOptions(context="32K", engine_args=("--max-num-seqs 64", "--api-key=abcdefgh"))


def test_a_saved_plan_is_asked_again(tmp_path: Path) -> None:
    fleet = Fleet(hosts=(host("h1", "H100", 2), host("h2", "4090", 8)))
    snapshot = tmp_path / "fleet.json"
    snapshot_json.save(fleet, snapshot)
    options = FleetOptions(environ={}, cwd=tmp_path, snapshot=snapshot, hosts=("h1", "h2"))
    made = make_plan("Qwen/Qwen3-32B", options, ASKED)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plain(plan_document(made))))
    assert "abcdefgh" not in path.read_text()

    saved = plan_json.load(path, environ={"VLLM_API_KEY": "abcdefgh"})
    assert (saved.reference, saved.hosts) == ("Qwen/Qwen3-32B", ("h1", "h2"))
    seen = snapshot_json.load(snapshot)
    request = request_again(saved, seen)
    assert changes(saved.candidate, request) == ()

    before = candidate_of(made)
    after = candidate_at(request, saved.candidate.placement, saved.candidate.parallelism)
    assert before is not None
    assert after is not None
    assert after.placement == before.placement
    assert after.memory == before.memory
    assert after.vllm_args == saved.candidate.vllm_args

    busy = replace(
        seen,
        hosts=tuple(
            replace(one, gpus=tuple(replace(gpu, free_bytes=0) for gpu in one.gpus)) for one in seen.hosts
        ),
    )
    facts = changes(saved.candidate, replace(request, fleet=busy))
    assert breaks(facts)
    now = candidate_at(replace(request, fleet=busy), saved.candidate.placement, saved.candidate.parallelism)
    assert now is not None
    assert now.verdict is Verdict.OVERCOMMIT
