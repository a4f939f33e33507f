"""A node of a fleet: what its collectors saw is sent to a central stoploss, until that has taken it.

What is seen waits on disk first. It is sent oldest first, in batches; each look has a number, so that the
centre takes it once even where its answer is lost. While the centre is away looks wait; looks that it
refuses, and the oldest where there is no room, are dropped, counted, and told of.
"""

from __future__ import annotations

import gzip
import json
import logging
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stoploss.daemon.spool import Spool, Waits, spool_path
from stoploss.engine import clock
from stoploss.engine.history.store_errors import StoreError

if TYPE_CHECKING:
    from stoploss.daemon.service import Service
    from stoploss.engine.history.looks import Kept

LOG = logging.getLogger("stoploss.daemon")

TOKEN = "STOPLOSS_TOKEN"  # noqa: S105 - the name of a variable
MOST_LOOKS = 500
MOST_SIZE = 1_000_000
"""Looks and characters of a batch."""
CONNECT, READ = 5.0, 30.0
"""Seconds that a connection, and an answer, may take."""
IDLE = 1.0
"""Seconds between two looks at what waits."""
FIRST, LONGEST = 1.0, 60.0
"""Seconds until the first retry, and at most; between them it doubles, less a random part."""
LONGEST_ASKED = 3600.0
"""Seconds for which the centre may ask to be left alone."""
SKEW = 60.0
"""Seconds that two clocks may differ before it is told."""
PATIENCE = 20
"""Looks that are refused one after the other until it is the batch, not the look, that may be wrong."""
END_LIMIT = 5.0
"""Seconds that a batch under way may still take at the end."""


class ForwardError(ValueError):
    """Where or how to send is wrong, in words."""


@dataclass(frozen=True, slots=True)
class Centre:
    """Where a node sends.

    Attributes:
        url: of the centre, without /v1/samples.
        node: what this node is called there.
        token: gives the token; None for none.
    """

    url: str
    node: str
    token: Callable[[], str | None]

    @classmethod
    def of(cls, url: str, node: str, token_file: str | None, environ: Mapping[str, str]) -> Centre:
        """A centre as the command line names it.

        Raises:
            ForwardError: it cannot be used; the text says why.
        """
        from stoploss.daemon.nodes import NODE, RULE

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ForwardError(f"{parts.scheme}: is no web address; write https://stoploss.example.org")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ForwardError(f"give the address alone; the token belongs into {TOKEN} or a file")
        if not NODE.fullmatch(node):
            raise ForwardError(f"{node!r} is no name of a node: {RULE}")

        def token() -> str | None:
            if token_file is None:
                return environ.get(TOKEN)
            try:
                with open(token_file, encoding="ascii") as stream:
                    return stream.read(4096).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ForwardError(f"the token in {token_file} cannot be read") from error

        centre = cls(url.rstrip("/"), node, token)
        centre.headers()
        return centre

    def headers(self) -> dict[str, str]:
        """Headers of a request.

        Raises:
            ForwardError: the token cannot be read, or is none.
        """
        token = self.token()
        if token is None:
            return {}
        if not re.fullmatch(r"[!-~]+", token, re.ASCII):
            raise ForwardError("the token is empty, or holds characters that no token has")
        return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]


