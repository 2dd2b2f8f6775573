"""HTTP calls that are recorded in the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from chaos.history import Call, HistoryWriter, Outcome

CALL_TIMEOUT_S = 8.0

Parse = Callable[[httpx.Response], dict[str, Any]]


class RecordedClient:
    """The HTTP calls of one client of the platform."""

    def __init__(self, name: str, http: httpx.AsyncClient, history: HistoryWriter) -> None:
        self.name = name
        self._http = http
        self._history = history

    async def call(
        self, op: str, args: dict[str, Any], method: str, path: str, parse: Parse, **options: Any
    ) -> Call:
        """Send a request and record it with its outcome. A response that nothing explains raises."""
        invoked_at = self._history.now()
        number = self._history.invoke(self.name, op, args)
        outcome, result = await self._send(method, path, parse, options)
        self._history.complete(number, outcome, result)
        return Call(number, self.name, op, args, invoked_at, self._history.now(), outcome, result)

    async def _send(
        self, method: str, path: str, parse: Parse, options: dict[str, Any]
    ) -> tuple[Outcome, dict[str, Any]]:
        try:
            response = await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            return "unknown", {"error": repr(error)}
        if response.status_code >= 500:
            return "unknown", {"status": response.status_code, "error": response.text[:300]}
        if response.status_code >= 400:
            return "fail", {"status": response.status_code, "error": response.text[:300]}
        return "ok", {"status": response.status_code} | parse(response)
