# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What encodings do to the activations of real networks on a real photograph.

For each network and encoding: how many times smaller all values that it can
carry get, the range over single values, and the speed of encoding and
decoding, at one thread.  The last column says for how many of the values
the encoding is the one that crosses fastest at some link rates, encoding and
decoding included.  Last, how far what was measured on some chunks is from
what all rows of a value come to, cut into eighths.
"""
from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
import json
from pathlib import Path
from statistics import median

import cv2
from rich.console import Console
from rich.table import Table
import skimage.data
import torch

from intradp_lab.zoo.hed import hed
from intradp_lab.zoo.mobilenet_v2 import mobilenet_v2
from intradp_ros.profiling.encoding_measurement import PART
from intradp_ros.profiling.machine import device_name, prepare_process
from intradp_ros.profiling.measure import crossing_values, value_encodings
from intradp_ros.profiling.profile import CHUNK_BYTES, EncodingTiming
from intradp_ros.runtime.models.model import share_module
from intradp_ros.schedule.cost import CostModel, LinkModel, WireCost
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.sharing.partition.encoding_choice import best_encodings
from intradp_ros.wire.codecs.names import LOSSLESS, NONE
from intradp_ros.wire.cutting import cut_into_chunks as cut

NETWORKS: Mapping[str, tuple[Callable[[], torch.nn.Module], tuple[int, int]]] = {
    'hed 160x384': (hed, (160, 384)), 'mobilenet_v2 224x224': (mobilenet_v2, (224, 224))}
RATES = (5, 20, 100, 400)  # Mbit/s
SLOWDOWN = 4  # a robot's processor against this one
Found = Sequence[Mapping[str, EncodingTiming]]


def photograph(size: tuple[int, int]) -> torch.Tensor:
    """Return a photograph as pixels, shape (1, 3, height, width)."""
    coffee = skimage.data.coffee()  # type: ignore[no-untyped-call]
    picture = cv2.resize(coffee, size[::-1], interpolation=cv2.INTER_AREA)
    return torch.from_numpy(picture.transpose(2, 0, 1).copy())[None]


def figures(split: SplitGraph, found: Found) -> dict[str, dict[str, object]]:
    """Return ratio, range, MB/s and where it is chosen, by encoding."""
    chosen = {rate: Counter(dict.values(choice(split, found, rate))) for rate in RATES}
    names = sorted({name for timings in found for name in timings})
    return {name: {**_figures(split, found, name),
                   'chosen': {rate: chosen[rate][name] for rate in RATES}} for name in names}


def _figures(split: SplitGraph, found: Found, name: str) -> dict[str, object]:
    carried = [(split.graph.values[v].nbytes, t[name]) for v, t in enumerate(found) if name in t]
    plain = sum(nbytes for nbytes, _ in carried)
    ratios = [1 / timing.ratio for _, timing in carried]
    return {'values': len(carried), 'lossy': name not in LOSSLESS,
            'ratio': plain / sum(nbytes * t.ratio for nbytes, t in carried),
            'lowest': min(ratios), 'highest': max(ratios),
            'encode_mb_s': plain / 1e6 / sum(nbytes * t.encode for nbytes, t in carried),
            'decode_mb_s': plain / 1e6 / max(1e-9, sum(nb * t.decode for nb, t in carried))}


def choice(split: SplitGraph, found: Found, mbps: float) -> dict[int, str]:
    """Return the encoding of each value at a rate, NONE where none pays."""
    def wire(timing: EncodingTiming) -> WireCost:
        scale = dict(zip(SIDES, (SLOWDOWN, 1)))
        return WireCost(timing.ratio, {s: k * timing.encode for s, k in scale.items()},
                        {s: k * timing.decode for s, k in scale.items()})

    cost = CostModel(split, {}, {(v, name): wire(timing) for v, timings in enumerate(found)
                                 for name, timing in timings.items()})
    best = dict(best_encodings(cost, LinkModel.symmetric(mbps)))
    return {v: best.get(v, NONE) for v, timings in enumerate(found) if timings}


def total(split: SplitGraph, found: Found, mbps: float) -> float:
    """Return how many times smaller all values get in the encodings chosen at a rate."""
    best = choice(split, found, mbps)
    nbytes = {v: split.graph.values[v].nbytes for v in best}
    crossed = sum(nbytes[v] * (found[v][name].ratio if name != NONE else 1.0)
                  for v, name in best.items())
    return sum(nbytes.values()) / crossed


def apart(split: SplitGraph, inputs: Sequence[torch.Tensor], found: Found) -> dict[str, float]:
    """Return how many times the measured ratios are too small or too large: median, worst."""
    times: list[float] = []
    for v, value in crossing_values(split, inputs):
        dim = split.dims[v]
        if dim is not None:
            for name in LOSSLESS & found[v].keys():
                ratio, reported = crossing(value, dim, name), found[v][name].ratio
                times.append(max(reported / ratio, ratio / reported))
    return {'ratios': len(times), 'median': median(times), 'worst': max(times)}


def crossing(value: torch.Tensor, dim: int, name: str) -> float:
    """Return the part of a value's bytes that cross where its rows are cut as in the sample."""
    rows = value.shape[dim]
    size, sent = -(-rows // PART), 0
    for start in range(0, rows, size):
        region = Region(start, min(rows, start + size))
        sent += sum(len(chunk.data) for chunk in cut(
            value.narrow(dim, start, region.rows), session=1, epoch=1, inference=1, schedule=1,
            transfer=1, value=1, region=region, chunk_bytes=CHUNK_BYTES, encoding=name))
    return sent / value.nbytes


def show(results: Mapping[str, Mapping[str, dict[str, object]]],
         totals: Mapping[str, Mapping[int, float]],
         distances: Mapping[str, Mapping[str, float]]) -> None:
    """Print the figures as a table for each network."""
    console = Console(width=120)
    for network, encodings in results.items():
        table = Table('encoding', title=f'{network}, {device_name()}')
        for heading in ('values', 'smaller', 'range', 'encode MB/s', 'decode MB/s',
                        *(f'{rate} Mbit/s' for rate in RATES)):
            table.add_column(heading, justify='right')
        for name, f in encodings.items():
            table.add_row(
                f'{name} (lossy)' if f['lossy'] else name, str(f['values']), f'{f["ratio"]:.2f}x',
                f'{f["lowest"]:.2f} .. {f["highest"]:.2f}', f'{f["encode_mb_s"]:.0f}',
                f'{f["decode_mb_s"]:.0f}', *map(str, dict(f['chosen']).values()))  # type: ignore
        table.add_row('chosen', '', '', '', '', '',
                      *(f'{ratio:.2f}x' for ratio in totals[network].values()))
        console.print(table)
        off = distances[network]
        console.print(f'{off["ratios"]} ratios by a sample: {off["median"]:.3f} times off in the '
                      f'median, {off["worst"]:.2f} at worst')
    console.print(f'columns of rates: for how many values the encoding is chosen, with a robot '
                  f'{SLOWDOWN} times as slow; last row: how many times smaller all values get')


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('--json', type=Path, help='write the figures here too')
    args = parser.parse_args()
    prepare_process(1)
    results, totals, distances = {}, {}, {}
    for name, (make, size) in NETWORKS.items():
        inputs = (photograph(size),)
        split = share_module(make(), inputs).split
        with torch.inference_mode():
            found = value_encodings(split, inputs)
            distances[name] = apart(split, inputs, found)
        results[name] = figures(split, found)
        totals[name] = {rate: total(split, found, rate) for rate in RATES}
    show(results, totals, distances)
    if args.json:
        args.json.write_text(json.dumps(
            {'encodings': results, 'chosen': totals, 'apart': distances}, indent=2) + '\n')


if __name__ == '__main__':
    main()
