"""The server that behaves as AWS does, for tests of this folder."""

from __future__ import annotations

from support.clouds import cloud, server

__all__ = ["cloud", "server"]
