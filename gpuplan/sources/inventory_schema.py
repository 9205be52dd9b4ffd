"""The inventory's keys, as types: what the file may hold and what `gpuplan schema inventory` prints."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gpuplan.sources.documents import shown
from gpuplan.units import MIB, parse_size

MAX_GPUS = 256
"""GPUs of one host; more is a typing error."""
MAX_DECLARED = 1_000_000
"""GPUs of all hosts together."""
_WORD = re.compile(r"[^\s:,=@/'\"\\\-][^\s:,=@/'\"\\]{0,252}")
_ADDRESS = re.compile(r"[^\s,/@'\"\\\-][^\s,/@'\"\\]{0,252}")
_JUMP = re.compile(r"[^\s'\"\\\-][^\s'\"\\]{0,1000}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_PORTS = re.compile(r"\s*([0-9]{1,6})\s*-\s*([0-9]{1,6})\s*")
_NUMBER = re.compile(r"\s*[0-9.]+\s*")


def _text(value: Any) -> Any:
    """A number stands for the text it was written with."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return getattr(value, "text", str(value))
    return value


def _printable(value: Any) -> Any:
    value = _text(value)
    if isinstance(value, str) and not (value.strip() and value.isprintable()):
        raise ValueError("must not be blank or hold control characters")
    return value


def _matching(pattern: re.Pattern[str], allowed: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        value = _printable(value)
        if isinstance(value, str) and not pattern.fullmatch(value):
            raise ValueError(f"{shown(value)!r} is not {allowed}")
        return value

    return BeforeValidator(check, json_schema_input_type=str | int)


def _size(value: Any) -> Any:
    value = _text(value)
    if not isinstance(value, str):
        raise ValueError("must be a size, for example 80GiB")
    try:
        size = parse_size(value) if len(value) <= 60 else None
    except ValueError as error:
        raise ValueError(str(error)) from None
    if size is None:
        raise ValueError("is too long for a size; write for example 80GiB")
    if 0 < size < MIB and _NUMBER.fullmatch(value):
        raise ValueError(f"{value!r} has no unit; write for example {value.strip()}GiB")
    return size


def _ports(value: Any) -> Any:
    match = _PORTS.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a range of ports, for example 41000-41999")
    first, last = int(match.group(1)), int(match.group(2))
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"{first}-{last} is not a range within 1-65535, lower end first")
    return first, last


def _variable(name: Any) -> Any:
    if not (isinstance(name, str) and _VARIABLE.fullmatch(name)):
        raise ValueError("is not a variable name: letters, digits and _")
    return name


def _content(value: Any) -> Any:
    """A variable's value; a fault never repeats it, as it may be a secret."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a text or a number; write the value in quotes")
    return _text(value)


def _label(key: Any) -> Any:
    if not (isinstance(key, str) and key.strip() == key and key.isprintable() and key and "=" not in key):
        raise ValueError("is not a label: write a word without =")
    return key


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


Text = Annotated[str, BeforeValidator(_printable, json_schema_input_type=str | int | float)]
Name = Annotated[str, _matching(_WORD, "a name: write it without spaces and without : , = @ / or quotes")]
Address = Annotated[str, _matching(_ADDRESS, "an address: write a host name, an IP address, or local")]
Jump = Annotated[str, _matching(_JUMP, "a jump host: write [USER@]HOST[:PORT]")]
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=str | int)]
MemorySize = Annotated[Size, Field(ge=MIB)]
Ports = Annotated[tuple[int, int], BeforeValidator(_ports, json_schema_input_type=str)]
Environment = dict[
    Annotated[str, BeforeValidator(_variable)],
    Annotated[str, BeforeValidator(_content, json_schema_input_type=str | int | float)],
]
Labels = Annotated[dict[Annotated[str, BeforeValidator(_label)], Text], Field(max_length=64)]
GpuIndex = Annotated[int, Field(strict=True, ge=0, lt=MAX_GPUS)]


class Keys(BaseModel):
    """A mapping whose unknown keys are errors and whose empty keys count as left out."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: item for key, item in value.items() if item is not None or key not in cls.model_fields}


class ReserveKeys(Keys):
    vram: Size | None = Field(None, description="kept free on each GPU")
    ram: Size | None = Field(None, description="kept free on the host")


class GpusKeys(Keys):
    name: Text = Field(description="a name `gpuplan gpus` lists")
    count: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS)] = 1
    memory: MemorySize | None = Field(
        None, description="memory of each, for hardware `gpuplan gpus` does not list"
    )


Gpus = Annotated[list[GpusKeys], BeforeValidator(_listed, json_schema_input_type=GpusKeys | list[GpusKeys])]


class SharedKeys(Keys):
    """Keys a host may have and `defaults` may give to all of them."""

    user: Name | None = Field(None, description="SSH user")
    port: Port | None = Field(None, description="SSH port; 22 if left out")
    identity_file: Text | None = Field(None, description="SSH private key")
    model_dir: Text | None = Field(None, description="directory of model files on the host")
    interface: Name | None = Field(None, description="network interface for NCCL, Gloo and Ray")
    jump: Jump | None = Field(None, description="SSH jump host")
    labels: Labels = Field(default_factory=dict)
    reserve: ReserveKeys = Field(default_factory=ReserveKeys)


class HostKeys(SharedKeys):
    name: Name
    address: Address | None = Field(None, description="`local` is this machine; the name if left out")
    data_address: Address | None = Field(None, description="address of the data interface")
    exclude_gpus: list[GpuIndex] = Field(
        default_factory=list, max_length=MAX_GPUS, description="indices of GPUs never used"
    )
    gpus: Gpus = Field(default_factory=list, max_length=MAX_GPUS, description="declared hardware")
    ram: MemorySize | None = Field(None, description="declared memory of the host")


class VllmKeys(Keys):
    image: Text | None = None
    shm_size: MemorySize | None = None
    ray_ports: Ports | None = None
    service_ports: Ports | None = None
    env: Environment = Field(default_factory=dict)


class InventoryKeys(Keys):
    hosts: Annotated[list[HostKeys], Field(min_length=1)]
    defaults: SharedKeys = Field(default_factory=SharedKeys)
    vllm: VllmKeys = Field(default_factory=VllmKeys)


KEYS_AT: dict[tuple[str, ...], type[Keys]] = {
    (): InventoryKeys,
    ("defaults",): SharedKeys,
    ("defaults", "reserve"): ReserveKeys,
    ("hosts",): HostKeys,
    ("hosts", "reserve"): ReserveKeys,
    ("hosts", "gpus"): GpusKeys,
    ("vllm",): VllmKeys,
}
"""The mapping found at each location, list indices left out."""
