# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp train show``: what a checkpoint holds."""
from __future__ import annotations

import argparse
from typing import Any

from intradp_ros.cli.arguments import existing_file
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, amount, output, plain, size, table
from intradp_ros.systems.training.base.task import TaskError
from intradp_ros.systems.training.layers.checkpoint import read_checkpoint

DESCRIPTION = """\
Show what a checkpoint holds: task, round, loss, and every tensor with what the optimiser keeps of
it. It is a safetensors file; intradp train export makes a state dict of plain PyTorch of it."""

EPILOG = """\
examples:
  intradp train show out/train/digits.safetensors
  intradp train show checkpoint.safetensors --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('checkpoint', type=existing_file, metavar='CHECKPOINT',
                        help='what train run or a node wrote')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Show it."""
    with output(args.json) as out:
        try:
            found = read_checkpoint(args.checkpoint)
        except TaskError as error:
            raise CommandError(str(error)) from error
        kept: dict[str, list[str]] = {}
        for name in found.state:
            if name.startswith('o:'):
                kept.setdefault(name[2:name.rfind(':')], []).append(name.rpartition(':')[2])
        rows: list[dict[str, Any]] = [
            {'name': name, 'shape': list(t.shape), 'dtype': str(t.dtype).removeprefix('torch.'),
             'bytes': t.nbytes, 'optimiser': sorted(kept.get(name, []))}
            for name, t in sorted(found.weights.items(), key=lambda item: _numbered(item[0]))]
        parameters = sum(t.numel() for name, t in found.state.items() if name[:2] == 'p:')
        nbytes = sum(t.nbytes for t in found.state.values())
        shown = table('Tensors', 'name', 'shape', 'type', 'bytes', 'optimiser keeps', left=1)
        for row in rows:
            shown.add_row(plain(row['name']), 'x'.join(map(str, row['shape'])), row['dtype'],
                          size(row['bytes']), plain(', '.join(row['optimiser'])))
        out.show(shown, f'task {plain(found.task)}, round {found.round}, {found.batch} samples a '
                 f'round of {found.samples or "unknown"} in all, seed {found.seed}, loss '
                 f'{found.loss:.6g}',
                 f'{amount(parameters)} parameters, {size(nbytes)} with statistics and optimiser, '
                 f'SHA-256 {found.digest}')
        out.result({'task': found.task, 'round': found.round, 'seed': found.seed,
                    'batch': found.batch, 'samples': found.samples, 'loss': found.loss,
                    'parameters': parameters, 'bytes': nbytes, 'digest': found.digest,
                    'tensors': rows})
    return 0


def _numbered(name: str) -> list[tuple[bool, int, str]]:
    """Return a name's key, by which layer 2 comes before layer 10."""
    return [(part.isdecimal(), len(part) if part.isdecimal() else 0, part)
            for part in name.split('.')]
