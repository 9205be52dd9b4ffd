"""The inventory's keys, as tables: what the file may hold and what `gpuplan schema inventory` prints."""

import re
from typing import Any

from gpuplan.sources.documents import shown
from gpuplan.sources.key_tables import Key, Kind, Schema, list_of, mapping_of, number, scalar, table, whole
from gpuplan.units import MIB, parse_size

MAX_GPUS = 256
"""GPUs of one host; more is a typing error."""
MAX_DECLARED = 1_000_000
"""GPUs of all hosts together."""
_MAX_LABELS = 64
_WORD = r"[^\s:,=@/'\"\\\-][^\s:,=@/'\"\\]{0,252}"
_ADDRESS = r"[^\s,/@'\"\\\-][^\s,/@'\"\\]{0,252}"
_JUMP = r"[^\s'\"\\\-][^\s'\"\\]{0,1000}"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,254}"
_PORTS = r"\s*([0-9]{1,6})\s*-\s*([0-9]{1,6})\s*"
_NUMBER = r"\s*[0-9.]+\s*"
"""Patterns are compiled by their first use: most files need one or two of them."""


def _text(value: Any) -> Any:
    """A number stands for the text it was written with."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return getattr(value, "text", str(value))
    return value


def _printable(value: Any) -> str:
    text = _text(value)
    if not isinstance(text, str):
        raise ValueError("must be a text")
    if not (text.strip() and text.isprintable()):
        raise ValueError("must not be blank or hold control characters")
    return text


def _matching(pattern: str, allowed: str) -> Kind:
    def read(value: Any) -> str:
        text = _printable(value)
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{shown(text)!r} is not {allowed}")
        return text

    return scalar(read, {"type": ["string", "integer"], "pattern": f"^{pattern}$"})


def _size(value: Any) -> int:
    value = _text(value)
    if not isinstance(value, str):
        raise ValueError("must be a size, for example 80GiB")
    if len(value) > 60:
        raise ValueError("is too long for a size; write for example 80GiB")
    size = parse_size(value)
    if 0 < size < MIB and re.fullmatch(_NUMBER, value):
        raise ValueError(f"{value!r} has no unit; write for example {value.strip()}GiB")
    return size


def _memory(value: Any) -> int:
    size = _size(value)
    if size < MIB:
        raise ValueError("must be at least 1MiB")
    return size


def _ports(value: Any) -> tuple[int, int]:
    match = re.fullmatch(_PORTS, value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a range of ports, for example 41000-41999")
    first, last = int(match.group(1)), int(match.group(2))
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"{first}-{last} is not a range within 1-65535, lower end first")
    return first, last


def _variable(name: str) -> str:
    if not re.fullmatch(_VARIABLE, name):
        raise ValueError("is not a variable name: letters, digits and _")
    return name


def _content(value: Any) -> str:
    """A variable's value; a fault never repeats it, as it may be a secret."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a text or a number; write the value in quotes")
    return str(_text(value))


def _label(key: str) -> str:
    if not (key and key.strip() == key and key.isprintable() and "=" not in key):
        raise ValueError("is not a label: write a word without =")
    return key


_ANY_TEXT: Schema = {"type": ["string", "number"]}
_ANY_SIZE: Schema = {"type": ["string", "integer"], "examples": ["80GiB"]}
TEXT = scalar(_printable, _ANY_TEXT)
NAME = _matching(_WORD, "a name: write it without spaces and without : , = @ / or quotes")
ADDRESS = _matching(_ADDRESS, "an address: write a host name, an IP address, or local")
JUMP = _matching(_JUMP, "a jump host: write [USER@]HOST[:PORT]")
PORT = whole(1, 65535)
USER = _matching(r"[0-9]{1,10}(?::[0-9]{1,10})?", "a user of the container: write UID or UID:GID in numbers")
REGISTRY = _matching(
    r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._-]+)*", "a registry: write HOST[:PORT][/PATH]"
)
DIRECTORY = _matching(r"(?:/|~/)[^\x00-\x1f:,]*", "an absolute directory of the host, or one under ~/")
SIZE = scalar(_size, _ANY_SIZE)
MEMORY = scalar(_memory, _ANY_SIZE)
PORTS = scalar(_ports, {"type": "string", "pattern": f"^{_PORTS}$", "examples": ["41000-41999"]})
ENVIRONMENT = mapping_of(_variable, scalar(_content, _ANY_TEXT), {"pattern": f"^{_VARIABLE}$"})
LABELS = mapping_of(_label, TEXT, {"pattern": "^[^=]+$"}, _MAX_LABELS)

