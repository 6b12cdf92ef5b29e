# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the kernels read and write: records of tables with named columns.

A table is a structured array when the kernels are compiled: ``t.operator[i].rows``
is a load from memory.  When they run as plain Python it is a list of rows with
the same names, or, where the kernels fill it, a dictionary whose rows are made
when they are first asked for.  Sides are numbered, 0 is the robot, 1 the
server.  Where there is a row for each operator of each side it is that of
``side * operators + operator``, and so on.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import make_dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Rows = Any     # of a table: a structured array, a list or a dictionary of rows
Numbers = Any  # one for each row: an array, a list or a dictionary
Array = npt.NDArray[Any]
Record = TypeVar('Record', bound=tuple[Any, ...])


def columns(places: str = '', wide: str = '', real: str = '') -> np.dtype[Any]:
    """
    Return the type of a row, by names of its columns.

    `places` are rows, counts and indices, which limits keep below 2**31;
    `wide` are bytes; `real` are seconds and fractions.  HalfPrecision columns keep
    what a search works on in the processor's first caches.
    """
    return np.dtype([*((name, np.int32) for name in places.split()),
                     *((name, np.int64) for name in wide.split()),
                     *((name, np.float64) for name in real.split())], align=True)


class Tables(NamedTuple):
    """
    A split graph.

    `operator` (one row more than there are `operators`) has the operator's
    `rows`; what it reads are the rows `reads` to the next operator's `reads`
    of `read`: the `value`, where in `window` its row map starts (`map`), and
    whether it is `ascending` (then the ends of a region say what it needs).
    `window` has the `first` row and the `last` (not included) that an output
    row needs.  What an operator makes are likewise the values `makes` of
    `made`.  The `producer` of a `value` is -1 for inputs; its rows have
    `row_bytes` each, but one record of a folded value has all of its
    `record_bytes` (0 for the others).  All inputs together have `input_rows`.
    """

    operators: int
    values: int
    operator: Rows
    read: Rows
    window: Rows
    made: Numbers
    value: Rows
    inputs: Numbers
    outputs: Numbers
    input_rows: int


OPERATOR = columns('rows reads makes')
READ = columns('value map ascending')
WINDOW = columns('first last')
VALUE = columns('rows producer', 'row_bytes record_bytes')


class Layout(NamedTuple):
    """
    A partition.

    `stage` has where it stops and the robot's `share`.  By stage of each
    side (and one row more): the numbers `cuts` to the next row's `cuts` of
    `cut` say which fraction of a stage's rows is done after each band;
    `upward` and `by_input` are flags.
    """

    stages: int
    stage: Rows
    part: Rows
    cut: Numbers


STAGE = columns('stop', real='share')
PART = columns('cuts upward by_input')


class Work(NamedTuple):
    """
    Scratch tables and results of the kernels; regions are ``lo`` to ``hi``.

    - `computed`, by operator of each side: what it computes, its first and
      last step.
    - `wanted`, by value of each side: what is read in the stage that makes
      it (`near_...`) and by later stages (`far_...`).
    - `lack`, by value of each side: of what later stages read, what the side
      did not compute itself; its first transfer to the side, and how many
      there are; which rows were put together last (`join_...`).
    - `walk`, by operator: its stage, and how far a side has come and is to
      come in it.
    - `edge`, by value: what a stage reads of earlier ones; `mark`, by row of
      an input: whether it is cut there.
    - `step` and `entry`: those of a side begin at ``side * steps`` and
      ``side * entries``; `side` counts them, and says where the program's
      entries start and stop.
    - `transfer`, and `input_order`: those of inputs, as they are sent;
      `count` has one row, with how many there are of both.
    """

    steps: int
    entries: int
    computed: Rows
    wanted: Rows
    lack: Rows
    walk: Rows
    edge: Rows
    mark: Numbers
    step: Rows
    transfer: Rows
    input_order: Numbers
    entry: Rows
    side: Rows
    count: Rows


WORK: Mapping[str, np.dtype[Any]] = {
    'computed': columns('lo hi first_step last_step'),
    'wanted': columns('near_lo near_hi far_lo far_hi'),
    'lack': columns('lo hi first_piece pieces join_lo join_hi'),
    'walk': columns('stage progress goal'),
    'edge': columns('lo hi'),
    'mark': np.dtype(np.int32),
    'step': columns('operator lo hi next'),
    'transfer': columns('value lo hi source state'),
    'input_order': np.dtype(np.int32),
    'entry': columns('kind item lo rows joins', 'joined'),
    'side': columns('steps entries start stop'),
    'count': columns('transfers inputs'),
}


