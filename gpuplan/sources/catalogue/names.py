"""Names people type: when two spellings are the same, and what was probably meant."""

import re
from collections.abc import Iterable, Sequence

_LONGEST = 96
"""Characters compared: comparing is quadratic, and no catalogue name is longer."""


def squeeze(name: str) -> str:
    """The letters and digits of a name in lower case: `RTX PRO-6000` and `rtx_pro_6000` are one name."""
    return "".join(filter(str.isalnum, name.casefold()))


def tokens(name: str) -> tuple[str, ...]:
    """The words of a name in lower case, split at anything that is neither letter nor digit."""
    return tuple(re.findall(r"[^\W_]+", name.casefold()))


def near_misses(name: str, candidates: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """The candidates most like `name`, best first: those it begins, then those spelled alike."""
    import difflib  # costs more than loading a catalogue, and only an error needs it

    wanted = squeeze(name[:_LONGEST])
    if not wanted or limit < 1:
        return ()
    by_key: dict[str, str] = {}
    for candidate in candidates:
        by_key.setdefault(squeeze(candidate[:_LONGEST]), candidate)
    started = sorted((key for key in by_key if key.startswith(wanted)), key=lambda key: (len(key), key))
    alike = difflib.get_close_matches(wanted, sorted(by_key), n=limit, cutoff=0.6)
    return tuple(by_key[key] for key in dict.fromkeys([*started, *alike]))[:limit]


def listed(names: Sequence[str], most: int = 8) -> str:
    """`a, b and c`, or the first few and how many more there are."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
