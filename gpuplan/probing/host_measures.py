"""What a preflight asks a host beside its probe: ports that can be bound, and a model's files. Nothing stays there."""

import re
import shlex
from collections.abc import Sequence

from gpuplan.planning.preflight_measures import ModelFiles, PortState, PortTest
from gpuplan.probing.command import Command
from gpuplan.probing.output import Output

PORTS = "ports_bound"
MODEL = "model_files"
MOST_FILES = 5000

_BIND_PYTHON = """
import socket, sys
states = {}
busy = []
for words in sys.argv[1:]:
    first, last = words.split("-")
    for port in range(int(first), int(last) + 1):
        one = socket.socket()
        try: one.bind(("", port))
        except OSError as error: busy.append((port, error.errno))
        one.close()
for name in ("tcp", "tcp6"):
    try: lines = open("/proc/net/" + name).read().splitlines()[1:]
    except OSError: continue
    for line in lines:
        words = line.split()
        states.setdefault(int(words[1].rpartition(":")[2], 16), set()).add(words[3])
print("tool python3")
for port, code in busy: print("busy", port, code, "+".join(sorted(states.get(port, "-"))))
"""
_BIND_PERL = """
use strict; use Socket; my (@busy, %states);
for my $words (@ARGV) {
  my ($first, $last) = split /-/, $words;
  for my $port ($first .. $last) {
    socket(my $one, PF_INET, SOCK_STREAM, 0) or die "$!";
    bind($one, sockaddr_in($port, INADDR_ANY)) or push @busy, [$port, $! + 0];
    close $one;
  }
}
for my $name ("tcp", "tcp6") {
  open(my $file, "<", "/proc/net/$name") or next; <$file>;
  while (<$file>) { my @w = split; my ($hex) = $w[1] =~ /:([0-9A-Fa-f]+)$/; $states{hex $hex}{$w[3]} = 1 }
}
print "tool perl\\n";
print "busy $_->[0] $_->[1] ", (join("+", sort keys %{$states{$_->[0]} || {}}) || "-"), "\\n" for @busy;
"""
_BIND = """\
echo "reserved $(cat /proc/sys/net/ipv4/ip_local_reserved_ports 2>/dev/null)"
for p in python3 /usr/libexec/platform-python python; do
  if command -v $p >/dev/null 2>&1 && $p -c 'import sys, socket; sys.exit(sys.version_info < (3,))' >/dev/null 2>&1
  then exec $p -c {python} {ranges}; fi
done
if command -v perl >/dev/null 2>&1 && perl -MSocket -e 1 >/dev/null 2>&1; then exec perl -e {perl} {ranges}; fi
exit 127
"""
_EADDRINUSE = 98
_LISTEN, _TIME_WAIT = "0A", "06"
"""Socket states as /proc/net/tcp prints them (include/net/tcp_states.h)."""
_BUSY = re.compile(r"busy (\d+) (\d+) (\S+)")

_FILES = """\
for d in {places}; do
  case "$d" in '~/'*) d=$HOME/${{d#'~/'}} ;; esac
  [ -d "$d" ] || continue
  r=
  if [ -d "$d/snapshots" ]; then
    r=$(cat "$d/refs/{branch}" 2>/dev/null)
    [ -n "$r" ] && [ -d "$d/snapshots/$r" ] || r=$(ls -t "$d/snapshots" 2>/dev/null | head -n 1)
    [ -n "$r" ] && d=$d/snapshots/$r
  fi
  [ -e "$d/config.json" ] || continue
  cd "$d" || continue
  [ -n "$r" ] || r=$(head -n 1 .cache/huggingface/download/config.json.metadata 2>/dev/null)
  [ -n "$r" ] || r=$(git rev-parse HEAD 2>/dev/null)
  echo "path $d"
  echo "revision $r"
  for f in config.json *.index.json; do [ -f "$f" ] && sha256sum "$f" 2>/dev/null | sed 's/^/digest /'; done
  find -L . -path './.*' -prune -o -type f -exec stat -L -c 'file %s %n' {{}} + 2>/dev/null | head -n {most}
  exit 0
done
echo none
"""
_DIGEST = re.compile(r"digest ([0-9a-f]{64}) [ *](.+)")
_FILE = re.compile(r"file (\d+) \./(.+)")


def ports_command(ranges: Sequence[tuple[int, int]]) -> Command:
    """Bind every port of the ranges once, without SO_REUSEADDR: that fails for what is bound and does not listen yet."""
    words = " ".join(f"{first}-{last}" for first, last in ranges)
    text = _BIND.replace("{python}", shlex.quote(_BIND_PYTHON)).replace("{perl}", shlex.quote(_BIND_PERL))
    return Command(name=PORTS, shell=text.replace("{ranges}", words), timeout=15)


def ports_of(output: Output) -> PortTest:
    """What the binds said; without a tool that can bind, nothing."""
    tool = re.search(r"^tool (\S+)", output.text, re.MULTILINE)
    kept = re.search(r"^reserved (\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)$", output.text, re.MULTILINE)
    reserved = tuple(_bounds(words) for words in kept.group(1).split(",")) if kept is not None else ()
    if tool is None:
        return PortTest(reserved=reserved)
    busy = {
        int(port): _state(states)
        for port, code, states in _BUSY.findall(output.text)
        if int(code) == _EADDRINUSE
    }
    return PortTest(busy=tuple(sorted(busy.items())), tool=tool.group(1), reserved=reserved)


def _bounds(words: str) -> tuple[int, int]:
    """`40000-40063`, or one port."""
    first, _, last = words.partition("-")
    return int(first), int(last or first)


def _state(codes: str) -> PortState:
    """What holds a port, by the states of its sockets; none at all: bound and silent."""
    states = set(codes.split("+")) - {"-"}
    if _LISTEN in states:
        return PortState.LISTENING
    if not states:
        return PortState.BOUND
    return PortState.CLOSING if states == {_TIME_WAIT} else PortState.CONNECTED


def model_command(places: Sequence[str], branch: str = "main") -> Command:
    """List the model's files in the first place that has a config.json."""
    text = _FILES.format(
        places=" ".join(shlex.quote(place) for place in places), branch=branch, most=MOST_FILES
    )
    return Command(name=MODEL, shell=text, timeout=30)


def model_of(output: Output) -> ModelFiles | None:
    """The files found; None when no place has them."""
    lines = {line.partition(" ")[0]: line.partition(" ")[2].strip() for line in output.text.splitlines()[:2]}
    path = lines.get("path")
    if not path:
        return None
    files = {name: int(size) for size, name in _FILE.findall(output.text)}
    digests = {name: digest for digest, name in _DIGEST.findall(output.text)}
    return ModelFiles(
        path=path,
        revision=lines.get("revision") or None,
        files=tuple(sorted(files.items())),
        digests=tuple(sorted(digests.items())),
    )


def model_places(reference: str, name: str, model_dir: str | None) -> tuple[str, ...]:
    """Where a host may keep a model: a path as given, below `model_dir`, and in the hub's cache layout."""
    places: list[str] = []
    if reference.startswith(("/", "~/")):
        places.append(reference.removesuffix("/config.json"))
    bare = name.partition("@")[0].strip("/")
    cached = f"models--{bare.replace('/', '--')}"
    if model_dir is not None:
        root = model_dir.rstrip("/")
        below = (bare, bare.rpartition("/")[2], cached, f"hub/{cached}")
        places += [f"{root}/{part}" for part in below if part]
    places.append(f"~/.cache/huggingface/hub/{cached}")
    return tuple(dict.fromkeys(places))
