# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Profiles: measured operator times by region height, with the device they belong to."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from intradp_ros.core.json_text import parse_json
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES
from intradp_ros.power.power_states import PowerStates, XAVIER_NX
from intradp_ros.split.calls.tuning import Tuning
from intradp_ros.wire.cutting import chunk_count

#: Bytes of the chunks that encodings and moving are measured with.
CHUNK_BYTES = 30_000
#: Raised whenever a profile of the old kind would be misread.
FORMAT = 4
#: Seconds above which a time is none: 11 days.
LONGEST = 1e6


def significant(measured: float) -> float:
    """Return a measurement without the digits that say nothing: profiles cross the link."""
    return float(f'{measured:.4g}')


@dataclass(frozen=True, slots=True)
class OperatorTiming:
    """
    Seconds of one operator at several region heights (ascending, from 1 or more).

    `seconds` are typical ones (medians), which plans use; `least` are the
    shortest that were seen, empty where nobody noted them.  `once` is what
    each of `seconds` holds of the first call since other operators ran: so
    much less an operator takes that is called again at once.
    """

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    least: tuple[float, ...] = ()
    once: float = 0.0

    def table(self, rows: int) -> npt.NDArray[np.float64]:
        """
        Return seconds for 0 to `rows` rows, shape (rows + 1,).

        Between measured heights it is linear; below the lowest one it keeps
        that height's slope to the next, but never falls under half of the
        lowest time, because a kernel has a fixed cost; of `once` all is left.
        """
        heights = np.asarray(self.rows, dtype=np.float64)
        seconds = np.asarray(self.seconds, dtype=np.float64)
        wanted = np.arange(rows + 1, dtype=np.float64)
        table = np.interp(wanted, heights, seconds)
        if len(heights) > 1:
            slope = max(0.0, (seconds[1] - seconds[0]) / (heights[1] - heights[0]))
            low = wanted < heights[0]
            table[low] = np.maximum(seconds[0] - slope * (heights[0] - wanted[low]),
                                    (seconds[0] + self.once) / 2)
        table[0] = 0.0
        return table


@dataclass(frozen=True, slots=True)
class EncodingTiming:
    """
    What an encoding does to a value on a device.

    `ratio` of its bytes are left; `encode` and `decode` are seconds for each
    of its bytes.
    """

    ratio: float
    encode: float
    decode: float


@dataclass(frozen=True, slots=True)
class TransportCost:
    """
    Processor seconds that moving rows costs a side, not counting encoding and decoding.

    For each chunk and each of its bytes, sent (with what its acknowledgement
    costs) and received.
    """

    send_chunk: float = 0.0
    send_byte: float = 0.0
    receive_chunk: float = 0.0
    receive_byte: float = 0.0

    def sending(self, nbytes: int, piece: int = LEAST_CHUNK_BYTES, ratio: float = 1.0) -> float:
        """Return seconds of sending a transfer in pieces of which `ratio` crosses each."""
        return chunk_count(nbytes, piece) * self.send_chunk + ratio * nbytes * self.send_byte

    def receiving(self, nbytes: int, piece: int = LEAST_CHUNK_BYTES, ratio: float = 1.0) -> float:
        """Return seconds of receiving a transfer in pieces of which `ratio` crosses each."""
        return chunk_count(nbytes, piece) * self.receive_chunk + ratio * nbytes * self.receive_byte

    def scaled(self, factor: float) -> TransportCost:
        """Return what it costs a device that takes `factor` times as long."""
        return TransportCost(*(factor * seconds for seconds in astuple(self)))


@dataclass(frozen=True, slots=True)
class JoinCost:
    """Seconds of putting rows of several pieces together: `once`, and for each `byte`."""

    once: float = 0.0
    byte: float = 0.0

    def seconds(self, times: int, nbytes: int) -> float:
        """Return what it takes so many times, to so many bytes in all."""
        return times * self.once + nbytes * self.byte

    def scaled(self, factor: float) -> JoinCost:
        """Return what it takes a device that takes `factor` times as long."""
        return JoinCost(factor * self.once, factor * self.byte)


