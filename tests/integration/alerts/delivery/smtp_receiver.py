"""A real SMTP server that receives notices."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass
class SmtpReceiver:
    """Accepts mail from one login, for all recipients but those in `refused`."""

    refused: dict[str, str] = field(default_factory=dict)
    """The response to a recipient."""
    port: int = 0
    mails: list[Message] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.mails.append(message_from_bytes(envelope.content))
        return "250 OK"

    def authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login.decode())
        return AuthResult(success=data.password == b"pass-token", handled=False)


@asynccontextmanager
async def receive_mail(
    tls_context: ssl.SSLContext, *, implicit_tls: bool = False, refused: dict[str, str] | None = None
) -> AsyncIterator[SmtpReceiver]:
    """Listen on a free port of the loopback address, with TLS from the start or after STARTTLS."""
    receiver = SmtpReceiver(refused or {})
    server = await asyncio.get_running_loop().create_server(
        lambda: SMTP(
            receiver,
            hostname="localhost",
            authenticator=receiver.authenticate,
            auth_require_tls=not implicit_tls,
            require_starttls=not implicit_tls,
            tls_context=None if implicit_tls else tls_context,
        ),
        "127.0.0.1",
        0,
        ssl=tls_context if implicit_tls else None,
    )
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
