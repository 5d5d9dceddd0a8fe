"""What a request is told when it gets no answer: one exception, and one body for each of the two dialects."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from cutaway.errors import CutawayError

OPENAI = "/v1/"  # below this path, errors have OpenAI's shape
LEFT = 499  # what nginx calls a client that did not wait; nobody reads it but the metrics
KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refusal(CutawayError):
    """A request that is not answered: why, and whether it is worth asking again."""

    def __init__(self, status: int, message: str, param: str | None = None, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.param, self.retry_after = status, param, retry_after

    @property
    def headers(self) -> dict[str, str]:
        found = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return {**found, "WWW-Authenticate": "Bearer"} if self.status == 401 else found


def refused(path: str, refusal: Refusal, headers: dict[str, str] | None = None) -> Response:
    status = 400 if refusal.status == 422 and path.startswith(OPENAI) else refusal.status  # as their clients expect
    body = problem(path, status, str(refusal), refusal.param)
    return json_response(body, status, {**refusal.headers, **(headers or {})})


def problem(path: str, status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """{"error": "what is wrong"}; for clients of OpenAI's kind, {"error": {"message": "what is wrong", ...}}."""
    if not path.startswith(OPENAI):
        return {"error": message}
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": str(status)}}


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII: whatever a text holds, half a surrogate pair too, it can be sent; and no NaN, which is no JSON."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text, status, headers, "application/json")
