# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How large and how odd what arrives from outside may be: every limit, in one place.

All are checked before anything is built from a message.  They are well above
what real models need, and low enough that a stranger's message costs little.
"""
from __future__ import annotations

from collections.abc import Mapping
import math

#: Bytes of a text (a book; a graph or profile) once it is unpacked.
MAX_BOOK_TEXT, MAX_MODEL_TEXT = 1 << 20, 4 << 20
#: Objects and lists in such a text: what parsing it costs.
MAX_CONTAINERS = 1 << 17
#: Characters of the body of a control frame, by its kind; of others `MAX_BODY`.
MAX_BODY = 1 << 12
MAX_BODIES: Mapping[str, int] = {'HELLO': 1 << 14, 'WELCOME': 1 << 14, 'BOOK': 1 << 20,
                                 'REPORT': 1 << 20, 'PREPARE': 1 << 18,
                                 'HEARTBEAT': 1 << 14, 'LINES': 1 << 14}
#: Bytes of a serialised message in addition to those of its longest text or data.
MESSAGE_MARGIN = 1 << 14
#: Operators of a graph; rows of all its values together, along the longest dimension of each, and
#: once for every value that they are computed from.
MAX_OPERATORS, MAX_ROWS = 1 << 15, 1 << 22
#: Weights of rows that an interpolation combines; one that has more is not split.
MAX_TAPS = 1 << 22
#: Elements of one value, and its dimensions.
MAX_ELEMENTS, MAX_DIMENSIONS = 1 << 31, 16
#: Bytes of one weight that is fetched from another device.
MAX_BLOB = 1 << 36
#: Bytes of a file that is read as a whole, such as a tokenizer; who names it names its size.
MAX_FILE = 64 << 20
#: Devices of a fleet that another has a channel to: each takes two threads and a MB.
MAX_PEERS = 64
#: Seconds above which a time is none (11 days), and one way of a link.
MAX_SECONDS, MAX_DELAY = 1e6, 10.0
#: Mbit/s, and bytes per second, that no link carries.
MAX_MBPS, MAX_RATE = 1e6, 1e11


def within(what: str, number: float, low: float, high: float) -> float:
    """
    Return a number that arrived.

    :raises ValueError: if it is not within its range; no NaN is.
    """
    if not low <= number <= high:
        if isinstance(number, int) and abs(number) >= 10 ** 300:  # more than a float has
            raise ValueError(f'{what} has {len(str(abs(number)))} digits')
        shown = (f'{each:.0f}' if each == round(each, 0) and abs(each) < 1e15 else f'{each:g}'
                 for each in (low, high, number))
        raise ValueError('{} must be within {}..{}, got {}'.format(what, *shown)
                         if math.isfinite(number) else f'{what} is {number}')
    return number


def check_text(text: str, most: int) -> str:
    """
    Return a JSON text that arrived, ready to be parsed.

    :raises ValueError: if it is longer than `most`, or holds more objects and lists than any of
        ours.
    """
    if len(text) > most:
        raise ValueError(f'a text of {len(text)} characters, at most {most} are taken')
    containers = text.count('[') + text.count('{')
    if containers > MAX_CONTAINERS:
        raise ValueError(f'a text of {containers} lists and objects, at most {MAX_CONTAINERS} '
                         'are taken')
    return text