RESERVE = table(
    "ReserveKeys",
    {"vram": Key(SIZE, "kept free on each GPU"), "ram": Key(SIZE, "kept free on the host")},
)
GPUS = table(
    "GpusKeys",
    {
        "name": Key(TEXT, "a name `gpuplan gpus` lists", required=True),
        "count": Key(whole(1, MAX_GPUS), default=1),
        "memory": Key(MEMORY, "memory of each, for hardware `gpuplan gpus` does not list"),
    },
)
MONEY = number(0, 1e9)
CURRENCY = _matching(r"[^\s0-9.,:/'\"\\-]{1,12}", "a currency: write for example USD")
PRICE = table(
    "PriceKeys",
    {
        "gpu_hour": Key(MONEY, "money an hour for each GPU taken"),
        "host_hour": Key(MONEY, "money an hour for the host, shared by its GPUs"),
        "currency": Key(CURRENCY, "of every price of the inventory, for example USD"),
    },
)
POWER = table(
    "PowerKeys",
    {
        "gpu_watts": Key(number(1, 10_000), "drawn by each GPU under load; the data sheet's if left out"),
        "host_watts": Key(number(0, 100_000), "drawn by the host beside its GPUs"),
        "kwh_price": Key(MONEY, "money for a kilowatt-hour, in the currency of `price`"),
        "pue": Key(number(1, 10), "drawn from the grid for each watt of the host; 1 if left out"),
    },
)
_SHARED = {
    "user": Key(NAME, "SSH user"),
    "port": Key(PORT, "SSH port; 22 if left out"),
    "identity_file": Key(TEXT, "SSH private key"),
    "model_dir": Key(TEXT, "directory of model files on the host"),
    "interface": Key(NAME, "network interface for NCCL, Gloo and Ray"),
    "jump": Key(JUMP, "SSH jump host"),
    "labels": Key(LABELS),
    "reserve": Key(RESERVE),
    "price": Key(PRICE, "what the host costs"),
    "power": Key(POWER, "what the host draws"),
}
DEFAULTS = table("SharedKeys", _SHARED, "Keys a host may have and `defaults` may give to all of them.")
HOST = table(
    "HostKeys",
    {
        **_SHARED,
        "name": Key(NAME, required=True),
        "address": Key(ADDRESS, "`local` is this machine; the name if left out"),
        "data_address": Key(ADDRESS, "address of the data interface"),
        "exclude_gpus": Key(list_of(whole(0, MAX_GPUS - 1), most=MAX_GPUS), "indices of GPUs never used"),
        "gpus": Key(list_of(GPUS, most=MAX_GPUS, alone=True), "declared hardware"),
        "ram": Key(MEMORY, "declared memory of the host"),
    },
)
VLLM = table(
    "VllmKeys",
    {
        "image": Key(TEXT),
        "shm_size": Key(MEMORY),
        "ray_ports": Key(PORTS),
        "service_ports": Key(PORTS),
        "env": Key(ENVIRONMENT),
        "registry": Key(REGISTRY, "mirror the images gpuplan chooses come from"),
        "user": Key(USER, "uid:gid of the processes in the containers"),
        "cache_dir": Key(DIRECTORY, "compile caches on every host"),
        "huggingface_home": Key(DIRECTORY, "where every host keeps models of the hub"),
    },
)
ROOT = "InventoryKeys"
INVENTORY = table(
    ROOT,
    {"hosts": Key(list_of(HOST, least=1), required=True), "defaults": Key(DEFAULTS), "vllm": Key(VLLM)},
)
