"""Figures and their bounds as a table."""

from collections.abc import Callable, Sequence

Row = tuple[str, float, float]
"""Name, value, and the bound it must not exceed."""


def keeps_bounds(title: str, measure: Callable[[], Sequence[Row]], tries: int) -> bool:
    """Whether one try keeps every bound: a broken one is measured again. Prints the table of each try."""
    for _ in range(tries):
        rows = measure()
        print(f"{title:<60} {'is':>9} {'bound':>9}")
        for name, value, bound in rows:
            print(f"{name:<60} {value:9.3f} {bound:9.3f}{'' if value <= bound else '  BROKEN'}", flush=True)
        if all(value <= bound for _, value, bound in rows):
            return True
    return False
