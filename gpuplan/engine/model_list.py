"""What a vLLM server's `/v1/models` lists."""

import json


def served_names(body: bytes) -> tuple[str, ...] | None:
    """The names it answers to; None where it lists nothing that can be read."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    return tuple(str(entry.get("id")) for entry in entries if isinstance(entry, dict))
