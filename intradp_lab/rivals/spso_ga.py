# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
SPSO-GA: whole layers on devices by a discrete particle swarm with genetic operators.

After Chen et al., "Energy-efficient offloading for DNN-based smart IoT
systems in cloud-edge environments" (IEEE Transactions on Parallel and
Distributed Systems, 2021): a particle is the device of every layer; it moves
by mutation (inertia) and by two-point crossover with its own best and the
swarm's best.  Of two particles that meet the deadline that of less energy is
the better one, else the one that is done earlier.
"""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from intradp_lab.rivals.blocks import Blocks, Bools, Floats
from intradp_ros.power.power_states import PowerStates, XAVIER_NX
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.systems.sharing.baselines.minimum_cut import placed
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.systems.sharing.strategies import DEADLINE

# Chen et al., section 5: inertia, and the pull of the own and of the swarm's best, from .. to.
_INERTIA = (0.9, 0.4)
_OWN = (0.9, 0.2)
_SWARM = (0.4, 0.9)


def spso_ga(cost: CostModel, link: LinkModel, *, power: PowerStates = XAVIER_NX,
            deadline: float = DEADLINE, seed: int = 0, particles: int = 30,
            generations: int = 40) -> Partition:
    """
    Return the placement of least energy within a deadline that the swarm finds.

    Deterministic for a seed.  `deadline` in seconds.
    """
    blocks = Blocks.of(cost)
    random = np.random.default_rng(seed)
    swarm = random.random((len(blocks.blocks), particles)) < random.random(particles)
    swarm[:, 0], swarm[:, 1] = False, True  # robot alone, server alone
    best, price = swarm.copy(), np.full(particles, np.inf)
    for generation in range(generations):
        found = _price(blocks, swarm, link, power, deadline)
        better = found < price
        best[:, better], price[better] = swarm[:, better], found[better]
        leader = best[:, int(np.argmin(price))]
        swarm = _moved(swarm, best, leader, generation / generations, random)
    return placed(best[:, int(np.argmin(price))][blocks.member])


def _price(blocks: Blocks, swarm: Bools, link: LinkModel, power: PowerStates, deadline: float,
           ) -> Floats:
    """Return joules where the deadline is met; beyond all joules, seconds where it is not."""
    played = blocks.play(swarm, link)
    joules = power.joules(played.latency, played.robot_busy, played.bytes_up / link.up,
                          played.bytes_down / link.down)
    return np.where(played.latency <= deadline, joules, 1e6 * (1 + played.latency))


def _moved(swarm: Bools, best: Bools, leader: Bools, progress: float,
           random: np.random.Generator) -> Bools:
    """Mutate, then cross with the own and with the swarm's best, each with its probability."""
    inertia, own, social = (a + (b - a) * progress for a, b in (_INERTIA, _OWN, _SWARM))
    count, size = swarm.shape
    moved = swarm.copy()
    mutates = np.flatnonzero(random.random(size) < inertia)
    moved[random.integers(count, size=len(mutates)), mutates] ^= True
    moved = _crossed(moved, best, own, random)
    return _crossed(moved, np.broadcast_to(leader[:, None], swarm.shape), social, random)


def _crossed(swarm: Bools, other: Bools, probability: float, random: np.random.Generator,
             ) -> Bools:
    """Take what lies between two random places from the other, with some probability."""
    count, size = swarm.shape
    ends = np.sort(random.integers(count + 1, size=(2, size)), axis=0)
    index: npt.NDArray[np.int64] = np.arange(count)[:, None]
    taken = (index >= ends[0]) & (index < ends[1]) & (random.random(size) < probability)
    return np.where(taken, other, swarm)
