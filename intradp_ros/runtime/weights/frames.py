# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What devices say when one fetches weights of another: control frames, and pieces as chunks.

Their session is drawn by the device that fetches, above all terms of coordinators;
`inference` is the number of the request.  So a chunk of weights is never taken for one of
a plan, nor one that another process asked for.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
import secrets

import torch

from intradp_ros.blobs.fetch import PIECE
from intradp_ros.blobs.fetch_state import Request
from intradp_ros.core.limits import MAX_BLOB
from intradp_ros.graph.manifest import is_digest
from intradp_ros.runtime.member.fleet_control import MAX_TERM
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer
from intradp_ros.wire.cutting import split
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError

_BITS = 62


@dataclass(frozen=True, slots=True)
class Wish:
    """A piece that a peer asks for; of no bytes where it asks how many the blob has."""

    peer: str
    session: int
    number: int
    digest: str
    offset: int
    nbytes: int


def new_session() -> int:
    """Return a number for what one process fetches."""
    return MAX_TERM | secrets.randbits(_BITS)


def is_of_weights(frame: Frame) -> bool:
    """Tell whether a frame is about weights that are fetched."""
    return frame.session >= MAX_TERM and (
        isinstance(frame, Chunk) or frame.kind in (ControlKind.FETCH, ControlKind.HELD))


def fetch_frame(session: int, number: int, request: Request) -> Control:
    """Return the frame that asks for a piece."""
    return Control(ControlKind.FETCH, session, 0, number, {
        'blob': request.digest, 'offset': request.offset, 'bytes': request.nbytes})


def held_frame(wish: Wish, nbytes: int | None) -> Control:
    """Return the frame that says how many bytes a blob has, None where it is not held."""
    return Control(ControlKind.HELD, wish.session, 0, wish.number, {'bytes': nbytes})


def read_wish(peer: str, frame: Control) -> Wish:
    """Return what a FETCH asks for; MalformedFrameError if that is impossible."""
    digest, offset, nbytes = (frame.body.get(key) for key in ('blob', 'offset', 'bytes'))
    if not isinstance(digest, str) or not is_digest(digest):
        raise MalformedFrameError('a blob that is not named by a SHA-256', 'blob')
    return Wish(peer, frame.session, frame.inference, digest, _count(offset, MAX_BLOB),
                _count(nbytes, PIECE))


def read_held(frame: Control) -> int | None:
    """Return what a HELD says; MalformedFrameError if that is impossible."""
    nbytes = frame.body.get('bytes')
    return None if nbytes is None else _count(nbytes, MAX_BLOB)


def piece_chunks(wish: Wish, data: torch.Tensor, chunk_bytes: int) -> Iterator[Chunk]:
    """Yield the chunks of a piece."""
    return split(data, session=wish.session, epoch=0, inference=wish.number, schedule=0,
                 transfer=0, value=0, region=Region(0, data.nbytes), chunk_bytes=chunk_bytes)


def expected_piece(nbytes: int) -> ExpectedTransfer:
    """Return what the chunks of a piece of so many bytes carry."""
    return ExpectedTransfer(0, Region(0, nbytes), torch.uint8, (nbytes,))


def _count(item: object, most: int) -> int:
    if type(item) is not int or not 0 <= item <= most:
        raise MalformedFrameError(f'a count of bytes that is not within 0..{most}', 'number')
    return item
