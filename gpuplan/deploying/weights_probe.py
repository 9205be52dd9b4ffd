"""Where a model lies on a host, and with which files: the script that looks, and what its lines say.

One script looks at every place the model may be in, so that one session tells it all. A place counts when it holds
config.json. Links are followed; those of the hub's cache lead from `snapshots` to `blobs`. What a weight index
promises is taken out of it on the host: the index of a large model is 9 MB, the names in it are few.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

SECONDS = 120.0
"""For a host: headers of a few hundred files, perhaps over a network."""
OUTPUT_LIMIT = 16 * 1024**2
MOST_FILES = 5000
LARGEST_HEADER = 100_000_000
"""Bytes of a safetensors header: its format allows no more."""


class PlaceKind(StrEnum):
    DIRECTORY = "directory"
    CACHE = "cache"
    """`models--org--name` in the hub's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to look."""

    kind: PlaceKind
    path: str
    """Absolute, or below `~`."""
    revision: str = "main"
    """Of a cache: branch, tag or commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlace:
    """A place that holds the model, or part of it."""

    kind: PlaceKind
    asked: str
    """The place as it was asked for."""
    path: str
    """The directory of config.json, links resolved."""
    revision: str | None = None
    """The commit, where a cache or a download recorded it."""
    files: tuple[tuple[str, int], ...] = ()
    """Relative name and bytes."""
    promised: tuple[tuple[str, int], ...] = ()
    """Bytes a safetensors file has by its own header; -1: it has no such header."""
    indexed: tuple[str, ...] = ()
    """Files the weight index names."""
    broken: tuple[str, ...] = ()
    """Links that lead nowhere."""
    outside: tuple[str, ...] = ()
    """Links that lead out of the directory."""
    incomplete_bytes: int = 0
    """Of downloads that were broken off, in the cache."""
    digests: tuple[tuple[str, str], ...] = ()
    """SHA-256 of config.json and the weight index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The file system where a directory is, or will be made."""

    path: str
    """As it was asked for, `~` resolved."""
    device: str
    """What `df` names: a device, `server:/export`."""
    free_bytes: int
    """To the login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """What one host answered."""

    home: str = ""
    """Of the login."""
    uid: int | None = None
    gid: int | None = None
    places: tuple[FoundPlace, ...] = ()
    """In the order they were asked for."""
    rooms: tuple[Room, ...] = ()


_DF = re.compile(r"(.*?)\s+\d+\s+\d+\s+(\d+)\s+\S+\s+/.*")
"""A line of `df -Pk`: device, size, used, available, share, where it is mounted."""

_SCRIPT = """\
export LC_ALL=C
exec 2>/dev/null
T=$(printf '\\t')
say() { printf 'gpuplan-model'; printf '\\t%s' "$@"; printf '\\n'; }
at_home() { case "$1" in '~') printf %s "$HOME" ;; '~/'*) printf %s "$HOME/${1#'~/'}" ;; *) printf %s "$1" ;; esac; }
promised() {
  [ "$(head -c 8 "$1" | wc -c)" -eq 8 ] || { echo -1; return; }
  n=$(od -An -v -tu1 -N8 "$1" | awk '{ for (i = NF; i > 0; i--) s = s * 256 + $i } END { printf "%.0f", s }')
  [ "${#n}" -le 9 ] && [ "$n" -le @largest@ ] && [ "$n" -gt 1 ] || { echo -1; return; }
  head -c $((n + 8)) "$1" | tail -c +9 | grep -o '"data_offsets" *: *\\[ *[0-9]*, *[0-9]* *\\]' |
    awk -v n="$n" -F '[],[]' '{ if ($3 + 0 > m) m = $3 + 0 } END { printf "%.0f\\n", 8 + n + m }'
}
look() {
  d=$(at_home "$3"); r=; waits=0
  if [ "$2" = cache ]; then
    [ -d "$d/snapshots" ] || return
    for f in "$d"/blobs/*.incomplete; do
      [ -f "$f" ] && waits=$((waits + $(stat -L -c %s "$f")))
    done
    r=$(cat "$d/refs/$4"); [ -n "$r" ] || r=$4
    d=$d/snapshots/$r
  fi
  [ -d "$d" ] && cd -P "$d" || return
  [ -e config.json ] || [ -L config.json ] || return
  d=$(pwd -P)
  [ -n "$r" ] || r=$(head -n 1 .cache/huggingface/download/config.json.metadata)
  say place "$1" "$d" "$r" "$waits"
  for f in config.json *.index.json; do
    [ -f "$f" ] && say digest "$1" "$(sha256sum "$f" | cut -d ' ' -f 1)" "$f"
  done
  find -L . -maxdepth 2 -path './.?*' -prune -o -type f -exec stat -L -c "gpuplan-model${T}file${T}$1${T}%s${T}%n" {} + |
    head -n @most@
  find -L . -maxdepth 2 -path './.?*' -prune -o -type l -print | while IFS= read -r f; do say broken "$1" "$f"; done
  if [ "$2" != cache ]; then
    for f in *; do
      [ -L "$f" ] && [ -f "$f" ] || continue
      case "$(readlink -f "$f")" in "$d"/*) ;; *) say outside "$1" "$f" ;; esac
    done
  fi
  for f in *.safetensors.index.json; do
    [ -f "$f" ] && grep -o '"[^"]*\\.safetensors"' "$f" | sort -u | while IFS= read -r w; do say indexed "$1" "$w"; done
  done
  for f in *.safetensors; do
    [ -f "$f" ] && say promised "$1" "$(promised "$f")" "$f"
  done
}
room() {
  d=$(at_home "$1"); e=$d
  while [ ! -d "$e" ] && [ "$e" != / ] && [ -n "$e" ]; do e=$(dirname "$e"); done
  say room "$d" "$(df -Pk "$e" | tail -n 1 | tr '\\t' ' ')"
}
say home "$HOME" "$(id -u)" "$(id -g)"
"""


