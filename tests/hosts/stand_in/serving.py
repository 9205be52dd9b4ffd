"""The HTTP side of the stand-in: the paths of vLLM's OpenAI server that a deployer and its users ask."""

import hashlib
import json
import os
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.hosts.stand_in import log
from tests.hosts.stand_in.faults import Faults
from tests.hosts.stand_in.flags import Options

_GUARDED = ("/v1", "/v2", "/inference", "/cohere")
"""Paths that want the key (0.33, `entrypoints/serve/middleware/authenticate.py`); the others are open."""
_WORD = " token"
_POOLING = frozenset({"pooling", "embed"})


def bind(host: str | None, port: int) -> socket.socket:
    """Take the port as vLLM does before it loads: bound, not listening, SO_REUSEADDR set. Raises OSError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host or "", port))
    return sock


class Api:
    """What the engine answers, and what it has counted."""

    def __init__(self, options: Options, *, max_model_len: int, version: str, faults: Faults) -> None:
        self.options = options
        self.faults = faults
        self.version = version
        self.max_model_len = max_model_len
        self.is_whole: Callable[[], bool] = lambda: True
        """Whether every member is there. A lost one shows in requests that never end; `/health` stays well."""
        self.is_dead = False
        keys = (options.api_key, os.environ.get("VLLM_API_KEY"))
        self._keys = [hashlib.sha256(key.encode()).digest() for key in keys if key]
        self._lock = threading.Lock()
        self._running = 0
        self._counts: Counter[str] = Counter()

    def allows(self, path: str, authorization: str) -> bool:
        scheme, _, key = authorization.partition(" ")
        given = hashlib.sha256(key.encode()).digest()
        matching = any(secrets.compare_digest(given, known) for known in self._keys)
        return not (self._keys and path.startswith(_GUARDED)) or (scheme.lower() == "bearer" and matching)

    @contextmanager
    def request(self, prompt: int, made: int) -> Iterator[None]:
        """Count a request of so many tokens while it runs and after."""
        with self._lock:
            self._running += 1
        try:
            time.sleep(made * self.faults.number("token_seconds"))
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._counts.update(requests=1, prompt=prompt, made=made)

    def metrics(self) -> str:
        """In Prometheus' text format, under vLLM's names."""
        name = f'model_name="{self.options.names[0]}"'
        labels = f'engine="0",{name}'
        usage = min(1.0, self._running / max(1, self.options.max_num_seqs))
        finished = f'engine="0",finished_reason="length",{name}'
        rows = (
            ("num_requests_running", "gauge", labels, self._running),
            ("num_requests_waiting", "gauge", labels, 0),
            ("kv_cache_usage_perc", "gauge", labels, usage),
            ("prompt_tokens_total", "counter", labels, self._counts["prompt"]),
            ("generation_tokens_total", "counter", labels, self._counts["made"]),
            ("request_success_total", "counter", finished, self._counts["requests"]),
        )
        return "".join(
            f"# HELP vllm:{name} Stand-in.\n# TYPE vllm:{name} {kind}\nvllm:{name}{{{at}}} {float(value)}\n"
            for name, kind, at, value in rows
        )

    def models(self) -> dict[str, Any]:
        options = self.options
        listed = [
            {
                "id": name,
                "object": "model",
                "created": 1763773323,
                "owned_by": "vllm",
                "root": options.model_tag,
                "parent": None,
                "max_model_len": self.max_model_len,
            }
            for name in options.names
        ]
        return {"object": "list", "data": listed}

    def answer(self, path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A POST: status and body."""
        name = asked.get("model", self.options.names[0])
        if name not in self.options.names:
            return 404, _error(f"The model `{name}` does not exist.", "NotFoundError", 404)
        if (path == "/v1/embeddings") != (self.options.runner in _POOLING):
            return 404, {"detail": "Not Found"}
        if self.faults.told("hang_completion") or not self.is_whole():
            threading.Event().wait(float(os.environ.get("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "300")))
            self.is_dead = True
            return 500, _error("EngineCore encountered an issue. See stack trace (above) for the root cause.")
        if self.faults.told("completion_status"):
            status = int(self.faults.number("completion_status"))
            return status, _error("Internal server error", status=status)
        prompt = _tokens(asked.get("prompt", asked.get("messages", asked.get("input", ""))))
        if path == "/v1/embeddings":
            with self.request(prompt, 0):
                data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5, 0.25]}]
                return 200, {"object": "list", "model": name, "data": data, "usage": _usage(prompt, 0)}
        made = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
        if prompt + made > self.max_model_len:
            text = f"This model's maximum context length is {self.max_model_len} tokens. However, you requested {made}"
            return 400, _error(
                f"{text} output tokens and your prompt contains {prompt} input tokens.",
                "BadRequestError",
                400,
            )
        with self.request(prompt, made):
            return 200, _completion(path, name, prompt, made)


def _completion(path: str, name: str, prompt: int, made: int) -> dict[str, Any]:
    chat = path == "/v1/chat/completions"
    text = _WORD * made
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(16)}",
        "object": "chat.completion" if chat else "text_completion",
        "created": int(time.time()),
        "model": name,
        "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": "length"}],
        "usage": _usage(prompt, made),
    }


def _usage(prompt: int, made: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def _tokens(prompt: object) -> int:
    if isinstance(prompt, list) and all(isinstance(word, int) for word in prompt):
        return len(prompt)
    return len(json.dumps(prompt).split())


def _error(message: str, kind: str = "InternalServerError", status: int = 500) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def listen(api: Api, sock: socket.socket) -> ThreadingHTTPServer:
    """Listen on a bound socket and answer for ever, in the background. Raises OSError where somebody else listens."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "uvicorn"

        def do_GET(self) -> None:
            if self._refused():
                return
            match self.path.partition("?")[0]:
                case "/health" | "/ping":
                    self._reply(503 if api.is_dead else 200, b"")
                case "/v1/models":
                    self._reply(200, api.models())
                case "/version":
                    self._reply(200, {"version": api.version})
                case "/load":
                    self._reply(200, {"server_load": 0})
                case "/metrics":
                    self._reply(200, api.metrics().encode(), "text/plain; version=0.0.4; charset=utf-8")
                case _:
                    self._reply(404, {"detail": "Not Found"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self._refused():
                return
            path = self.path.partition("?")[0]
            if path not in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings"):
                self._reply(404, {"detail": "Not Found"})
                return
            try:
                asked = json.loads(body)
            except ValueError:
                self._reply(400, _error("JSON decode error", "BadRequestError", 400))
                return
            status, answer = api.answer(path, asked)
            if asked.get("stream") and status == 200:
                chunk = f"data: {json.dumps(answer)}\n\ndata: [DONE]\n\n".encode()
                self._reply(200, chunk, "text/event-stream; charset=utf-8")
            else:
                self._reply(status, answer)
            api.faults.reach("request")

        def _refused(self) -> bool:
            if api.allows(self.path, self.headers.get("Authorization") or ""):
                return False
            self._reply(401, {"error": "Unauthorized"})
            return True

        def _reply(self, status: int, body: bytes | dict[str, Any], kind: str = "application/json") -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, _format: str, *args: object) -> None:
            client = f"{self.client_address[0]}:{self.client_address[1]}"
            log.plain(f'INFO:     {client} - "{self.requestline}" {args[1] if len(args) > 1 else ""}')

    host, port = sock.getsockname()
    server = ThreadingHTTPServer((host, port), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = sock
    server.daemon_threads = True
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
