# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a book is worth on devices that became slower or faster than profiled.

For recorded networks, or for a model with the profiles that `intradp profile`
wrote on robot and server: a book with schedules for uneven speeds and one without,
at bandwidths and ratios of speeds that neither was made for.  The loss is what
the best of a book's schedules exceeds the best that a search for that very
place finds, in model time.
"""
from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from costed import recorded_cases
import numpy as np
from rich.console import Console
from rich.table import Table

from intradp_lab.testbed.evaluation_results import FLOAT32
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SIDES
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.make_book import (
    bandwidth_grid,
    book_of,
    PlanningProblem,
    search_at,
)
from intradp_ros.systems.sharing.book.uneven_speeds import RATIOS, SpeedCondition
from intradp_ros.systems.sharing.judge.judge import make_ready

DELAY, OVERHEAD = 2e-3, 0.5e-3
#: Where books are looked at: none of these is a ratio or a bandwidth that they were made for.
PLACES = tuple(SpeedCondition(ratio, mbps) for ratio in (0.55, 0.77, 1.1, 1.5, 2.2)
               for mbps in (6.0, 17.0, 45.0, 100.0))


@dataclass(frozen=True)
class Worth:
    """Schedules of a book, processor seconds of planning, and its loss by place."""

    case: str
    name: str
    schedules: int
    planning: float
    losses: tuple[float, ...]


def worth(title: str, cost: CostModel) -> list[Worth]:
    """Make both books of a network and look at them."""
    setting, grid = PlanningProblem(cost, DELAY, OVERHEAD), bandwidth_grid()
    make_ready(cost)
    books: dict[str, tuple[ScheduleBook, float]] = {}
    for name, ratios in (('even', ()), ('uneven', RATIOS)):
        begin = process_time()
        book = book_of(setting, title, grid, extra=len(grid) // 2, ratios=ratios)
        books[name] = book, process_time() - begin
    least = [_least(setting, place, list(books.values())) for place in PLACES]
    return [Worth(title, name, len(book.different()), seconds, tuple(
        _seconds(setting, place, book) / best - 1 for place, best in zip(PLACES, least)))
        for name, (book, seconds) in books.items()]


def _least(setting: PlanningProblem, place: SpeedCondition,
           books: Sequence[tuple[ScheduleBook, float]]) -> float:
    known = list(dict.fromkeys(e.partition for book, _ in books for e in book.entries))
    return setting.evaluator_at(place)(search_at(setting, known, place)).price


def _seconds(setting: PlanningProblem, place: SpeedCondition, book: ScheduleBook) -> float:
    price = setting.evaluator_at(place)
    return min(price(book.entries[i].partition).price for i in book.different())


def show(found: Sequence[Worth], console: Console) -> None:
    """Print a row for each book."""
    table = Table('network', 'book', 'schedules', 'planning (s of a core)', 'mean loss', 'worst',
                  title='loss where devices have other speeds')
    for one in found:
        table.add_row(one.case, one.name, f'{one.schedules}', f'{one.planning:.1f}',
                      f'{np.mean(one.losses):.1%}', f'{max(one.losses):.1%}')
    console.print(table)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--profiles', type=Path, help='folder of recordings')
    parser.add_argument('--nets', nargs='+', default=['agrnav', 'densenet121', 'vgg19_bn'])
    parser.add_argument('--model', help='a model as nodes name it, with shape and dtype')
    for side in SIDES:
        parser.add_argument(f'--{side}', type=Path, help='its profile (JSON)')
    args = parser.parse_args()
    cases: dict[str, CostModel] = {}
    if args.profiles:
        cases |= {case.title: case.cost
                  for case in recorded_cases(args.profiles, args.nets, inputs=[FLOAT32])}
    if args.model:
        cases[args.model] = _profiled(args.model, {
            side: Profile.from_json(getattr(args, side).read_text()) for side in SIDES})
    if not cases:
        parser.error('name --profiles, or --model with --robot and --server')
    console, found = Console(width=110), []
    for title, cost in cases.items():
        found += worth(title, cost)
        console.print(f'{title} done')
    show(found, console)


def _profiled(model: str, profiles: Mapping[str, Profile]) -> CostModel:
    shared = ModelSpec.parse(model).load(axis=profiles[ROBOT].axis)
    return CostModel.from_profiles(shared.split, profiles)


if __name__ == '__main__':
    main()
