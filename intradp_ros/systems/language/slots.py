# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Slots of a device's memory, and the one thread that reads blocks into them."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
import threading
import time

import torch

from intradp_ros.blobs.direct_read import Slot
from intradp_ros.blobs.store import BlobStore, HEADER_BYTES
from intradp_ros.core.owned_errors import reason_of
from intradp_ros.core.steady import Steady
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.language.manifest import BlockFile, Manifest
from intradp_ros.systems.language.segment_plan import SegmentPlan
from intradp_ros.systems.language.stored import Stored


class BlockSlot:
    """
    Memory for one block at a time, on the host or a `device` that keeps copies.

    `memory` is what is read into, None where that is the loader's; `block` is which one is in it,
    -1 if none; `due` the one that will be.  Where blocks take `turns` in it, a mixture is there
    without its experts first; `have` are those that are there, None for all.  Blocks of one
    layout have their experts in the same places: `held` says whose is there still, by its digest.
    """

    def __init__(self, store: BlobStore, nbytes: int, device: KernelDevice = HOST,
                 turns: bool = False) -> None:
        self._turns = turns
        self.have: set[int] | None = None
        self.held: dict[int, str] = {}
        self._layout: object = None
        self.memory = store.slot(nbytes) if device is HOST else None
        self._copy = None if device is HOST else torch.empty(
            nbytes, dtype=torch.uint8, device=device.name)
        self.block = self.due = -1
        self.error: Exception | None = None

    def in_parts(self, file: BlockFile) -> bool:
        """Return whether only those experts of a block are read that are needed."""
        return self._turns and self.memory is not None and file.experts > 0

    def views(self, file: BlockFile) -> dict[str, Stored]:
        """Return a block's tensors, as they lie here whenever the block is in the slot."""
        if self._copy is not None:
            return file.views(self._copy[:file.nbytes])
        assert self.memory
        return file.views(self.memory.tensor(HEADER_BYTES, file.nbytes))

    def lay(self, file: BlockFile) -> None:
        """Prepare for a block: what was there in other places is lost."""
        layout = [(place.type, place.shape, place.offset) for place in file.tensors]
        if layout != self._layout:
            self.held.clear()
        self._layout = layout

    def read(self, store: BlobStore, file: BlockFile, staging: Callable[[int], Slot]) -> bool:
        """Read a block; False if it is not stored.  `staging` gives memory of the host."""
        found = store.read_into(file.digest, self.memory or staging(file.nbytes))
        if found is None or found.data.nbytes != file.nbytes:
            return False
        if self._copy is not None:
            self._copy[:file.nbytes].copy_(found.data)
        return True


