# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Chains of a network: what runs in a row, such as the encoder of each sense (Dora, 4.1)."""
from __future__ import annotations

from dataclasses import replace

from intradp_ros.planning.planning_model import Flow, PlanningModel, SOURCE


def chains(model: PlanningModel) -> tuple[tuple[int, ...], ...]:
    """
    Return the nodes in chains: all of a chain but the first read only the one before.

    A chain stands behind those that it reads; a branch that has begun goes
    on before another one does.
    """
    reads, readers = _neighbours(model)
    follower = {a: b for a in range(len(model.nodes)) for b in readers[a]
                if len(readers[a]) == 1 and reads[b] == {a}}
    inner = set(follower.values())
    found = []
    for head in (node for node in range(len(model.nodes)) if node not in inner):
        chain = [head]
        while chain[-1] in follower:
            chain.append(follower[chain[-1]])
        found.append(tuple(chain))
    return _depth_first(found, reads)


def in_chain_order(model: PlanningModel) -> PlanningModel:
    """Return the model with the nodes of each chain next to each other."""
    order = [node for chain in chains(model) for node in chain]
    if order == list(range(len(order))):
        return model
    place = {node: index for index, node in enumerate(order)} | {SOURCE: SOURCE}
    flows = tuple(Flow(place[f.maker], tuple(sorted((place[r] for r in f.readers),
                                                    key=lambda r: (r == SOURCE, r))),
                       f.nbytes, f.value)
                  for f in model.flows)
    measured = {device: {batch: tuple(seconds[node] for node in order)
                         for batch, seconds in tables.items()}
                for device, tables in model.measured.items()}
    return replace(model, nodes=tuple(model.nodes[node] for node in order), flows=flows,
                   measured=measured)


def _neighbours(model: PlanningModel) -> tuple[list[set[int]], list[set[int]]]:
    reads: list[set[int]] = [set() for _ in model.nodes]
    readers: list[set[int]] = [set() for _ in model.nodes]
    for flow in model.flows:
        for reader in flow.readers:
            if SOURCE not in (flow.maker, reader):
                reads[reader].add(flow.maker)
                readers[flow.maker].add(reader)
    return reads, readers


def _depth_first(found: list[tuple[int, ...]], reads: list[set[int]],
                 ) -> tuple[tuple[int, ...], ...]:
    """Order chains so that each stands behind what it reads, the newest that is ready first."""
    home = {node: k for k, chain in enumerate(found) for node in chain}
    waits = [{home[node] for node in reads[chain[0]]} for chain in found]
    order: list[int] = []
    ready = [k for k in reversed(range(len(found))) if not waits[k]]
    while ready:
        done = ready.pop()
        order.append(done)
        freed = [k for k in range(len(found)) if done in waits[k]]
        for k in reversed(freed):
            waits[k].discard(done)
            if not waits[k]:
                ready.append(k)
    return tuple(found[k] for k in order)
