# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""CUDA graphs: the calls that a kernel makes, recorded once and replayed at once."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
import logging
import threading
import time
from typing import Any

import torch

#: How often a way to run is tried before the faster one is taken.
TRIES = 5
_LOG = logging.getLogger(__name__)
Inputs = Sequence[torch.Tensor]
Kernel = Callable[[Inputs], Any]


class CudaGraphs:
    """
    Makes the CUDA graphs of one device; there is one of it for a device (`graphs_on`).

    All graphs share memory for what they compute on the way, so they must
    run one after another.  They do: all of them are begun under one lock, on
    one stream, with the copies of what they are given and return.  The memory
    is PyTorch's pool of a first graph, which computes next to nothing and is
    kept: a pool whose graphs are all gone takes no more.
    """

    def __init__(self, where: torch.device) -> None:
        self.where = where
        self.lock = threading.Lock()
        self._first: torch.cuda.CUDAGraph | None = None

    def faster(self, kernel: Kernel, inputs: Inputs) -> GraphedKernel | None:
        """
        Return a kernel as a CUDA graph for inputs of these shapes, if that takes less time.

        None too where it cannot be recorded: where the host looks at results
        on the way, say.  Call it when the kernel has run once, in
        `torch.inference_mode`.
        """
        if any(t.device != self.where for t in inputs):
            return None
        try:
            graphed = self._recorded(kernel, inputs)
        except RuntimeError as error:  # the kernel itself has run before
            _LOG.info('operators are called one by one, as a CUDA graph cannot have them: %s',
                      str(error).partition('\n')[0])
            return None
        plain, replayed = (min(self._seconds(way, inputs) for _ in range(TRIES))
                           for way in (kernel, graphed))
        return graphed if replayed < plain else None

    def _recorded(self, kernel: Kernel, inputs: Inputs) -> GraphedKernel:
        with self.lock:
            if self._first is None:
                self._first, _ = self._captured(
                    torch.zeros_like, torch.zeros(1, device=self.where))
            taken = [tensor.clone() for tensor in inputs]
            graph, results = self._captured(kernel, taken, self._first.pool())
            return GraphedKernel(kernel, graph, taken, tuple(results), self.lock)

    def _captured(self, kernel: Callable[[Any], Any], inputs: Any, pool: Any = None,
                  ) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(self.where)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.where))
        with torch.cuda.stream(stream):
            # Of this thread alone: others go on calling kernels meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode='thread_local')
            try:
                results = kernel(inputs)
            finally:
                graph.capture_end()
        return graph, results

    def _seconds(self, kernel: Kernel, inputs: Inputs) -> float:
        given = [tensor.clone() for tensor in inputs]  # which it may write over
        stream = torch.cuda.current_stream(self.where)
        stream.synchronize()
        start = time.perf_counter()
        kernel(given)
        stream.synchronize()
        return time.perf_counter() - start


class GraphedKernel:
    """
    A kernel as a CUDA graph, for inputs of the shapes with which it was recorded.

    With others it is called as it is.
    """

    def __init__(self, kernel: Kernel, graph: torch.cuda.CUDAGraph, taken: Inputs,
                 results: Inputs, lock: threading.Lock) -> None:
        self.kernel, self._graph, self._lock = kernel, graph, lock
        self._taken, self._results = taken, results
        self._kinds = [(t.shape, t.dtype) for t in taken]

    def __call__(self, tensors: Inputs) -> tuple[torch.Tensor, ...]:
        """Return copies of what the graph computes."""
        if [(t.shape, t.dtype) for t in tensors] != self._kinds:
            return tuple(self.kernel(tensors))
        with self._lock:
            for own, tensor in zip(self._taken, tensors):
                own.copy_(tensor)
            self._graph.replay()
            return tuple(result.clone() for result in self._results)


@cache
def graphs_on(where: torch.device) -> CudaGraphs:
    """Return what makes the CUDA graphs of a device."""
    return CudaGraphs(where)
