# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a stranger's messages cost: the seal of each chunk, and a million mutated messages.

Real messages (a chunk, a control frame, an acknowledgement, a book, a profile)
are mutated (`mutation.py`).  Each goes through what a node does with it until something is made of
it, in this process, without the middleware.  Counted are those refused and
taken, and the growth of memory; anything but a refusal ends the benchmark.
"""
from __future__ import annotations

import argparse
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
import json
from random import Random
import resource
import time
from typing import Any

from mutation import mutated
from rclpy.serialization import deserialize_message, serialize_message
import torch
from torch import nn

from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.limits import MAX_BOOK_TEXT
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.convert import chunk_from_message, control_from_message
from intradp_ros.dds.sealer import Sealer
from intradp_ros.msg import ChunkAck, OperatorProfile, ScheduleBook, SessionControl, TensorChunk
from intradp_ros.nodes.sharing.profile_publisher import check_profile, profile_message
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.runtime.models.model import share_module
from intradp_ros.systems.sharing.book.book import Entry
from intradp_ros.systems.sharing.book.book import ScheduleBook as Book
from intradp_ros.systems.sharing.partition.partition import local
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
)
from intradp_ros.wire.frames import MalformedFrameError
from intradp_ros.wire.texts import packed, unpacked

SIZES = (1_000, 15_000, 60_000, 120_000)
#: Books and profiles take milliseconds each: one of so many messages.
SELDOM = 200


def seal_cost(size: int, repeats: int = 300) -> tuple[float, float]:
    """Return the seconds of sealing and of checking a chunk of so many bytes."""
    key = SharedKey.generate()
    robot, server = Sealer(key, 'up', 'down'), Sealer(key, 'down', 'up')
    chunks = [TensorChunk(session=5, server=7, sequence=k, data=array('B', bytes(size)))
              for k in range(repeats)]
    start = time.perf_counter()
    for chunk in chunks:
        robot.seal(chunk)
    sealed = time.perf_counter()
    for chunk in chunks:
        server.check(chunk)
    return (sealed - start) / repeats, (time.perf_counter() - sealed) / repeats


def genuine() -> dict[type, Any]:
    """Return a real message of each type, with a small network's book and profile."""
    source = torch.randn(1, 3, 64, 96)
    model = share_module(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(),
                                       nn.MaxPool2d(2), nn.Conv2d(8, 8, 3)), (source,))
    profile = measure_profile(model.split, (source,))
    book = Book(model.digest, model.split.axis, 0.0, 0.0, (
        Entry(10.0, LOCAL, 0.1, local(len(model.split.operators))),))
    return {
        TensorChunk: TensorChunk(session=5, server=7, count=1, dtype_code=2, dtype_bits=32,
                                 shape=array('I', [1, 3]), data=array('B', bytes(12))),
        SessionControl: SessionControl(kind=9, session=5, server=7, body='{"robot": 1.0}'),
        ChunkAck: ChunkAck(session=5, server=7, rate=1e6),
        ScheduleBook: ScheduleBook(digest=model.digest, book=packed(book.to_json())),
        OperatorProfile: profile_message('server', model, profile)}


def handlers() -> Mapping[type, Callable[[Any], object]]:
    """Return what a node makes of each type."""
    return {TensorChunk: chunk_from_message, SessionControl: control_from_message,
            ChunkAck: lambda m: m,
            ScheduleBook: lambda m: Book.from_json(unpacked(m.book, MAX_BOOK_TEXT)),
            OperatorProfile: check_profile}


def fuzz(count: int, seed: int) -> tuple[Counter[str], float]:
    """Return how many messages ended how, and the MB by which memory grew."""
    random, good, handle, ends = Random(seed), genuine(), handlers(), Counter[str]()
    wholes = {kind: bytes(serialize_message(message)) for kind, message in good.items()}
    server = Sealer(SharedKey.generate(), 'down', 'up')
    often, seldom = (TensorChunk, SessionControl, ChunkAck), (ScheduleBook, OperatorProfile)
    before = 0.0
    for number in range(count):
        kind = random.choice(seldom if number % SELDOM == 0 else often)
        data = mutated(good[kind], random, wholes[kind])
        ends[f'{kind.__name__} {_end(kind, data, handle[kind], server)}'] += 1
        if number == count // 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return ends, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before


def _end(kind: type, data: bytes, handle: Callable[[Any], object], server: Sealer) -> str:
    try:
        message: Any = deserialize_message(data, kind)
    except Exception:  # rclpy has no common class for what the middleware raises
        return 'undecodable'
    if kind in (TensorChunk, SessionControl, ChunkAck):
        try:
            server.check(message)
            return 'TAKEN FOR SEALED'
        except MalformedFrameError:
            pass
    try:
        handle(message)
    except ValueError:
        return 'refused'
    return 'possible'


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--messages', type=int, default=50_000, help='how many are mutated')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--json', type=result_file, help='write the figures here too')
    args = parser.parse_args()
    costs = {size: seal_cost(size) for size in SIZES}
    for size, (seal, check) in costs.items():
        print(f'chunk of {size:6} bytes: sealed in {seal * 1e6:.0f} us, checked in '
              f'{check * 1e6:.0f} us')
    start = time.perf_counter()
    ends, grown = fuzz(args.messages, args.seed)
    print(f'{args.messages} mutated messages in {time.perf_counter() - start:.0f} s, '
          f'{grown:.1f} MB of growth after the first tenth')
    for name, number in sorted(ends.items()):
        print(f'  {name}: {number}')
    if args.json:
        write_atomically(args.json, json.dumps({
            'seal_seconds': costs, 'ends': ends, 'grown_mb': grown}, indent=1))
    if any('TAKEN' in name for name in ends) or grown > 100:
        raise SystemExit(1)


if __name__ == '__main__':
    main()
