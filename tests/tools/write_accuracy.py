"""Writes docs/accuracy.md, and its summary in the README, from the benchmark: `python -m tests.tools.write_accuracy`."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from gpuplan.errors import GpuplanError
from gpuplan.operations.estimate import Estimate, make_estimate
from gpuplan.operations.plan import ServingOptions
from gpuplan.units import GIB
from tests.benchmarks.accuracy import MEASURES, figures, logged_starts, share
from tests.benchmarks.parameters import Compared, compared_rows, wide_table
from tests.benchmarks.starts import COLLECTED, DATA, PUBLISHED, Start

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"
BEGIN = "<!-- accuracy: written by `python -m tests.tools.write_accuracy` -->"
END = "<!-- end of accuracy -->"
TITLES = {PUBLISHED: "first sample", COLLECTED: "second sample"}
OURS = "gpuplan"
FEWEST = 2
"""Starts of a family, card or release below which its line says little; they are shown together."""


def page() -> str:
    """The whole page, as Markdown."""
    starts = logged_starts()
    measured = json.loads((DATA / "peers-measured.json").read_text())
    return (
        "\n\n".join(
            [
                "# How accurate the predictions are",
                _introduction(starts),
                "## Summary",
                *(_summary(starts, name) for name in TITLES if any(start.corpus == name for start in starts)),
                _ranges(starts),
                "## Parameters and KV pages",
                _parameters(),
                "## By family, card and release",
                *_groups(starts),
                "## Verdicts",
                _verdicts(starts),
                "## Beside other tools",
                *_peers(starts, measured),
                "## Known limits",
                _limits(starts),
            ]
        )
        + "\n"
    )


def summary() -> str:
    """The README's lines."""
    starts = [start for start in logged_starts() if start.corpus == PUBLISHED]
    wanted = ("weights", "tokens_per_gib", "kv_budget", "kv_tokens", "shared_kv_budget")
    rows = [_row(starts, measure) for measure in wanted]
    judged = [start for start in starts if start.verdict]
    right = sum(start.verdict == "right" for start in judged)
    return "\n".join(
        [
            *_table(["errors in %", "starts", "median", "mean", "≤ 1 %", "over 1 % too much"], rows),
            "",
            (
                f"Starts or refused, told beforehand: {right} of {len(judged)}. Parameters per rank: {_exact(compared_rows())}. "
                "[docs/accuracy.md](docs/accuracy.md) has every family, card and release, other tools beside it, and the limits."
            ),
        ]
    )


def _introduction(starts: Sequence[Start]) -> str:
    counts = {name: sum(start.corpus == name for start in starts) for name in TITLES}
    return (
        f"Real start-up logs of vLLM, as people published them: {counts[PUBLISHED]} starts in a first sample, "
        f"{counts[COLLECTED]} in a second one that was collected later. Each was asked as a user would ask, "
        "`gpuplan estimate MODEL --gpu custom=SIZE:N -- ARGUMENTS`, without the card's name. An error is positive where the "
        "prediction promises more room than the log shows. Nothing was learned from a log beforehand "
        "(`gpuplan learn`), and no rule knows a single model. But it is no blind test: what no source tells (what the driver "
        "and NCCL load, the size of a graph per layer, what a host's programs take from shared memory) was read off such logs, "
        "these among them.\n\n"
        "`python -m tests.benchmarks.accuracy` prints these figures with the bounds that hold them, `--details` every start. "
        "`python -m tests.tools.write_accuracy` wrote this page."
    )


def _row(starts: Sequence[Start], measure: str) -> list[str]:
    found = figures(starts, measure)
    assert found is not None, measure
    return [
        MEASURES[measure],
        f"{found.answered} of {found.usable}" if found.answered < found.usable else str(found.answered),
        f"{found.median:.2f}",
        f"{found.mean:.2f}",
        f"{found.within[1]:.0f} %",
        f"{found.optimistic:.0f} %",
    ]


