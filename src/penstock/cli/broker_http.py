"""Asking the running broker, and its refusals in its own words."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import httpx

from penstock.config import Settings
from penstock.errors import ComponentFailed, PenstockError

TIMEOUT_S = 30


class BrokerHttp:
    """Calls to one broker. Raises ComponentFailed when nobody answers, and refusals as PenstockError."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # The broker is near; what is between it and us is not a proxy's business.
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_S, trust_env=False)

    @classmethod
    def of(cls, settings: Settings, url: str | None, token: str | None) -> BrokerHttp:
        """The broker named on the command line, or that of the settings, with the first of its tokens."""
        from penstock.embedded.supervision.service_components import connect_host

        first = settings.dlq_tokens.partition(",")[0].strip().partition("=")[2]
        return cls(url or f"http://{connect_host(settings.host)}:{settings.port}", token or first or None)

    def __enter__(self) -> BrokerHttp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, **parameters: Any) -> Any:
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._call("GET", path, params=given)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._call("POST", path, json=body if body is not None else {})

    def put(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("PUT", path, json=body)

    def _call(self, method: str, path: str, **options: Any) -> Any:
        try:
            answer = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise ComponentFailed(
                f"no broker answers at {self.url} ({error}): start it with `penstock up`, or give --url"
            ) from None
        try:
            body = answer.json()
        except ValueError:
            body = {}
        if answer.is_success:
            return body
        detail = body.get("detail") or f"the broker at {self.url} answered {answer.status_code}"
        raise PenstockError(
            f"{detail}; give one with --token" if answer.status_code in (401, 403) else detail
        )
