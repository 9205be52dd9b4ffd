"""The program a host listens and connects with: Python if it has one, else Perl, else a shell with busybox's nc.

All three speak one protocol. They print `MARK listen PORT` or `MARK deaf WHY`; read `connect NUMBER ADDRESS PORT WORD`
lines and `go`; print `MARK reach NUMBER OUTCOME MILLISECONDS DETAIL` for each and `MARK done`; and end with their input.
"""

import shlex
from collections.abc import Sequence

MARK = "gpuplan-reach"

_PYTHON = r"""
import os, select, signal, socket, sys, threading, time
mark, address, word, lifetime, limit, at_once = sys.argv[1:7]
ports = [int(text) for text in sys.argv[7:]]
limit = float(limit)
signal.alarm(int(lifetime))
tell = threading.Lock()
def say(text):
    with tell:
        sys.stdout.write(mark + " " + text + "\n")
        sys.stdout.flush()
def kind(error):
    if isinstance(error, socket.timeout): return "timed_out"
    if isinstance(error, ConnectionRefusedError): return "refused"
    return "unroutable"
server, why = None, "no port to try"
for port in ports:
    try:
        family, _, _, _, place = socket.getaddrinfo(address, port, 0, socket.SOCK_STREAM)[0]
        server = socket.socket(family, socket.SOCK_STREAM)
        server.bind(place)
        server.listen(128)
        break
    except OSError as error:
        why = "%s port %d: %s" % (address, port, error.strerror or error)
        server = None
if server is None: say("deaf " + why)
else: say("listen %d" % port)
def serve():
    while True:
        try: peer, _ = server.accept()
        except OSError: return
        threading.Thread(target=answer, args=(peer,), daemon=True).start()
def answer(peer):
    try:
        peer.settimeout(limit)
        peer.sendall((word + "\n").encode())
        peer.recv(1)
    except OSError: pass
    peer.close()
if server is not None: threading.Thread(target=serve, daemon=True).start()
def attempt(number, where, port, expected):
    began = time.time()
    outcome, detail = "reached", ""
    try:
        peer = socket.create_connection((where, int(port)), limit)
    except (OSError, ValueError) as error:
        outcome, detail = kind(error), getattr(error, "strerror", None) or str(error)
    else:
        took = time.time() - began
        heard = b""
        try:
            peer.settimeout(limit)
            while not heard.endswith(b"\n"):
                piece = peer.recv(256)
                if not piece or len(heard) > 256: break
                heard += piece
        except OSError as error: detail = str(error)
        peer.close()
        if heard.decode("utf-8", "replace").strip() != expected:
            outcome, detail = "stranger", detail or "another program answered"
        began = time.time() - took
    say("reach %s %s %.1f %s" % (number, outcome, (time.time() - began) * 1000, " ".join(detail.split())))
orders = []
while True:
    line = sys.stdin.readline()
    if not line: os._exit(0)
    words = line.split()
    if words[:1] == ["go"]: break
    if words[:1] == ["connect"] and len(words) == 5: orders.append(words[1:])
slots = threading.Semaphore(int(at_once))
def guarded(order):
    with slots: attempt(*order)
threads = [threading.Thread(target=guarded, args=(order,), daemon=True) for order in orders]
for thread in threads: thread.start()
for thread in threads: thread.join()
say("done")
while sys.stdin.readline(): pass
os._exit(0)
"""

