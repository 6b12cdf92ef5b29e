# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp language plan``: who holds what, what it takes, and an estimate of the least."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
import json
import math
from pathlib import Path
import statistics
from typing import Any

from intradp_ros.cli.arguments import add_renamed
from intradp_ros.cli.language_model import add_device, add_fleet, add_model, planned_model
from intradp_ros.cli.output import add_json, milliseconds, Output, output, plain, size, table
from intradp_ros.cli.output_paths import result_file, result_picture
from intradp_ros.core.atomic_write import all_or_none, write_atomically
from intradp_ros.report.language_plot import BlockSpan, draw_blocks
from intradp_ros.systems.language.actions import actions, first_loads, Load, Run
from intradp_ros.systems.language.arithmetic import bits_line
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.estimate import play, Played
from intradp_ros.systems.language.expert_reads import round_bytes
from intradp_ros.systems.language.limits import DeviceRates, fleet_limit, plan_limit
from intradp_ros.systems.language.planner import NoPlanError, plain_pipeline
from intradp_ros.systems.language.segment_plan import SegmentPlan

DESCRIPTION = """\
Plan a language model for a fleet: which device holds which layers, and which of them it reads
from its disk in every token.

Seconds of blocks and the memory's rate are measured on this machine; the devices' speeds, disks
and links are those of the fleet file. The least that a token could take is an estimate: in another
minute the same machine has other rates."""

EPILOG = """\
examples:
  intradp language plan smollm2 --fleet config/fleet.yaml
  intradp language plan ~/models/Qwen3-0.6B --devices 3 --memory 700 --show
  intradp language plan model.gguf --fleet fleet.yaml --source robot1 -o plan.json \\
      --timeline token.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    add_fleet(parser)
    add_device(parser)
    parser.add_argument('--show', action='store_true',
                        help='print what each device does in a round, in order')
    parser.add_argument('-o', '--output', type=result_file, metavar='FILE',
                        help='write the plan as JSON')
    add_renamed(parser, '--timeline', '--picture', type=result_picture, metavar='FILE',
                help='draw who computes and reads when, in one token')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, and show it."""
    with output(args.json) as out:
        model = planned_model(args, out)
        costs, plan = model.costs, model.planned.plan
        played = play(plan, costs)
        data = described(plan, played, costs, model.opened.seconds.memory_rate)
        data['answer'] = model.planned.answer
        try:
            pipeline = plain_pipeline(costs, model.head)
            data['plain_pipeline_ms'] = 1e3 * play(pipeline, costs).seconds
        except NoPlanError:
            data['plain_pipeline_ms'] = None
        _show(data, plan, out)
        if args.show:
            for name in plan.participants:
                words = [*map(str, first_loads(plan, name)), '|',
                         *map(str, actions(plan, 1, name, 1))]
                out.show(f'{name}: {" ".join(words)}')
        with all_or_none():
            if args.output:
                write_atomically(args.output, json.dumps(plan.to_json()))
            if args.timeline:
                _draw(played, plan, args.timeline)
        out.result({**data, 'plan': plan.to_json()})
    return 0


def described(plan: SegmentPlan, played: Played, costs: LanguageCosts, memory_rate: float,
              ) -> dict[str, Any]:
    """Return what is said of a plan: by device, and the limits."""
    manifest, topology = costs.manifest, costs.topology
    names = [device.name for device in topology.devices]
    rates = {name: DeviceRates(memory_rate * topology.device(name).speed,
                               costs.disk(name) or 1e-9, topology.device(name).memory_bytes)
             for name in names}
    hops = [costs.hop_seconds(a, b) for a in plan.participants for b in plan.participants
            if a != b]
    hop = statistics.mean(hops) if hops else 0.0
    limit = plan_limit(plan, manifest, rates, hop, 0)
    whole = fleet_limit(manifest, rates, hop, plan.head, 0)
    seconds = played.seconds
    return {
        'model': manifest.name, 'ms_per_token': 1e3 * seconds, 'tokens_per_second': 1 / seconds,
        'limit_ms': 1e3 * limit.seconds, 'x': seconds / limit.seconds, 'binds': limit.binds,
        'fleet_limit_ms': 1e3 * whole.seconds, 'x_fleet': seconds / whole.seconds,
        'hops': plan.hops, 'memory_rate': memory_rate,
        'bits': bits_line(plan.participants, costs.arithmetic),
        'devices': {name: _device(plan, played, costs, name) for name in plan.participants}}


def _device(plan: SegmentPlan, played: Played, costs: LanguageCosts, name: str) -> dict[str, Any]:
    need = costs.need(plan, name)
    blocks, streamed = plan.blocks_of(name), plan.streamed(name)
    allowed = costs.topology.device(name).memory_bytes
    return {
        'blocks': len(blocks), 'streamed': len(streamed),
        'read_bytes': round(round_bytes(plan, costs.manifest, name)),
        'computing_ms': 1e3 * sum(costs.block(name, b) for b in blocks),
        'uncovered_ms': 1e3 * played.disk[name],
        'memory': {'blocks': need.blocks, 'kv': need.kv, 'activations': need.activations,
                   'head': need.head, 'total': need.total,
                   'allowed': None if math.isinf(allowed) else allowed}}


def _show(data: Mapping[str, Any], plan: SegmentPlan, out: Output) -> None:
    shown = table(f'{data["model"]}: {data["answer"]}', 'device', 'blocks', 'read in each token',
                  'computing, ms', 'load not hidden, ms', 'weights', 'cache', 'head', 'memory',
                  'allowed')
    for name, row in data['devices'].items():
        memory = row['memory']
        shown.add_row(
            plain(name) + (' (head)' if name == plan.head else ''), str(row['blocks']),
            f'{row["streamed"]} ({size(row["read_bytes"])})', f'{row["computing_ms"]:.3g}',
            f'{row["uncovered_ms"]:.3g}', size(memory['blocks']), size(memory['kv']),
            size(memory['head']), size(memory['total']),
            size(memory['allowed']) if memory['allowed'] else 'any')
    out.show(shown)
    out.show(f'{milliseconds(data["ms_per_token"] / 1e3)} ms a token predicted '
             f'({data["tokens_per_second"]:.3g} tokens/s), {data["x"]:.2f} times the '
             f'estimated least of this plan ({milliseconds(data["limit_ms"] / 1e3)} ms; '
             f'{data["binds"]} binds) and {data["x_fleet"]:.2f} times that of any plan '
             f'({milliseconds(data["fleet_limit_ms"] / 1e3)} ms).')
    if data['bits']:
        out.show(data['bits'] + '.')
    usual = data['plain_pipeline_ms']
    out.show('A plain pipeline with offloading does not fit.' if usual is None else
             f'A plain pipeline with offloading: {milliseconds(usual / 1e3)} ms a token.')


def _draw(played: Played, plan: SegmentPlan, path: Path) -> None:
    end = max(span.stop for span in played.spans)
    first = end - 2 * played.seconds
    draw_blocks([BlockSpan(s.device, isinstance(s.action, Load), s.start, s.stop)
                 for s in played.spans if isinstance(s.action, Run | Load)
                 and s.stop > first and s.start < end - played.seconds],
                plan.participants, path, 'One token, predicted')
