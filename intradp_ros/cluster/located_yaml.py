# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""YAML of unknown origin, read so that every complaint names its line and what would do."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
import math
import re

import yaml

MAX_BYTES, MAX_ENTRIES, MAX_TEXT, MAX_DEPTH = 1 << 20, 4096, 256, 32
_OPENS = (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken, yaml.BlockSequenceStartToken,
          yaml.BlockMappingStartToken)
_CLOSES = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)

_UNITS: Mapping[str, Mapping[str, float]] = {
    'an amount of memory': {
        'B': 1, 'kB': 1e3, 'MB': 1e6, 'GB': 1e9, 'TB': 1e12,
        'KiB': 2**10, 'MiB': 2**20, 'GiB': 2**30},
    'a rate': {
        'bit/s': 1 / 8, 'kbit/s': 125.0, 'Mbit/s': 125e3, 'Gbit/s': 125e6,
        'B/s': 1, 'kB/s': 1e3, 'MB/s': 1e6, 'GB/s': 1e9},
    'a time': {'s': 1, 'ms': 1e-3, 'us': 1e-6},
    'an energy': {'J': 1, 'kJ': 1e3, 'Wh': 3600, 'kWh': 3.6e6},
}
MEMORY, RATE, TIME, ENERGY = _UNITS
#: The least and the most, in base units, that a machine or a link may have.
_RANGES = {MEMORY: (1.0, 1e15), RATE: (1.0, 1e12), TIME: (1e-9, 1e6), ENERGY: (1e-3, 1e12)}
#: The least above 0, and the most, of other numbers.
LEAST_NUMBER, MOST_NUMBER = 1e-6, 1e9


class FleetFileError(ValueError):
    """A file that cannot be used: where, why, and what would do."""


