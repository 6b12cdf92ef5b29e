# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Slots of a device's memory, and the one thread that reads blocks into them."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
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
    -1 if none; `due` the one that will be, when all is read.
    """

    def __init__(self, store: BlobStore, nbytes: int, device: KernelDevice = HOST) -> None:
        self.memory = store.slot(nbytes) if device is HOST else None
        self._copy = None if device is HOST else torch.empty(
            nbytes, dtype=torch.uint8, device=device.name)
        self.block = self.due = -1
        self.error: Exception | None = None

    def views(self, file: BlockFile) -> dict[str, Stored]:
        """Return a block's tensors, as they lie here whenever the block is in the slot."""
        if self._copy is not None:
            return file.views(self._copy[:file.nbytes])
        assert self.memory
        return file.views(self.memory.tensor(HEADER_BYTES, file.nbytes))

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
            else BlockSlot(store, max(manifest.blocks[block].nbytes for block in blocks), on)
            for blocks in plan.slots.get(device, ())]


class Loader:
    """
    Reads blocks of a store into slots, one after another, on a thread of its own.

    `seconds` and `nbytes` count what was read; `reading` is called with each block, and when
    its reading began and ended (s).
    """

    def __init__(self, store: BlobStore, name: str) -> None:
        self.store = store
        self._waiting: deque[tuple[BlockSlot, int, BlockFile]] = deque()
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
            slot.block, slot.due, slot.error = -1, block, None
            self._waiting.append((slot, block, file))
            self._changed.notify_all()

    def wait(self, slot: BlockSlot, block: int, given_up: Callable[[], bool]) -> bool:
        """
        Wait until a block is in its slot; False if that is given up.

        Raises
        ------
        OSError
            If it could not be read.

        """
        with self._changed:
            while slot.block != block:
                if slot.error:
                    raise slot.error
                if given_up() or self._closed:
                    return False
                self._changed.wait(0.05)
        return True

    def wake(self) -> None:
        """Let who waits look whether it is to give up."""
        with self._changed:
            self._changed.notify_all()

    def drain(self) -> None:
        """Forget what waits to be read, and wait for what is read now."""
        with self._changed:
            for slot, *_ in self._waiting:
                slot.due = -1
            self._waiting.clear()
            self._changed.wait_for(lambda: not self._busy)

    def close(self) -> None:
        """Stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

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
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                slot, block, file = self._waiting.popleft()
                self._busy = True
            start = time.perf_counter()
            error: Exception | None = None
            try:
                if not slot.read(self.store, file, self._staged):
                    raise OSError(f'block {block} ({file.digest[:12]}) is not in '
                                  f'{self.store.folder}')
            except BaseException as failure:  # noqa: B902 - what waits for the block raises it
                error = failure if isinstance(failure, Exception) else RuntimeError(
                    reason_of(failure))
            stop = time.perf_counter()
            self.seconds, self.nbytes = self.seconds + stop - start, self.nbytes + file.nbytes
            steady.do(partial(self.reading, block, start, stop), None)
            with self._changed:
                if slot.due == block:
                    slot.error, slot.block = error, -1 if error else block
                self._busy = False
                self._changed.notify_all()
