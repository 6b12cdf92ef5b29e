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
import math
import secrets

import torch

from intradp_ros.blobs.digests import is_digest
from intradp_ros.blobs.fetch import PIECE
from intradp_ros.blobs.fetch_state import Request
from intradp_ros.cluster.terms import MAX_TERM
from intradp_ros.core.limits import MAX_BLOB, MAX_DIMENSIONS, MAX_ELEMENTS
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.dtypes import decode_dtype, encode_dtype
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


@dataclass(frozen=True, slots=True)
class StateWish:
    """A peer asks for the digest of a tensor that a role keeps, by the format of its plans."""

    peer: str
    session: int
    number: int
    format: str  # noqa: A003
    name: str
    tag: int


@dataclass(frozen=True, slots=True)
class StateFound:
    """The digest of a tensor's bytes, and what they are bytes of."""

    digest: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    def filled(self, data: torch.Tensor | None) -> torch.Tensor:
        """Return the tensor of these bytes, which may be None if there are none."""
        return torch.empty(self.shape, dtype=self.dtype) if data is None \
            else data.view(self.dtype).view(self.shape)


def new_session() -> int:
    """Return a number for what one process fetches."""
    return MAX_TERM | secrets.randbits(_BITS)


def is_of_weights(frame: Frame) -> bool:
    """Return whether a frame is about weights that are fetched."""
    return frame.session >= MAX_TERM and (
        isinstance(frame, Chunk) or frame.kind in (ControlKind.FETCH, ControlKind.HELD))


def fetch_frame(session: int, number: int, request: Request) -> Control:
    """Return the frame that asks for a piece."""
    return Control(ControlKind.FETCH, session, 0, number, {
        'blob': request.digest, 'offset': request.offset, 'bytes': request.nbytes})


def held_frame(wish: Wish | StateWish, nbytes: int | None) -> Control:
    """Return the frame that says how many bytes a blob has, None where it is not held."""
    return Control(ControlKind.HELD, wish.session, 0, wish.number, {'bytes': nbytes})


def read_wish(peer: str, frame: Control) -> Wish:
    """Return what a FETCH asks for; MalformedFrameError if that is impossible."""
    digest, offset, nbytes = (frame.body.get(key) for key in ('blob', 'offset', 'bytes'))
    if not isinstance(digest, str) or not is_digest(digest):
        raise MalformedFrameError('a blob that is not named by a SHA-256', 'blob')
    return Wish(peer, frame.session, frame.inference, digest, _count(offset, MAX_BLOB),
                _count(nbytes, PIECE))


def state_frame(session: int, number: int, format_: str, name: str, tag: int) -> Control:
    """Return the frame that asks for the digest of a tensor of a role's state."""
    return Control(ControlKind.FETCH, session, 0, number, {
        'format': format_, 'state': name, 'tag': tag})


def read_state_wish(peer: str, frame: Control) -> StateWish:
    """Return what a FETCH of state asks for; MalformedFrameError if that is impossible."""
    format_, name = frame.body.get('format'), frame.body.get('state')
    if not isinstance(format_, str) or not isinstance(name, str):
        raise MalformedFrameError('state that is not named by two texts', 'state')
    return StateWish(peer, frame.session, frame.inference, format_, name,
                     _count(frame.body.get('tag'), MAX_TERM))


def found_frame(wish: StateWish, found: StateFound | None) -> Control:
    """Return the frame that says which bytes a tensor has, None where it is not here."""
    return Control(ControlKind.HELD, wish.session, 0, wish.number, {'bytes': None} if found is None
                   else {'blob': found.digest, 'bytes': found.nbytes,
                         'dtype': list(encode_dtype(found.dtype)), 'shape': list(found.shape)})


def read_found(frame: Control) -> StateFound | None:
    """Return what a HELD says of a tensor; MalformedFrameError if that is impossible."""
    body = frame.body
    if body.get('bytes') is None:
        return None
    digest, dtype, shape = (body.get(key) for key in ('blob', 'dtype', 'shape'))
    if not isinstance(digest, str) or not is_digest(digest):
        raise MalformedFrameError('a blob that is not named by a SHA-256', 'blob')
    if not isinstance(dtype, list) or len(dtype) != 2 or not isinstance(shape, list) \
            or len(shape) > MAX_DIMENSIONS:
        raise MalformedFrameError('a tensor without dtype or shape', 'state')
    found = StateFound(digest, decode_dtype(*(_count(item, 256) for item in dtype)),
                       tuple(_count(item, MAX_ELEMENTS) for item in shape))
    if found.nbytes != _count(body.get('bytes'), MAX_BLOB):
        raise MalformedFrameError('a tensor whose bytes are not those of its shape', 'state')
    return found


def read_held(frame: Control) -> int | None:
    """Return what a HELD says; MalformedFrameError if that is impossible."""
    nbytes = frame.body.get('bytes')
    return None if nbytes is None else _count(nbytes, MAX_BLOB)


def piece_chunks(wish: Wish, data: torch.Tensor, chunk_bytes: int) -> Iterator[Chunk]:
    """Yield the chunks of a piece."""
    return cut_into_chunks(data, session=wish.session, epoch=0, inference=wish.number, schedule=0,
                           transfer=0, value=0, region=Region(0, data.nbytes),
                           chunk_bytes=chunk_bytes)


def expected_piece(nbytes: int) -> ExpectedTransfer:
    """Return what the chunks of a piece of so many bytes carry."""
    return ExpectedTransfer(0, Region(0, nbytes), torch.uint8, (nbytes,))


def _count(item: object, most: int) -> int:
    if type(item) is not int or not 0 <= item <= most:
        raise MalformedFrameError(f'a count of bytes that is not within 0..{most}', 'number')
    return item
