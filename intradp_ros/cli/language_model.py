# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the verbs of ``intradp language`` have in common: the model, and the fleet it is for."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
import math
from pathlib import Path

from intradp_ros.blobs.store import BlobStore
from intradp_ros.cli.arguments import add_renamed, existing_file, file_of, number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.fleet_argument import fleet_of
from intradp_ros.cli.output import Output
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Medium, Topology
from intradp_ros.core.cache_folder import cache_folder
from intradp_ros.core.json_text import read_json
from intradp_ros.profiling.disk import disk_rate
from intradp_ros.split.calls.accelerator import DeviceError, open_device
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.language.arithmetic import arithmetic_of, free_bytes
from intradp_ros.systems.language.checkpoint import ImportModelError
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.drafts import DRAFTS, MOST_DRAFTS
from intradp_ros.systems.language.estimate import play
from intradp_ros.systems.language.families import FamilyError, MissingPackageError
from intradp_ros.systems.language.live_planner import MakePlan
from intradp_ros.systems.language.manifest import DTYPES, Manifest
from intradp_ros.systems.language.measure import BlockSeconds, measured_blocks
from intradp_ros.systems.language.opened import imported
from intradp_ros.systems.language.planner import NoPlanError, plan_language, Planned
from intradp_ros.systems.language.segment_plan import parse_plan, SegmentPlan
from intradp_ros.systems.language.smollm2 import model_place

#: Seconds that a message takes in addition to its way: between machines, and between threads.
_HOP, _THREAD_HOP = 1e-3, 2e-4
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Opened:
    """A model in blobs, with what its blocks take on this machine."""

    manifest: Manifest
    store: BlobStore
    seconds: BlockSeconds
    device: KernelDevice = HOST


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declare the model."""
    parser.add_argument('model', metavar='MODEL',
                        help='folder of safetensors, GGUF file, or smollm2')
    parser.add_argument('--dtype', choices=tuple(DTYPES), default=None,
                        help='precision of the weights (default: as they are)')
    parser.add_argument('--tokens', type=whole(16, 1 << 24), default=2048, metavar='N',
                        help='tokens of all requests together that there is room for '
                             '(default %(default)s)')


def add_fleet(parser: argparse.ArgumentParser) -> None:
    """Declare devices: of a file, or some that are alike."""
    parser.add_argument('--fleet', type=existing_file, metavar='FLEET.yaml',
                        help='which machines there are (see intradp fleet show); their speed is '
                             'relative to this machine')
    parser.add_argument('--devices', type=whole(1, 8), default=1, metavar='N',
                        help='without --fleet: so many devices that are alike '
                             '(default %(default)s)')
    parser.add_argument('--memory', type=number(0.0, 1e7), default=0.0, metavar='MB',
                        help='without --fleet: 1e6 bytes that each device gives to the model '
                             '(default: enough)')
    add_renamed(parser, '--source', '--head', metavar='DEVICE',
                help='device with requests, embedding and head (default: first)')


def add_device(parser: argparse.ArgumentParser) -> None:
    """Declare what blocks are computed on."""
    parser.add_argument('--device', default=HOST.name, metavar='NAME',
                        help='what computes here: cpu, a device of PyTorch such as cuda, or auto: '
                             'cuda where there is one, else cpu (default %(default)s)')


def add_drafts(parser: argparse.ArgumentParser) -> None:
    """Declare how many tokens are drafted."""
    parser.add_argument('--drafts', type=whole(0, MOST_DRAFTS), default=DRAFTS, metavar='N',
                        help='tokens that are looked up in prompt and answer and checked at once, '
                             'where that is measured to pay; answers are the same (default '
                             '%(default)s: none)')


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Declare the file of a plan."""
    parser.add_argument('--plan', type=file_of(_plan_of_file), metavar='FILE',
                        help='plan from `intradp language plan -o`, for the same model and '
                             'devices (default: planned here)')


def _plan_of_file(path: Path) -> SegmentPlan:
    return parse_plan(read_json(path))


def open_model(args: argparse.Namespace, out: Output) -> Opened:
    """
    Return the model of the arguments, turned into blobs the first time.

    :raises CommandError: if there is none, or something that is needed is not installed; or if
        devices or tokens of the arguments make no sense, which is looked at first.
    """
    head_of(args, fleet_of(args.fleet).topology.names if args.fleet else _alike(args.devices))
    try:
        device = open_device(args.device)
    except DeviceError as error:
        raise CommandError(f'--device: {error}') from error
    store = BlobStore(cache_folder() / 'language' / 'blobs', _NO_LIMIT)
    try:
        source = model_place(args.model)
        with out.status(f'turning {args.model} into blobs, once'):
            manifest = imported(source, store, args.dtype or '')
        with out.status('measuring its blocks'):
            return Opened(manifest, store, measured_blocks(manifest, store, device), device)
    except (ImportModelError, FamilyError, MissingPackageError, ModuleNotFoundError) as error:
        raise CommandError(str(error)) from error


