"""Wordings of the model: its repository, its cache, its files, its architecture (deploy-failures rows 49 to 53)."""

from gpuplan.deploying.signature import likely, root

MODEL = (
    root("MODEL_GATED", "You are trying to access a gated repo"),
    root(
        "MODEL_GATED",
        "Cannot access gated repo",
        pattern=r"gated repo for url https?://[^/\s]{1,100}/(?P<model>[\w./-]{1,120}?)/resolve",
    ),
    root("MODEL_GATED", "is restricted", pattern=r"Access to model (?P<model>[\w./-]{1,120}) is restricted"),
    root("MODEL_GATED", "GatedRepoError", pattern=r"GatedRepoError: 40[13]"),
    root(
        "MODEL_GATED", "401 Client Error", "403 Client Error", pattern=r"\b(?P<status_n>40[13]) Client Error"
    ),
    root("MODEL_GATED", "Invalid credentials in Authorization header", "Invalid user token"),
    root(
        "MODEL_NOT_FOUND",
        "is not a local folder and is not a valid model identifier",
        pattern=r"(?P<model>[^\s:]{1,200}) is not a local folder",
    ),
    root(
        "MODEL_NOT_FOUND",
        "Repository Not Found for url",
        pattern=r"Not Found for url: https?://[^/\s]{1,100}/(?:api/models/)?(?P<model>[\w./-]{1,120})",
    ),
    root(
        "MODEL_NOT_FOUND",
        "Invalid repository ID or local directory specified",
        pattern=r"specified: '?(?P<model>[^'\s]{1,200})",
    ),
    root("MODEL_NOT_FOUND", "RevisionNotFoundError", "Invalid rev id", "is not a valid git identifier"),
    root(
        "MODEL_NOT_FOUND",
        "Repo id must be in the form",
        pattern=r"'namespace/repo_name': '(?P<model>[^']{1,200})'",
    ),
    root(
        "MODEL_NOT_FOUND",
        "does not appear to have a file named config.json",
        pattern=r"(?P<model>\S{1,200}) does not appear to have",
    ),
    root(
        "MODEL_NOT_FOUND",
        "Cannot find any model weights with",
        pattern=r"weights with `?(?P<model>[^`\s]{1,200})",
    ),
    root("MODEL_OFFLINE", "Cannot find an appropriate cached snapshot folder"),
    root("MODEL_OFFLINE", "LocalEntryNotFoundError", "OfflineModeIsEnabled"),
    root("MODEL_OFFLINE", "outgoing traffic has been disabled"),
    root(
        "MODEL_CACHE_RO",
        "Permission denied: '",
        "Read-only file system: '",
        pattern=r"(?:Permission denied|Read-only file system): '"
        r"(?P<path>/[^']{0,200}?(?:huggingface|hub|models|\.locks)[^']{0,200})'",
    ),
    likely(
        "MODEL_CACHE_RO",
        "Permission denied: '",
        pattern=r"Permission denied: '(?P<path>/(?!dev/)[^']{0,300})'",
    ),
    likely(
        "MODEL_CACHE_RO",
        "Read-only file system",
        pattern=r"Read-only file system(?:: '(?P<path>[^']{1,300})')?",
    ),
    root(
        "MODEL_ARCH",
        "are not supported for now",
        pattern=r"Model architectures \[?(?P<architecture>[^\]]{1,120})\]? are not supported for now",
    ),
    root(
        "MODEL_ARCH",
        "does not recognize this architecture",
        pattern=r"model type `(?P<architecture>[^`]{1,80})`",
    ),
    root(
        "MODEL_ARCH",
        "Model class",
        pattern=r"Model class (?P<architecture>\w{1,80}) (?:is not supported|does not exist)",
    ),
    likely(
        "MODEL_ARCH",
        "failed to be inspected",
        pattern=r"Model architectures \[?(?P<architecture>[^\]]{1,120})\]? failed to be inspected",
    ),
    root(
        "MODEL_REMOTE_CODE",
        "trust_remote_code=True",
        pattern=r"(?:set|pass|use|enable|option|argument|setting)\b.{0,60}[`'\"]?trust_remote_code=True",
    ),
    root(
        "MODEL_REMOTE_CODE",
        "requires you to execute the configuration file",
        "contains custom code which must be executed",
    ),
    root(
        "MODEL_CORRUPT",
        "Error while deserializing header",
        pattern=r"deserializing header: (?P<reason>[\w ]{1,80})",
    ),
    root("MODEL_CORRUPT", "SafetensorError", "MetadataIncompleteBuffer", "HeaderTooLarge"),
    root("MODEL_CORRUPT", "Consistency check failed", "PytorchStreamReader failed reading zip archive"),
    root(
        "MODEL_CORRUPT",
        "were not initialized from checkpoint",
        pattern=r"weights were not initialized from checkpoint",
    ),
    root(
        "MODEL_CORRUPT",
        "No such file or directory",
        pattern=r"No such file or directory: [\"']?(?P<path>\S{1,300}\.safetensors)",
    ),
    likely(
        "MODEL_HUB", "Temporary failure in name resolution", "Name or service not known", "getaddrinfo failed"
    ),
    likely("MODEL_HUB", "Max retries exceeded with url", pattern=r"host='(?P<hub>[^']{1,120})'"),
    likely(
        "MODEL_HUB",
        "couldn't connect to 'http",
        pattern=r"couldn't connect to '(?P<hub>https?://[^']{1,120})'",
    ),
    likely(
        "MODEL_HUB",
        "429 Client Error",
        "504 Server Error",
        "503 Server Error",
        pattern=r"(?P<status_n>\d{3}) (?:Client|Server) Error",
    ),
    likely("MODEL_HUB", "CERTIFICATE_VERIFY_FAILED"),
)
