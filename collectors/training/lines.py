"""Text that comes in pieces, read line by line with bounded memory."""

from __future__ import annotations

import codecs
from typing import Final

from stoploss.collectors.training.records import Reader

LONGEST_LINE: Final = 1 << 20
"""Characters of a line that is still read; a longer one is skipped."""


class LineReader(Reader):
    """A reader of text, which gets one line after the other."""

    def __init__(self, subject: str = "") -> None:
        super().__init__(subject)
        self._decoder: codecs.IncrementalDecoder | None = None
        self._rest = ""
        self._skipping = False

    def line(self, text: str) -> None:
        """Read one line, which does not hold its end."""
        raise NotImplementedError

    def feed(self, data: bytes) -> None:
        """Go on with the next bytes; what follows the last line end waits for more."""
        if not data:
            return
        if self._decoder is None:
            self._decoder = decoder_of(data)
        text = self._decoder.decode(data)
        if "\ufffd" in text:
            self.notes.add("bytes that are no text in this encoding were replaced")
        if "\r" in text:
            # Progress bars end what they print with a carriage return.
            text = text.replace("\r", "\n")
        lines = (self._rest + text).split("\n")
        self._rest = lines.pop()
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif len(line) > LONGEST_LINE:
                self._too_long()
            elif line:
                self.line(line)
        if len(self._rest) > LONGEST_LINE:
            if not self._skipping:
                self._too_long()
            self._skipping, self._rest = True, ""

    def end(self) -> None:
        """Read the last line, also where it has no end."""
        rest, self._rest = self._rest, ""
        if rest and not self._skipping:
            self.line(rest)
        self._skipping = False

    def restart(self) -> None:
        """A new file begins."""
        self.end()
        self._decoder = None

    def _too_long(self) -> None:
        self.notes.add(f"a line of more than {LONGEST_LINE:,} characters was left out")


def decoder_of(head: bytes) -> codecs.IncrementalDecoder:
    """What turns the bytes of a file with that beginning into text: UTF-8, or UTF-16 where a mark says so."""
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return codecs.getincrementaldecoder("utf-16" if marked else "utf-8-sig")(errors="replace")


def text_of(head: bytes) -> str:
    """The beginning of a file as text."""
    return decoder_of(head).decode(head).replace("\r\n", "\n").replace("\r", "\n")


def is_binary(text: str) -> bool:
    """Whether what was decoded is no text, by what is no character in it; a few such occur in torn logs."""
    return (text.count("\ufffd") + text.count("\0")) * 10 > len(text)
