"""Wordings of Docker, its registries and runtimes: container create and start, image pulls (deploy-failures rows 8 to 22)."""

from gpuplan.deploying.signature import likely, root

CONTAINER = (
    root("DOCKER_PERMISSION", "permission denied while trying to connect to the Docker daemon socket"),
    root("DOCKER_PERMISSION", "permission denied while trying to connect to the docker API"),
    root("DOCKER_PERMISSION", "docker.sock", pattern=r"docker\.sock\b.{0,40}[Pp]ermission denied"),
    root("DOCKER_DOWN", "Cannot connect to the Docker daemon"),
    root(
        "DOCKER_DOWN", "docker.sock", pattern=r"docker\.sock\b.{0,40}(?:No such file|[Cc]onnection refused)"
    ),
    root(
        "DOCKER_API",
        "is too old. Minimum supported API version is",
        pattern=r"client version (?P<client>[\d.]{1,12}) is too old\. "
        r"Minimum supported API version is (?P<minimum>[\d.]{1,12}\d)",
    ),
    root(
        "DOCKER_API",
        "is too new. Maximum supported API version is",
        pattern=r"client version (?P<client>[\d.]{1,12}) is too new\. "
        r"Maximum supported API version is (?P<maximum>[\d.]{1,12}\d)",
    ),
    root("GPU_CDI", 'could not select device driver "cdi"', "unresolvable CDI devices"),
    root(
        "GPU_CDI",
        "CDI device injection failed",
        "failed to inject CDI devices",
    ),
    root(
        "GPU_NO_TOOLKIT",
        "could not select device driver",
        pattern=r'could not select device driver "(?:nvidia)?" with capabilities',
    ),
    root(
        "GPU_NO_TOOLKIT",
        "nvidia-container-cli",
        pattern=r"nvidia-container-cli: .{0,40}(?:load library failed|not found)",
    ),
    root(
        "GPU_NOT_SEEN",
        "nvidia-container-cli: device error",
        pattern=r"nvidia-container-cli: device error: (?P<device>[\w-]{1,80}): unknown device",
    ),
    root(
        "GPU_DRIVER_OLD",
        "unsatisfied condition: cuda",
        pattern=r"unsatisfied condition: cuda ?>= ?(?P<cuda>[\d.]{1,8})",
    ),
    root("GPU_NVML_LOST", "nvidia-container-cli: initialization error"),
    root(
        "DOCKER_RUNTIME",
        "nknown runtime specified",
        pattern=r"nknown runtime specified (?P<runtime>[\w.-]{1,60})",
    ),
    root(
        "DOCKER_RUNTIME",
        "unknown or invalid runtime name",
        pattern=r"unknown or invalid runtime name: (?P<runtime>[\w.-]{1,60})",
    ),
    root(
        "GPU_DEV",
        "gathering device information while adding custom device",
        pattern=r'adding custom device "(?P<device>[^"]{1,200})"',
    ),
    root(
        "RUN_127",
        "executable file not found in $PATH",
        pattern=r'exec: "(?P<program>[^"]{1,200})": executable file not found in \$PATH',
    ),
    root(
        "RUN_127",
        "no such file or directory",
        pattern=r'exec: "(?P<program>[^"]{1,200})": .{0,80}no such file or directory',
    ),
    root(
        "RUN_127",
        ": not found",
        "command not found",
        pattern=r"\b(?P<program>ray|vllm|python3?): (?:command )?not found\b",
    ),
    root("RUN_127", "exec: ", pattern=r'exec: "(?P<program>[^"]{1,200})": .{0,80}permission denied'),
    root(
        "MOUNT",
        "bind source path does not exist",
        pattern=r"bind source path does not exist:? ?(?P<path>\S{0,300})",
    ),
    root(
        "MOUNT",
        "error while creating mount source path",
        pattern=r"mount source path '(?P<path>[^']{1,300})'",
    ),
    root("MOUNT", "not a directory: unknown: Are you trying to mount a directory onto a file"),
    root(
        "NAME_CONFLICT",
        "is already in use by container",
        pattern=r'container name "/?(?P<name>[^"]{1,200})" is already in use',
    ),
    root("IMG_AUTH", "pull access denied", pattern=r"pull access denied for (?P<image>[^,\s]{1,300})"),
    root(
        "IMG_AUTH",
        "unauthorized: ",
        pattern=r"unauthorized: (?:authentication required|access token|incorrect username|.{0,60}denied)",
    ),
    root(
        "IMG_AUTH",
        "denied: ",
        pattern=r"\bdenied: (?:requested access to the resource is denied|permission_denied)",
    ),
    root("IMG_NOT_FOUND", "manifest unknown"),
    root("IMG_NOT_FOUND", "manifest for ", pattern=r"manifest for (?P<image>\S{1,300}) not found"),
    root("IMG_NOT_FOUND", "No such image", pattern=r"No such image:? ?(?P<image>\S{0,300})"),
    root(
        "IMG_NOT_FOUND",
        "failed to resolve reference",
        pattern=r'failed to resolve reference "(?P<image>[^"]{1,300})".{0,300}not found',
    ),
    root("IMG_RATE", "toomanyrequests"),
    root("IMG_ARCH", "no matching manifest for", pattern=r"no matching manifest for (?P<platform>\S{1,60})"),
    root("IMG_ARCH", "xec format error"),
    root(
        "IMG_ARCH",
        "does not match the detected host platform",
        pattern=r"requested image's platform \((?P<platform>[^)]{1,60})\)",
    ),
    root(
        "IMG_DISK",
        "no space left on device",
        pattern=r"(?:failed to register layer|write|mkdir|extracting|ApplyLayer|copy_file_range)"
        r"(?:[^/]{0,120}(?P<path>/\S{1,200}))?.{0,80}no space left on device",
    ),
    root(
        "MODEL_DISK",
        "No space left on device",
        pattern=r"No space left on device(?:: '(?P<path>[^']{1,300})')?",
    ),
    likely("MODEL_DISK", "Not enough free disk space to download"),
    root("MODEL_DISK", "Disk quota exceeded"),
    root(
        "IMG_UNREACHABLE", "net/http: request canceled while waiting for connection", "TLS handshake timeout"
    ),
    root(
        "IMG_UNREACHABLE",
        "dial tcp",
        pattern=r"(?:Get|Head) \"https?://(?P<registry>[^/\"]{1,200})[^\"]{0,300}\".{0,20}dial tcp",
    ),
    likely("RUN_START", "OCI runtime create failed", "failed to create task for container"),
)
