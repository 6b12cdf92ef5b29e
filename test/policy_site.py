# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Services without a model: their inputs and answers, and a lane that looks at its rows."""
import numpy as np

from intradp_ros.systems.serving.executor import emulated_answer, Opened
from intradp_ros.systems.serving.executor_messages import BatchResult
from intradp_ros.systems.serving.service import parse_services

SERVICE, = parse_services("""
services:
  pi0:
    model: emulated
    deadline: 2 s
    ignore: [prompt]
    inputs: {images/front: uint8 8x8x3, state: float32 4}
    outputs: {actions: float32 5x2}
    seconds: {1: 20 ms, 8: 48 ms}
""")
#: What Triton's clients are tried with.
PLAIN, = parse_services("""
services:
  pi0:
    model: emulated
    deadline: 2 s
    inputs: {image: uint8 8x8x3, state: float32 4}
    outputs: {actions: float32 5x2}
    seconds: {1: 20 ms, 8: 48 ms}
""")
IMAGE, STATE = np.full((8, 8, 3), 3, np.uint8), np.zeros(4, np.float32)
EXPECTED = emulated_answer(PLAIN, {'image': IMAGE, 'state': STATE})['actions']
#: One service whose requests are all answered, and one of which the newest frames are.
TWO = """
services:
  policy:
    model: emulated
    deadline: 100 ms
    inputs: {image: uint8 4x4, state: float32 2}
    outputs: {actions: float32 3}
    seconds: {1: 10 ms, 4: 16 ms}
  camera:
    model: emulated
    deadline: 60 ms
    rate: 30
    keep: newest
    inputs: {image: uint8 4}
    outputs: {boxes: float32 2}
    seconds: {1: 10 ms}
"""


def triton_inputs(library, rows=(), **form):
    """Return the inputs of a request, as a library of Triton wants them."""
    found = []
    for name, tensor, kind in (('image', IMAGE, 'UINT8'), ('state', STATE, 'FP32')):
        one = library.InferInput(name, [*rows, *tensor.shape], kind)
        one.set_data_from_numpy(tensor.reshape(*rows, *tensor.shape), **form)
        found.append(one)
    return found


def array(data, dtype, shape):
    return {b'__ndarray__': True, b'data': data, b'dtype': dtype, b'shape': shape}


def valid(value=1):
    return {'images': {'front': array(bytes([value]) * 192, '|u1', [8, 8, 3])},
            'state': array(np.zeros(4, '<f4').tobytes(), '<f4', [4]), 'prompt': 'pick'}


class Lane:
    """An executor that looks at what it is given."""

    def __init__(self, gateway):
        self.gateway, self.batches = gateway, []
        gateway.joined(0, self)
        gateway.opened(0, 0, Opened(SERVICE.inputs, SERVICE.outputs, (1, 4), (0.02, 0.048),
                                    (0.0, 0.0)))

    def run(self, number, service, rows):
        for row in rows:
            assert {name: (t.dtype.name, t.shape) for name, t in row.items()} == {
                s.name: (s.dtype, s.shape) for s in SERVICE.inputs}
        self.batches.append(BatchResult(number, 0.02, [emulated_answer(SERVICE, r) for r in rows],
                                        [''] * len(rows)))

    def finish(self):
        while self.batches:
            self.gateway.ended(0, self.batches.pop())
