"""The server that behaves as AWS does, for tests of this folder."""

from __future__ import annotations

from support.clouds import Cloud, cloud, crashed, order, server
from support.failing_aws import SECRET, backend

__all__ = ["SECRET", "Cloud", "backend", "cloud", "crashed", "order", "server"]
