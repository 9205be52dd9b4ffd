"""Whether a server answers, asked through the connection to its host: health, the model's name, one real request."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuplan.deploying.secrets import API_KEY
from gpuplan.domain.deployment import Server
from gpuplan.domain.events import Phase
from gpuplan.domain.workload import Category
from gpuplan.engine.model_list import served_names
from gpuplan.operations.deploy_run import Run, halted

ASK_SECONDS = 10.0
MOST_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a server said."""

    ready: bool
    why: str = ""
    """Why it is not."""
    models: tuple[str, ...] = ()


def ask_ready(run: Run, server: Server) -> Readiness:
    """`/health` answers 200 and `/v1/models` lists the served name (`deploy-facts` section 6, step 10)."""
    health = _ask(run, server, "GET", "/health")
    if health is None or health[0] != 200:
        return Readiness(ready=False, why="no answer" if health is None else f"/health says {health[0]}")
    listed = _ask(run, server, "GET", "/v1/models")
    if listed is None or listed[0] != 200:
        return Readiness(ready=False, why="no answer" if listed is None else f"/v1/models says {listed[0]}")
    names = served_names(listed[1]) or ()
    if run.spec.served_name not in names:
        return Readiness(ready=False, why=f"it serves {', '.join(names) or 'nothing'}", models=names)
    return Readiness(ready=True, models=names)


def answer_once(run: Run, server: Server, category: Category, *, tokenless: bool) -> None:
    """One real request of the smallest kind; what has no cheap one is taken at its word. Raises Halted."""
    path, body = _question(run.spec.served_name, category, tokenless=tokenless)
    if path is None:
        return
    answered = _ask(run, server, "POST", path, body, seconds=run.patience.answer)
    if answered is not None and 200 <= answered[0] < 300:
        return
    raise halted(
        Phase.ANSWER,
        "GP823",
        {"endpoint": server.endpoint, "host": server.host},
        path=path,
        status=answered[0] if answered is not None else None,
        said=run.secrets.masked(answered[1][:300].decode(errors="replace")) if answered is not None else "",
        seconds=run.patience.answer,
    )


def _question(name: str, category: Category, *, tokenless: bool) -> tuple[str | None, Mapping[str, Any]]:
    match category:
        case Category.LLM | Category.OMNI:
            asked: dict[str, Any] = {"model": name, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
            if tokenless:
                asked |= {"prompt": [1, 2, 3], "detokenize": False}
            return "/v1/completions", asked
        case Category.EMBEDDING:
            return "/v1/embeddings", {"model": name, "input": [1, 2, 3] if tokenless else "Hello"}
        case Category.RERANKER:
            return "/score", {"model": name, "text_1": "Hello", "text_2": "Hello"}
        case Category.SPEECH_TO_TEXT | Category.TEXT_TO_SPEECH | Category.IMAGE:
            return None, {}


def _ask(
    run: Run,
    server: Server,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    seconds: float = ASK_SECONDS,
) -> tuple[int, bytes] | None:
    """Status and body; None where nothing answers."""
    from gpuplan.remote import http
    from gpuplan.remote.connection import ConnectionFailed, SocketRefused

    headers = {"Content-Type": "application/json"} if body is not None else {}
    if API_KEY in run.secrets:
        headers["Authorization"] = f"Bearer {run.secrets.reveal(API_KEY)}"
    connection = run.opened.connections.get(server.host)
    if connection is None:
        return None
    try:
        answer = http.ask(
            connection,
            "127.0.0.1" if server.address in {"0.0.0.0", "::"} else server.address,
            server.port,
            method=method,
            path=path,
            body=json.dumps(body).encode() if body is not None else b"",
            headers=headers,
            timeout=seconds,
            limit=MOST_BYTES,
        )
    except (http.NoAnswer, ConnectionFailed, SocketRefused):
        return None
    return answer.status, answer.body
