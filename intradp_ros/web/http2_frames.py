# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a client sends by HTTP/2, looked at before gRPC does.

A path that is no UTF-8 ends gRPC's server and all of its calls; a value that is none is logged,
be it a key.  So headers that are not ASCII are not let through.  Only what stands in a block
itself is looked at: all that its indices name was in a block before, or is HTTP/2's own.
"""
from __future__ import annotations

from collections.abc import Iterator
import re

#: Bytes of HTTP/2's first words and of a frame's head, its kinds, and flags of these.
PREFACE, FRAME, HEADERS, CONTINUATION = 24, 9, 1, 9
END_HEADERS, PADDED, PRIORITY = 4, 8, 32
#: Bytes of a block of headers, a few times as many as gRPC takes.
MAX_BLOCK = 1 << 16
_PLAIN = re.compile(rb'[ -~]*')
#: Characters by the bits of their codes (RFC 7541, appendix B); of others codes are longer.
_CODES = {5: '012aceiost', 6: ' %-./3456789=A_bdfghlmnpru',
          7: ':BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz', 8: '&*,;XZ', 10: '!"()?', 11: "'+|", 12: '#>',
          13: '\0$@[]~', 14: '^}', 15: '<`{', 19: '\\'}


class HeadersError(ValueError):
    """Headers that are not taken."""


class Frames:
    """Finds where calls begin in what a client sends, and looks at all headers."""

    def __init__(self) -> None:
        self._left, self._rest = PREFACE, b''  # bytes of a frame to come; a part of a head
        self._is_headers, self._ends = False, False
        self._block, self._skipped = bytearray(), 0

    def calls(self, data: bytes) -> list[int]:
        """
        Return the places in what follows at which headers begin.

        :raises HeadersError: if some are not ASCII, or not understood: nothing of this may be let
            through.
        """
        past, found, at = len(self._rest), [], 0
        data = self._rest + data
        while True:
            part = data[at:at + self._left]
            at, self._left = at + len(part), self._left - len(part)
            if self._is_headers:
                self._take(part)
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
            if not all(map(_is_ascii, _texts(bytes(self._block[self._skipped:])))):
                raise HeadersError('headers that are not ASCII')
            self._block.clear()


def goodbye(reason: str) -> bytes:
    """Return the frame that ends a connection, with the reason."""
    said = bytes(7) + b'\1' + reason.encode()  # the last call that counts: none; error of protocol
    return len(said).to_bytes(3, 'big') + b'\7' + bytes(5) + said


def _texts(block: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield names and values that stand in a block of headers, and whether they are in codes."""
    at = 0
    try:
        while at < len(block):
            first = block[at]
            bits = 7 if first & 0x80 else 6 if first & 0x40 else 5 if first & 0x20 else 4
            index, at = _number(block, at, bits)
            for _ in range(0 if bits in (7, 5) else 1 if index else 2):
                coded = bool(block[at] & 0x80)
                length, at = _number(block, at, 7)
                text, at = block[at:at + length], at + length
                if at > len(block):
                    raise IndexError
                yield text, coded
    except IndexError:
        raise HeadersError('headers that break off') from None


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return a number that begins with the last bits of a byte, and where it ends."""
    most = (1 << bits) - 1
    value, at = block[at] & most, at + 1
    if value < most:
        return value, at
    for k in range(4):
        value += (block[at + k] & 0x7f) << 7 * k
        if block[at + k] < 0x80:
            return value, at + k + 1
    raise HeadersError('headers with a number that is too large')


def _is_ascii(text: tuple[bytes, bool]) -> bool:
    data, coded = text
    if not coded:
        return _PLAIN.fullmatch(data) is not None
    return _CODED.fullmatch(f'{int.from_bytes(data, "big"):0{8 * len(data)}b}' if data else '') \
        is not None


def _coded() -> re.Pattern[str]:
    """Return what matches the bits of texts of printable ASCII in codes."""
    code, last, found = 0, 0, dict[str, str]()
    for bits, characters in _CODES.items():
        for character in characters:
            code <<= bits - last
            last = bits
            if character >= ' ':
                found[f'{code:0{bits}b}'] = ''
            code += 1

    def tree(prefix: str) -> str:
        if prefix in found:
            return ''
        ways = [bit + tree(prefix + bit) for bit in '01'
                if any(known.startswith(prefix + bit) for known in found)]
        return f'(?:{"|".join(ways)})' if len(ways) > 1 else ways[0]
    return re.compile(f'(?:{tree("")})*+1{{0,7}}')


_CODED = _coded()
