# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What keeps an inference by rows from being faster on two devices and a link.

Takes the profiles of both devices, as `intradp profile -o` writes them, and
the model.  Prints the predicted milliseconds of offloading and of the best
schedule that is found, with costs left out one at a time: what moving bytes
takes from operators (as where each side has a core to spare), half of that,
and what putting rows together takes.  Each is searched for with several
seeds, so that ``searches`` says how far one search by itself may be off;
``longer`` is what sixteen times the usual budget finds.  No schedule is below
the bound, which leaves all of these costs out.
"""
from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
import json
from pathlib import Path

from models import print_table
import torch

from intradp_ros.profiling.machine import prepare_process
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import share_module
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.baselines.simple import best_offload
from intradp_ros.systems.sharing.judge.judge import make_ready
from intradp_ros.systems.sharing.partition.encoding_choice import assuming, best_encodings
from intradp_ros.systems.sharing.search.annealing import search, usual_budget
from intradp_ros.systems.sharing.search.bounds import lower_bound
from intradp_ros.systems.sharing.search.pool import Aim, baselines

DELAY, OVERHEAD = 0.7e-3, 0.5e-3
SEEDS, LONGER = 8, 16


@dataclass(frozen=True)
class Found:
    """Milliseconds with some costs: of offloading, of a search by each seed, of a longer one."""

    costs: str
    offload: float
    searches: tuple[float, ...]
    longer: float

    @property
    def ratio(self) -> float:
        """How long the best that was found takes, as a part of offloading."""
        return min(*self.searches, self.longer) / self.offload


def variants(cost: CostModel) -> Iterator[tuple[str, CostModel]]:
    """Yield the costs with a part of them left out, with what that part is."""
    half = {side: moving.scaled(0.5) for side, moving in cost.moving.items()}
    yield 'all', cost
    yield 'half of moving bytes', replace(cost, moving=half)
    yield 'no moving of bytes', replace(cost, moving={})
    yield 'no putting rows together', replace(cost, joining={})
    yield 'neither', replace(cost, moving={}, joining={})


def find(name: str, cost: CostModel, link: LinkModel) -> Found:
    """Search with some costs."""
    assumed = assuming(cost, best_encodings(cost, link))
    begin = tuple(baselines(assumed, link, Aim()).values())
    budget = usual_budget(len(cost.split.operators))

    def found(seed: int, times: int = 1) -> float:
        return 1e3 * search(assumed, link, seed=seed, budget=times * budget, begin=begin).latency

    return Found(name, 1e3 * best_offload(assumed, link).latency,
                 tuple(map(found, range(SEEDS))), found(0, LONGER))


def cost_of(spec: ModelSpec, robot: Path, server: Path) -> CostModel:
    """Return what a model costs on two devices that were profiled."""
    profiles = {side: Profile.from_json(path.read_text())
                for side, path in ((ROBOT, robot), (SERVER, server))}
    model = share_module(spec.module(), (torch.zeros(spec.shape, dtype=spec.dtype),),
                         profiles[ROBOT].axis)
    return CostModel.from_profiles(model.split, profiles)


def main() -> None:
    """Parse arguments, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model', type=ModelSpec.parse,
                        help="package.module:factory and input, such as 'm:net 1x3x9x9 uint8'")
    parser.add_argument('robot', type=Path, help="the robot's profile")
    parser.add_argument('server', type=Path, help="the server's profile")
    parser.add_argument('--mbps', type=float, default=20.0)
    parser.add_argument('--json', type=Path, help='write the figures here too')
    args = parser.parse_args()
    prepare_process(threads=1)
    cost = cost_of(args.model, args.robot, args.server)
    make_ready(cost)
    link = LinkModel.symmetric(args.mbps, DELAY, OVERHEAD)
    found = [find(name, costs, link) for name, costs in variants(cost)]
    bound = 1e3 * lower_bound(cost, link)
    print_table(
        f'predicted ms at {args.mbps:g} Mbit/s; no schedule is below {bound:.0f}', ['charged'],
        ['offload', 'searches', 'longer', 'of offload'],
        [[f.costs, f'{f.offload:.0f}', f'{min(f.searches):.0f} to {max(f.searches):.0f}',
          f'{f.longer:.0f}', f'{f.ratio:.2f}'] for f in found])
    if args.json:
        args.json.write_text(json.dumps(
            {'mbps': args.mbps, 'bound_ms': bound, 'found': [asdict(f) for f in found]},
            indent=1) + '\n')


if __name__ == '__main__':
    main()
