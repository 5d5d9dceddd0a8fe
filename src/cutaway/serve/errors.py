"""Error responses: one exception, and a JSON body for our API and for OpenAI's."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from cutaway.errors import CutawayError

OPENAI_PREFIX = "/v1/"  # errors below this path have OpenAI's format
CLIENT_CLOSED_REQUEST = 499  # nginx's code for a client that disconnected; only the metrics see it
OPENAI_ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(CutawayError):
    """An error with an HTTP status. `param`: the field at fault. `retry_after`: seconds after which to retry."""

    def __init__(self, status: int, message: str, param: str | None = None, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.param, self.retry_after = status, param, retry_after

    @property
    def headers(self) -> dict[str, str]:
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return {**headers, "WWW-Authenticate": "Bearer"} if self.status == 401 else headers


def error_response(path: str, error: ApiError, headers: dict[str, str] | None = None) -> Response:
    # OpenAI's clients expect 400 for an invalid request
    status = 400 if error.status == 422 and path.startswith(OPENAI_PREFIX) else error.status
    body = error_body(path, status, str(error), error.param)
    return json_response(body, status, {**error.headers, **(headers or {})})


def error_body(path: str, status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """{"error": "message"}; below /v1/, {"error": {"message": "message", ...}}."""
    if not path.startswith(OPENAI_PREFIX):
        return {"error": message}
    kind = OPENAI_ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": str(status)}}


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Respond with ASCII JSON, which can hold any text, lone surrogates included. NaN raises: it is not JSON."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Response(text, status, headers, "application/json")