def script(places: Sequence[Place], rooms: Sequence[str] = ()) -> bytes:
    """For `sh -s`: look at every place, and at the file systems of `rooms`."""
    head = _SCRIPT.replace("@largest@", str(LARGEST_HEADER)).replace("@most@", str(MOST_FILES))
    looks = (
        f"(look {number} {place.kind} {shlex.quote(place.path)} {shlex.quote(place.revision)})"
        for number, place in enumerate(places)
    )
    return "\n".join((head, *(f"room {shlex.quote(path)}" for path in rooms), *looks, "say end", "")).encode()


def parse(text: str, places: Sequence[Place]) -> Located | None:
    """What the script printed about these places; None when it did not come to its end."""
    rows = [line.split("\t")[1:] for line in text.splitlines() if line.startswith("gpuplan-model\t")]
    if ["end"] not in rows:
        return None
    home = next((row[1:] for row in rows if row[0] == "home"), [])
    rooms = [_room(row[1:]) for row in rows if row[0] == "room"]
    found = (_place(number, place, rows) for number, place in enumerate(places))
    return Located(
        home=home[0] if home else "",
        uid=_number(home[1]) if len(home) > 1 else None,
        gid=_number(home[2]) if len(home) > 2 else None,
        places=tuple(each for each in found if each is not None),
        rooms=tuple(each for each in rooms if each is not None),
    )


def _place(number: int, place: Place, rows: Sequence[Sequence[str]]) -> FoundPlace | None:
    own = [row for row in rows if len(row) > 2 and row[1] == str(number)]
    head = next((row[2:] for row in own if row[0] == "place" and len(row) == 5), None)
    if head is None:
        return None
    path, revision, waits = head

    def sized(kind: str) -> tuple[tuple[str, int], ...]:
        pairs = ((_plain(row[3]), _number(row[2])) for row in own if row[0] == kind and len(row) == 4)
        return tuple(sorted((name, size) for name, size in pairs if size is not None))

    def named(kind: str) -> tuple[str, ...]:
        return tuple(sorted({_plain(row[2]) for row in own if row[0] == kind}))

    return FoundPlace(
        kind=place.kind,
        asked=place.path,
        path=path,
        revision=revision or None,
        files=sized("file"),
        promised=sized("promised"),
        indexed=tuple(name for name in named("indexed") if "/" not in name),
        broken=named("broken"),
        outside=named("outside"),
        incomplete_bytes=_number(waits) or 0,
        digests=tuple(
            sorted((row[3], row[2]) for row in own if row[0] == "digest" and len(row) == 4 and row[2])
        ),
    )


def _room(row: Sequence[str]) -> Room | None:
    line = _DF.fullmatch(row[1]) if len(row) == 2 else None
    if line is None:
        return None
    return Room(path=row[0], device=line[1], free_bytes=int(line[2]) * 1024)


def _plain(name: str) -> str:
    """`./a` and `"a"` are a."""
    return name.strip('"').removeprefix("./")


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None