class Sender:
    """Sends what waits in a spool. `step` is called by one thread."""

    def __init__(self, spool: Spool, centre: Centre, say: Callable[[str], None]) -> None:
        """Send to a centre; `say` is told what is wrong, in words, and "" when nothing is."""
        import urllib3

        self._spool, self._centre, self._say = spool, centre, say
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=CONNECT, read=READ), retries=False, maxsize=1
        )
        self._packed = True
        self._looks, self._fails = MOST_LOOKS, 0
        self._dropped, self._refused, self._row = spool.dropped, 0, 0
        self._skew = ""

    def step(self) -> float:
        """Send one batch; returns the seconds until the next.

        Raises:
            StoreError: the spool cannot be read or written.
        """
        batch = self._spool.oldest(self._looks, MOST_SIZE)
        if self._spool.dropped > self._dropped:
            LOG.error("%d looks that waited for the centre were dropped", self._spool.dropped - self._dropped)
            self._dropped = self._spool.dropped
        if not batch:
            self._tell("")
            return IDLE
        try:
            answer = self._post(batch)
        except ForwardError as error:
            return self._later(str(error))
        except OSError as error:
            return self._later(f"the centre cannot be reached ({type(error).__name__})")
        except _http_error() as error:
            return self._later(f"the centre cannot be reached ({type(error).__name__})")
        self._compare(answer)
        return self._answered(batch, answer)

    def _post(self, batch: Sequence[Waits]) -> _Answer:
        body = encoded(self._centre.node, self._spool.name, [item.text for item in batch])
        headers = {"Content-Type": "application/json", **self._centre.headers()}
        if self._packed:
            body, headers = gzip.compress(body, 5), {**headers, "Content-Encoding": "gzip"}
        answer = self._pool.request(
            "POST",
            f"{self._centre.url}/v1/samples",
            body=body,
            headers=headers,
            redirect=False,
            preload_content=False,
        )
        try:
            # A little is read so that the connection can be used on; what it says is nobody's business.
            answer.read(65536)
        finally:
            answer.release_conn()
        return _Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()})

    def _answered(self, batch: Sequence[Waits], answer: _Answer) -> float:
        status = answer.status
        if 200 <= status < 300:
            self._spool.done(batch[-1].number)
            self._fails, self._row, self._looks = 0, 0, min(MOST_LOOKS, 2 * self._looks)
            self._tell("")
            return 0.0
        if status == 415 and self._packed:
            self._packed = False
            return 0.0
        if status in (400, 413, 422):
            return self._refusal(batch, status)
        if status in (429, 503):
            return self._later(f"the centre is busy ({status})", _asked(answer.headers.get("retry-after")))
        why = {401: "it does not know the token", 403: "the token may not send samples"}
        if 300 <= status < 400:
            why[status] = "it sends elsewhere; give its own address"
        elif status in (404, 405):
            why[status] = "there is no stoploss at this address"
        return self._later(
            f"the centre does not take what is seen ({status}): {why.get(status, 'it failed')}"
        )

    def _refusal(self, batch: Sequence[Waits], status: int) -> float:
        """Of a batch that is refused find the look that is wrong, by halves; what is wrong for good goes."""
        if len(batch) > 1:
            self._looks = len(batch) // 2
            return 0.0
        self._spool.done(batch[0].number, dropped=1)
        self._refused += 1
        self._row += 1
        LOG.error("the centre refused look %d (%d); it was dropped", batch[0].number, status)
        self._tell(f"the centre refuses what is sent ({status}); are both of one version?")
        # Where the clock is wrong, so are all looks. Else more patience loses less.
        return 0.0 if self._skew or self._row < PATIENCE else LONGEST

    def _later(self, why: str, asked: float | None = None) -> float:
        self._fails += 1
        self._tell(f"{why}; {self._spool.waiting()} looks wait")
        most = min(LONGEST, FIRST * 2.0 ** min(self._fails - 1, 10))
        # Nodes that lost the centre together do not come back together.
        wait = most * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        return wait if asked is None else max(wait, asked * random.uniform(1.0, 1.2))  # noqa: S311

    def _compare(self, answer: _Answer) -> None:
        """Note where the clocks of both machines differ: the centre takes nothing from the future."""
        self._skew = ""
        try:
            there = parsedate_to_datetime(answer.headers["date"])
            ahead = (clock.now() - there).total_seconds()
        except (KeyError, ValueError, TypeError):
            return
        if abs(ahead) > SKEW:
            word = "ahead of" if ahead > 0 else "behind"
            self._skew = f"the clock of this machine is {abs(ahead):.0f} s {word} the centre's"

    def _tell(self, why: str) -> None:
        lost = f"{self._spool.dropped} looks were dropped, {self._refused} of them refused since the start"
        self._say("; ".join(filter(None, (why, self._skew, lost if self._spool.dropped else ""))))


@dataclass(frozen=True, slots=True)
class Forward:
    """Begins to forward what a service sees."""

    centre: Centre

    def __call__(self, service: Service) -> Callable[[], None]:
        """Begin; returns what ends it.

        Raises:
            StoreError: the spool cannot be used.
        """
        spool = Spool(spool_path(service.url))
        stop = threading.Event()

        def say(why: str) -> None:
            if why and service.vitals.problems.get("forward") is None:
                LOG.warning("forwarding: %s", why)
            if why:
                service.vitals.problems["forward"] = why
            else:
                service.vitals.problems.pop("forward", None)

        def put(looks: Sequence[Kept]) -> None:
            spool.put(looks, service.live.every, clock.now().timestamp())

        sender = Sender(spool, self.centre, say)
        service.outlet = put
        thread = threading.Thread(target=_run, args=(sender, stop, say), name="forward", daemon=True)
        thread.start()
        LOG.info("forwarding to %s as %s", self.centre.url, self.centre.node)

        def end() -> None:
            service.outlet = None
            stop.set()
            thread.join(END_LIMIT)
            if not thread.is_alive():
                spool.close()

        return end


def _run(sender: Sender, stop: threading.Event, say: Callable[[str], None]) -> None:
    wait = 0.0
    while not stop.wait(wait):
        try:
            wait = sender.step()
        except StoreError as error:
            say(f"the spool cannot be used: {error}")
            wait = LONGEST
        except Exception as error:
            LOG.exception("forwarding broke off")
            say(f"forwarding broke off ({type(error).__name__})")
            wait = LONGEST


def encoded(node: str, spool: str, looks: Sequence[str]) -> bytes:
    """A batch as the centre reads it, of looks that are JSON texts already."""
    head = json.dumps({"version": 1, "node": node, "spool": spool})
    return f'{head[:-1]}, "looks": [{", ".join(looks)}]}}'.encode()


def _http_error() -> Any:
    import urllib3

    return urllib3.exceptions.HTTPError


def _asked(text: str | None) -> float | None:
    """The seconds for which to wait, as a server says it: a number or a date."""
    if text is None:
        return None
    try:
        seconds = (
            float(text) if text.isdecimal() else (parsedate_to_datetime(text) - clock.now()).total_seconds()
        )
    except (ValueError, TypeError):
        return None
    return min(max(0.0, seconds), LONGEST_ASKED)
