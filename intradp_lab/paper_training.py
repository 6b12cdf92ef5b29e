# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Asteroid's environments and networks, modelled: chains of blocks, ratios of speed and memory.

Ratios of speed are those of the paper's minutes of profiling (Nano 82, TX2 51, NX 25); seconds
of a sample are its minutes of an epoch on a Nano, dealt to blocks by their operations, forward to
backward as 1 to 2.  BERT-small has no such figure and gets ResNet50's rate of operations.  A call
costs as much as two samples more (declared).  Every device has a port at a switch.
"""
from __future__ import annotations

from dataclasses import dataclass

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.systems.training.layers.layer_table import LayerTable, LayerTimes
from intradp_ros.systems.training.plan.round_costs import RoundCosts

#: Memory in bytes, and speed; a quarter of the memory is the system's.
KINDS = {'Nano': (3e9, 1.0), 'TX2': (6e9, 82 / 51), 'NX': (6e9, 82 / 25)}
ENVIRONMENTS = {'A': 'Nano Nano Nano Nano Nano', 'B': 'NX NX NX TX2 TX2',
                'C': 'NX TX2 TX2 Nano Nano Nano', 'D': 'TX2 Nano Nano Nano'}
#: Speed-up over Device, DP and PP of Table 4, by network, environment and Mbit/s.
TABLE_4 = {
    ('EfficientNet-B1', 'A', 100): (4.4, 2.1, 2.8), ('EfficientNet-B1', 'B', 100): (3.0, 4.8, 9.7),
    ('EfficientNet-B1', 'B', 1000): (3.7, 2.1, 1.4), ('MobileNetV2', 'A', 100): (4.5, 1.5, 3.5),
    ('MobileNetV2', 'B', 100): (3.2, 2.3, 11.2), ('MobileNetV2', 'B', 1000): (3.8, 1.2, 1.3),
    ('ResNet50', 'A', 100): (3.4, 3.6, 5.8), ('ResNet50', 'B', 100): (1.5, 6.1, 12.2),
    ('ResNet50', 'B', 1000): (3.7, 2.9, 3.1), ('BERT-small', 'A', 100): (3.5, 6.4, 1.0),
    ('BERT-small', 'B', 100): (1.3, 6.8, 1.0), ('BERT-small', 'B', 1000): (3.9, 4.2, 1.3)}
#: Megabytes of a round by HDP and by HPP of Table 2, with environment A's five devices.
TABLE_2 = {'EfficientNet-B1': (171.4, 76.2), 'MobileNetV2': (98.0, 52.1),
           'ResNet50': (576.2, 212.4)}


@dataclass(frozen=True, slots=True)
class _Block:
    name: str
    operations: float
    weights: float
    kept: float
    output: float


def _conv(name: str, size: int, inputs: int, outputs: int, kernel: int, groups: int = 1) -> _Block:
    """Return a convolution, batch norm and activation; both of their results are kept."""
    weights = kernel * kernel * inputs * outputs / groups
    values = size * size * outputs
    return _Block(name, weights * size * size, weights + 2 * outputs, 2 * values, values)


def _joined(name: str, parts: list[_Block]) -> _Block:
    return _Block(name, sum(part.operations for part in parts),
                  sum(part.weights for part in parts), sum(part.kept for part in parts),
                  parts[-1].output)


def _inverted(size: int, stages: list[tuple[int, int, int, int, int]], stem: int, last: int,
              ) -> list[_Block]:
    """Return blocks of (expansion, channels, repeats, stride, kernel): MobileNetV2's kind."""
    size //= 2
    blocks, inputs = [_conv('stem', size, 3, stem, 3)], stem
    for expansion, channels, repeats, stride, kernel in stages:
        for k in range(repeats):
            wide = inputs * expansion
            parts = [_conv('', size, inputs, wide, 1)] if expansion > 1 else []
            size = max(1, size // (stride if k == 0 else 1))
            parts += [_conv('', size, wide, wide, kernel, wide),
                      _conv('', size, wide, channels, 1)]
            blocks.append(_joined(f'block {len(blocks)}', parts))
            inputs = channels
    blocks.append(_conv('head', size, inputs, last, 1))
    blocks.append(_Block('classifier', last * 10, last * 10, last, 10))
    return blocks


def _mobilenet() -> list[_Block]:
    return _inverted(32, [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3),
                          (6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)], 32, 1280)