@dataclass(frozen=True)
class Profile:
    """
    Operator times of one model, split along one axis, on one device.

    Times are typical ones: medians of what operators took in turn, as an
    inference runs them.  `least_seconds` is the shortest time of the whole
    graph (the sum of each operator's), and `spread` the range between the quartiles
    of its times, as a part of `whole_seconds`; 0 where nobody noted them.

    `scale` corrects the sum of single operators to the measured time of the
    whole graph (`whole_seconds`), as caches are shared between operators.
    `encodings` has an entry for each value of the graph: what those encodings
    do to it that this device has, and that can carry it.

    The times are those of the kernels that `tuning` names: inferences must
    run by the same.

    `cores` are those that the process could use: if they are no more than
    its threads, then what moves bytes (`moving`) makes operators wait.  0, or
    costs of 0, where that was not measured.  `joining` is what it takes where an
    operator reads rows of several pieces.
    """

    digest: str
    axis: int
    device: str
    threads: int
    timings: tuple[OperatorTiming, ...]
    whole_seconds: float
    scale: float = 1.0
    power: PowerStates = XAVIER_NX
    encodings: tuple[Mapping[str, EncodingTiming], ...] = ()
    tuning: Tuning = field(default_factory=Tuning)
    cores: int = 0
    moving: TransportCost = TransportCost()
    least_seconds: float = 0.0
    spread: float = 0.0
    joining: JoinCost = JoinCost()

    @property
    def crowded(self) -> bool:
        """Return whether what moves bytes has no core of its own."""
        return 0 < self.cores <= self.threads

    def to_json(self) -> str:
        """Return the profile as JSON text."""
        return json.dumps({'format': FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """
        Read what `to_json` wrote.

        :raises ValueError: if the text is not a profile, or one of another format.
        """
        try:
            return cls._from_dict(parse_json(text, None))
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f'not a profile: {error!r}') from error

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> Profile:
        if not isinstance(data, Mapping) or 'timings' not in data:
            raise ValueError('not a profile: it has no timings')
        if data.get('format') != FORMAT:
            raise ValueError(f'a profile of format {data.get("format", 1)!r}, wanted {FORMAT}: '
                             'measure it anew')
        timings = tuple(_timing(t) for t in data['timings'])
        profile = cls(str(data['digest']), int(data['axis']), str(data['device']),
                      int(data['threads']), timings,
                      float(data['whole_seconds']), float(data['scale']),
                      _power(data['power']),
                      tuple(_encodings(e) for e in data['encodings']), _tuning(data['tuning']),
                      int(data.get('cores', 0)), _moving(data.get('moving', {})),
                      float(data.get('least_seconds', 0.0)), float(data.get('spread', 0.0)),
                      _joining(data.get('joining', {})))
        if not (0 < profile.whole_seconds < LONGEST and 0 < profile.scale < LONGEST):
            raise ValueError('not a profile: times must be positive, and below '
                             f'{LONGEST:g} seconds')
        if not (0 <= profile.least_seconds < LONGEST and 0 <= profile.spread < LONGEST):
            raise ValueError(f'not a profile: shortest time {profile.least_seconds} s, '
                             f'spread {profile.spread}')
        if profile.axis < 0 or profile.threads < 1 or profile.cores < 0:
            raise ValueError(f'not a profile: axis {profile.axis}, {profile.threads} threads, '
                             f'{profile.cores} cores')
        return profile


def _power(data: Mapping[str, Any]) -> PowerStates:
    power = PowerStates(**data)
    watts = (power.compute, power.send, power.idle, power.receive or 0.0)
    if not all(0 <= float(w) < float('inf') for w in watts):
        raise ValueError(f'not a profile: bad power: {power}')
    return power


def _tuning(data: Mapping[str, Any]) -> Tuning:
    variants = {str(name): str(variant) for name, variant in data['variants'].items()}
    return Tuning(bool(data['channels_last']), variants)


def _joining(data: Mapping[str, Any]) -> JoinCost:
    joining = JoinCost(**{str(name): float(seconds) for name, seconds in data.items()})
    if not all(0 <= seconds < LONGEST for seconds in astuple(joining)):
        raise ValueError(f'not a profile: bad cost of joining rows: {joining}')
    return joining


def _moving(data: Mapping[str, Any]) -> TransportCost:
    moving = TransportCost(**{str(name): float(seconds) for name, seconds in data.items()})
    if not all(0 <= seconds < float('inf') for seconds in astuple(moving)):
        raise ValueError(f'not a profile: bad cost of moving bytes: {moving}')
    return moving


def _timing(data: Mapping[str, Any]) -> OperatorTiming:
    rows, seconds = tuple(map(int, data['rows'])), tuple(map(float, data['seconds']))
    least, once = tuple(map(float, data.get('least', ()))), float(data.get('once', 0.0))
    ascending = all(a < b for a, b in zip(rows, rows[1:]))
    positive = all(0 <= s < LONGEST for s in (*seconds, *least, once))
    lengths = len(rows) == len(seconds) and len(least) in (0, len(rows))
    if not rows or not lengths or rows[0] < 1 or not ascending or not positive:
        raise ValueError(f'not a profile: bad timing {rows} {seconds} {least} {once}')
    return OperatorTiming(rows, seconds, least, once)


def _encodings(data: Mapping[str, Mapping[str, Any]]) -> dict[str, EncodingTiming]:
    found = {str(name): EncodingTiming(float(t['ratio']), float(t['encode']), float(t['decode']))
             for name, t in data.items()}
    for name, t in found.items():
        if not (0 < t.ratio <= 1 and 0 <= t.encode < float('inf')
                and 0 <= t.decode < float('inf')):
            raise ValueError(f'not a profile: bad timing of {name}: {t}')
    return found
