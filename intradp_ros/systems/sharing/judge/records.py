# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the kernels read and write: records of tables of numbers.

All tables of a record stand one behind the other in `x` (whole numbers) or
`y` (seconds, bytes, fractions), so that a record is cheap to pass on; its
other fields say where each table starts: entry `k` of the table `rows` of a
record `t` is ``t.x[t.rows + k]``.  Sides are numbered, 0 is the robot, 1 the
server.  Where there is something for each operator of each side it is that
of ``side * operators + operator``, and so on.  `x` and `y` are lists when
the kernels run as plain Python, and arrays when they are compiled.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Numbers = Any
Table = Sequence[int] | Sequence[float] | npt.NDArray[np.generic] | int
Record = TypeVar('Record', bound=tuple[Any, ...])


class Tables(NamedTuple):
    """
    A split graph.

    Operator `i` has `rows` rows.  What it reads are the entries ``reads[i]``
    to ``reads[i + 1]`` of `read_value`, `read_map` (where in `first` and
    `last` its row map starts) and `ascending` (whether the ends of a region
    tell what it needs); what it makes are those of `made` likewise.
    `producer` is -1 for the inputs.  Rows of a value have `row_bytes` each,
    but one record of a folded value has all of its `record_bytes` (0 for the
    others).  Tables end where their field with `_end` says.
    """

    x: Numbers
    operators: int
    values: int
    rows: int
    reads: int
    read_value: int
    read_map: int
    ascending: int
    first: int
    last: int
    makes: int
    made: int
    value_rows: int
    producer: int
    row_bytes: int
    record_bytes: int
    inputs: int
    inputs_end: int
    outputs: int
    outputs_end: int


class Layout(NamedTuple):
    """
    A partition.

    By stage: `stops` and `share`.  By stage of each side: the entries
    ``cuts[k]`` to ``cuts[k + 1]`` of `cut` say which fraction of a stage's
    rows is done after each band; `upward` and `by_input` are flags.
    """

    x: Numbers
    y: Numbers
    stages: int
    stops: int
    cuts: int
    upward: int
    by_input: int
    share: int
    cut: int


class Work(NamedTuple):
    """
    Scratch tables and results of the kernels; regions are ``lo:hi``.

    By operator of each side: what it computes (`done_...`), its first and
    last step.  By value of each side: what is read in the stage that makes
    it (`near_...`) and by later stages (`far_...`), and of the latter what
    the side did not compute itself (`lack_...`); its first transfer to the
    side, and how many there are.  `steps` and `entries` are the room for the
    steps of a side and the entries of its program.
    """

    x: Numbers
    steps: int
    entries: int
    done_lo: int
    done_hi: int
    first_step: int
    last_step: int
    near_lo: int
    near_hi: int
    far_lo: int
    far_hi: int
    lack_lo: int
    lack_hi: int
    piece_first: int
    piece_count: int
    edge: int
    stage: int
    progress: int
    goal: int
    mark: int
    counts: int
    step_op: int
    step_lo: int
    step_hi: int
    step_next: int
    transfer_value: int
    transfer_lo: int
    transfer_hi: int
    transfer_source: int
    transfer_state: int
    input_order: int
    kind: int
    item: int
    lo: int
    rows: int


class LinkCost(NamedTuple):
    """
    What crossing the link costs, by source.

    It has a `lane`, which carries one transfer at a time: `rate` in bytes
    per second, `overhead` seconds for each transfer, and `delay` seconds
    until it arrives.  By value: which part of its bytes cross (`ratio`).  By
    value of each source: seconds of encoding and decoding for a plain byte.

    What takes time from operators, where a side has no free core: seconds
    of `send` at the source and `receive` at the target, two for each source
    (for a chunk of `chunk` bytes and for a byte), and whether encoding and
    decoding do (1 or 0).
    """

    x: Numbers
    y: Numbers
    lane: int
    rate: int
    overhead: int
    delay: int
    ratio: int
    encode: int
    decode: int
    send: int
    receive: int
    encodes: int
    decodes: int
    chunk: int


class Charges(NamedTuple):
    """
    What steps cost, in seconds.

    An operator takes ``compute[side * total + at[operator] + rows]``.  A
    transfer takes `encode` before it takes `occupy` of its `lane`, and is
    there `later`; meanwhile its devices go on, but for the seconds that they
    `send` and `receive`.  Its bytes are only counted.
    """

    x: Numbers
    y: Numbers
    total: int
    at: int
    lane: int
    bytes: int  # noqa: A003
    compute: int
    encode: int
    occupy: int
    later: int
    send: int
    receive: int


class Programs(NamedTuple):
    """
    Entries ``start[side]`` to ``stop[side]`` are the program of a side.

    An entry is of a `kind`; `item` is its operator (then there are `rows`)
    or its transfer.
    """

    x: Numbers
    start: int
    stop: int
    kind: int
    item: int
    rows: int


class Clock(NamedTuple):
    """
    When what happens, in seconds.

    By side: the time that it has come to, how long it was `busy` computing
    and `sending` (its transfers on the link), the bytes `sent`, and its
    `place` in its program.  By lane: from when on it is `free`.  By entry and
    by transfer: from when to when.
    """

    x: Numbers
    y: Numbers
    place: int
    sent: int
    now: int
    busy: int
    sending: int
    free: int
    began: int
    ended: int
    left: int
    arrived: int


def pack(kind: type[Record], ints: Mapping[str, Table], reals: Mapping[str, Table] | None = None,
         **numbers: int) -> Record:
    """
    Make a record of tables, as arrays; `numbers` are fields that are no tables.

    In place of a table there may be a number: that many zeros.
    """
    fields: dict[str, Any] = dict(numbers)
    for data, dtype, tables in (('x', np.int64, ints), ('y', np.float64, reals or {})):
        end = 0
        for name, table in tables.items():
            fields[name] = end
            end += table if isinstance(table, int) else len(table)
            fields[f'{name}_end'] = end
        fields[data] = np.concatenate([_array(table, dtype) for table in tables.values()]
                                      or [np.zeros(0, dtype)])
    return kind(*(fields[name] for name in kind._fields))  # type: ignore[attr-defined]


def _array(table: Table, dtype: type[np.generic]) -> npt.NDArray[np.generic]:
    return np.zeros(table, dtype) if isinstance(table, int) else np.asarray(table, dtype)


def as_lists(record: Record) -> Record:
    """Return a record of lists in place of arrays."""
    return type(record)(*(
        item.tolist() if isinstance(item, np.ndarray) else item for item in record))