_PERL = r"""
use strict; use Socket qw(:DEFAULT getaddrinfo AI_NUMERICHOST); use IO::Handle; use IO::Select;
use Fcntl; use Errno qw(EINPROGRESS ETIMEDOUT ECONNREFUSED); use Time::HiRes qw(time);
my ($mark, $address, $word, $lifetime, $limit, $at_once, @ports) = @ARGV;
$| = 1; $SIG{PIPE} = "IGNORE"; $SIG{CHLD} = "DEFAULT";
alarm $lifetime;
sub say_ { syswrite STDOUT, "$mark $_[0]\n" }
sub place { my ($e, @r) = getaddrinfo($_[0], $_[1], {socktype => SOCK_STREAM, flags => AI_NUMERICHOST}); $r[0] }
my ($server, $why, $port) = (undef, "no port to try", 0);
for my $p (@ports) {
  my $at = place($address, $p);
  if (!$at) { $why = "$address is no address"; last }
  socket(my $s, $at->{family}, SOCK_STREAM, 0) or do { $why = "$!"; next };
  if (bind($s, $at->{addr}) && listen($s, 128)) { $server = $s; $port = $p; last }
  $why = "$address port $p: $!";
}
my $main = $$; my $child = 0;
if ($server) {
  say_("listen $port");
  $child = fork();
  if ($child == 0) {
    alarm $lifetime;
    my $wait = IO::Select->new($server); my %until;
    while (getppid() == $main) {
      for my $s ($wait->can_read(0.5)) {
        if ($s == $server) {
          accept(my $peer, $server) or next;
          syswrite $peer, "$word\n"; $wait->add($peer); $until{fileno $peer} = time + $limit;
        } else { my $got; sysread $s, $got, 1; $wait->remove($s); close $s }
      }
      for my $s ($wait->handles) { next if $s == $server; if (time > $until{fileno $s}) { $wait->remove($s); close $s } }
    }
    exit 0;
  }
} else { say_("deaf $why") }
sub leave { kill "KILL", $child if $child; exit 0 }
sub attempt {
  my ($number, $where, $p, $expected) = @_;
  my ($began, $outcome, $detail) = (time, "unroutable", "");
  my $at = place($where, $p);
  my $took = 0;
  if (!$at) { $detail = "$where is no address" }
  elsif (!socket(my $s, $at->{family}, SOCK_STREAM, 0)) { $detail = "$!" }
  else {
    fcntl($s, F_SETFL, fcntl($s, F_GETFL, 0) | O_NONBLOCK);
    my $error = connect($s, $at->{addr}) ? 0 : $! + 0;
    if ($error == EINPROGRESS) {
      $error = IO::Select->new($s)->can_write($limit) ? unpack("i", getsockopt($s, SOL_SOCKET, SO_ERROR)) : -1;
    }
    $took = time - $began;
    if ($error == -1) { $outcome = "timed_out"; $detail = "timed out" }
    elsif ($error) {
      $! = $error; $detail = "$!";
      $outcome = $error == ECONNREFUSED ? "refused" : $error == ETIMEDOUT ? "timed_out" : "unroutable";
    }
    else {
      my ($heard, $end) = ("", time + $limit);
      while ($heard !~ /\n/ && time < $end) {
        last unless IO::Select->new($s)->can_read($end - time);
        last unless sysread $s, $heard, 256, length $heard;
      }
      $heard =~ s/\s+$//;
      ($outcome, $detail) = $heard eq $expected ? ("reached", "") : ("stranger", "another program answered");
    }
    close $s;
  }
  say_(sprintf "reach %s %s %.1f %s", $number, $outcome, ($took || time - $began) * 1000, $detail);
}
my @orders; my $go = 0;
while (defined(my $line = <STDIN>)) {
  my @words = split " ", $line;
  if (@words && $words[0] eq "go") { $go = 1; last }
  push @orders, [@words[1 .. 4]] if @words == 5 && $words[0] eq "connect";
}
leave() unless $go;
my $running = 0;
for my $order (@orders) {
  if ($running >= $at_once) { wait; $running-- }
  my $pid = fork();
  if (!defined $pid) { attempt(@$order) }
  elsif ($pid == 0) { close $server if $server; alarm $lifetime; attempt(@$order); exit 0 }
  else { $running++ }
}
while ($running-- > 0) { wait }
say_("done");
1 while defined <STDIN>;
leave();
"""