class LinkCost(NamedTuple):
    """
    What crossing the link costs.

    A `way` (by source) has a `lane`, which carries one transfer at a time:
    `rate` in bytes per second, `overhead` seconds for each transfer, and
    `delay` seconds until it arrives.  By value: which part of its bytes
    cross (`ratio`), and how many of them a chunk has (`chunk`).  By value of
    each source: seconds to `encode` and to `decode` a plain byte (`coding`).

    What takes time from operators, where a side has no free core: seconds
    to send at the source and to receive at the target, for a chunk and for a
    byte, and whether encoding and decoding do (1 or 0).
    """

    way: Rows
    ratio: Numbers
    chunk: Numbers
    coding: Rows


WAY = columns('lane', real='rate overhead delay send_chunk send_byte receive_chunk '
                           'receive_byte encodes decodes')
CODING = columns(real='encode decode')


class StepCosts(NamedTuple):
    """
    What steps cost, in seconds.

    An operator takes ``compute[side * total + first[operator] + rows]``, and
    what putting rows together takes its side: `once`, and for each `byte`.  A
    `transfer` takes `encode` before it takes `occupy` of its `lane`, and is
    there `later`; meanwhile its devices go on, but for the seconds that they
    `send` and `receive`.  Its bytes are only counted.
    """

    total: int
    first: Numbers
    compute: Numbers
    join: Rows
    transfer: Rows


JOIN = columns(real='once byte')
TRANSFER_COST = columns('lane', 'nbytes', 'encode occupy later send receive')


class Programs(NamedTuple):
    """
    Entries `start` to `stop` of a `side` are its program.

    An entry is of a `kind`; `item` is its operator (then there are `rows`, and
    so many `joins` of bytes that are `joined`) or its transfer.
    """

    side: Rows
    entry: Rows


class Clock(NamedTuple):
    """
    When what happens, in seconds.

    By `device`: the time that it has come to (`now`), how long it was `busy`
    computing, how much longer that was for bytes moved meanwhile (`slowed`; of
    what it has sent, `owed` has not met an operator yet), how long `sending`
    (its transfers on the link), the bytes `sent`, and its `place` in its
    program.  By lane: from when on it is `free`.  By `entry` and by
    `transfer`: from when to when.
    """

    device: Rows
    free: Numbers
    entry: Rows
    transfer: Rows


CLOCK: Mapping[str, np.dtype[Any]] = {
    'device': columns('place', 'sent', 'now busy slowed owed sending'),
    'free': np.dtype(np.float64),
    'entry': columns(real='began ended'),
    'transfer': columns(real='left arrived'),
}


def table(row: np.dtype[Any], **given: Sequence[float] | Array) -> Array:
    """
    Make a table of the columns that are given.

    A column may be shorter than the others: its last rows are 0.
    """
    made = np.zeros(max(map(len, given.values())), row)
    for name, column in given.items():
        made[name][:len(column)] = column
    return made


def whole_numbers(items: Sequence[int]) -> Array:
    """Return numbers as compiled kernels take them."""
    return np.array(items, np.int32)


def as_plain(record: Record) -> Record:
    """Return a record whose tables are lists, for kernels that run as plain Python."""
    return type(record)(*(
        plain_rows(item) if isinstance(item, np.ndarray) else item for item in record))


def plain_rows(rows: Array) -> list[Any]:
    """Return a table as a list: of rows with attributes, or of numbers."""
    if not rows.dtype.names:
        return list(rows.tolist())
    make = row_class(rows.dtype)
    return [make(*row) for row in rows.tolist()]


class PlainScratch(dict[int, Any]):
    """A table of which each row is made, of zeros, when it is first asked for."""

    def __init__(self, row: np.dtype[Any]) -> None:
        super().__init__()
        self._make = row_class(row) if row.names else row.type(0).item

    def __missing__(self, at: int) -> Any:
        """Make a row."""
        made = self[at] = self._make()
        return made


@cache
def row_class(row: np.dtype[Any]) -> Callable[..., Any]:
    """Return a class with the columns of a table as attributes, zero if they are not given."""
    names: tuple[str, ...] = row.names or ()
    return make_dataclass('Row', [
        (name, float, row[name].type(0).item()) for name in names], slots=True)
