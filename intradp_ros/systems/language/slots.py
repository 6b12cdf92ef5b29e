# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Slots of a device's memory, and the one thread that reads blocks into them.

Files are read past the page cache (O_DIRECT) into memory that begins at a page: what is
counted is then what is used, and a block that is read again costs the disk again.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
import errno
import mmap
import os
from pathlib import Path
import threading
import time

import torch

from intradp_ros.blobs.store import HEADER_BYTES
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.segment_plan import SegmentPlan

PAGE_BYTES = mmap.PAGESIZE
#: Bytes of a slot that a reader may need in front of a blob's data, and to end with whole pages.
MARGIN = 2 * PAGE_BYTES


class BlobReader:
    """
    Reads blobs of a `WeightStore` past the page cache.

    Where the file system has no such reads (tmpfs), the cache is used, and dropped after.
    """

    #: Where in a slot a blob's data begin.
    begin = HEADER_BYTES

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, digest: str, memory: memoryview, nbytes: int) -> None:
        """Read a blob into memory that begins at a page; OSError if it cannot be."""
        path = self.folder / f'{digest}.safetensors'
        try:
            file = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            done, wanted = 0, HEADER_BYTES + nbytes
            while done < wanted:
                got = os.preadv(file, [memory[done:]], done)
                done += got
                if not got or done < wanted and done % PAGE_BYTES:
                    raise OSError(f'{path} has {done} bytes, not {wanted}')
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


class Slot:
    """
    Memory for one block at a time.

    `block` is which one is in it, -1 if none; `due` the one that will be, when all is read.
    """

    def __init__(self, nbytes: int) -> None:
        self._memory = mmap.mmap(-1, -(-(nbytes + MARGIN) // PAGE_BYTES) * PAGE_BYTES)
        self.data = torch.frombuffer(self._memory, dtype=torch.uint8)
        self.nbytes = len(self._memory)
        self.block = self.due = -1
        self.error: Exception | None = None

    @property
    def view(self) -> memoryview:
        """Return the memory."""
        return memoryview(self._memory)


def make_slots(plan: SegmentPlan, device: str, manifest: Manifest,
               old: Mapping[int, Slot]) -> list[Slot]:
    """Return the slots of a plan; resident blocks that are in `old` are kept where they are."""
    return [old[blocks[0]] if len(blocks) == 1 and blocks[0] in old
            else Slot(max(manifest.blocks[block].nbytes for block in blocks))
            for blocks in plan.slots.get(device, ())]


class Loader:
    """
    Reads blocks into slots, one after another, on a thread of its own.

    `seconds` and `nbytes` count what was read.
    """

    def __init__(self, reader: BlobReader, name: str) -> None:
        self.reader = reader
        self._waiting: deque[tuple[Slot, int, str, int]] = deque()
        self._changed = threading.Condition()
        self._busy = self._closed = False
        self.seconds, self.nbytes = 0.0, 0
        self.reading: Callable[[int, float, float], None] = lambda block, start, stop: None
        self._thread = threading.Thread(target=self._run, name=f'loader-{name}', daemon=True)
        self._thread.start()

    def load(self, slot: Slot, block: int, digest: str, nbytes: int) -> None:
        """Begin to read a block into a slot; whatever was in it is lost at once."""
        with self._changed:
            slot.block, slot.due, slot.error = -1, block, None
            self._waiting.append((slot, block, digest, nbytes))
            self._changed.notify_all()

    def wait(self, slot: Slot, block: int, given_up: Callable[[], bool]) -> bool:
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
                slot.due = slot.block
            self._waiting.clear()
            self._changed.wait_for(lambda: not self._busy)

    def close(self) -> None:
        """Stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                slot, block, digest, nbytes = self._waiting.popleft()
                self._busy = True
            start = time.perf_counter()
            error: Exception | None = None
            try:
                self.reader.read(digest, slot.view, nbytes)
            except Exception as failure:  # noqa: B902 - whoever waits for the block raises it
                error = failure
            stop = time.perf_counter()
            self.seconds, self.nbytes = self.seconds + stop - start, self.nbytes + nbytes
            self.reading(block, start, stop)
            with self._changed:
                slot.error, slot.block = error, -1 if error else block
                self._busy = False
                self._changed.notify_all()
