"""Send a notice as e-mail through an SMTP server with STARTTLS or TLS."""

from __future__ import annotations

import socket
from email.message import EmailMessage
from email.utils import format_datetime

import aiosmtplib

from penstock.alerts.delivery.channel_definitions import EmailChannel
from penstock.alerts.delivery.delivery_errors import DeliveryFailed
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.outgoing_notice import OutgoingNotice, shorten_text

MAX_SUBJECT_LENGTH = 200


async def send_email(channel: EmailChannel, notice: OutgoingNotice, outbound: Outbound) -> str | None:
    """Send the mail, and return a remark if the server refused some of the recipients.

    Its Message-ID is the notice's id, so that mail servers and readers can drop repetitions.
    """
    client = aiosmtplib.SMTP(
        hostname=channel.host,
        sock=await outbound.open_socket(channel.host, channel.smtp_port),  # the client closes it
        local_hostname=socket.gethostname(),
        use_tls=channel.security == "tls",
        start_tls=channel.security == "starttls",
        tls_context=outbound.tls_context,
        username=channel.username,
        password=channel.password,
    )
    try:
        async with client:
            refused, _ = await client.send_message(email_message(channel, notice))
    except (aiosmtplib.SMTPException, OSError) as error:
        raise DeliveryFailed(f"{channel.host} did not accept the mail: {_reason(error)}.") from None
    return f"{channel.host} refused {', '.join(sorted(refused))}." if refused else None


def email_message(channel: EmailChannel, notice: OutgoingNotice) -> EmailMessage:
    """Return the mail. Mails of one incident refer to the same id, so that readers show them as a thread."""
    domain = channel.sender.rpartition("@")[2]
    mail = EmailMessage()
    mail["From"] = channel.sender
    mail["To"] = ", ".join(channel.recipients)
    mail["Subject"] = shorten_text(" ".join(f"[Penstock] {notice.title}".split()), MAX_SUBJECT_LENGTH)
    mail["Date"] = format_datetime(notice.created_at)
    mail["Message-ID"] = f"<{notice.id}@{domain}>"
    mail["References"] = f"<incident-{notice.incident_key}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(_body_text(notice))
    return mail


def _body_text(notice: OutgoingNotice) -> str:
    details = [f"{label}: {text}" for label, text in notice.facts() + notice.links()]
    queues = [f"- {queue.name}: {queue.summary}" for queue in notice.message.queues if queue.name]
    sections = [notice.message.summary, "\n".join(details), "\n".join(queues), f"Notice {notice.id}"]
    return "\n\n".join(filter(None, sections)) + "\n"


def _reason(error: Exception) -> str:
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        return "; ".join(f"{refusal.recipient}: {refusal.message}" for refusal in error.recipients)
    return str(error).rstrip(".") or type(error).__name__
