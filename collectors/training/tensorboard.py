"""TensorBoard event files: scalars, in the old form (a float) and the new one (a tensor).

The file is a row of frames: the length of the event, a checksum of the length, the event, a checksum of the
event. Events and what they hold are protocol-buffer messages, of which only the fields that carry scalars are
looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from stoploss.collectors.training import names
from stoploss.collectors.training.records import NAN, Reader, instant

NAME = "tensorboard"

_HEADER = struct.Struct("<QI")
_FOOTER = 4
_LONGEST_EVENT = 1 << 26
"""Bytes of an event, pictures and graphs included; a longer one is damage."""

_LONGEST_CHECKED = 1 << 14
"""Bytes of an event whose checksum is still looked at."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC = _crc_table()


def masked_crc(data: bytes) -> int:
    """The checksum (CRC-32C, rotated and shifted) that the format uses."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _plausible(length: int, crc: int, raw: bytes) -> bool:
    """Whether a frame begins there. Some writers leave the checksum out."""
    return 0 < length <= _LONGEST_EVENT and (crc == 0 or crc == masked_crc(raw))


def fits(head: bytes, lines: Sequence[str]) -> bool:
    """Whether a file that begins so is of this format."""
    if len(head) < _HEADER.size + 2:
        return False
    length, crc = _HEADER.unpack_from(head)
    # Every event begins with its time, field 1 of eight bytes; text would have a length of some exabytes.
    return _plausible(length, crc, head[:8]) and head[_HEADER.size] == 0x09


class EventReader(Reader):
    """Reads event files."""

    name = NAME

    def __init__(self, subject: str = "") -> None:
        super().__init__(subject)
        self._buffer = bytearray()
        self._read = 0
        self._damaged = False
        self.prefix = ""
        """What is put before tags that do not say whether they belong to training or evaluation."""

    def feed(self, data: bytes) -> None:
        """Go on with the next bytes; a frame that is not whole yet waits."""
        if self._damaged:
            return
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _HEADER.size:
            length, crc = _HEADER.unpack_from(self._buffer, at)
            raw = bytes(self._buffer[at : at + 8])
            if length == 0 and crc == 0:
                # Room that the file system gave and nobody has written to yet.
                break
            if not _plausible(length, crc, raw):
                self._damage(self._read + at)
                break
            end = at + _HEADER.size + length + _FOOTER
            if end > len(self._buffer):
                break
            event = bytes(self._buffer[at + _HEADER.size : end - _FOOTER])
            if crc and not any(self._buffer[end : end + _HEADER.size]) and not self._whole(event, end):
                break
            self._event(event)
            at = end
        del self._buffer[:at]
        self._read += at

    def end(self) -> None:
        """What is left is no whole event."""
        if self._buffer.strip(b"\0"):
            self.notes.add("the last event is cut off")
        self._buffer.clear()

    def restart(self) -> None:
        """The next of the files that one run wrote."""
        self.end()
        self._read, self._damaged = 0, False

    def _whole(self, event: bytes, end: int) -> bool:
        """Whether the last event so far is written to its end; only there is the checksum worth its time."""
        sums = int.from_bytes(self._buffer[end - _FOOTER : end], "little")
        return len(event) > _LONGEST_CHECKED or sums == masked_crc(event)

    def _damage(self, at: int) -> None:
        self._damaged = True
        self._buffer.clear()
        self.notes.add(f"damaged at byte {at:,}; what follows was left out")

    def _event(self, data: bytes) -> None:
        time, step, summary = NAN, 0, None
        try:
            for number, kind, value in _fields(data):
                if number == 1 and kind == _FIXED64:
                    time = struct.unpack("<d", value)[0]
                elif number == 2 and kind == _VARINT:
                    step = _signed(value)
                elif number == 5 and kind == _BYTES:
                    summary = value
            for tag, scalar in _scalars(summary or b""):
                self._scalar(tag, scalar, float(step), instant(time))
        except ValueError:
            self.notes.add("an event that could not be understood was left out")

    def _scalar(self, tag: str, value: float, step: float, time: float) -> None:
        found = names.meaning(tag)
        if self.prefix and (found is None or found.signal == "train.loss"):
            tag = f"{self.prefix}_{names.spelled(tag).removeprefix('epoch_')}"
        self.put_fields({tag: value}, step, time)


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The fields of a message: number, wire type, and the bytes of the value.

    Raises:
        ValueError: it is no message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        begin = at
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _BYTES:
            length, begin = _varint(data, at)
            at = begin + length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("unknown wire type")
        if at > end:
            raise ValueError("cut off")
        yield number, kind, data[begin:at]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("cut off")


def _signed(data: bytes) -> int:
    value = _varint(data, 0)[0] & 0xFFFF_FFFF_FFFF_FFFF
    return value - (1 << 64) if value >> 63 else value


def _scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    for number, kind, value in _fields(summary):
        if number != 1 or kind != _BYTES:
            continue
        tag, scalar = "", None
        for inner, wire, content in _fields(value):
            if inner == 1 and wire == _BYTES:
                tag = content.decode("utf-8", "replace")
            elif inner == 2 and wire == _FIXED32:
                scalar = struct.unpack("<f", content)[0]
            elif inner == 8 and wire == _BYTES:
                scalar = _tensor(content)
        if scalar is not None:
            yield tag, scalar


_TYPES = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
"""Data type -> how its bytes in `tensor_content` are read: float, double, int32, int64, half."""

_VALUES = {5: (1, "<f"), 6: (2, "<d")}
"""Field of repeated values -> data type and how one value is read."""


def _tensor(data: bytes) -> float | None:
    """The value of a tensor of one element; None for another tensor."""
    kind, content, listed = 0, b"", b""
    for number, wire, value in _fields(data):
        if number == 1 and wire == _VARINT:
            kind = _varint(value, 0)[0]
        elif number == 4 and wire == _BYTES:
            content = value
        elif number in _VALUES and _VALUES[number][0] == kind:
            listed = value
        elif number in (7, 10) and kind in (3, 9) and wire in (_VARINT, _BYTES):
            listed = struct.pack(_TYPES[kind], _signed(value)) if _varint(value, 0)[1] == len(value) else b""
    shape = _TYPES.get(kind)
    raw = content or listed
    if shape is None or len(raw) != struct.calcsize(shape):
        return None
    return float(struct.unpack(shape, raw)[0])


READER = EventReader
