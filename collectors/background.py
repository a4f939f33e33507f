"""Calls that may never return: each in a daemon thread, which cannot keep a process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(function: Callable[[], T], name: str) -> Future[T]:
    """Start `function` in a daemon thread of its own; the future holds its result or exception.

    The standard pools do not serve here: they wait for their threads when the process ends.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        future.set_exception(error)
    return future
