"""Layouts of the same GPUs, compared: a table, and which of them is for what."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuplan.engine.throughput import HIGH, LOW
from gpuplan.present.document import Line, Role, Span, line, padded
from gpuplan.present.numbers import count, gib, times, tokens
from gpuplan.present.page import page
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural

MOST_ROWS = 12
NAME = 14
MARGIN = 6
"""Cells."""
NO_CONTEXT = "no room for a useful context"

Row = Mapping[str, Any]


def layout_name(row: Row) -> str:
    """`TP8·DP2·EP`, `TP8·PP2`, `DP16·EP`; `2×TP4` for copies of their own, as plans write them."""
    separate, data = row["separate"], row["data"]
    parts = [f"TP{row['tensor']}"] if row["tensor"] > 1 or data == 1 or separate else []
    parts += [f"PP{row['pipeline']}"] if row["pipeline"] > 1 else []
    parts += [f"DP{data}"] if data > 1 and not separate else []
    name = "·".join([*parts, "EP"] if row["expert"] else parts)
    return f"{data}×{name}" if separate and data > 1 else name


def layout_table(figures: Given, width: int) -> Iterator[Line]:
    """A row per layout, most cache first, with as many columns as there is room for; speeds only where they are known."""
    rows = figures["layouts"]
    columns = _columns(rows, width)
    head = "".join(f"{title:>{cells}}" for title, cells, _ in columns)
    yield line(Span(f"{' ' * MARGIN}{padded('layout', NAME)}{head}"[:width], Role.DIM))
    for row in rows[:MOST_ROWS]:
        mark = "    → " if row["chosen"] else " " * MARGIN
        role = Role.PLAIN if row["fits"] else Role.DIM
        cells = "".join(f"{value(row):>{cells}}" for _, cells, value in columns)
        text = cells if row["fits"] else _refused(row)
        yield line(Span(_clipped(f"{mark}{padded(layout_name(row), NAME)}{text}", width), role))
    if len(rows) > MOST_ROWS:
        yield line(Span(f"{' ' * MARGIN}… {len(rows) - MOST_ROWS} more (all in -o json)", Role.DIM))


Column = tuple[str, int, Callable[[Row], str]]
"""Title, cells and how a row fills it."""
COLUMNS: tuple[Column, ...] = (
    ("weights/GPU", 13, lambda row: gib(row["weights_bytes"])),
    ("KV cache, all", 18, lambda row: tokens(row["kv_cache_tokens"])),
    ("longest", 11, lambda row: count(row["largest_context"])),
    ("requests", 10, lambda row: times(row["requests"])),
    ("tokens/s", 11, lambda row: _speed(row["tokens_per_second"])),
    ("at most", 11, lambda row: _speed(row["most_tokens_per_second"])),
)
SPEEDS = 2
"""Of the columns, the last ones."""


def _columns(rows: list[Row], width: int) -> list[Column]:
    known = any(row["tokens_per_second"] for row in rows)
    room, chosen = width - MARGIN - NAME, []
    for column in COLUMNS if known else COLUMNS[:-SPEEDS]:
        room -= column[1]
        if room < 0:
            break
        chosen.append(column)
    return chosen


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else padded(text, width)


def _refused(row: Row) -> str:
    weights = "" if row["weights_bytes"] is None else gib(row["weights_bytes"])
    short = f"short by {gib(row['gap_bytes'])}" if row["gap_bytes"] is not None else None
    return f"{weights:>13}  {row['reason'] or short or NO_CONTEXT}"


def _speed(value: float | None) -> str:
    """To two digits: the estimate is no better."""
    return "unknown" if value is None else f"~{count(float(f'{value:.2g}'))}"


def _compared(_subject: Given, figures: Given) -> Words:
    fitting = [row for row in figures["layouts"] if row["fits"]]
    where = f"{plural(figures['gpus'], 'GPU')} on {plural(figures['hosts'], 'host')}"
    if not fitting:
        return told(
            f"{where}: none of {plural(len(figures['layouts']), 'layout')} fits",
            _cache(figures),
            "use more or larger GPUs, or a quantized variant",
        )
    most = fitting[0]
    if not most["kv_cache_tokens"]:
        said = f"{layout_name(most)} takes most requests at once, {times(most['requests'])}"
        return told(f"{_fit(where, figures, fitting)}: {said}", (), _choose(fitting))
    said = f"{layout_name(most)} holds most KV cache, {tokens(most['kv_cache_tokens'])}"
    mine = next((row for row in fitting if row["chosen"]), None)
    if mine is not None and mine is not most:
        said += f"; this one, {layout_name(mine)}, {tokens(mine['kv_cache_tokens'])}"
    least = fitting[-1]
    if mine is None and least["kv_cache_tokens"] < most["kv_cache_tokens"]:
        said += f"; {layout_name(least)} least, {tokens(least['kv_cache_tokens'])}"
    return told(
        f"{_fit(where, figures, fitting)}: {said}",
        (*_cache(figures), *_speeds(figures, fitting), *_network(fitting)),
        _choose(fitting),
    )


def _fit(where: str, figures: Given, fitting: list[Row]) -> str:
    return f"{where}, {len(fitting)} of {plural(len(figures['layouts']), 'layout')} fit"


def _cache(figures: Given) -> tuple[str, ...]:
    if figures["latent"]:
        return (
            "the cache is of latents, which every tensor-parallel rank holds whole: replicas and pipeline stages divide it",
        )
    heads = figures["kv_heads"]
    if not heads:
        return ()
    return (
        f"tensor parallel divides the cache among its {plural(heads, 'KV head')}; ranks beyond that hold copies",
    )


def _speeds(figures: Given, fitting: list[Row]) -> tuple[str, ...]:
    known = [row for row in fitting if row["tokens_per_second"]]
    if len(known) < 2:
        return ()
    quick, busy = _quickest(known), _busiest(known)
    load = f"{plural(figures['users'], 'user')} with {tokens(figures['context'])} each"
    basis = f"speeds are computed, −{(1 - LOW) * 100:.0f} to +{(HIGH - 1) * 100:.0f} %"
    if quick is busy:
        fast = f"{_speed(quick['tokens_per_second'])} tokens/s in all"
        full = f"{_speed(busy['most_tokens_per_second'])} to {plural(busy['most_users'], 'user')} as full as it goes"
        return (f"{layout_name(quick)} is fastest at any load: {load} get {fast}, {full}", basis)
    first = f"{layout_name(quick)} ({_speed(quick['tokens_per_second'])} tokens/s in all)"
    second = f"{_speed(busy['most_tokens_per_second'])} tokens/s to {plural(busy['most_users'], 'user')}"
    return (
        f"{load} are answered fastest by {first}; as full as it goes, {layout_name(busy)} gives most ({second})",
        basis,
    )


def _quickest(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: row["tokens_per_second"] or 0)


def _busiest(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: row["most_tokens_per_second"] or 0)


def _network(fitting: list[Row]) -> tuple[str, ...]:
    over = [layout_name(row) for row in fitting if row["over_hosts"]]
    return (f"tensor parallel over hosts ({over[0]}) waits for the network in every layer",) if over else ()


def _choose(fitting: list[Row]) -> str | None:
    """What to ask for, by what the server is for; nothing where there is no choice."""
    if len(fitting) < 2:
        return None
    known = [row for row in fitting if row["tokens_per_second"]]
    if not known:
        return f"for most requests at once: {layout_flags(fitting[0])}"
    few, many = layout_flags(_quickest(known)), layout_flags(_busiest(known))
    return f"for few users: {few}" + (f"; for many: {many}" if many != few else ", and for many as well")


def layout_flags(row: Row) -> str:
    """The arguments that ask for a layout."""
    flags = f"-- --tensor-parallel-size {row['tensor']}"
    flags += f" --pipeline-parallel-size {row['pipeline']}" if row["pipeline"] > 1 else ""
    if row["data"] > 1 and row["separate"]:
        return f"--replicas {row['data']} {flags}"
    flags += f" --data-parallel-size {row['data']}" if row["data"] > 1 else ""
    return flags + (" --enable-expert-parallel" if row["expert"] else "")


WORDS: Mapping[str, Worder] = {"GP312": _compared}

PAGES = (
    page(
        "GP312",
        "Layouts of the same GPUs compared",
        "Tensor, pipeline, data and expert parallel sizes that take all of these GPUs, each judged rank by rank.",
        "Tensor parallel divides every matrix and answers one user fastest, but repeats a latent (MLA) cache on every rank and "
        "a grouped one beyond its KV heads. Data parallel with expert parallel keeps attention whole in each replica, so its "
        "cache holds other requests, and spreads the experts over all ranks. Pipeline stages divide layers and cache, and "
        "each token passes all of them. Of replicas the cache is counted together; one request has that of one replica.",
        "Choose by the load: few users, tensor parallel inside a host; many users of a wide mixture of experts, data "
        "parallel with expert parallel; over slow networks, pipeline stages. `gpuplan estimate MODEL --gpu NAME:COUNT "
        "--layouts` compares them without an inventory.",
        "vLLM FusedMoEParallelConfig.make; S3.2, S3.3",
    ),
)
