"""The answer of a hot route, before any framework's response is made of it."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response


class Answer(NamedTuple):
    status: int
    body: bytes
    """JSON; empty with 204."""

    def response(self) -> Response:
        return Response(self.body, self.status, media_type="application/json" if self.body else None)


NOTHING = Answer(204, b"")
