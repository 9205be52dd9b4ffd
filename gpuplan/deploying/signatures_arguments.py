"""Wordings of vLLM's own argument checks (deploy-failures rows 42 to 48; vLLM 0.33 config/parallel.py, config/model.py)."""

from gpuplan.deploying.signature import likely, root

ARGUMENTS = (
    root(
        "PLAN_HEADS",
        "must be divisible by tensor parallel size",
        pattern=r"attention heads \((?P<heads_n>\d{1,6})\) must be divisible by tensor parallel size \((?P<tensor_n>\d{1,6})\)",
    ),
    root(
        "PLAN_WORLD",
        "is larger than the number of available GPUs",
        pattern=r"World size \((?P<world_n>\d{1,6})\) is larger than the number of available GPUs \((?P<gpus_n>\d{1,6})\)",
    ),
    root(
        "PLAN_NNODES",
        "must evenly divide the total world size",
        pattern=r"`?--nnodes (?P<nodes_n>\d{1,6})`? must evenly divide",
    ),
    root("PLAN_NNODES", "nnodes > 1 can only be set when"),
    root("PLAN_NNODES", "requires `--data-parallel-backend mp`", "requires --data-parallel-backend mp"),
    root("PLAN_NNODES", "Invalid data parallel configuration:"),
    root("PLAN_DP", "Non-MoE models do not support external data parallel mode"),
    root("PLAN_DP", "Cannot use more than one data parallel load balancing mode"),
    root("PLAN_DP", "cannot be used with --headless"),
    root("PLAN_DP", "Offline data parallel mode is not supported"),
    root(
        "PLAN_CTX",
        "is greater than the derived max_model_len",
        pattern=r"max_model_len \((?P<max_model_len_n>\d{1,12})\) is greater than the derived max_model_len "
        r"\((?:\w{1,60}=)?(?P<derived_n>\d{1,12})",
    ),
    root("PLAN_CTX", "is greater than the derived max_model_len"),
    root(
        "PLAN_ARG", "unrecognized arguments:", pattern=r"error: unrecognized arguments: (?P<flags>.{1,300})"
    ),
    root(
        "PLAN_ARG",
        "error: argument ",
        pattern=r"error: argument (?P<flags>--?[\w/, -]{1,120}): (?P<reason>.{1,200})",
    ),
    root("PLAN_ARG", "error: ambiguous option:", pattern=r"ambiguous option: (?P<flags>--\S{1,80})"),
    root(
        "PLAN_DIVIDE",
        "is not divisible by",
        pattern=r"Error: (?:.{0,160}?(?P<value_n>\d{1,9}) )?.{0,40}?is not divisible by (?:.{0,60}?(?P<parts_n>\d{1,6})\b)?",
    ),
    root("PLAN_PP", "Pipeline parallelism is not supported for this model"),
    root(
        "PLAN_DIVIDE",
        "Number of experts in the model must be greater than 0 when expert parallelism is enabled",
    ),
    root(
        "PLAN_VALUE",
        "max_num_batched_tokens (",
        pattern=r"max_num_batched_tokens \((?P<batched_n>\d{1,9})\) (?:is smaller|must be)",
    ),
    root("RAY_MISSING", "Failed to import Ray", "Please install Ray with"),
    root("RAY_MISSING", "No module named 'ray'"),
    root(
        "PLAN_VALUE",
        "invalid tool call parser",
        "invalid reasoning parser",
        pattern=r"(?P<reason>invalid .{1,120})",
    ),
)

REFUSED = (
    likely(
        "PLAN_VALUE",
        "validation error",
        pattern=r"^(?:pydantic\S{0,60}: )?\d{1,3} validation errors? for (?P<config>\w{1,60})",
    ),
    likely(
        "PLAN_VALUE", "Value error, ", pattern=r"^\s{0,8}Value error, (?P<reason>.{1,300}?)(?: \[type=|$)"
    ),
)
"""Any check, where none of those above is it."""
