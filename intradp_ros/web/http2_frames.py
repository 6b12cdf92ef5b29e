# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a client sends by HTTP/2, looked at before gRPC does.

A path that is no UTF-8 ends gRPC's server and all of its calls; a value that is none is logged,
be it a key.  So headers that are not ASCII are not let through.
"""
from __future__ import annotations

import re

import hpack

#: Bytes of HTTP/2's first words and of a frame's head, its kinds, and flags of these.
PREFACE, FRAME, HEADERS, CONTINUATION = 24, 9, 1, 9
END_HEADERS, PADDED, PRIORITY = 4, 8, 32
#: Bytes of a block of headers, coded or not, a few times as many as gRPC takes.
MAX_BLOCK = 1 << 16
_PLAIN = re.compile(rb'[ -~]*')


class HeadersError(ValueError):
    """Headers that are not taken."""


class Frames:
    """Finds where calls begin in what a client sends, and looks at all headers."""

    def __init__(self) -> None:
        self._left, self._rest = PREFACE, b''  # bytes of a frame to come; a part of a head
        self._is_headers, self._ends = False, False
        self._block, self._skipped = bytearray(), 0
        self._headers = hpack.Decoder(max_header_list_size=MAX_BLOCK)

    def calls(self, data: bytes) -> list[int]:
        """
        Return the places in what follows at which headers begin.

        :raises HeadersError: if some are not ASCII, or not understood: nothing of this may be let
            through.
        """
        past, found, at = len(self._rest), [], 0
        data = self._rest + data
        while True:
            end = min(at + self._left, len(data))
            self._left -= end - at
            if self._is_headers:
                self._take(data[at:end])
            at = end
            if self._left or at + FRAME > len(data):
                break
            self._left, kind = int.from_bytes(data[at:at + 3], 'big'), data[at + 3]
            if kind == HEADERS:
                found.append(max(0, at - past))
            self._begin(kind, data[at + 4])
            at += FRAME
        self._rest = data[at:]
        return found

    def _begin(self, kind: int, flags: int) -> None:
        """Begin a frame."""
        self._is_headers = kind in (HEADERS, CONTINUATION)
        self._ends = bool(flags & END_HEADERS)
        if kind == HEADERS:
            if flags & PADDED:
                raise HeadersError('padded headers')  # gRPC takes the padding for headers
            self._block, self._skipped = bytearray(), 5 if flags & PRIORITY else 0

    def _take(self, part: bytes) -> None:
        """Take some bytes of headers; look at them where they are complete."""
        self._block += part
        if len(self._block) > MAX_BLOCK:
            raise HeadersError(f'more than {MAX_BLOCK} bytes of headers')
        if self._ends and not self._left:
            self._is_headers = False
            try:
                found = self._headers.decode(bytes(self._block[self._skipped:]), raw=True)
            except hpack.HPACKError:  # its text names places in memory
                raise HeadersError('headers that are not understood') from None
            if not all(_PLAIN.fullmatch(text) for pair in found for text in pair):
                raise HeadersError('headers that are not ASCII')
            self._block.clear()


def goodbye(reason: str) -> bytes:
    """Return the frame that ends a connection, with the reason."""
    said = bytes(7) + b'\1' + reason.encode()  # the last call that counts: none; error of protocol
    return len(said).to_bytes(3, 'big') + b'\7' + bytes(5) + said
