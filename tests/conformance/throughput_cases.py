"""Published measurements of tokens per second beside what the roofline says of the same placement.

`throughput-published.json`: one row per measurement, with its source. `measure` is what was published: `decode` tokens
per second of one user after the first token, `whole` the same with the prompt's time in it, `prompt` prompt tokens per
second; `version` is the release of vLLM or, of another engine, the one of that time, and what is older than the oldest
release known counts as that. `overrides` go over the catalogue's configuration where the measured checkpoint is not in it.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.throughput import NoThroughput, Throughput
from gpuplan.engine.architectures import describe
from gpuplan.engine.arguments import parse
from gpuplan.engine.links import Topology
from gpuplan.engine.throughput import Serving, throughput
from gpuplan.engine.versions import OLDEST, EngineVersion
from gpuplan.sources.catalogue import accelerators, models

PUBLISHED = Path(__file__).parents[1] / "data" / "throughput-published.json"
CONFIGS = Path(models.__file__).parent / "configs"
BATCHED_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measurement and the estimate of it."""

    row: dict[str, Any]
    estimate: Throughput
    predicted: float

    @property
    def ratio(self) -> float:
        """Estimate over measurement."""
        return float(self.predicted / self.row["tokens_per_second"])

    @property
    def label(self) -> str:
        row = self.row
        return f"{row['model']} on {row['tensor']} x {row['gpu']}, {row['users']} users, {row['measure']}"


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(PUBLISHED.read_text())
    return found


@cache
def compared() -> tuple[Compared, ...]:
    return tuple(_compared(row) for row in rows())


def _compared(row: dict[str, Any]) -> Compared:
    found = throughput(serving(row, row["prompt"] + row["output"] // 2))
    assert not isinstance(found, NoThroughput), (row, found)
    return Compared(row=row, estimate=found, predicted=_predicted(row, found))


def _predicted(row: dict[str, Any], found: Throughput) -> float:
    if row["measure"] == "decode":
        return found.decode.per_user
    prompt = throughput(serving(row, row["prompt"]))
    assert isinstance(prompt, Throughput)
    if row["measure"] == "prompt":
        return float(row["prompt"] / prompt.first_token_seconds)
    # the users' prompts are read one after the other
    seconds = prompt.first_token_seconds * row["users"] + row["output"] / found.decode.per_user
    return float(row["output"] / seconds)


def serving(row: dict[str, Any], context: int) -> Serving:
    version = max(OLDEST, EngineVersion(*map(int, row["version"].split("."))))
    engine = parse([row.get("arguments", "")], version=version)
    network = row.get("network_gbit")
    return Serving(
        profile=_profile(row["config"], json.dumps(row.get("overrides", {}))),
        engine=engine,
        version=version,
        parallelism=Parallelism(tensor=row["tensor"], expert=engine.enable_expert_parallel),
        cards=(accelerators.find(row["gpu"]),) * row["tensor"],
        topology=Topology(
            hosts=row.get("hosts", 1),
            network_bytes_per_second=None if network is None else int(network * 1e9 / 8),
        ),
        context=context,
        users=row["users"],
        batched_tokens=BATCHED_TOKENS,
        sequences=256,
    )


@cache
def _profile(name: str, overrides: str) -> ModelProfile:
    config = json.loads((CONFIGS / f"{name}.json").read_text())["config"]
    return describe(name, {**config, **json.loads(overrides)})
