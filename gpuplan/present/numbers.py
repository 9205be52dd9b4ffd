"""How numbers read: sizes in GiB, tokens with separators, shares as percentages, always rounded, never truncated."""

from gpuplan.units import GIB, MIB


def gib(size: float | None) -> str:
    """`71.27 GiB`; small sizes in MiB, unknown as `unknown`."""
    if size is None:
        return "unknown"
    if 0 < abs(size) < 10 * MIB:
        return f"{size / MIB:.2f} MiB"
    return f"{size / GIB:,.2f} GiB"


def count(number: float) -> str:
    """`131,072`."""
    return f"{number:,.0f}"


def tokens(number: int) -> str:
    """`131,072 tokens`."""
    return f"{count(number)} token{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """`92 %`, with a decimal only where it says something."""
    value = share * 100
    return f"{value:.0f} %" if abs(value - round(value)) < 0.05 else f"{value:.1f} %"


def times(number: float) -> str:
    """Concurrency: `7.8`; from a thousand on without decimals."""
    return f"{number:,.1f}" if number < 999.95 else f"{number:,.0f}"


def listed(items: list[str] | tuple[str, ...], most: int = 3) -> str:
    """The first few, then how many more."""
    shown = list(items[:most])
    more = len(items) - len(shown)
    return ", ".join(shown) + (f" … {more} more" if more > 0 else "")


def gpu_range(indexes: list[int] | tuple[int, ...]) -> str:
    """`0-3,6` for 0, 1, 2, 3, 6."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def gigabits(bits_per_second: int) -> str:
    """`100 Gbit/s`."""
    return f"{bits_per_second / 1e9:g} Gbit/s"


def span(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, `2 h`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")
