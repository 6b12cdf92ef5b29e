# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp model``: make an archive of a model with its card, once, for robot and server."""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import torch
from torch import nn

from intradp_ros.cli.arguments import checked, existing_file, looked_at, number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.inspect_model import inspection
from intradp_ros.cli.output import add_json, Output, output, percent, size
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cli.subject import GraphModel, Subject, tensors_of
from intradp_ros.graph.batch_ladder import capture_ladder, save_ladder
from intradp_ros.graph.graph_errors import CaptureError, GraphFormatError
from intradp_ros.graph.serialise import digest, load_graph, load_notes
from intradp_ros.importers.differences import apart
from intradp_ros.importers.found_model import Found
from intradp_ros.importers.loading_error import LoadingError
from intradp_ros.importers.model_sources import cause_of, find_model, SOURCES, with_best_boxes
from intradp_ros.importers.picture_input import check_inputs, picture_shape
from intradp_ros.perception.card import (
    card_from_json,
    card_to_json,
    CardError,
    COLOURS,
    KINDS,
    ModelCard,
    RESIZES,
)
from intradp_ros.perception.decode import decode
from intradp_ros.perception.graph_wrappers import HalfPrecision, LikeliestClasses, Normalised
from intradp_ros.perception.heads.named_outputs import HeadError, named
from intradp_ros.perception.labels import parse_labels
from intradp_ros.perception.view import as_carded, place
from intradp_ros.runtime.models.catalogue import ModelSpecError, parse_shape
from intradp_ros.runtime.models.model import AS_GRAPH, share_graph
from intradp_ros.split.checks.verify import computed_in, rounding_limit
from intradp_ros.systems.serving.service import LARGEST_BATCH

DESCRIPTION = f"""\
Make one archive of a model: its graph and parameters, and its card, which says how a picture
becomes the input, what the outputs say, and the names of the classes. Copy it to robot and server:

  model: /opt/models/streets.graph        # inference node
  models: [/opt/models/streets.graph]     # offload node

The model is taken to want normalised floats: what normalises uint8 pixels is put before it, so
that a byte for each colour crosses the link, and nobody can forget the mean. --pixels says that
it takes uint8 pixels itself, --floats leaves normalising to the robot. The archive is read again
and compared with the model itself on a picture.

{SOURCES}"""

EPILOG = """\
examples:
  intradp model add timm:resnet18 --weights resnet18.safetensors --out resnet18.graph
  intradp model add ultralytics:yolo11n.pt --input 1x3x384x640 --out yolo.graph
  intradp model add streets.pt2 --input 1x3x256x512 --mean 0.485,0.456,0.406 \\
      --std 0.229,0.224,0.225 --likeliest --head segmentation --labels streets.txt
  intradp model show yolo.graph"""
PRECISIONS = {'float16': torch.float16, 'bfloat16': torch.bfloat16}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    verbs = parser.add_subparsers(metavar='VERB', dest='verb', required=True)
    _add_add(verbs.add_parser('add', help='make an archive', description=DESCRIPTION,
                              epilog=EPILOG))
    show = verbs.add_parser('show', help='show digest and card of an archive')
    show.add_argument('archive', type=existing_file, metavar='ARCHIVE',
                      help='what model add wrote')
    add_json(show)


def _add_add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('source', metavar='MODEL', help='as above')
    parser.add_argument('--out', type=result_file, metavar='FILE',
                        help='archive to write (default: NAME.graph)')
    parser.add_argument('--input', type=looked_at(parse_shape), metavar='SHAPE',
                        help='its shape, such as 1x3x224x224 (default: as the source says)')
    parser.add_argument('--weights', type=looked_at(lambda text: text and existing_file(text)),
                        default='', metavar='FILE',
                        help="safetensors, or what torch.save wrote: tensors, a training's "
                        'checkpoint, a whole module')
    parser.add_argument('--picture', type=looked_at(existing_file), metavar='IMAGE',
                        help='image to compare archive and model on (default: noise)')
    takes = parser.add_mutually_exclusive_group()
    takes.add_argument('--pixels', action='store_true',
                       help='the model takes uint8 pixels itself')
    takes.add_argument('--floats', action='store_true',
                       help='leave the input floating-point; the robot normalises')
    for names in (('--mean',), ('--std', '--deviation')):
        parser.add_argument(*names, type=_three, metavar='R,G,B',
                            help='by channel, of pixels from 0 to 1 (default: as the source says)')
    parser.add_argument('--precision', choices=tuple(PRECISIONS),
                        help='compute in half precision, which halves what crosses; what it does '
                        'to the outputs is reported (default: as the model does)')
    parser.add_argument('--likeliest', action='store_true', help='of logits (1, classes, h, w): '
                        'compute the likeliest class of each pixel in the model')
    parser.add_argument('--best', type=whole(1, 1 << 20), default=100, metavar='N',
                        help="of a detector's raw answers, keep the best N (default 100)")
    parser.add_argument('--classes', type=whole(0, 1 << 20), default=0, metavar='N',
                        help='classes, where the first output is (1, 4 + N + rest, answers), as '
                             'in YOLOv8: choose the best in the model')
    parser.add_argument('--head', choices=KINDS, help='what the outputs are')
    parser.add_argument('--resize', '--fit', choices=RESIZES,
                        help='how an image is fitted to the input')
    parser.add_argument('--colours', choices=COLOURS, help='order of the colour channels')
    parser.add_argument('--labels', type=looked_at(parse_labels), default='',
                        metavar='A,B,...|FILE',
                        help='file with the names of the classes')
    parser.add_argument('--score-threshold', '--score', type=number(0.0, 1.0), metavar='X',
                        help='minimum score of a detection, 0 to 1')
    parser.add_argument('--batches', type=_batches, default=(1,), metavar='1,2,...',
                        help='pictures that serving may compute at once, such as 1,2,4,8 '
                        '(default: 1)')
    parser.add_argument('--name', default='', help='name of the model (default: from the source)')
    add_json(parser)