def _summary(starts: Sequence[Start], name: str) -> str:
    part = [start for start in starts if start.corpus == name]
    rows = []
    for measure, title in MEASURES.items():
        found = figures(part, measure)
        if found is not None:
            within = [f"{found.within[limit]:.0f} %" for limit in (1, 2, 5)]
            rows.append(
                [
                    title,
                    str(found.answered),
                    f"{found.median:.2f}",
                    f"{found.mean:.2f}",
                    f"{found.ninety_fifth:.2f}",
                    f"{found.bias:+.2f}",
                    *within,
                    f"{found.optimistic:.0f} %",
                ]
            )
    head = [
        f"errors in %, {TITLES[name]}",
        "starts",
        "median",
        "mean",
        "95th",
        "bias",
        "≤ 1 %",
        "≤ 2 %",
        "≤ 5 %",
        "optimistic",
    ]
    return "\n".join(_table(head, rows))


def _ranges(starts: Sequence[Start]) -> str:
    ranged = [start for start in starts if start.width is not None]
    return (
        f"Every prediction carries a range. Of {len(ranged)} logged KV caches "
        f"{share(bool(start.inside) for start in ranged):.0f} % lie inside it, "
        f"{share(bool(start.safe) for start in ranged):.0f} % at or above its low end, by which verdicts are given; "
        f"half of the ranges are narrower than {median(start.width or 0 for start in ranged):.1f} % of the GPU's memory. "
        '"Optimistic" is the share that promises over 1 % too much.'
    )


def _exact(rows: Sequence[Compared]) -> str:
    return f"exact to the byte on {sum(row.exact for row in rows):,} of {len(rows):,}"


def _parameters() -> str:
    rows = compared_rows()
    worst = max(abs(row.error) for row in rows)
    models, more = wide_table()
    return (
        "Against the parameters that vLLM's own model classes create, rank by rank (tensor and pipeline parallel, expert "
        f"parallel, KV types, GPU generations; before kernels repack them): {_exact(rows)} ranks of "
        f"{len({row.config for row in rows})} models, worst {worst:.3f} %. A second table of {models} further configurations "
        f"({more} rows: more families, quantizations, draft models, data parallel experts) is held to the byte by "
        "`tests/conformance/test_weights_more.py`; KV blocks, tokens and concurrency are held equal to vLLM's own planner in 29 "
        "releases by `tests/conformance/test_kv_geometry.py`."
    )


def _groups(starts: Sequence[Start]) -> list[str]:
    return [
        _grouped("family (`model_type`)", starts, lambda start: start.family),
        _grouped("card", starts, lambda start: start.gpu),
        _grouped("release", starts, _minor),
    ]


def _minor(start: Start) -> str:
    parts = start.version.split(".")
    return ".".join(parts[:2]) if len(parts) > 1 else start.version


def _grouped(title: str, starts: Sequence[Start], key: Callable[[Start], str]) -> str:
    groups: dict[str, list[Start]] = {}
    for start in starts:
        groups.setdefault(key(start), []).append(start)
    small = [start for group in groups.values() if len(group) < FEWEST for start in group]
    kept = {name: group for name, group in groups.items() if len(group) >= FEWEST}
    if small:
        kept["the others, one start each"] = small
    rows = [[name, *_group_row(group)] for name, group in sorted(kept.items(), key=_order)]
    head = [
        title,
        "starts",
        "weights, median",
        "worst",
        "KV tokens per GiB, worst",
        "KV cache, median",
        "worst",
        "optimistic",
        "verdicts",
    ]
    return "\n".join(_table(head, rows))


def _order(item: tuple[str, list[Start]]) -> tuple[bool, list[tuple[int, str]]]:
    name, _ = item
    parts = [(int(part), "") if part.isdecimal() else (-1, part) for part in name.lower().split(".")]
    return name.startswith("the others"), parts


