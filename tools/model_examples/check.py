# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Add an example, and compare archive, split archive and original on pictures."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
import io
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from intradp_ros.cli.main import main
from intradp_ros.cli.subject import GraphModel, Subject
from intradp_ros.cli.verify_model import precisions
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.serialise import load_graph, load_notes
from intradp_ros.perception.card import card_from_json
from intradp_ros.perception.view import as_carded
from intradp_ros.runtime.models.model import share_graph
from intradp_ros.split.checks.verify import rounding_limit, verify
from model_examples.example import Example, pictures, tensors

PARTS, SEEDS = (2, 3), (0, 1)
Record = dict[str, Any]


def added(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run ``intradp`` in this process; return its status, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([*arguments])
    return status, out.getvalue(), ' '.join(err.getvalue().split())


def check(example: Example, folder: Path) -> Record:
    """
    Return what became of an example.

    `apart` is the greatest difference of the archive to the original, by the
    spread of an output, over all pictures; `split_exact` whether the archive divided
    at random rows says the same as undivided, in double precision, where no rounding
    chooses among answers; `moves` how much differs what is said of two pictures.
    """
    began = perf_counter()
    prepared = example.make(folder)
    path = folder / 'model.graph'
    status, out, err = added(['model', 'add', prepared.source, *prepared.options, '--out',
                              str(path), '--json'])
    if status not in (0, 1) or not out:
        return {'name': example.name, 'added': False, 'says': err}
    reported, graph = json.loads(out), load_graph(path)
    card = card_from_json(load_notes(path))
    shape = graph.values[graph.inputs[0]].shape
    shared, worst, whole, answers = share_graph(graph), 0.0, True, []
    for number, rgb in enumerate(pictures().values()):
        shown, _ = as_carded(rgb, (shape[2], shape[3]), card.input)
        order = shown[..., ::-1] if card.input.colours == 'bgr' else shown
        pixels = torch.from_numpy(order.transpose(2, 0, 1).copy())[None]
        with torch.inference_mode():
            wanted = tensors(prepared.own(pixels))
            got = tensors(run_graph(graph, (pixels,)))
        worst = max(worst, apart(got, wanted))
        answers.append(got)
        if number < len(SEEDS):
            _, split, inputs = next(precisions(Subject(
                example.name, GraphModel(graph), shared, (pixels,))))
            reports = [verify(split, inputs, parts, SEEDS[number]) for parts in PARTS]
            whole = whole and all(e.exact for report in reports for e in report.outputs)
    return {'name': example.name, 'added': True, 'trained': example.trained,
            'head': card.head.kind,
            'exact': worst <= rounding_limit(torch.float32) and card.head.kind == example.head,
            'apart': worst, 'split_exact': whole, 'moves': apart(answers[0], answers[1]),
            'local_share': reported['local_share'], 'operators': reported['operators'],
            'megabytes': reported['parameter_bytes'] / 1e6, 'digest': reported['digest'],
            'seconds': perf_counter() - began}


def apart(got: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """
    Return the greatest difference by the spread of an output; infinity for other shapes.

    Of a detector's chosen answers the better half are each compared with the
    nearest one of the original: rounding alone may swap two that are as sure.
    """
    if [x.shape for x in got] != [x.shape for x in wanted]:
        return float('inf')
    rows = wanted[1].numel() if len(wanted) > 2 and wanted[1].dim() == 2 else 0
    listed = [n for n, x in enumerate(wanted) if rows and x.shape[:2] == (1, rows)]
    plain = [_one(got[n], x) for n, x in enumerate(wanted) if n not in listed]
    if not listed:
        return max(plain)
    ours, theirs = (torch.cat([_scaled(x[n], wanted[n]).reshape(rows, -1) for n in listed], 1)
                    for x in (got, wanted))
    nearest = (ours[:max(1, rows // 2), None] - theirs[None]).abs().amax(2).amin(1)
    return max(*plain, nearest.max().item()) if plain else nearest.max().item()


def _scaled(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    wide = like.double()
    return x.double() / ((wide.max() - wide.min()).item() or 1.0)


def _one(got: torch.Tensor, wanted: torch.Tensor) -> float:
    worst = (_scaled(got, wanted) - _scaled(wanted, wanted)).abs().max().item()
    return worst if worst == worst else float('inf')


def chosen(examples: Iterable[Example], names: Sequence[str]) -> list[Example]:
    """Return the examples whose names contain one of `names`; all if there is none."""
    return [e for e in examples if not names or any(n.lower() in e.name.lower() for n in names)]
