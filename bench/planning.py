# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How good schedules are, and how long it takes to find them.

For each network and bandwidth: predicted milliseconds of the baselines, of
LOSS by differential evolution in the time given, and of the search, next to
the lower bound.  At the end: processor seconds of a search against the
network's operators, and means over all points.

Costs are synthetic: the robot takes as many seconds as the table says, the
server a part of them; both are spread over the operators by their operations
and the bytes that they touch.  `bench/recorded.py` takes recorded times.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
import json
from statistics import mean
import time

from costed import Camera, work_of
import numpy as np
from rich.console import Console
from rich.table import Table
import torch

from intradp_lab.testbed.solvers import SOLVERS
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.graph.capture import capture
from intradp_ros.runtime.models.catalogue import load_factory
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.split_graph import split_graph
from intradp_ros.systems.sharing.baselines.simple import best_cut, best_local, best_offload
from intradp_ros.systems.sharing.search.bounds import Relaxation

DELAY, OVERHEAD = 2e-3, 0.5e-3
FIXED = 20e-6  # seconds of launching an operator


@dataclass(frozen=True)
class Net:
    """Where a network comes from, its image, and the seconds of robot and server for it."""

    source: str
    size: tuple[int, int]
    robot: float
    server: float
    dense: bool


NETS = {
    'hed': Net('intradp_lab.zoo.hed:HED', (220, 220), 0.8, 0.28, True),
    'bisenet': Net('pytorchcv.models.bisenet:bisenet_resnet18_celebamaskhq', (640, 480), 1.0, 0.3,
                   True),
    'fcn8s': Net('pytorchcv.models.fcn8sd:fcn8sd_resnetd50b_voc', (480, 480), 2.0, 0.5, True),
    'openpose': Net('pytorchcv.models.lwopenpose_cmupan:lwopenpose2d_mobilenet_cmupan_coco',
                    (368, 368), 0.5, 0.15, True),
    'vgg19': Net('pytorchcv.models.vgg:bn_vgg19', (224, 224), 0.5, 0.12, False),
    'mobilenet_v2': Net('pytorchcv.models.mobilenetv2:mobilenetv2_w1', (224, 224), 0.05, 0.012,
                        False),
    'resnet101': Net('pytorchcv.models.resnet:resnet101', (224, 224), 0.4, 0.06, False),
    'densenet121': Net('pytorchcv.models.densenet:densenet121', (224, 224), 0.2, 0.05, False),
}


@dataclass(frozen=True)
class Result:
    """What was found for one network and bandwidth: milliseconds by name, and CPU seconds."""

    net: str
    operators: int
    mbps: float
    milliseconds: Mapping[str, float]
    bound: float
    seconds: float

    @property
    def ratio(self) -> float:
        """Return the search's result by the bound."""
        return self.milliseconds['search'] / self.bound

    @property
    def gain(self) -> float:
        """Return the part of the best baseline's latency that the search saves."""
        return 1 - self.milliseconds['search'] / min(self._baselines)

    @property
    def close(self) -> bool:
        """Return whether the baselines are within a factor of 2 of each other."""
        return max(self._baselines) <= 2 * min(self._baselines)

    @property
    def _baselines(self) -> list[float]:
        return [self.milliseconds[name] for name in ('local', 'offload', 'cut')]


def load(net: Net) -> SplitGraph:
    """Capture and split a network."""
    module = load_factory(net.source).eval()
    own = net.source.startswith('intradp_ros')
    picture = torch.zeros(1, 3, *net.size, dtype=torch.uint8)
    graph = capture(module if own else Camera(module), (picture,))
    return split_graph(graph)


def synthetic(split: SplitGraph, net: Net) -> CostModel:
    """Spread each device's seconds over the operators."""
    work = [work_of(split, op) for op in split.operators]
    seconds = {}
    for side, total in ((ROBOT, net.robot), (SERVER, net.server)):
        rate = (total - FIXED * len(work)) / sum(work)
        seconds[side] = tuple(_line(op.rows, w * rate) for op, w in zip(split.operators, work))
    return CostModel(split, seconds)