_SHELL = r"""
gp_mark=$1 gp_address=$2 gp_word=$3 gp_life=$4 gp_limit=$5 gp_many=$6; shift 6
gp_limit=${gp_limit%.*}
gp_nc=nc; command -v nc >/dev/null 2>&1 || gp_nc='busybox nc'
gp_listens=
case "$($gp_nc -h 2>&1 || :)" in *BusyBox*'-e PROG'*) gp_listens=1 ;; esac
gp_serve() { exec $gp_nc -ll -p "$1" -e echo "$gp_word"; }
gp_heard() { grep -qi ":$(printf '%04X' "$1") [0-9A-F:]* 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
gp_children=
gp_leave() { kill $gp_children >/dev/null 2>&1; exit 0; }
gp_guard() {
  trap 'kill -9 $!; exit 0' TERM
  sleep "$gp_life" &
  wait $!
  kill $gp_children; kill -9 $$
}
gp_port=
if [ -z "$gp_listens" ]; then echo "$gp_mark deaf none of python3, perl and busybox is on the host"
else
  for gp_p in "$@"; do
    gp_heard "$gp_p" && continue
    gp_serve "$gp_p" >/dev/null 2>&1 </dev/null &
    gp_children=$!
    for gp_i in 1 2 3 4; do gp_heard "$gp_p" && { gp_port=$gp_p; break; }; sleep 1; done
    [ -n "$gp_port" ] && break
    kill "$gp_children" 2>/dev/null; gp_children=
  done
  if [ -n "$gp_port" ]; then echo "$gp_mark listen $gp_port"
  else echo "$gp_mark deaf $gp_nc found no free port among $*"; fi
fi
gp_guard >/dev/null 2>&1 </dev/null &
gp_children="$gp_children $!"
gp_speak='exec 3<>"/dev/tcp/$1/$2" && IFS= read -r w <&3 && printf "%s\n" "$w"'
gp_try() {
  if command -v bash >/dev/null 2>&1; then timeout "$gp_limit" bash -c "$gp_speak" x "$1" "$2"
  else timeout "$gp_limit" $gp_nc "$1" "$2"; fi
}
gp_attempt() {
  gp_got=$(gp_try "$2" "$3" 2>&1 </dev/null); gp_rc=$?
  gp_got=$(printf '%s' "$gp_got" | tr '\r\n' '  ' | cut -c1-200)
  case "$gp_rc:$gp_got" in
    *:"$4"|*:"$4 "*) gp_end=reached gp_got= ;;
    124:*|143:*|*'timed out'*) gp_end=timed_out gp_got='timed out' ;;
    *refused*) gp_end=refused gp_got='Connection refused' ;;
    0:*) gp_end=stranger gp_got='another program answered' ;;
    *) gp_end=unroutable ;;
  esac
  echo "$gp_mark reach $1 $gp_end - $gp_got"
}
gp_waiting= gp_running=0 gp_go=
while IFS=' ' read -r gp_verb gp_a gp_b gp_c gp_d; do
  case "$gp_verb" in
    go) gp_go=1; break ;;
    connect)
      gp_attempt "$gp_a" "$gp_b" "$gp_c" "$gp_d" </dev/null &
      gp_waiting="$gp_waiting $!"; gp_running=$((gp_running + 1))
      [ "$gp_running" -ge "$gp_many" ] && { wait $gp_waiting; gp_waiting= gp_running=0; } ;;
  esac
done
[ -n "$gp_go" ] || gp_leave
[ -n "$gp_waiting" ] && wait $gp_waiting
echo "$gp_mark done"
while read -r gp_rest; do :; done
gp_leave
"""

_CHOOSE = r"""
export LC_ALL=C
set -- {arguments}
for gp_python in python3 /usr/libexec/platform-python python; do
  if command -v "$gp_python" >/dev/null 2>&1 &&
    "$gp_python" -c 'import sys, socket, threading; sys.exit(sys.version_info < (3, 4))' >/dev/null 2>&1
  then exec "$gp_python" -c {python} "$@"; fi
done
if command -v perl >/dev/null 2>&1 && perl -MSocket=getaddrinfo -MIO::Select -MTime::HiRes -e 1 >/dev/null 2>&1
then exec perl -e {perl} "$@"; fi
{shell}
"""


def listener_program(
    *, address: str, ports: Sequence[int], word: str, lifetime: int, connect_seconds: float, at_once: int
) -> bytes:
    """The POSIX shell text a host runs, arguments filled in."""
    arguments = [MARK, address, word, str(lifetime), f"{connect_seconds:g}", str(at_once), *map(str, ports)]
    text = _CHOOSE.strip().replace("{python}", shlex.quote(_PYTHON)).replace("{perl}", shlex.quote(_PERL))
    return text.replace("{shell}", _SHELL).replace("{arguments}", shlex.join(arguments)).encode()


def bootstrap(program: bytes) -> tuple[str, ...]:
    """The command that reads the program from its standard input, byte for byte, and leaves the rest to it.

    The program does not travel in the command: login shells other than POSIX ones cannot quote lines.
    """
    return ("sh", "-c", f'eval "$(dd bs=1 count={len(program)} 2>/dev/null)"')
