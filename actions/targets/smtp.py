"""`mailto:user@host`: a notice as mail, through the server that STOPLOSS_SMTP_URL names."""

from __future__ import annotations

import re
import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import parse_qs, unquote, urlsplit

from stoploss.actions.contract import Delivery, Result
from stoploss.engine.model import Notice

SETTING = "STOPLOSS_SMTP_URL"
SECONDS = 10.0
_ADDRESS = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253}[A-Za-z0-9])?"
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Server:
    """A mail server: `smtp://` (STARTTLS where it is offered) or `smtps://`."""

    host: str
    port: int
    tls: bool
    sender: str
    user: str | None = None
    password: str = field(default="", repr=False)


def deliver(delivery: Delivery) -> Result:
    """Send a notice."""
    setting = delivery.environ.get(SETTING)
    if not setting:
        return Result(False, False, f"{SETTING} is not set")
    try:
        server = read_server(setting)
        recipients = addresses(delivery.url)
    except ValueError as error:
        return Result(False, False, str(error))
    mail = compose(delivery, server.sender, recipients)
    try:
        return _sent(server, mail, recipients)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        return Result(False, all(map(_passing, codes)), f"the server refuses the recipient ({codes[0]})")
    except smtplib.SMTPAuthenticationError as error:
        code = error.smtp_code
        return Result(False, _passing(code), f"the server does not accept the password ({code})")
    except smtplib.SMTPResponseException as error:
        return Result(False, _passing(error.smtp_code), f"the server answered {error.smtp_code}")
    except ssl.SSLError:
        return Result(False, False, f"the certificate of {server.host} is not accepted")
    except TimeoutError:
        return Result(False, True, f"{server.host} did not answer in time")
    except smtplib.SMTPNotSupportedError:
        return Result(False, False, f"{server.host} takes no password")
    except (OSError, smtplib.SMTPException) as error:
        return Result(False, True, f"the connection to {server.host} failed ({type(error).__name__})")


def read_server(text: str) -> Server:
    """The server that a setting names.

    Raises:
        ValueError: it names none; the message holds nothing of it.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"{SETTING} is not a URL") from None
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise ValueError(f"{SETTING} is not of the form smtp://user:password@host:port")
    tls = parts.scheme == "smtps"
    user = unquote(parts.username) if parts.username else None
    named = parse_qs(parts.query).get(
        "from", [user if user and "@" in user else f"stoploss@{parts.hostname}"]
    )
    sender = named[0]
    # An address of the form user@127.0.0.1 is none; its own name is.
    if not _ADDRESS.fullmatch(sender):
        raise ValueError(f"{SETTING}: the sender is not a mail address; name one: ?from=user@host")
    default = 465 if tls else 587 if user else 25
    return Server(parts.hostname, port or default, tls, sender, user, unquote(parts.password or ""))


def addresses(url: str) -> tuple[str, ...]:
    """The recipients of a `mailto:`.

    Raises:
        ValueError: one is no plain mail address; a value that was filled in cannot add another.
    """
    path = urlsplit(url).path
    found = tuple(unquote(part) for part in path.split(","))
    if not all(_ADDRESS.fullmatch(item) for item in found):
        raise ValueError("its address is not of the form mailto:user@host")
    return found


def compose(delivery: Delivery, sender: str, recipients: tuple[str, ...]) -> EmailMessage:
    """The mail of a notice."""
    notice: Notice = delivery.notice
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, ", ".join(recipients)
    mail["Subject"] = " ".join(notice.title.split())
    mail["Date"] = format_datetime(delivery.now)
    mail["Auto-Submitted"] = "auto-generated"
    # Not every server takes bytes beyond ASCII.
    mail.set_content(notice.text + "\n", cte="quoted-printable")
    return mail


def _sent(server: Server, mail: EmailMessage, recipients: tuple[str, ...]) -> Result:
    context = ssl.create_default_context()
    connection = (
        smtplib.SMTP_SSL(
            server.host, server.port, timeout=SECONDS, context=context, local_hostname="localhost"
        )
        if server.tls
        else smtplib.SMTP(server.host, server.port, timeout=SECONDS, local_hostname="localhost")
    )
    with connection as smtp:
        smtp.ehlo()
        safe = server.tls
        if not safe and smtp.has_extn("starttls"):
            smtp.starttls(context=context)
            smtp.ehlo()
            safe = True
        if server.user is not None:
            if not safe and server.host not in _LOOPBACK:
                return Result(
                    False, False, f"{server.host} offers no TLS, and the password is not sent without"
                )
            smtp.login(server.user, server.password)
        refused = smtp.send_message(mail, from_addr=server.sender, to_addrs=list(recipients))
    if refused:
        # Not sent again, as the others would have it twice.
        return Result(False, False, f"{len(refused)} of {len(recipients)} recipients were refused")
    return Result(True)


def _passing(code: int) -> bool:
    """Whether a reply of the server is about now, not for ever."""
    return 400 <= code < 500
