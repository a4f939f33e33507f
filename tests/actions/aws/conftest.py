"""The server that behaves as AWS does, for tests of this folder."""

from __future__ import annotations

from support.clouds import SECRET, Cloud, backend, cloud, crashed, order, server

__all__ = ["SECRET", "Cloud", "backend", "cloud", "crashed", "order", "server"]
