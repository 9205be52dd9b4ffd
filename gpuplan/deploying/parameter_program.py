"""The second half of the program that counts parameters inside an image: models are built on the meta device.

As vLLM 0.10 to 0.33 build them (vllm/model_executor/model_loader/{base_loader,utils}.py) between vLLM's own process groups
(vllm/distributed/parallel_state.py), over torch's transport that does nothing. A model's parameters are counted as its layers
create them, before kernels repack them.
"""

COUNTING = r'''
SMALL = ("arange", "linspace", "tensor", "as_tensor", "full", "zeros", "ones", "cumsum")
FACTORIES = ("empty", "rand", "randn", "randint", "empty_strided", "eye", "from_numpy", "empty_permuted", "hann_window",
             "logspace", "triu_indices", "tril_indices", "scalar_tensor", "asarray", *SMALL)
LARGEST_VALUE = 1 << 16


def on_meta():
    """A mode in which tensors that would be made on a GPU have no values; short lists of numbers are real, on the CPU."""
    torch = part("torch")
    tree_map = part("torch.utils._pytree").tree_map

    def without_values(value):
        return value.to("meta") if isinstance(value, torch.Tensor) and value.device.type == "cpu" else value

    def kind_of(value):
        if isinstance(value, int) and not isinstance(value, bool):
            return "cuda"
        return value.type if isinstance(value, torch.device) else str(value).split(":")[0]

    def is_gpu(value):
        return kind_of(value) == "cuda"

    class Meta(part("torch.overrides").TorchFunctionMode):
        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            name = getattr(function, "__name__", "")
            if name == "cuda":
                return args[0].to("meta")
            if name == "pin_memory":
                return args[0]
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
            if name in FACTORIES and getattr(torch, name, None) is function:
                return self.made(function, name, args, kwargs)
            if kwargs.get("device") is not None and is_gpu(kwargs["device"]):
                kwargs["device"] = "meta"
            if name in ("to", "_to_copy", "_parse_to"):
                args = tuple("meta" if isinstance(a, (torch.device, str, int)) and is_gpu(a) else a for a in args)
            try:
                return function(*args, **kwargs)
            except (RuntimeError, NotImplementedError):
                if name in ("item", "tolist", "nonzero", "__bool__", "__int__", "__float__"):
                    raise
                return function(*tree_map(without_values, args), **tree_map(without_values, kwargs))

        def made(self, function, name, args, kwargs):
            """A new tensor: without values unless it is a short list of numbers."""
            device = kwargs.get("device")
            if name != "from_numpy" and (device is None or is_gpu(device)):
                kwargs["device"] = "meta"
                if name in SMALL:
                    shape = args[0] if args else kwargs.get("size")
                    short = name in ("arange", "linspace", "tensor", "as_tensor") or isinstance(shape, int) or (
                        isinstance(shape, (tuple, list)) and len(shape) < 2)
                    trial = function(*args, **kwargs)
                    if short and trial.numel() <= LARGEST_VALUE:
                        kwargs["device"] = "cpu"
                    else:
                        return trial
            return function(*args, **kwargs)

    return Meta()


def vllm_config(request, directory):
    """What `vllm serve` would make of the words; models given by value get a directory each."""
    places = {}
    for number, (word, files) in enumerate(request.get("models", {}).items()):
        places[word] = os.path.join(directory, f"model-{number}")
        os.mkdir(places[word])
        for name, document in files.items():
            with open(os.path.join(places[word], os.path.basename(name)), "w") as file:
                file.write(document if isinstance(document, str) else json.dumps(document))
    try:
        parser = part("vllm.utils.argparse_utils").FlexibleArgumentParser(prog="vllm")
    except ImportError:
        parser = part("vllm.utils").FlexibleArgumentParser(prog="vllm")
    command = part("vllm.entrypoints.cli.serve").cmd_init()[0]
    command.subparser_init(parser.add_subparsers(required=False, dest="subparser"))
    words = [str(word) for word in request["words"]]
    for there, place in places.items():
        words = [word.replace(there, place) for word in words]
    sys.argv = ["vllm", "serve", *words]
    said = io.StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(said):
            given = parser.parse_args(["serve", *words])
    except SystemExit:
        lines = [line for line in said.getvalue().splitlines() if "error:" in line]
        raise ValueError("; ".join(lines) or said.getvalue()[-500:]) from None
    given.model = getattr(given, "model_tag", None) or given.model
    given.skip_tokenizer_init = True
    arguments = part("vllm.engine.arg_utils").EngineArgs.from_cli_args(given)
    create = arguments.create_engine_config
    named = {"usage_context": part("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER}
    if "headless" in inspect.signature(create).parameters:
        named["headless"] = bool(getattr(given, "headless", False))
    return create(**named)


def join_groups(config, rank, world):
    """vLLM's own process groups over a transport that does nothing."""
    distributed = part("torch.distributed")
    store = part("torch.testing._internal.distributed.fake_pg").FakeStore()
    distributed.init_process_group("fake", rank=rank, world_size=world, store=store)
    plain = distributed.new_group

    def new_group(ranks=None, *_, **__):
        return plain(ranks, backend="fake")

    distributed.new_group = new_group
    state = part("vllm.distributed.parallel_state")
    coordinator = state.GroupCoordinator
    known = inspect.signature(coordinator.__init__).parameters

    def group(group_ranks, local_rank, name):
        named = {"group_ranks": group_ranks, "local_rank": local_rank, "torch_distributed_backend": "fake",
                 "use_device_communicator": False, "use_message_queue_broadcaster": False, "group_name": name}
        return coordinator(**{key: value for key, value in named.items() if key in known})

    def init_model_parallel_group(group_ranks, local_rank, backend, *_, group_name=None, **__):
        return group(group_ranks, local_rank, group_name)

    state.init_model_parallel_group = init_model_parallel_group
    state._WORLD = group([list(range(world))], 0, "world")
    if hasattr(state, "_NODE_COUNT"):
        state._NODE_COUNT = 1
    parallel = config.parallel_config
    wanted = {"tensor_model_parallel_size": parallel.tensor_parallel_size,
              "pipeline_model_parallel_size": parallel.pipeline_parallel_size,
              "prefill_context_model_parallel_size": getattr(parallel, "prefill_context_parallel_size", 1),
              "decode_context_model_parallel_size": getattr(parallel, "decode_context_parallel_size", 1)}
    initialize = state.initialize_model_parallel
    taken = inspect.signature(initialize).parameters
    initialize(**{key: value for key, value in wanted.items() if key in taken})


def counted(tensors):
    return sum(tensor.numel() * tensor.element_size() for _, tensor in tensors)


def built(request, stage, tensor_rank):
    """Bytes of one rank."""
    torch = part("torch")
    with tempfile.TemporaryDirectory() as directory:
        config = vllm_config(request, directory)
        parallel = config.parallel_config
        tensor, stages = parallel.tensor_parallel_size, parallel.pipeline_parallel_size
        context = getattr(parallel, "prefill_context_parallel_size", 1)
        world = getattr(parallel, "data_parallel_size", 1) * tensor * stages * context
        current = part("vllm.config").set_current_vllm_config
        loading = part("vllm.model_executor.model_loader.utils")
        with current(config):
            join_groups(config, stage * tensor * context + tensor_rank, world)
            model_config = config.model_config
            answer = {"parallel": [tensor, stages], "quantization": model_config.quantization,
                      "dtype": str(model_config.dtype).removeprefix("torch."),
                      "architecture": list(getattr(model_config, "architectures", None) or
                                           model_config.hf_config.architectures or [])[:1]}
            answer["model"] = model_bytes(torch, loading, config, model_config, request)
            draft = getattr(config.speculative_config, "draft_model_config", None)
            if draft is not None and stage == stages - 1 and request.get("draft", True):
                answer["draft"] = model_bytes(torch, loading, config, draft, request, draft=True)
            answer["pretended"] = sorted(Absent.used)
    return answer


def model_bytes(torch, loading, config, model_config, request, draft=False):
    from_type = torch.get_default_dtype()
    torch.set_default_dtype(model_config.dtype)
    named = {"vllm_config": config}
    if draft:
        with suppress(ImportError):
            given = part("vllm.config").replace
            named["vllm_config"] = given(config, model_config=model_config)
        named["prefix"] = "draft_model"
        named["model_config"] = model_config
    elif "model_config" in inspect.signature(loading.initialize_model).parameters:
        named["model_config"] = model_config
    try:
        with on_meta():
            with suppress(ImportError, AttributeError):
                part("vllm.v1.worker.workspace").init_workspace_manager(torch.device("meta"))
            model = loading.initialize_model(**named)
    finally:
        torch.set_default_dtype(from_type)
    told = {"class": type(model).__name__, "parameters": counted(model.named_parameters()),
            "buffers": counted(model.named_buffers())}
    if request.get("list"):
        told["list"] = [[name, list(t.shape), str(t.dtype), type(t).__name__] for name, t in
                        [*model.named_parameters(), *(("buffer " + n, b) for n, b in model.named_buffers())]]
    return told


def forked(work):
    """The answer of a process that leaves nothing behind; an error where there is none."""
    with tempfile.TemporaryFile("w+") as reply:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    told = work()
                except BaseException as failed:
                    import traceback
                    frames = traceback.extract_tb(failed.__traceback__)[-4:]
                    told = {"error": f"{type(failed).__name__}: {failed}"[:1500],
                            "at": [f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in frames]}
                    if os.environ.get("GPUPLAN_TRACE"):
                        traceback.print_exc()
                reply.write(json.dumps(told))
                reply.flush()
                code = 0
            finally:
                os._exit(code)
        os.waitpid(child, 0)
        reply.seek(0)
        return json.loads(reply.read() or '{"error": "the process ended without an answer"}')


def answered(request):
    GPU.update(request.get("gpu", {}))
    GPU["count"] = max(8, GPU.get("count", 8), request.get("world", 8))
    ranks, stage, stages = [], 0, 1
    while stage < stages:
        for tensor_rank in request.get("tensor_ranks", [0]):
            told = forked(lambda: built(request, stage, tensor_rank))
            if "error" in told:
                return {"error": told["error"], "at": told.get("at"), "stage": stage, "tensor_rank": tensor_rank}
            stages = told["parallel"][1]
            ranks.append({"stage": stage, "tensor_rank": tensor_rank, **told})
        stage += 1
    return {"ranks": ranks}


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(told):
        print("gpuplan-parameters " + json.dumps(told), file=out, flush=True)

    try:
        pretend()
        part("vllm.engine.arg_utils")
        part("vllm.entrypoints.cli.serve")
        part("vllm.model_executor.model_loader.utils")
        for name, module in list(sys.modules.items()):
            if name.startswith("vllm") and "cuda_device_count_stateless" in vars(module):
                vars(module)["cuda_device_count_stateless"] = lambda: GPU["count"]
        version = str(part("vllm.version").__version__)
    except BaseException as failed:
        if os.environ.get("GPUPLAN_TRACE"):
            import traceback
            traceback.print_exc()
        say({"error": f"{type(failed).__name__}: {failed}"[:1500]})
        return 1
    say({"vllm": version})
    gc.freeze()
    for line in sys.argv[1:] or sys.stdin:
        if line.strip():
            say(forked(lambda: answered(json.loads(line))))
    return 0


sys.exit(main())
'''
