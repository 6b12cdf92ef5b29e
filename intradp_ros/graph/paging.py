# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Weights in a private file, so that they need memory only while they are read.

Kernels may read weights in another order than the model has them in (see
`split/calls/variants.py`), and then the model's own are held in addition, unused.
In a mapped file they can be paged out: who reads them later gets the same
bytes again.  The file is a copy, since an archive may be overwritten while
it is in use; it has no name, and goes when the weights do.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
import logging
import mmap
import os
import tempfile
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch

if TYPE_CHECKING:
    from intradp_ros.graph.operator_graph import OperatorGraph

LARGE = 64 * 2**10
"""Bytes from which on a tensor is kept in the file; there is little to gain by smaller ones."""

_LOG = logging.getLogger(__name__)
_BIG_FILES = '/var/tmp'  # by the file system hierarchy on a disk; /tmp may be memory
_maps: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()  # by first address


def paged(graph: OperatorGraph) -> OperatorGraph:
    """
    Return the graph with its large parameters copied into a file of this process.

    It lies in ``TMPDIR`` if that is set.  Where no file can be written the
    graph is returned as it is.
    """
    large = {name: tensor for name, tensor in graph.parameters.items() if _is_large(tensor)}
    if not large:
        return graph
    try:
        tensors = _mapped(list(large.values()))
    except OSError as error:
        _LOG.warning('weights stay in memory: cannot write them to a temporary file (%s)', error)
        return graph
    return replace(graph, parameters={**graph.parameters, **dict(zip(large, tensors))})


def page_out(tensor: torch.Tensor) -> None:
    """Give back the memory of a tensor that lies in a mapped file, until it is read again."""
    if tensor.device.type != 'cpu':
        return
    address = tensor.data_ptr()
    for first, pages in _all_maps().items():
        if first <= address < first + len(pages):
            _leave(pages, address - first, tensor.nbytes)


def page_all_out() -> None:
    """Give back the memory of all tensors that lie in mapped files, until they are read again."""
    for pages in _all_maps().values():
        _leave(pages, 0, len(pages))


def _is_large(tensor: torch.Tensor) -> bool:
    return tensor.nbytes >= LARGE and tensor.device.type == 'cpu' \
        and tensor.dtype.is_floating_point and tensor.is_contiguous()


def _mapped(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors with the same elements, in a file, each on pages of its own."""
    with tempfile.TemporaryFile(dir=_folder(), prefix='intradp-') as file:
        offsets = []
        for tensor in tensors:
            offsets.append(file.tell())
            file.write(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)
            file.write(bytes(-file.tell() % mmap.PAGESIZE))
        file.flush()
        pages = mmap.mmap(file.fileno(), 0)
    found = [torch.frombuffer(pages, dtype=t.dtype, count=t.numel(), offset=offset).view(t.shape)
             for t, offset in zip(tensors, offsets)]
    _maps[found[0].data_ptr()] = pages
    return found


def _folder() -> str | None:
    return _BIG_FILES if 'TMPDIR' not in os.environ and os.access(_BIG_FILES, os.W_OK) else None


def _all_maps() -> Mapping[int, mmap.mmap]:
    return dict(_maps)


def _leave(pages: mmap.mmap, offset: int, nbytes: int) -> None:
    """Let the kernel take pages from this process; what was written to them is in the file."""
    start = offset // mmap.PAGESIZE * mmap.PAGESIZE
    with suppress(OSError, AttributeError):  # locked memory stays; some systems cannot do it
        pages.madvise(mmap.MADV_DONTNEED, start, offset + nbytes - start)
