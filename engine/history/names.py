"""Names and texts as every database can hold them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from stoploss.engine.model import Bad, LabelValue, Look, Reading, ResourceId, Sample

LONGEST = 2000
"""Bytes of a name: an index of PostgreSQL holds 2,700 in a row."""


def storable(look: Look) -> Look:
    """A look whose names can be stored: what is no Unicode is written as \\xNN, what is too long is cut.

    A name that was cut ends in a hash of all of it, so that no two become one.
    """
    samples = tuple(map(_sample, look.samples))
    same = all(new is old for new, old in zip(samples, look.samples, strict=True))
    return look if same else replace(look, samples=samples)


def plain(text: str) -> str:
    """A text without zeros and without halves of characters."""
    if _fine(text):
        return text
    # A byte of a file's name that is no UTF-8 comes as one of these halves.
    shown = "".join(f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in text)
    return shown.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _sample(sample: Sample) -> Sample:
    name, reading = _name(sample.resource.id), _reading(sample.reading)
    labels = sample.labels
    if labels and not all(_fine(key) and (not isinstance(v, str) or _fine(v)) for key, v in labels.items()):
        labels = {plain(key): _label(value) for key, value in labels.items()}
    if name == sample.resource.id and reading is sample.reading and labels is sample.labels:
        return sample
    return replace(sample, resource=ResourceId(sample.resource.kind, name), reading=reading, labels=labels)


def _fine(text: str) -> bool:
    return text.isascii() and "\0" not in text


def _name(text: str) -> str:
    shown = plain(text)
    if len(shown) * 4 <= LONGEST or len(shown.encode()) <= LONGEST:
        return shown
    digest = hashlib.sha256(shown.encode()).hexdigest()[:16]
    return shown.encode()[: LONGEST - 20].decode("utf-8", "ignore") + "…" + digest


def _label(value: LabelValue) -> LabelValue:
    return plain(value) if isinstance(value, str) else value


def _reading(reading: Reading) -> Reading:
    if isinstance(reading, str):
        shown = plain(reading)
        return reading if shown == reading else shown
    if isinstance(reading, Bad):
        shown = plain(reading.reason)
        return reading if shown == reading.reason else Bad(shown)
    return reading