def _three(text: str) -> tuple[float, ...]:
    try:
        red, green, blue = (float(part) for part in text.split(','))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not three numbers such as 0.485,0.456,0.406') from error
    return red, green, blue


def _batches(text: str) -> tuple[int, ...]:
    return tuple(sorted({1, *(whole(1, LARGEST_BATCH)(part) for part in text.split(','))}))


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    try:
        with output(args.json) as out:
            return _add(args, out) if args.verb == 'add' else _show(args.archive, out)
    except (CaptureError, CardError, HeadError, GraphFormatError, ModelSpecError) as error:
        raise CommandError(str(error)) from error


def _add(args: argparse.Namespace, out: Output) -> int:
    path = args.out or checked(result_file)(
        f'{args.source.rpartition(":")[2].rpartition("/")[2]}.graph')
    with out.status(f'loading {args.source}'):
        given = parse_shape(args.input) if args.input else ()
        if given:
            picture_shape(args.source, (), given)
        found = find_model(args.source, args.weights, given)
        check_inputs(args.source, found.model)
        for note in found.notes:
            out.warn(note)
        if found.problem and not (args.mean and args.std and args.resize):
            raise CommandError(f'{found.problem}; say yourself what becomes of pixels, with '
                               '--mean, --std and --resize')
        shape = picture_shape(args.source, found.shape, given)
        model, card = _finished(found, args)
        example = _example(args, shape, card)
        changed = None
        if args.precision:
            model, changed = _narrowed(model, found, example, args)
        with _of_the_model(args.source, 'captured'):
            ladder = capture_ladder(model, (example,), args.batches, AS_GRAPH)
            graph = ladder.one
            share_graph(graph)
        with _of_the_model(args.source, 'computed'):
            _check_head(card, model, example)
    if max(ladder.graphs) < max(args.batches):
        out.warn(f'no batches above {max(ladder.graphs)}: {ladder.why}')
    save_ladder(ladder, path, card_to_json(card))
    with out.status('comparing the archive with the model'), _of_the_model(
            args.source, 'compared with its archive'):
        with torch.inference_mode():
            wanted = tensors_of(model(example))
        difference = _difference(wanted, GraphModel(load_graph(path)), example)
    _describe(path, out, difference, changed)
    return 0 if difference <= rounding_limit(computed_in(graph) or torch.float32) else 1


@contextmanager
def _of_the_model(source: str, doing: str) -> Iterator[None]:
    """Name the model as the cause of what its own code, or PyTorch on it, raises."""
    try:
        yield
    except (CommandError, LoadingError, CaptureError, CardError, HeadError, GraphFormatError):
        raise
    except Exception as error:  # a model may raise whatever it likes
        raise CommandError(f'{source} cannot be {doing}: {cause_of(error)}') from error


def _narrowed(model: nn.Module, found: Found, example: torch.Tensor, args: argparse.Namespace,
              ) -> tuple[nn.Module, float]:
    """Return a finished model in half precision, and how far its outputs are from before."""
    with torch.inference_mode():
        wanted = tensors_of(model(example))
    inside = HalfPrecision(found.model, PRECISIONS[args.precision]).eval()
    narrow, _ = _finished(replace(found, model=inside), args)
    try:
        return narrow, _difference(wanted, narrow, example)
    except RuntimeError as error:
        cause = str(error).strip().partition('\n')[0]
        raise CommandError(
            f'the model does not compute in {args.precision} ({cause}): does it convert to '
            'another dtype itself? Let it take the dtype of its weights, or leave out '
            '--precision') from error