def _group_row(group: Sequence[Start]) -> list[str]:
    weights, rate = figures(group, "weights"), figures(group, "tokens_per_gib")
    caches = [
        error
        for start in group
        for measure, error in start.errors.items()
        if measure in ("kv_budget", "shared_kv_budget")
    ]
    judged = [start for start in group if start.verdict]
    sizes = [abs(error) for error in caches]
    return [
        str(len(group)),
        f"{weights.median:.2f}" if weights else "–",
        f"{_worst(group, 'weights'):+.2f}" if weights else "–",
        f"{_worst(group, 'tokens_per_gib'):+.2f}" if rate else "–",
        f"{median(sizes):.2f}" if sizes else "–",
        f"{max(caches, key=abs):+.2f}" if caches else "–",
        f"{share(error > 1 for error in caches):.0f} %" if caches else "–",
        f"{sum(start.verdict == 'right' for start in judged)} of {len(judged)}" if judged else "–",
    ]


def _worst(group: Sequence[Start], measure: str) -> float:
    return max((start.errors[measure] for start in group if measure in start.errors), key=abs)


def _verdicts(starts: Sequence[Start]) -> str:
    judged = [start for start in starts if start.verdict]
    wrong = [start for start in judged if start.verdict != "right"]
    failed = [start for start in judged if start.check_right is not None]
    lines = [
        (
            f"{len(judged) - len(wrong)} of {len(judged)} right; the failing check is named rightly in "
            f"{sum(bool(start.check_right) for start in failed)} of {len(failed)} foreseen failures."
        )
    ]
    for start in [*wrong, *(start for start in failed if not start.check_right)]:
        what = start.verdict if start.verdict != "right" else "another check named"
        lines.append(f"- `{start.name}`: {what}. {_excuse(start)}".rstrip())
    return "\n".join([lines[0], "", *lines[1:]]) if len(lines) > 1 else lines[0]


def _peers(starts: Sequence[Start], measured: dict[str, Any]) -> list[str]:
    part = [start for start in starts if start.corpus == PUBLISHED]
    logs = measured["logs"]
    measures = list(logs["peers"]["sparkrun 0.4.2"])
    head = ["first sample: median / mean / optimistic", *logs["peers"], OURS]
    rows = []
    for measure in measures:
        found = figures(part, measure)
        assert found is not None
        cells = [_peer_cell(peer.get(measure)) for peer in logs["peers"].values()]
        own = f"**{found.median:.2f} / {found.mean:.2f} / {found.optimistic:.0f} %**"
        rows.append([MEASURES[measure], *cells, own])
    judged = [start for start in part if start.verdict]
    verdict_rows = [
        [name, f"{told['right']} of {told['of']}", str(told["missed"]), str(told["false_alarms"]), "never"]
        for name, told in logs["verdicts"].items()
    ]
    named = [start for start in judged if start.check_right is not None]
    verdict_rows.append(
        [
            f"**{OURS}**",
            f"{sum(start.verdict == 'right' for start in judged)} of {len(judged)}",
            str(sum(start.verdict == "missed failure" for start in judged)),
            str(sum(start.verdict == "false alarm" for start in judged)),
            f"{sum(bool(start.check_right) for start in named)} of {len(named)}",
        ]
    )
    return [
        f"In the table: {logs['about']}.",
        "\n".join(_table(head, rows)),
        "\n".join(
            _table(
                ["first sample", "verdicts right", "failures missed", "false alarms", "check named"],
                verdict_rows,
            )
        ),
        _rooms(measured["cache_room"]),
        _scenarios(measured["scenarios"]),
    ]


def _peer_cell(values: Sequence[float] | None) -> str:
    return "–" if values is None else f"{values[1]:.2f} / {values[2]:.3g} / {values[3]} %"