def _efficientnet() -> list[_Block]:
    return _inverted(32, [(1, 16, 2, 1, 3), (6, 24, 3, 2, 3), (6, 40, 3, 2, 5), (6, 80, 4, 2, 3),
                          (6, 112, 4, 1, 5), (6, 192, 5, 2, 5), (6, 320, 2, 1, 3)], 32, 1280)


def _resnet() -> list[_Block]:
    blocks, inputs, size = [_conv('stem', 112, 3, 64, 7)], 64, 56
    for width, repeats in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for k in range(repeats):
            if k == 0 and width > 64:
                size //= 2
            parts = [_conv('', size, inputs, 4 * width, 1)] if k == 0 else []
            parts += [_conv('', size, inputs, width, 1), _conv('', size, width, width, 3),
                      _conv('', size, width, 4 * width, 1)]
            blocks.append(_joined(f'block {len(blocks)}', parts))
            inputs = 4 * width
    blocks.append(_Block('classifier', 2048 * 100, 2048 * 100, 2048, 100))
    return blocks


def _bert() -> list[_Block]:
    words, width, heads = 512, 512, 8
    values = words * width
    blocks = [_Block('embedding', 0.0, 30522 * width + words * width, 2 * values, values)]
    for k in range(4):
        blocks.append(_Block(f'attention {k}', 4 * values * width + 2 * values * words,
                             4 * width * width, 6 * values + 3 * heads * words * words, values))
        blocks.append(_Block(f'feed-forward {k}', 8 * values * width, 8 * width * width,
                             11 * values, values))
    return blocks


#: Blocks, seconds of a sample on a Nano, values of an input, micro-batch and micro-batches.
NETWORKS = {
    'EfficientNet-B1': (_efficientnet, 26.7 * 60 / 50_000, 3 * 32 * 32, 128, 16),
    'MobileNetV2': (_mobilenet, 22 * 60 / 50_000, 3 * 32 * 32, 128, 16),
    'ResNet50': (_resnet, 3.48 * 3600 / 38_400, 3 * 224 * 224, 16, 16),
    'BERT-small': (_bert, 0.0, 512, 16, 128)}


def paper_costs(network: str, environment: str, mbits: float) -> RoundCosts:
    """Return a round of a network in an environment, with ports of so many Mbit/s."""
    make, seconds, inputs, micro_batch, micro_batches = NETWORKS[network]
    blocks = make()
    total = sum(block.operations for block in blocks)
    if not seconds:
        resnet = sum(block.operations for block in _resnet())
        seconds = NETWORKS['ResNet50'][1] * total / resnet
    kinds = ENVIRONMENTS[environment].split()
    devices = [Device(f'{kind}-{k}', KINDS[kind][0], KINDS[kind][1])
               for k, kind in enumerate(kinds)]
    batches = (1, 256)

    def rows(device: Device, part: float) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(part * seconds * block.operations / total * (batch + 2) / device.speed
                           for block in blocks) for batch in batches)

    weights = tuple(4 * block.weights for block in blocks)
    borders = tuple(4.0 * values for values in (inputs, *(block.output for block in blocks)))
    table = LayerTable(tuple(block.name for block in blocks),
                       tuple(4 * block.kept for block in blocks), weights, weights, borders,
                       (0.0, *borders[1:]),
                       {d.name: LayerTimes(batches, rows(d, 1 / 3), rows(d, 2 / 3))
                        for d in devices})
    names = [device.name for device in devices]
    topology = behind_access_point(devices, mbits / 8 * 1e6, wired=names, port=mbits / 8 * 1e6)
    return RoundCosts(table, topology, micro_batch, micro_batches)