def _finished(found: Found, args: argparse.Namespace) -> tuple[nn.Module, ModelCard]:
    """Return the model with what belongs inside, and its card."""
    card = _card(found, args)
    if args.classes:
        found = replace(found, classes=args.classes)
    chosen = with_best_boxes(found, args.best) if found.classes else found
    model: nn.Module = LikeliestClasses(chosen.model) if args.likeliest else chosen.model
    pixels = args.pixels or found.dtype is torch.uint8
    if args.floats and found.dtype is torch.uint8:
        raise CommandError('the model takes uint8 pixels: leave out --floats')
    if args.floats or pixels:
        if pixels and (card.input.mean or card.input.std):
            raise CommandError('a model of pixels normalises inside: leave out mean and std')
        return model, card
    inside = Normalised(model, card.input.mean, card.input.std)
    return inside, replace(card, input=replace(card.input, mean=(), std=()))


def _card(found: Found, args: argparse.Namespace) -> ModelCard:
    card = found.card
    given = {name: getattr(args, name) for name in ('resize', 'colours', 'mean', 'std')
             if getattr(args, name) is not None}
    head: dict[str, Any] = {'kind': args.head} if args.head else {}
    if args.classes and not found.classes:
        head = {'kind': 'detections', 'form': 'xywh', **head}
    if args.score_threshold is not None:
        head['score_threshold'] = args.score_threshold
    return replace(card, name=args.name or card.name or Path(args.source).name,
                   input=replace(card.input, **given), head=replace(card.head, **head),
                   labels=parse_labels(args.labels) or card.labels)


def _example(args: argparse.Namespace, shape: tuple[int, ...], card: ModelCard) -> torch.Tensor:
    """Return a picture, or noise, as the model takes it."""
    if args.picture:
        pixels = cv2.imread(args.picture, cv2.IMREAD_COLOR)
        if pixels is None:
            raise CommandError(f'{args.picture!r} is not an image file that OpenCV reads')
        shown, _ = as_carded(
            cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB), (shape[2], shape[3]), card.input)
        image = torch.from_numpy(shown.transpose(2, 0, 1).copy())[None]
    else:
        image = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0),
                              dtype=torch.uint8)
    return image / 255 if args.floats else image


def _check_head(card: ModelCard, model: nn.Module, example: torch.Tensor) -> None:
    """Raise HeadError if the outputs do not say what the card claims."""
    target = (example.shape[2], example.shape[3])
    with torch.inference_mode():
        outputs = named(model(example), card.outputs)
    decode(outputs, card.head, place(target, target, 'stretch'))


def _difference(wanted: Sequence[torch.Tensor], model: nn.Module, example: torch.Tensor) -> float:
    """Return the greatest difference of a model's outputs to the wanted ones, by their spread."""
    with torch.inference_mode():
        got = tensors_of(model(example))
    if len(wanted) != len(got):
        raise CommandError(f'the archive has {len(got)} outputs, the model {len(wanted)}')
    return max((apart(*pair) for pair in zip(wanted, got)), default=0.0)


def _show(path: Path, out: Output) -> int:
    _describe(path, out, None, None)
    return 0


def _describe(path: Path, out: Output, difference: float | None,
              changed: float | None) -> None:
    """Print what an archive holds, and how well it can be shared."""
    graph = load_graph(path)
    try:
        shared = share_graph(graph)
    except ValueError as error:
        raise CommandError(f'{path}: {error}') from error
    notes = load_notes(path)
    card = card_from_json(notes) if notes else ModelCard()
    facts = inspection(Subject(str(path), GraphModel(graph), shared, ()), False)
    value = graph.values[graph.inputs[0]]
    kind = str(value.dtype).removeprefix('torch.')
    data: dict[str, Any] = {
        'archive': str(path), 'digest': digest(graph), 'name': card.name,
        'input': f'{"x".join(map(str, value.shape))} {kind}', 'head': card.head.kind,
        'labels': len(card.labels), 'operators': facts['operators'],
        'parameter_bytes': facts['parameter_bytes'], 'flops': facts['flops'],
        'local_share': facts['local_share'], 'rows_meet': len(facts['rows_meet']),
        'difference': difference, 'precision_difference': changed}
    out.show(f'{path}: {card.name or "no card"}, digest {data["digest"][:12]}',
             f'  takes {data["input"]} ({card.input.resize}), {data["operators"]} operators, '
             f'{size(data["parameter_bytes"])} of parameters',
             f'  says {data["head"]}, {data["labels"]} names of classes',
             f'  {percent(data["local_share"])} of its work can be split by rows, which meet '
             f'{data["rows_meet"]} times: {_judgement(data["local_share"])}')
    if difference is not None:
        out.show(f"  the archive differs from the model by {difference:.1e} of an output's "
                 'spread')
    if changed is not None:
        out.show(f'  half precision changes outputs by {changed:.1e} of their spread')
    out.result(data)


def _judgement(share: float) -> str:
    """Return in words how well a model can be shared."""
    if share >= 0.95:
        return 'shares well'
    return 'shares in part' if share >= 0.5 else 'is rather offloaded as a whole, or run alone'