def _rooms(table: dict[str, Any]) -> str:
    peers = [name for name in table["cases"][0] if name.split()[-1][0].isdigit()]
    rows, sizes = [], []
    for case in table["cases"]:
        made = make_estimate(
            case["model"],
            f"custom={table['gpu_gib']}GiB:{case['tensor'] * case['pipeline']}",
            None,
            ServingOptions(
                vllm_version=table["version"],
                engine_args=(
                    "--tensor-parallel-size",
                    str(case["tensor"]),
                    "--pipeline-parallel-size",
                    str(case["pipeline"]),
                    "--gpu-memory-utilization",
                    str(table["utilization"]),
                ),
            ),
        )
        memory = made.candidate.memory
        assert memory is not None
        rank = min(memory.ranks, key=lambda rank: rank.kv_cache_bytes)
        error = 100 * (rank.kv_cache_bytes / GIB - case["room"]) / case["room"]
        sizes.append(abs(error))
        rows.append(
            [
                f"{case['model'].split('/')[1]} TP {case['tensor']} PP {case['pipeline']}",
                f"{case['room']:.2f}",
                *(f"{case[peer]:+.1f}" for peer in peers),
                f"**{error:+.1f}**",
            ]
        )
    means = [sum(abs(case[peer]) for case in table["cases"]) / len(table["cases"]) for peer in peers]
    rows.append(["mean size", "", *(f"{mean:.1f}" for mean in means), f"**{sum(sizes) / len(sizes):.1f}**"])
    lines = _table(["KV room, GiB per GPU", "logged", *peers, OURS], rows)
    return "\n".join([f"KV room of {table['about']} ([source]({table['source']})):", "", *lines])


def _scenarios(table: dict[str, Any]) -> str:
    peers = list(table["cases"][0]["peers"])
    rows = []
    for case in table["cases"]:
        told, fits = _told(case, table["version"])
        wrong = "" if fits == case["fits"] else " ✗"
        rows.append(
            [
                case["asked"],
                case["truth"],
                *(case["peers"][peer] for peer in peers),
                f"**{told}{wrong}**",
            ]
        )
    return "\n".join([table["about"], "", *_table(["asked", "truth", *peers, OURS], rows)])


def _told(case: dict[str, Any], version: str) -> tuple[str, bool]:
    options = ServingOptions(vllm_version=version, engine_args=tuple(case["args"]))
    try:
        made: Estimate = make_estimate(case["model"], case["gpu"], case["free"], options)
    except GpuplanError:
        return "refused before anything starts", False
    memory = made.candidate.memory
    check = made.candidate.engine.check
    if made.candidate.engine.starts:
        return f"fits; {memory.largest_max_model_len:,} tokens at most" if memory else "fits", True
    failing = f" ({check.value})" if check else ""
    longest = f"; {memory.largest_max_model_len:,} tokens at most" if memory else ""
    return f"no{failing}{longest}", False


def _excuse(start: Start) -> str:
    """Every reason, as sentences."""
    return " ".join(f"{reason[0].upper()}{reason[1:]}." for reason in dict.fromkeys(start.excused.values()))


def _limits(starts: Sequence[Start]) -> str:
    lines = [
        (
            "- The logs are other people's: no start of this list was made by us. Some state their inputs in part; what is not "
            "stated was left at the engine's default or, where `tests/data/vllm-startup-logs-corrections.json` says so, left out."
        ),
        "- Card names are hidden in these figures. With a name the kind of card is known and the ranges get narrower.",
        (
            "- GPUs that share the host's memory (GB10) lose what the page cache and other processes hold while the engine "
            "measures; no tool can know that beforehand. Their ranges are wide, and they stand apart."
        ),
        "- NVIDIA cards make up nearly all of the sample; AMD is in it with a few starts, others not at all.",
        "- Vision towers are computed from their largest item; a processor may choose another size.",
    ]
    beyond = [
        start
        for start in starts
        if any(
            abs(error) > 5
            for measure, error in start.errors.items()
            if measure in ("weights", "tokens_per_gib", "kv_budget", "shared_kv_budget")
        )
    ]
    if beyond:
        lines.append("- Off by more than 5 %:")
        for start in beyond:
            told = ", ".join(
                f"{MEASURES[measure]} {error:+.1f}"
                for measure, error in start.errors.items()
                if measure in ("weights", "tokens_per_gib", "kv_budget", "shared_kv_budget")
                and abs(error) > 5
            )
            lines.append(f"  - `{start.name}` ({start.version}): {told}. {_excuse(start)}".rstrip())
    return "\n".join(lines)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    titles = list(head)
    return [_line(titles), _line(["---"] * len(titles)), *(_line(row) for row in rows)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def readme_with(text: str, lines: str) -> str:
    """The README with these lines between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}"


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme_with(README.read_text(encoding="utf-8"), summary()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
