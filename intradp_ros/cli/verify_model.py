# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp verify``: split a model at random regions and compare with the unsplit one."""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from intradp_ros.cli.arguments import whole
from intradp_ros.cli.output import add_json, Advance, Output, output, percent, plain, table
from intradp_ros.cli.subject import (
    add_model,
    captured,
    GraphModel,
    load_subject,
    MODEL_HELP,
    Subject,
    tensors_of,
)
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.to_float64 import double_inputs, in_double
from intradp_ros.split.checks.calibrate import calibrate, depends_on_input
from intradp_ros.split.checks.verify import computed_in, output_error, OutputError, verify
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.on_device import split_for

DESCRIPTION = f"""\
Compute a model in random parts and compare the result with that of the unsplit model.

Every local operator runs in parts at random rows; each part gets the rows that it says it
needs and nothing else.  This is repeated with several seeds and counts of parts, in double
precision, where an error of logic cannot hide behind rounding (limit 1e-9), and in the model's
own precision (limit 1e-4, of half precision 2e-2).  Rows of the table with 1 part compare the
captured, unsplit graph with the model itself.  Errors are in units of the output's spread, its
largest minus its smallest element.  The exit status is 1 if a limit is passed.

Random weights often give an output that does not depend on the input, and then any way to
split looks exact.  Such a model is calibrated first: its weights are rescaled until
activations neither vanish nor explode.

{MODEL_HELP}"""

EPILOG = """\
examples:
  intradp verify intradp_lab.zoo.mobilenet_v2:mobilenet_v2 --input 1x3x224x224 --dtype uint8
  intradp verify pytorchcv.models.vgg:vgg19 --input 1x3x224x224 --calibrate always
  intradp verify mymodel:make --input 1x3x240x320 --parts 2 5 --seeds 10 --json"""

CALIBRATE = ('auto', 'always', 'never')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    parser.add_argument('--parts', type=whole(2, 1 << 16), nargs='+', default=[2, 3, 7],
                        metavar='N',
                        help='counts of parts to split into (default: 2 3 7)')
    parser.add_argument('--seeds', type=whole(1, 10_000), default=2, metavar='N',
                        help='how many random ways to split for each count (default 2)')
    parser.add_argument(
        '--calibrate', choices=CALIBRATE, nargs='?', const='always', default='auto',
        help='rescale random weights first: auto (default) only if the output does not depend on '
             'the input; --calibrate alone means always')
    add_json(parser)


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to split, in one precision; one part means the captured graph, unsplit."""

    precision: str
    parts: int
    seed: int
    outputs: tuple[OutputError, ...]
    split_operators: int = 0
    split_share: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether every output differs by rounding only."""
        return all(error.exact for error in self.outputs)

    @property
    def worst(self) -> float:
        """The largest error in units of the output's spread."""
        return max((error.relative for error in self.outputs), default=0.0)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    with output(args.json) as out:
        subject, calibrated = _prepared(load_subject(args, out), args, out)
        with out.progress('verifying') as advance:
            trials = [unsplit(subject, args.seed), *_trials(subject, args, advance)]
        data = _summary(subject, trials, calibrated)
        _show(trials, data, out)
        out.result(data)
    return 0 if data['exact'] else 1


def _prepared(subject: Subject, args: argparse.Namespace, out: Output) -> tuple[Subject, bool]:
    """Return the subject, calibrated if it must be, and whether it was."""
    wanted = args.calibrate
    if wanted == 'never' or (wanted == 'auto' and _alive(subject)):
        return subject, False
    if isinstance(subject.model, GraphModel):
        out.warn('the weights of an archive cannot be calibrated: if its output does not depend '
                 'on the input, an error would not show')
        return subject, False
    out.warn('the weights are calibrated, so this is not about the weights that were loaded')
    calibrate(subject.model, subject.inputs, args.seed)
    if not _alive(subject):
        out.warn('the output does not depend on the input, even with calibrated weights: an '
                 'error may not show')
    return captured(subject.name, subject.model, subject.inputs, args.axis), True


def _alive(subject: Subject) -> bool:
    return depends_on_input(subject.model, subject.inputs)


def unsplit(subject: Subject, seed: int) -> Trial:
    """Compare the captured graph with the model itself."""
    given = tensors_of(run_graph(subject.graph, subject.inputs))
    names = [f'output {k}' for k in range(len(given))]
    computed = computed_in(subject.graph)
    return Trial('own', 1, seed, tuple(
        output_error(*each, computed)
        for each in zip(names, given, subject.unsplit(subject.inputs))))


def _trials(subject: Subject, args: argparse.Namespace, advance: Advance) -> Iterator[Trial]:
    graphs = list(precisions(subject))
    total = len(graphs) * len(args.parts) * args.seeds
    done = 0
    for precision, split, inputs in graphs:
        for parts in args.parts:
            for seed in range(args.seed, args.seed + args.seeds):
                report = verify(split, inputs, parts, seed)
                yield Trial(precision, parts, seed, report.outputs, report.split_operators,
                            report.split_share)
                done += 1
                advance(done, total)


def precisions(subject: Subject) -> Iterator[tuple[str, SplitGraph, Sequence[torch.Tensor]]]:
    """Yield name, split graph and inputs: in double, if that differs, and in its own precision."""
    split = subject.shared.split
    wide = in_double(split.captured)
    if wide.values != split.captured.values:
        yield ('double', split_for(wide, split.axis, split.device),
               double_inputs(subject.inputs))
    yield 'own', split, subject.inputs


def _summary(subject: Subject, trials: Sequence[Trial], calibrated: bool) -> dict[str, Any]:
    precisions = dict.fromkeys(trial.precision for trial in trials)
    return {
        'model': subject.name, 'digest': subject.shared.digest,
        'exact': all(trial.exact for trial in trials), 'calibrated': calibrated,
        'axis': subject.shared.split.axis, 'operators': len(subject.shared.split.operators),
        'split_operators': trials[-1].split_operators, 'split_share': trials[-1].split_share,
        'worst': {precision: max(t.worst for t in trials if t.precision == precision)
                  for precision in precisions},
        'trials': [_trial(trial) for trial in trials],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        'precision': trial.precision, 'parts': trial.parts, 'seed': trial.seed,
        'exact': trial.exact,
        'outputs': [{'name': e.name, 'dtype': str(e.dtype).removeprefix('torch.'),
                     'absolute': e.absolute, 'spread': e.spread, 'relative': e.relative}
                    for e in trial.outputs]}


def _show(trials: Sequence[Trial], data: dict[str, Any], out: Output) -> None:
    errors = table(f'{data["model"]}: difference to the unsplit model', 'output', 'dtype', 'parts',
                   'seed', 'largest', 'spread', 'relative', '', left=2)
    for trial in trials:
        for e in trial.outputs:
            errors.add_row(plain(e.name), str(e.dtype).removeprefix('torch.'), str(trial.parts),
                           str(trial.seed), f'{e.absolute:.1e}', f'{e.spread:.3g}',
                           f'{e.relative:.1e}', 'exact' if e.exact else '[red]NOT exact[/red]')
    out.show(errors)
    verdict = '[green]exact[/green]' if data['exact'] else '[red]NOT exact[/red]'
    out.show(f'[bold]{verdict}[/bold]: {data["split_operators"]} of {data["operators"]} operators '
             f'with {percent(data["split_share"])} of the FLOPs ran in parts')