@dataclass(frozen=True)
class PlannedModel:
    """
    An open model, with the plan for the devices of the arguments; `head` is one of them.

    `make` plans again for the devices that are there.
    """

    opened: Opened
    costs: LanguageCosts
    head: str
    planned: Planned
    make: MakePlan = plan_language


def planned_model(args: argparse.Namespace, out: Output, file: Path | None = None,
                  ) -> PlannedModel:
    """
    Open the model, and plan it or read its plan from a file.

    CommandError as `open_model`, or if it does not fit.
    """
    opened = open_model(args, out)
    costs = _costs(args, opened)
    if file:
        plan = _plan_of_file(file)
        _check_plan(plan, costs, args.source)
        planned = Planned(plan, play(plan, costs).seconds, f'as {file} says')
        return PlannedModel(opened, costs, plan.head, planned, _always(planned))
    head = head_of(args, costs.topology.names)
    try:
        return PlannedModel(opened, costs, head, plan_language(costs, head))
    except NoPlanError as error:
        raise CommandError(str(error)) from error


def _check_plan(plan: SegmentPlan, costs: LanguageCosts, source: str | None) -> None:
    """Raise CommandError if a plan is not one for this model and these devices."""
    manifest, names = costs.manifest, costs.topology.names
    if (plan.model, plan.blocks) != (manifest.digest, len(manifest.blocks)):
        raise CommandError(f'--plan: it is for another model than {manifest.name}: plan again')
    if absent := [name for name in plan.participants if name not in names]:
        raise CommandError(f'--plan: it needs {", ".join(absent)}; there are {", ".join(names)}')
    if source not in (None, plan.head):
        raise CommandError(f'--plan: requests come to {plan.head}, not to {source}')
    for step in range(len(plan.steps) + 1):
        for name in plan.participants:
            need = costs.need(plan.at(step), name).total
            if need > costs.topology.device(name).memory_bytes:
                raise CommandError(f'--plan: {name} needs {need / 1e6:.0f} MB, and has '
                                   f'{costs.topology.device(name).memory_bytes / 1e6:.0f}')


def _always(planned: Planned) -> MakePlan:
    """Return what plans the same whenever all devices of the plan are there."""
    def make(costs: LanguageCosts, head: str, alive: frozenset[str]) -> Planned:
        if absent := sorted({*planned.plan.participants} - alive):
            raise NoPlanError(f'the plan needs {", ".join(absent)}')
        return planned
    return make


def _costs(args: argparse.Namespace, opened: Opened) -> LanguageCosts:
    """Return the costs of the arguments' fleet; CommandError if there is none."""
    seconds, topology = opened.seconds, _topology(args, opened)
    return LanguageCosts(
        opened.manifest, topology, seconds.attention, seconds.mlp, seconds.head,
        _HOP if args.fleet else _THREAD_HOP, min(args.tokens, opened.manifest.context),
        blocks=seconds.blocks,
        arithmetic=dict.fromkeys(topology.names, arithmetic_of(opened.device)))


def head_of(args: argparse.Namespace, names: Sequence[str]) -> str:
    """Return the head among devices; CommandError if there is no such device."""
    head = args.source or names[0]
    if head not in names:
        raise CommandError(f'--source {head}: there is no such device; there are '
                           + ', '.join(names))
    return str(head)


def _alike(count: int) -> list[str]:
    """Return the names of devices that no file names."""
    return [f'device{k + 1}' for k in range(count)]


def _topology(args: argparse.Namespace, opened: Opened) -> Topology:
    if args.fleet:
        return fleet_of(args.fleet).topology
    memory = 1e6 * args.memory or free_bytes(opened.device) / args.devices or math.inf
    plain = [Device(name, memory) for name in _alike(args.devices)]
    joined = behind_access_point(plain, 1e12) if len(plain) > 1 else \
        Topology(tuple(plain), (), {})
    rate = disk_rate(opened.store.folder).bytes_per_second
    disks = tuple(Medium(f'disk of {d.name}', rate) for d in plain)
    return Topology(tuple(replace(d, disk=f'disk of {d.name}') for d in plain),
                    joined.media + disks, joined.paths)