def _line(rows: int, seconds: float) -> np.ndarray:
    table = FIXED + seconds * np.arange(rows + 1) / rows
    table[0] = 0.0
    return table


def measure(name: str, cost: CostModel, points: Sequence[float], de_seconds: float,
            ) -> Iterator[Result]:
    """Plan for each bandwidth."""
    relaxation = Relaxation(cost)
    for mbps in points:
        link = LinkModel.symmetric(mbps, DELAY, OVERHEAD)
        others = {'local': best_local(cost, link), 'offload': best_offload(cost, link),
                  'cut': best_cut(cost, link)}
        begin = [judged.partition for judged in others.values()]
        if de_seconds:
            others['de'] = SOLVERS['de'](cost, link, budget=10**9, begin=begin,
                                         stop=after(de_seconds))
        start = time.process_time()
        found = SOLVERS['search'](cost, link, begin=begin)
        seconds = time.process_time() - start
        milliseconds = {n: 1e3 * j.latency for n, j in {**others, 'search': found}.items()}
        yield Result(name, len(cost.split.operators), mbps, milliseconds,
                     1e3 * relaxation.bound(link, found.latency), seconds)


def after(seconds: float) -> Callable[[], bool]:
    """Return a function that says whether so many processor seconds have gone by."""
    late = time.process_time() + seconds
    return lambda: time.process_time() > late


def show(results: Sequence[Result], console: Console) -> None:
    """Print all results, and planning times by operators."""
    names = list(results[0].milliseconds)
    table = Table('network', 'Mbit/s', *names, 'bound', 'search / bound', 'saved',
                  title='predicted milliseconds')
    for r in results:
        table.add_row(r.net, f'{r.mbps:g}', *(f'{r.milliseconds[n]:.1f}' for n in names),
                      f'{r.bound:.1f}', f'{r.ratio:.2f}', f'{r.gain:.0%}')
    console.print(table)
    times = Table('network', 'operators', 'processor seconds of a search')
    for net in dict.fromkeys(r.net for r in results):
        own = [r for r in results if r.net == net]
        times.add_row(net, str(own[0].operators), f'{mean(r.seconds for r in own):.2f}')
    console.print(times)
    for kind, dense in (('dense outputs', True), ('others', False)):
        own = [r for r in results if NETS[r.net].dense is dense]
        close = [r.gain for r in own if r.close]
        if own:
            saved = f'{mean(close):.0%} at {len(close)}' if close else 'at no'
            console.print(f'{kind}: search / bound {mean(r.ratio for r in own):.2f} on average; '
                          f'saved {saved} points where the baselines are within 2 x')


def main() -> None:
    """Parse arguments, plan and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nets', nargs='+', default=list(NETS), choices=NETS, metavar='NET',
                        help=f'of {", ".join(NETS)}')
    parser.add_argument('--mbps', type=float, nargs='+', default=[4, 8, 18, 40, 80, 160])
    parser.add_argument('--de-seconds', type=float, default=0.0,
                        help='processor seconds for differential evolution at each point')
    parser.add_argument('--json', type=result_file, help='write the results here')
    args = parser.parse_args()
    torch.set_num_threads(1)
    console, results = Console(), []
    for name in args.nets:
        split = load(NETS[name])
        cost = synthetic(split, NETS[name])
        results += list(measure(name, cost, args.mbps, args.de_seconds))
    show(results, console)
    if args.json:
        write_atomically(args.json, json.dumps([
            {'net': r.net, 'operators': r.operators, 'mbps': r.mbps, 'bound_ms': r.bound,
             'seconds': r.seconds, **r.milliseconds} for r in results], indent=1))


if __name__ == '__main__':
    main()
