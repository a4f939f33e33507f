"""Notices that this machine, a spot instance, will be taken back: asked from its metadata service."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from stoploss.collectors.aws_calls import Seen
from stoploss.engine.model import Bad, Reading

ADDRESS = "http://169.254.169.254"
TIME_LIMIT = 1.0
"""Seconds that one answer is waited for."""


class NoAnswer(Exception):
    """The metadata service did not answer as it should; the text says how, without what it said."""


@dataclass(slots=True)
class Metadata:
    """Asks with a session token (IMDSv2), which a request that is merely forwarded cannot get."""

    address: str = ADDRESS
    _pool: Any = None
    _told: str | None = field(default=None)

    def look(self, at: float) -> Seen:
        """This instance and its notice; `at` in seconds since the epoch.

        Raises:
            NoAnswer: this machine cannot be asked.
        """
        token = self._ask("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        if not token:
            raise NoAnswer("no metadata service that gives session tokens")
        headers = {"X-aws-ec2-metadata-token": token}
        name = self._ask("GET", "/latest/meta-data/instance-id", headers)
        if not name:
            raise NoAnswer("the metadata service names no instance")
        try:
            notice = self._ask("GET", "/latest/meta-data/spot/instance-action", headers)
        except NoAnswer as error:
            bad = Bad(str(error))
            return Seen("instance", name, {"instance.reclaim_notices": bad, "instance.reclaim_in": bad})
        return Seen("instance", name, self._readings(notice, at))

    def _readings(self, notice: str | None, at: float) -> dict[str, Reading]:
        fresh = notice is not None and notice != self._told
        self._told = notice
        readings: dict[str, Reading] = {"instance.reclaim_notices": 1.0 if fresh else 0.0}
        if notice is not None:
            readings["instance.reclaim_in"] = time_left(notice, at)
        return readings

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> str | None:
        """The text of an answer; None where there is nothing of that name.

        Raises:
            NoAnswer: it is neither.
        """
        import urllib3

        if self._pool is None:
            self._pool = urllib3.PoolManager(retries=False, timeout=TIME_LIMIT)
        try:
            answer = self._pool.request(method, self.address + path, headers=headers, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            raise NoAnswer("the metadata service does not answer") from error
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise NoAnswer(f"the metadata service answers {answer.status}")
        return str(answer.data.decode("utf-8", "replace"))


def time_left(notice: str, at: float) -> Reading:
    """Seconds from `at` until the time that a notice names."""
    try:
        time = datetime.fromisoformat(json.loads(notice)["time"])
    except (ValueError, KeyError, TypeError):
        return Bad("the notice cannot be read")
    if time.tzinfo is None:
        return Bad("the notice names a time without a zone")
    return max(0.0, time.timestamp() - at)
