# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Capture in a copy of this process, while the program goes on.

Capture runs the model several times, puts back what its code leads to, seeds
random numbers, and PyTorch's export replaces methods of all modules meanwhile.
No thread next to the program's own may do that.  A forked process has its own
model, globals and random numbers, exactly as they were at the fork.  Its graph
comes back as text and tensors; parameters that are the model's own stay so.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
import os
import signal
import sys
import tempfile
import time
from typing import Any, IO
import warnings

import torch

from intradp_ros.core.child_end import ChildWatch
from intradp_ros.graph.capture import capture
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.serialise import graph_from_json, graph_to_json
from intradp_ros.graph.tensor_bits import memory_address
from intradp_ros.runtime.models.model import AS_GRAPH

#: Seconds after which a capture is given up.
PATIENCE = 300.0
_LOOKS = 0.05  # seconds between two looks at whether somebody wants it to end


class ForkedCapture:
    """
    A capture of a module for example inputs, as the module is when this object is made.

    :raises OSError, ValueError, AssertionError: if this process cannot be forked.
    """

    def __init__(self, module: torch.nn.Module, example: Sequence[torch.Tensor],
                 **kwargs: Any) -> None:
        self._tensors = [*module.parameters(), *module.buffers()]
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - until `end`
        self._watch = ChildWatch()
        self._process = get_context('fork').Process(
            target=_run, name='intradp-capture', daemon=True,
            args=(module, tuple(example), self._tensors, self._file, kwargs))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter('ignore', DeprecationWarning)  # a fork next to threads
                self._process.start()
        except BaseException:
            self._file.close()
            raise

    def graph(self, check: Callable[[], None]) -> tuple[OperatorGraph, list[str]]:
        """
        Wait for the graph; return it, with the texts of warnings.

        `check` is called meanwhile, and may raise.

        :raises CaptureError: if the module cannot be captured.
        """
        end = time.monotonic() + PATIENCE
        try:
            while not wait([self._process.sentinel], _LOOKS):
                check()
                if time.monotonic() > end:
                    raise CaptureError(f'capture did not end within {PATIENCE:.0f} s')
            self._file.seek(0)
            try:
                answer = torch.load(self._file, weights_only=True)
            except Exception as error:
                self._process.join()
                raise CaptureError('the process that captures '
                                   f'{self._watch.end(self._process.exitcode or 0)} without an '
                                   'answer') from error
            if 'error' in answer:
                raise CaptureError(answer['error'])
            with torch.inference_mode(False), torch.no_grad():
                own = {name: self._tensors[k].detach().as_strided(*layout)
                       for name, (k, *layout) in answer['own'].items()}
            return graph_from_json(answer['graph'], {**answer['made'], **own}), answer['warned']
        finally:
            self.end()

    def end(self) -> None:
        """End the process, if it has not, and let go of everything."""
        if self._file.closed:
            return
        self._process.kill()
        self._process.join()
        with suppress(ValueError):  # the program itself has waited for its children
            self._process.close()
        self._file.close()
        self._tensors = []


def _run(module: torch.nn.Module, example: tuple[torch.Tensor, ...],
         tensors: Sequence[torch.Tensor], file: IO[bytes], kwargs: dict[str, Any]) -> None:
    """Capture in the forked process, and end it without what the program does at its end."""
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(silent, stream)
        sys.stdout = sys.stderr = open(os.devnull, 'w')  # noqa: SIM115 - until the process ends
        torch.set_num_threads(1)  # the threads of the other process are not in this one
        torch.save(_answer(module, example, tensors, kwargs), file)
        file.flush()
        status = 0
    finally:
        os._exit(status)


def _answer(module: torch.nn.Module, example: tuple[torch.Tensor, ...],
            tensors: Sequence[torch.Tensor], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter('always')
            graph = capture(module, example, methods=AS_GRAPH, **kwargs)
        text = graph_to_json(graph)
    except Exception as error:  # noqa: B902 - whatever a model does, the program goes on
        return {'error': ' '.join(str(error).split()) or type(error).__name__}
    places = {(memory_address(t), t.dtype): k for k, t in enumerate(tensors)
              if t.layout == torch.strided and memory_address(t)}
    own: dict[str, tuple[Any, ...]] = {}
    made: dict[str, torch.Tensor] = {}
    for name, tensor in graph.parameters.items():
        k = places.get((memory_address(tensor), tensor.dtype))
        if k is None:
            made[name] = tensor.detach().clone()
        else:
            own[name] = (k, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
    return {'graph': text, 'own': own, 'made': made,
            'warned': [str(w.message) for w in warned]}
