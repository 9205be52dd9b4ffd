"""One line of an engine's log without what its process, logger and terminal put around it; every pattern here is linear."""

import re

LONGEST = 4096
"""Characters kept of each end of a line: no message of the engine is longer, a dumped prompt may be."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|[@-Z\\^_])?")
_PROCESS = re.compile(
    r"\s*\((?:(?:[A-Za-z_][\w.:-]{0,80} )?(?:rank=\d{1,6} )?pid=\d{1,10}(?:, [^()\s]{1,80}){0,3}"
    r"|(?:APIServer|ApiServer|EngineCore|Worker|raylet|autoscaler)[\w .:+=,-]{0,80})\) ?"
)
_LOGGER = re.compile(
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r" (?:\[[^\[\]]{1,160}\]|[\w/.-]{1,160}:\d{1,6}\])[ ]?"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\s(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]{1,80}:\d{1,6} --[ ]?"
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL): {1,8})"
)
_LEVEL = re.compile(r"(?:\([^()]{1,160}\)\s?){0,4}(DEBUG|INFO|WARNING|ERROR|CRITICAL)[ :]")


def plain(line: str) -> str:
    """The line as a terminal shows it last: no escape sequences, no overwritten progress; its middle cut when it is long."""
    if len(line) > 2 * LONGEST:
        line = f"{line[:LONGEST]} … {line[-LONGEST:]}"
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    if "\r" in line:
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    return line.rstrip("\n")


def strip(line: str) -> str:
    """The message alone: without `(EngineCore_DP0 pid=12)`, `(Worker_TP3 pid=…)` and `INFO 11-21 10:00:00 [file.py:123]`.

    Prefixes of vLLM 0.8 to 0.33 (`vllm/logger.py`, `utils/system_utils.py`) and of Ray's forwarded logs, also one after
    the other; the indentation of a traceback is kept.
    """
    text = plain(line)
    while process := _PROCESS.match(text):
        text = text[process.end() :]
    logger = _LOGGER.match(text)
    return (text[logger.end() :] if logger else text).rstrip()


def level(line: str) -> str | None:
    """`INFO`, `WARNING`, `ERROR`, as the logger wrote it; None for what no logger wrote."""
    match = _LEVEL.match(line)
    return match[1] if match else None
