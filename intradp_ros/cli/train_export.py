# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp train export``: a checkpoint's weights as PyTorch's own state dict."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
import hashlib
import io
from pathlib import Path

from safetensors.torch import save
import torch

from intradp_ros.cli.arguments import existing_file
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, amount, output, plain, size
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import replacing
from intradp_ros.systems.training.base.task import TaskError
from intradp_ros.systems.training.layers.checkpoint import is_checkpoint, read_checkpoint

DESCRIPTION = """\
Write the weights of a checkpoint, with statistics and without what the optimiser keeps, so that
plain PyTorch takes them:

  module.load_state_dict(torch.load('weights.pt'))                          # .pt, .pth, .bin
  module.load_state_dict(safetensors.torch.load_file('weights.safetensors'))"""

EPILOG = """\
examples:
  intradp train export out/train/task.safetensors -o weights.pt
  intradp train export out/train/task.safetensors -o weights.safetensors"""

#: What a file's name ends in, for torch.save and for safetensors.
PICKLED, SAFE = ('.pt', '.pth', '.bin'), '.safetensors'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('checkpoint', type=existing_file, metavar='CHECKPOINT',
                        help='what train run or a node wrote')
    parser.add_argument('-o', '--output', type=result_file, metavar='FILE', required=True,
                        help=f'what to write: {", ".join(PICKLED)} for torch.load, {SAFE} for '
                             'safetensors')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write them."""
    path: Path = args.output
    if path.suffix not in (*PICKLED, SAFE):
        raise CommandError(f'{path} does not say what to write: end its name in '
                           f'{", ".join(PICKLED)} or {SAFE}')
    if is_checkpoint(path):
        raise CommandError(f'{path} is a checkpoint, from which training could not go on any '
                           'more: name another file')
    with output(args.json) as out:
        try:
            found = read_checkpoint(args.checkpoint)
        except TaskError as error:
            raise CommandError(str(error)) from error
        weights = {name: t.contiguous() for name, t in found.weights.items()}
        data = save(weights) if path.suffix == SAFE else _pickled(weights)
        with replacing(path) as part:
            part.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        count = sum(t.numel() for t in weights.values())
        out.show(f'{plain(str(path))}: {len(weights)} tensors, {amount(count)} numbers of round '
                 f'{found.round} ({size(len(data))}, SHA-256 {digest})')
        out.result({'file': str(path), 'tensors': len(weights), 'numbers': count,
                    'round': found.round, 'digest': digest, 'bytes': len(data)})
    return 0


def _pickled(weights: Mapping[str, torch.Tensor]) -> bytes:
    stream = io.BytesIO()
    torch.save(weights, stream)
    return stream.getvalue()
