"""The centre of a fleet: takes what nodes saw, and says which of them are silent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stoploss.api.contract import BusyError
from stoploss.daemon.history import DAY, LATEST
from stoploss.engine.history.looks import Kept, look_of
from stoploss.engine.model import Bad, Sample
from stoploss.rules.catalogue import KINDS, SignalKind, catalogue
from stoploss.rules.diagnostics import suggestion

if TYPE_CHECKING:
    from stoploss.daemon.history import History

AHEAD = 120.0
"""Seconds that a look may lie in the future: clocks differ a little."""
MOST_LOOKS = 2000
"""Looks of a batch."""
MOST_WAITING = 2_000_000
"""Samples that may wait until slots are sealed; a sample is some 40 bytes."""
SILENT = 3
"""Intervals of its slowest collector after which a node is silent, and a minute."""
LONGEST = 4096
"""Characters of a text."""

NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
SPOOL = re.compile(r"[0-9a-f]{8,64}", re.ASCII)
COLLECTOR = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
RULE = "letters, digits, dots, dashes and underscores, 128 at most"

_BATCH = {"version", "node", "spool", "looks"}
_LOOK = {"number", "collector", "at", "every"}
_SEEN = {"samples", "inventories", "notes"}


class Nodes:
    """The nodes of a history. May be called from any thread."""

    def __init__(self, history: History, most: int = MOST_WAITING) -> None:
        """Take looks into a history; `most` samples may wait to be sealed."""
        self._history, self._most = history, most

    def take(self, node: str, batch: Mapping[str, Any], now: datetime) -> int:
        """Take a batch, each look of it once; returns how many samples were new.

        Args:
            node: who sends it.
            batch: what `stoploss.daemon.spool` makes: version, node, spool and looks.
            now: the present instant.

        Raises:
            ValueError: the batch is wrong; nothing of it was taken.
            BusyError: too many samples wait already.
            StoreError: it cannot be written; nothing of it was taken.
        """
        heard = now.timestamp()
        if not NODE.fullmatch(node) or batch.get("node") != node:
            raise ValueError(f"{node[:80]!r} is no name of a node: {RULE}")
        _closed(batch, _BATCH, "the batch")
        if batch["version"] != 1:
            raise ValueError("the batch is not of version 1; run the same stoploss on nodes and centre")
        if not _text(batch["spool"]) or not SPOOL.fullmatch(batch["spool"]):
            raise ValueError("spool is no number of a spool")
        looks = list(_looks(node, batch["looks"], heard))
        # A batch that is larger than all that may wait must get in at some time.
        if self._history.waiting and self._history.waiting + _count(looks) > self._most:
            raise BusyError("samples of nodes wait to be evaluated; send the same batch again later")
        return self._history.receive(node, batch["spool"], looks, heard)

    def silent(self, now: datetime) -> str:
        """What is to be said of nodes that do not send; empty where all do. Lost ones are forgotten."""
        found = []
        for name, arrival in sorted(self._history.nodes.items()):
            quiet = now.timestamp() - arrival.at
            if SILENT * arrival.every + 60.0 < quiet < DAY:
                since = datetime.fromtimestamp(arrival.at, UTC)
                found.append(
                    f"{name} is silent since {since:%Y-%m-%d %H:%M} UTC, what it tells of is unknown"
                )
        return "; ".join(found)


def _count(looks: list[tuple[int, Kept]]) -> int:
    return sum(len(kept.look.samples) for _, kept in looks if kept.look is not None)


def _looks(node: str, given: object, now: float) -> Iterator[tuple[int, Kept]]:
    if not isinstance(given, list) or not 0 < len(given) <= MOST_LOOKS:
        raise ValueError(f"looks is no list of 1 to {MOST_LOOKS} looks")
    before = 0
    for place, said in enumerate(given):
        where = f"look {place}"
        if not isinstance(said, dict):
            raise ValueError(f"{where} is no object")  # noqa: TRY004 - the contract names ValueError
        number = said.get("number")
        if not isinstance(number, int) or isinstance(number, bool) or not before < number < 2**62:
            raise ValueError(f"{where}: number does not rise")
        before = number
        yield number, _look(node, said, now, where)


def _look(node: str, said: Mapping[str, Any], now: float, where: str) -> Kept:
    failed = "failure" in said
    _closed(said, _LOOK | ({"failure"} if failed else _SEEN), where)
    if not _text(said["collector"]) or not COLLECTOR.fullmatch(said["collector"]):
        raise ValueError(f"{where}: collector is no name of a collector")
    at, every = said["at"], said["every"]
    if not _finite(at) or not now - LATEST <= at <= now + AHEAD:
        raise ValueError(f"{where}: its time is not within the last 3 days; is the clock of {node} right?")
    if every is not None and not (_finite(every) and 0 < every <= 7 * DAY):
        raise ValueError(f"{where}: every is no number of seconds up to 7 days")
    if failed:
        if not _text(said["failure"]):
            raise ValueError(f"{where}: failure is no text")
        return Kept(said["collector"], float(at), None, said["failure"], node, every)
    _list(said["inventories"], lambda item: item in KINDS, f"{where}: inventories")
    _list(said["notes"], _text, f"{where}: notes")
    _list(said["samples"], lambda item: isinstance(item, list) and len(item) == 4, f"{where}: samples")
    for kind, name, labels, readings in said["samples"]:
        if kind not in KINDS:
            raise ValueError(f"{where}: {str(kind)[:80]!r} is no kind of resource")
        if not _text(name) or not name or any(ord(character) < 32 for character in name):
            raise ValueError(f"{where}: a {kind} has no name that can be read")
        if labels is not None and not (isinstance(labels, dict) and all(map(_label, labels.items()))):
            raise ValueError(f"{where}: {kind} {name}: labels are texts, null or false")
        _list(readings, lambda item: isinstance(item, list) and len(item) == 2, f"{where}: {kind} {name}")
    try:
        look, _ = look_of(dict(said), float(at))
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{where}: {type(error).__name__} in its readings") from None
    assert look is not None, "a failure was told before"
    samples = tuple(_sample(sample, where) for sample in look.samples)
    return Kept(said["collector"], float(at), replace(look, samples=samples), None, node, every)


def _sample(sample: Sample, where: str) -> Sample:
    """The sample, where its signal is known and its reading is one of it.

    Raises:
        ValueError: it is not.
    """
    known = catalogue()
    if sample.signal not in known:
        fix = suggestion(sample.signal, known)
        raise ValueError(f"{where}: there is no signal {sample.signal[:80]!r}; {fix}")
    reading, signal = sample.reading, known[sample.signal]
    if isinstance(reading, Bad):
        wrong = not _text(reading.reason)
    elif isinstance(reading, str):
        wrong = not _text(reading)
    else:
        try:
            wrong = not math.isfinite(reading) and signal.kind is not SignalKind.CURVE
        except OverflowError:
            wrong = True
    if wrong:
        raise ValueError(f"{where}: {sample.resource}: {sample.signal} is not finite, or too long")
    return sample


def _closed(said: Mapping[str, Any], keys: set[str], where: str) -> None:
    """Raises ValueError where an object has not exactly these keys."""
    if said.keys() != keys:
        odd = sorted(said.keys() ^ keys)[0]
        raise ValueError(f"{where}: {'lacks' if odd in keys else 'has no key'} {odd[:80]}")


def _list(given: object, fits: Callable[[Any], bool], where: str) -> None:
    """Raises ValueError where something is no list of things that fit."""
    if not isinstance(given, list) or not all(map(fits, given)):
        raise ValueError(f"{where}: not of the right form")


def _text(given: object) -> bool:
    return isinstance(given, str) and len(given) <= LONGEST


def _label(pair: tuple[object, object]) -> bool:
    return _text(pair[0]) and (pair[1] is None or pair[1] is False or _text(pair[1]))


def _finite(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and abs(given) < 2**53
