# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a new schedule book does to the inferences that go on meanwhile.

An in-process pair on a link of 60 Mbit/s infers without a break, first by
one book, then while it is given another one every two seconds, which both
sides compile anew.  Books are planned for a robot that is 6 times slower
than the server (both are equally fast here), so that inferences are shared;
they differ in the time that a transfer takes.  Both sides, and the
compilation, share the cores and Python of one process: a robot and a server
of their own have it easier.
Target: none on the robot alone, none recovered.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from statistics import median, quantiles
import threading
import time

from models import command_line, print_table
import torch

from intradp_ros.cli.pair_run import connect
from intradp_ros.cli.profile_arguments import imagined
from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.link.predictor import make_predictor
from intradp_ros.profiling.machine import device_name, prepare_process, settle_process
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.requests.outcome import InferenceStats
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.plan_from_profiles import book_from_profiles, PlanRequest
from intradp_ros.systems.sharing.session.pair import in_process_pair, Pair

MBPS, SLOWER, PAUSE = 60.0, 6.0, 2.0
OVERHEADS = (0.5e-3, 1e-3, 2e-3)  # seconds of a transfer; of three books two are remembered
Figures = dict[str, float]


def book(model: SharedModel, profile: Profile, overhead: float) -> ScheduleBook:
    """Plan around the link's bandwidth."""
    return ScheduleBook.from_json(book_from_profiles(PlanRequest(
        graph_to_json(model.split.captured), imagined(profile, SLOWER).to_json(),
        profile.to_json(), low=MBPS / 4, high=4 * MBPS, points=12, overhead=overhead)))


def infer(pair: Pair, source: torch.Tensor, seconds: float) -> list[InferenceStats]:
    """Infer without a break for so many seconds."""
    stats, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        stats.append(pair.robot.infer((source,)).stats)
    return stats


def change(pair: Pair, books: Sequence[ScheduleBook], count: int) -> Callable[[], list[float]]:
    """Give the robot so many new books in turns; return what waits for the seconds of each."""
    taken: list[float] = []

    def give() -> None:
        for _, each in zip(range(count), cycle((*books[1:], books[0]))):
            start = time.monotonic()
            pair.robot.use_book(each)
            pair.robot.connection.wait_ready(60.0)
            taken.append(time.monotonic() - start)
            time.sleep(PAUSE)

    thread = threading.Thread(target=give)
    thread.start()

    def finish() -> list[float]:
        thread.join()
        return taken

    return finish


def figures(stats: Sequence[InferenceStats]) -> Figures:
    """Return milliseconds, and how many were not shared to the end."""
    latencies = [1e3 * s.latency for s in stats]
    return {'inferences': len(stats), 'median_ms': median(latencies),
            'p95_ms': quantiles(latencies, n=20)[-1], 'longest_ms': max(latencies),
            'alone': sum(not s.shared and not s.recovered for s in stats),
            'recovered': sum(s.recovered for s in stats)}


def measure(spec: ModelSpec, repeats: int) -> dict[str, Figures]:
    """Return the figures of one model without and with new books."""
    torch.manual_seed(0)
    source = spec.example()
    model = share_module(spec.module(), (source,))
    profile = measure_profile(model.split, (source,), budget=3.0)
    books = [book(model, profile, overhead) for overhead in OVERHEADS]
    with in_process_pair(model.tuned(profile.tuning), make_predictor('ewma'), mbps=MBPS) as pair:
        connect(pair, books[0], [])
        infer(pair, source, 1.0)
        settle_process()  # as nodes do
        quiet = infer(pair, source, repeats * PAUSE)
        finish = change(pair, books, repeats)
        changing = infer(pair, source, repeats * PAUSE)
        seconds = finish()
    return {'one book': figures(quiet),
            'new books': {**figures(changing), 'until_used_ms': 1e3 * median(seconds)}}


def show(results: dict[str, dict[str, Figures]]) -> None:
    """Print the figures as a table."""
    rows = [[name, phase, *(f'{f[key]:.1f}' for key in ('median_ms', 'p95_ms', 'longest_ms')),
             *(f'{f[key]:g}' for key in ('inferences', 'alone', 'recovered')),
             f'{f["until_used_ms"]:.0f}' if 'until_used_ms' in f else '']
            for name, phases in results.items() for phase, f in phases.items()]
    print_table(f'new books while inferences go on, {device_name()}', ['model', ''],
                ['median ms', 'p95 ms', 'longest ms', 'inferences', 'alone', 'recovered',
                 'ms until used'], rows)


if __name__ == '__main__':
    prepare_process(threads=1)
    command_line(__doc__ or '', measure, show, repeats=6)