@dataclass(frozen=True, slots=True)
class Located:
    """A node of a file, and its place in words (``devices.robot1.memory``)."""

    node: yaml.Node
    file: str
    place: str = ''

    def fail(self, cause: str) -> FleetFileError:
        """Return an error that names file, line and place."""
        where = f'{self.place}: ' if self.place else ''
        return FleetFileError(f'{self.file}:{self.node.start_mark.line + 1}: {where}{cause}')

    def inside(self, key: str, node: yaml.Node) -> Located:
        """Return a node of this one."""
        return Located(node, self.file, f'{self.place}.{key}' if self.place else key)

    def entries(self) -> Iterator[tuple[str, Located]]:
        """
        Yield the keys and values of a mapping.

        :raises FleetFileError: if it is none, or a key is not a text or stands twice.
        """
        if not isinstance(self.node, yaml.MappingNode):
            raise self.fail('write "key: value" lines here')
        if len(self.node.value) > MAX_ENTRIES:
            raise self.fail(f'there are {len(self.node.value)} entries, at most {MAX_ENTRIES} '
                            'are read')
        seen: set[str] = set()
        for key, value in self.node.value:
            name = Located(key, self.file, self.place).text()
            if name in seen:
                raise self.inside(name, key).fail('stands here a second time: remove one of them')
            seen.add(name)
            yield name, self.inside(name, value)

    def fields(self, known: Sequence[str], needed: Sequence[str] = ()) -> dict[str, Located]:
        """Return the fields of a mapping; raise FleetFileError where one is unknown or missing."""
        found = dict(self.entries())
        for name, value in found.items():
            if name not in known:
                raise value.fail(f'unknown; write one of: {", ".join(known)}')
        for name in needed:
            if name not in found:
                raise self.fail(f'lacks "{name}": add a line "{name}: ..."')
        return found

    def text(self) -> str:
        """Return a text of 1 to 256 characters."""
        if not isinstance(self.node, yaml.ScalarNode) or len(self.node.value) > MAX_TEXT \
                or not self.node.value.strip():
            raise self.fail(f'write a text of 1 to {MAX_TEXT} characters')
        if not self.node.value.isprintable():
            raise self.fail(f'{ascii(self.node.value)} has control characters: remove them')
        return str(self.node.value)

    def names(self) -> tuple[str, ...]:
        """Return a list of texts."""
        if not isinstance(self.node, yaml.SequenceNode) or len(self.node.value) > MAX_ENTRIES:
            raise self.fail('write a list of names: [a, b]')
        return tuple(self.inside(str(k), item).text() for k, item in enumerate(self.node.value))

    def number(self, least: float = 0.0, above: bool = False) -> float:
        """Return a finite number of `least` or more, or above it."""
        try:
            found = float(self.text())
        except ValueError:
            found = math.nan
        if not (least < found if above else least <= found) or math.isinf(found):
            raise self.fail(f'write a number {"above" if above else "of at least"} {least:g}, '
                            f'not {self.text()!r}')
        if found and not LEAST_NUMBER <= abs(found) <= MOST_NUMBER:
            raise self.fail(f'write a number from {LEAST_NUMBER:g} to {MOST_NUMBER:g}, '
                            f'not {self.text()!r}')
        return found

    def whole(self, least: int) -> int:
        """Return a whole number of `least` or more."""
        found = self.number(least)
        if found != int(found):
            raise self.fail(f'write a whole number of at least {least}, not {self.text()!r}')
        return int(found)

    def quantity(self, kind: str, above: bool = True) -> float:
        """Return an amount in base units: bytes, bytes per second, seconds or joules."""
        units = _UNITS[kind]
        parts = re.fullmatch(r'\s*([-+\d.]+(?:[eE][-+]?\d+)?)\s*(\D.*?)\s*', self.text())
        try:
            found = float(parts[1]) * units[parts[2]] if parts else math.nan
        except (KeyError, ValueError):
            found = math.nan
        if not (found > 0 if above else found >= 0) or math.isinf(found):
            raise self.fail(f'write {kind}, a number and one of {", ".join(units)}, '
                            f'not {self.text()!r}')
        least, most = _RANGES[kind]
        if found and not least <= found <= most:
            unit = next(iter(units))
            raise self.fail(f'write {kind} from {least / units[unit]:g} to {most / units[unit]:g} '
                            f'{unit}, not {self.text()!r}')
        return found


def _scan(text: str, file: str) -> None:
    """
    Refuse anchors, and what nests too deeply.

    For each token of a flow collection the scanner looks at all that are
    open: 100,000 open brackets took it more than a minute.
    """
    depth = 0
    for token in yaml.scan(text):
        depth += isinstance(token, _OPENS) - isinstance(token, _CLOSES)
        if depth > MAX_DEPTH:
            raise FleetFileError(f'{file}:{token.start_mark.line + 1}: no YAML that is read here: '
                                 f'more than {MAX_DEPTH} levels')
        if isinstance(token, yaml.AliasToken):
            raise FleetFileError(f'{file}:{token.start_mark.line + 1}: anchors (&, *) are not '
                                 'read: write the values out')


def parse(text: str, file: str, wanted: str = 'devices and networks') -> Located:
    """
    Return the top of a file; `wanted` says what an empty one lacks.

    :raises FleetFileError: if it is not YAML, too long or too deep, empty, or uses anchors.
    """
    if len(text.encode()) > MAX_BYTES:
        raise FleetFileError(f'{file}: longer than {MAX_BYTES} bytes')
    try:
        _scan(text, file)
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FleetFileError(f'{file}:{line}: no YAML: {error.problem}') from None
    except yaml.reader.ReaderError as error:
        line = text.count('\n', 0, max(error.position, 0)) + 1
        raise FleetFileError(f'{file}:{line}: has the control character '
                             f'{ascii(chr(error.character))}: remove it') from None
    except (yaml.YAMLError, RecursionError) as error:
        raise FleetFileError(f'{file}: no YAML: {type(error).__name__}') from None
    if node is None:
        raise FleetFileError(f'{file}:1: is empty: name {wanted}')
    return Located(node, file)
