"""One wording of one cause of a failed start; the tables `signatures_*` list them, `signatures` searches for them."""

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cache


class Weight(IntEnum):
    """How much a wording says about what went wrong first (deploy-facts section 9)."""

    ROOT = 1
    """It ended the start by itself."""
    LIKELY = 2
    """The cause, where nothing that is certain was printed."""
    SECONDARY = 3
    """What others print when one fails: never the cause."""
    REMARK = 4
    """Worth telling, stops nothing."""


CODES = {
    "DOCKER_PERMISSION": "GP701",
    "DOCKER_DOWN": "GP702",
    "DOCKER_API": "GP703",
    "GPU_NO_TOOLKIT": "GP704",
    "GPU_CDI": "GP705",
    "DOCKER_RUNTIME": "GP706",
    "GPU_DEV": "GP707",
    "RUN_127": "GP708",
    "MOUNT": "GP709",
    "NAME_CONFLICT": "GP710",
    "IMG_NOT_FOUND": "GP711",
    "IMG_AUTH": "GP712",
    "IMG_RATE": "GP713",
    "IMG_ARCH": "GP714",
    "IMG_DISK": "GP715",
    "IMG_UNREACHABLE": "GP716",
    "MODEL_DISK": "GP717",
    "RUN_START": "GP718",
    "GPU_ERR802": "GP720",
    "GPU_ERR803": "GP721",
    "GPU_ERR804": "GP722",
    "GPU_DRIVER_OLD": "GP723",
    "GPU_ARCH": "GP724",
    "GPU_NVML_LOST": "GP725",
    "GPU_UUID_ENV": "GP726",
    "GPU_NOT_SEEN": "GP727",
    "GPU_XID": "GP728",
    "GPU_DTYPE": "GP729",
    "MODEL_QUANT": "GP730",
    "GPU_KERNEL": "GP731",
    "GPU_BUSY": "GP732",
    "GPU_COMPILE": "GP733",
    "MEM_FREE": "GP735",
    "MEM_WEIGHTS": "GP736",
    "MEM_ACTIVATION": "GP737",
    "MEM_KV_NONE": "GP738",
    "MEM_KV_SMALL": "GP739",
    "MEM_GRAPH": "GP740",
    "MEM_HOST": "GP741",
    "MEM_SHM": "GP742",
    "MEM_PROFILE": "GP743",
    "MEM_SERVING": "GP744",
    "PLAN_HEADS": "GP750",
    "PLAN_WORLD": "GP751",
    "PLAN_NNODES": "GP752",
    "PLAN_DP": "GP753",
    "PLAN_CTX": "GP754",
    "PLAN_ARG": "GP755",
    "PLAN_DIVIDE": "GP756",
    "PLAN_PP": "GP757",
    "PLAN_VALUE": "GP758",
    "MODEL_GATED": "GP759",
    "MODEL_NOT_FOUND": "GP760",
    "MODEL_OFFLINE": "GP761",
    "MODEL_CACHE_RO": "GP762",
    "MODEL_ARCH": "GP763",
    "MODEL_REMOTE_CODE": "GP764",
    "MODEL_CORRUPT": "GP765",
    "MODEL_HUB": "GP766",
    "RAY_STOP_KILLED": "GP767",
    "NET_FOLLOWER_MISSING": "GP768",
    "NET_MASTER_UNREACHABLE": "GP769",
    "NET_PORT_IN_USE": "GP770",
    "NET_HTTP_PORT": "GP771",
    "NET_ZMQ_PORT": "GP772",
    "NET_IFACE": "GP773",
    "NET_LOOPBACK": "GP774",
    "NCCL_NO_IFACE": "GP775",
    "NCCL_MEMLOCK": "GP776",
    "NCCL_SLOW": "GP777",
    "NCCL_P2P_HANG": "GP778",
    "NET_RDV_HANG": "GP779",
    "DP_HANDSHAKE": "GP780",
    "NCCL_ERROR": "GP781",
    "NCCL_DUPLICATE_GPU": "GP782",
    "RUN_PEER_LOST": "GP783",
    "RUN_SILENT_HANG": "GP784",
    "RAY_MISSING": "GP785",
    "RAY_VERSION": "GP786",
    "RAY_NODE_IP": "GP787",
    "RAY_PG": "GP788",
    "RAY_PIDNS": "GP789",
    "RAY_GCS_CONFLICT": "GP790",
    "RAY_PORT": "GP791",
    "RAY_GCS_LOST": "GP792",
    "RAY_TOKEN": "GP793",
    "RAY_WORKER_DEAD": "GP794",
    "RAY_OOM": "GP795",
    "RUN_READY_TIMEOUT": "GP796",
    "RUN_ENGINE_FAILED": "GP797",
    "RUN_EXIT": "GP798",
    "UNKNOWN": "GP799",
}
"""Class of failure and the code it is explained under; several wordings share a class."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A wording: one of its `needles` is in the line, and the pattern, where there is one, matches it.

    Named groups become figures: `…_gib` and `…_size` bytes, `…_n` whole numbers, `…_x` fractions, others text.
    """

    group: str
    weight: Weight
    needles: tuple[str, ...]
    pattern: str = ""
    several_hosts: bool = False
    """It says something only where a server spans hosts."""

    @property
    def code(self) -> str:
        """What `gpuplan explain` knows it by."""
        return CODES[self.group]


def root(group: str, *needles: str, pattern: str = "") -> Signature:
    """A wording that names the cause."""
    return Signature(group, Weight.ROOT, needles, pattern)


def likely(group: str, *needles: str, pattern: str = "", several_hosts: bool = False) -> Signature:
    """A wording that names the cause where nothing better was printed."""
    return Signature(group, Weight.LIKELY, needles, pattern, several_hosts)


def secondary(group: str, *needles: str, pattern: str = "") -> Signature:
    """A wording of those that fail because another did."""
    return Signature(group, Weight.SECONDARY, needles, pattern)


def remark(group: str, *needles: str, pattern: str = "", several_hosts: bool = False) -> Signature:
    """A wording worth telling beside any cause."""
    return Signature(group, Weight.REMARK, needles, pattern, several_hosts)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled when it is first needed."""
    return re.compile(pattern)