def make_slots(plan: SegmentPlan, device: str, manifest: Manifest, store: BlobStore,
               old: Mapping[int, BlockSlot], on: KernelDevice = HOST) -> list[BlockSlot]:
    """Return the slots of a plan; resident blocks that are in `old` are kept where they are."""
    return [old[blocks[0]] if len(blocks) == 1 and blocks[0] in old
            else BlockSlot(store, max(manifest.blocks[block].nbytes for block in blocks), on,
                           len(blocks) > 1)
            for blocks in plan.slots.get(device, ())]


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A block that is to be read, or one of its experts."""

    slot: BlockSlot
    block: int
    file: BlockFile
    expert: int | None = None


class Loader:
    """
    Reads blocks of a store into slots, one after another, on a thread of its own.

    Of mixtures in slots that take turns the experts come last: those that tokens have chosen at
    once, before them those of the tokens before, and others while there is nothing else to do,
    but not in the place of one that another block's tokens have chosen.

    `seconds` and `nbytes` count what was read; `reading` is called with each block, and when
    its reading began and ended (s).
    """

    def __init__(self, store: BlobStore, name: str) -> None:
        self.store = store
        #: In this order: experts that are awaited, blocks, experts ahead: likely ones, and others.
        self._waiting: tuple[deque[_Piece], ...] = (deque(), deque(), deque(), deque())
        self._chosen: dict[str, tuple[int, ...]] = {}
        self._changed = threading.Condition()
        self._busy = self._closed = False
        self._staging: Slot | None = None
        self.seconds, self.nbytes = 0.0, 0
        self.reading: Callable[[int, float, float], None] = lambda block, start, stop: None
        self._thread = threading.Thread(target=self._run, name=f'loader-{name}', daemon=True)
        self._thread.start()

    def load(self, slot: BlockSlot, block: int, file: BlockFile) -> None:
        """Begin to read a block into a slot; whatever was in it is lost at once."""
        with self._changed:
            self._forget(slot)
            slot.block, slot.due, slot.error, slot.have = -1, block, None, None
            self._waiting[1].append(_Piece(slot, block, file))
            self._changed.notify_all()

    def wait(self, slot: BlockSlot, block: int, given_up: Callable[[], bool]) -> bool:
        """
        Wait until a block is in its slot; False if that is given up.

        :raises OSError: if it could not be read.
        """
        with self._changed:
            return self._wait(slot, lambda: slot.block == block, given_up)

    def need(self, slot: BlockSlot, block: int, file: BlockFile, experts: Sequence[int],
             given_up: Callable[[], bool]) -> bool:
        """Wait until some experts of a block are in its slot, too; others are not read ahead."""
        with self._changed:
            self._forget(slot)
            self._chosen[file.digest] = tuple(experts)
            if slot.have is None:
                return True
            self._waiting[0].extend(_Piece(slot, block, file, expert) for expert in experts
                                    if expert not in slot.have)
            self._changed.notify_all()
            return self._wait(slot, lambda: slot.have is None or slot.have.issuperset(experts),
                              given_up)

    def wake(self) -> None:
        """Let who waits look whether it is to give up."""
        with self._changed:
            self._changed.notify_all()

    def drain(self) -> None:
        """Forget what waits to be read, and wait for what is read now."""
        with self._changed:
            for pieces in self._waiting:
                for piece in pieces:
                    piece.slot.due = -1
                pieces.clear()
            self._changed.wait_for(lambda: not self._busy)

    def close(self) -> None:
        """Stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _wait(self, slot: BlockSlot, there: Callable[[], bool], given_up: Callable[[], bool],
              ) -> bool:
        while not there():
            if slot.error:
                raise slot.error
            if given_up() or self._closed:
                return False
            self._changed.wait(0.05)
        return True

    def _forget(self, slot: BlockSlot) -> None:
        """Read no experts of a slot that nobody waits for."""
        for pieces in (self._waiting[0], *self._waiting[2:]):
            for piece in [piece for piece in pieces if piece.slot is slot]:
                pieces.remove(piece)

    def _staged(self, nbytes: int) -> Slot:
        """Return memory of the host through which blocks go to a device."""
        if self._staging is None or self._staging.nbytes < HEADER_BYTES + nbytes:
            self._staging = None  # before there is another one
            self._staging = self.store.slot(nbytes)
        return self._staging

    def _run(self) -> None:
        steady = Steady(self._thread.name)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: any(self._waiting) or self._closed)
                if self._closed:
                    return
                piece = next(pieces for pieces in self._waiting if pieces).popleft()
                self._busy = True
            start = time.perf_counter()
            error: Exception | None = None
            nbytes, whole = 0, False
            try:
                nbytes, whole = self._read(piece)
            except BaseException as failure:  # noqa: B902 - what waits for the block raises it
                error = failure if isinstance(failure, Exception) else RuntimeError(
                    reason_of(failure))
            stop = time.perf_counter()
            self.seconds, self.nbytes = self.seconds + stop - start, self.nbytes + nbytes
            steady.do(partial(self.reading, piece.block, start, stop), None)
            with self._changed:
                if piece.slot.due == piece.block:
                    self._arrived(piece, whole, error)
                self._busy = False
                self._changed.notify_all()

    def _read(self, piece: _Piece) -> tuple[int, bool]:
        """Return the bytes that were read, and whether they are the whole block."""
        slot, file, store = piece.slot, piece.file, self.store
        if slot.memory and slot.in_parts(file):
            slot.lay(file)
            if piece.expert is not None:
                slot.held.pop(piece.expert, None)
            if nbytes := store.read_pieces(file.digest, slot.memory, file.pieces(piece.expert)):
                return nbytes, False
        slot.held.clear()
        if piece.expert is None and slot.read(store, file, self._staged):
            return file.nbytes, True  # the first time: all of a blob is compared with its digest
        raise OSError(f'block {piece.block} ({file.digest[:12]}) is not in {store.folder}')

    def _arrived(self, piece: _Piece, whole: bool, error: Exception | None) -> None:
        """Note what is in a slot, and what else of it is to be read."""
        slot, file = piece.slot, piece.file
        if error:
            slot.error, slot.block = error, -1
        elif piece.expert is not None:
            slot.held[piece.expert] = file.digest
            if slot.have is not None:
                slot.have.add(piece.expert)
        elif whole:
            slot.block = piece.block
            if slot.in_parts(file):
                slot.held = dict.fromkeys(range(file.experts), file.digest)
        else:
            slot.block = piece.block
            slot.have = {number for number, digest in slot.held.items() if digest == file.digest}
            if len(slot.have) < file.experts:
                likely = [number for number in self._chosen.get(file.digest, ())
                          if number not in slot.have]
                others = [number for number in range(file.experts)
                          if number not in slot.have and number not in likely
                          and number not in self._chosen.get(slot.held.get(number, ''), ())]
                for pieces, numbers in zip(self._waiting[2:], (likely, others)):
                    pieces.extend(_Piece(slot, piece.block, file, number) for number in numbers)
