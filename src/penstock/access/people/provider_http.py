"""HTTP requests to the identity provider."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

from penstock.errors import ProviderUnavailable

TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 1 << 20


async def fetch_json(url: str, *, bearer: str | None = None) -> dict[str, Any]:
    """Return the JSON object at a URL. Raises ProviderUnavailable."""
    status, body = await _send("GET", url, headers={"Authorization": f"Bearer {bearer}"} if bearer else {})
    if status != 200 or not isinstance(body, dict):
        raise ProviderUnavailable(
            f"The identity provider answered {url} with status {status} and no JSON object."
        )
    return body


async def post_form(url: str, form: Mapping[str, str], auth: tuple[str, str] | None) -> tuple[int, Any]:
    """Post a form, with HTTP Basic authentication if `auth` is set; return status and JSON."""
    return await _send("POST", url, data=dict(form), auth=auth)


async def _send(method: str, url: str, **options: Any) -> tuple[int, Any]:
    """Send a request and return the status and the JSON of the response; None if it is no JSON.

    Redirects are not followed: each URL comes from the settings or from the provider's own document.
    """
    tls_context = await asyncio.to_thread(_tls_context)  # the first call takes a tenth of a second
    import httpx

    try:
        async with asyncio.timeout(TIMEOUT_S), httpx.AsyncClient(verify=tls_context) as client:
            request_options = {name: value for name, value in options.items() if value is not None}
            async with client.stream(method, url, **request_options) as response:
                body = await _read_body(response.aiter_bytes(), url)
                status = response.status_code
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise ProviderUnavailable(
            f"The identity provider does not answer at {url}: {reason}. Retry later."
        ) from None
    try:
        return status, json.loads(body)
    except ValueError:
        return status, None


@cache
def _tls_context() -> ssl.SSLContext:
    """The certificate authorities that the provider's certificate is checked against."""
    import httpx

    return httpx.create_ssl_context()


async def _read_body(chunks: Any, url: str) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            raise ProviderUnavailable(f"The identity provider's response at {url} is larger than 1 MiB.")
    return bytes(body)
