"""Asks vLLM itself about every command line gpuplan makes, and records what it says.

    python -m tests.tools.record_vllm_answers /opt/vllm-0.33           # asks, compares with the recorded answers
    python -m tests.tools.record_vllm_answers /opt/vllm-0.33 --write   # asks and records
    python -m tests.tools.record_vllm_answers /opt/vllm-0.33 --write --changed   # only what is not recorded as it is now
    python -m tests.tools.record_vllm_answers /opt/vllm-0.33 --only 'mp-*'

The argument is an environment with vLLM (its directory, or its Python): `python -m venv`, torch for the CPU, then vllm with
`--no-deps` and the packages it asks for. The cases of that release are asked, those of others left alone; `--path DIR` puts
a directory before the environment's own, where another release of vLLM may lie unpacked. About 2 s for a command line.

Exit status 0: all accepted and, without --write, as recorded; 1: not.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gpuplan.errors import UsageError
from tests.conformance.argument_cases import CASES, requests_of

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "data" / "vllm-accepts.jsonl.gz"
PARSER = Path(__file__).with_name("vllm_parser.py")
Entry = dict[str, Any]


def recorded() -> dict[str, Entry]:
    """Every recorded case by its name."""
    if not RECORDED.exists():
        return {}
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        return {entry["case"]: entry for entry in map(json.loads, file)}


def write(entries: Mapping[str, Entry]) -> None:
    """All cases that there still are, in their order; the same entries give the same bytes."""
    lines = [json.dumps(entries[name], sort_keys=True) + "\n" for name in CASES if name in entries]
    with RECORDED.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as file:
        file.write("".join(lines).encode())


def question_of(name: str) -> Entry:
    """A case as it is recorded, without answers: the command line of each container, or why gpuplan refuses it."""
    try:
        asked = requests_of(name)
    except UsageError as refused:
        return {"case": name, "refused": refused.message}
    words = {
        container: {"argv": request["argv"], "env": request["env"]} for container, request in asked.items()
    }
    return {"case": name, "containers": words}


class Parser:
    """vLLM in a process of its own."""

    def __init__(self, environment: Path, paths: list[str]) -> None:
        python = environment / "bin" / "python" if environment.is_dir() else environment
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.process = subprocess.Popen(
            [str(python), str(PARSER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=variables,
        )
        told = self._line()
        if "failed" in told:
            raise SystemExit(f"{python} has no vLLM that can be asked: {told['failed']}")
        self.version = str(told["vllm"])

    def ask(self, request: Entry) -> Entry:
        """The answer to one request."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self) -> Entry:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the parser ended: {PARSER} < /dev/null tells why")
        answer: Entry = json.loads(line)
        return answer


def without_answers(entry: Entry) -> Entry:
    """A recorded case as `question_of` gives it."""
    if "containers" not in entry:
        return entry
    words = {
        name: {"argv": found["argv"], "env": found["env"]} for name, found in entry["containers"].items()
    }
    return {**entry, "containers": words}


def asked_again(parser: Parser, only: str, settled: Mapping[str, Entry]) -> Iterator[Entry]:
    """Every case of the parser's release, with answers; those that are settled are left out."""
    for name, shape in CASES.items():
        if shape.version != parser.version or not fnmatch(name, only):
            continue
        entry = question_of(name)
        if name in settled and without_answers(settled[name]) == entry:
            continue
        if "containers" in entry:
            for container, request in requests_of(name).items():
                entry["containers"][container]["answer"] = parser.ask(request)
        yield entry


def told(entry: Entry) -> Iterator[str]:
    """The containers whose command line is refused."""
    for container, found in entry.get("containers", {}).items():
        answer = found["answer"]
        if not answer["accepted"]:
            yield f"{entry['case']} {container}: {answer['stage']}: {answer['error']}\n    {' '.join(found['argv'])}"


def main() -> int:
    """Ask, tell, and record where that is wanted."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("environment", type=Path)
    given.add_argument("--path", action="append", default=[])
    given.add_argument("--only", default="*")
    given.add_argument("--write", action="store_true")
    given.add_argument("--changed", action="store_true")
    options = given.parse_args()
    known, parser = recorded(), Parser(options.environment, options.path)
    count = different = 0
    refusals: list[str] = []
    settled = (
        {name: entry for name, entry in known.items() if not list(told(entry))} if options.changed else {}
    )
    for entry in asked_again(parser, options.only, settled):
        count += len(entry.get("containers", {}))
        refusals += told(entry)
        different += known.get(entry["case"]) != entry
        known[entry["case"]] = entry
    for line in refusals:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(
        f"vLLM {parser.version}: {count} command lines, {len(refusals)} refused, {different} cases not as recorded\n"
    )
    if options.write:
        write(known)
    return 1 if refusals or (different and not options.write) else 0


if __name__ == "__main__":
    sys.exit(main())
