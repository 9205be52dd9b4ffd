"""The token of the Hugging Face hub on this machine, as the hub's own client finds it."""

from collections.abc import Mapping


def hub_token(environ: Mapping[str, str]) -> str | None:
    """`HF_TOKEN`, else what `hf auth login` has kept; None without either."""
    named = environ.get("HF_TOKEN", "").strip()
    if named:
        return named
    try:
        from huggingface_hub import get_token
    except ValueError:  # a setting in the environment that the client does not understand
        return None
    return get_token()
