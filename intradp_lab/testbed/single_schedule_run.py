# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Schedules of a book one by one, each side a process of its own, started with a role and RUN.json.

The robot sets the link so that its channel measures the bandwidth that a
schedule was made for, runs that schedule alone for some frames, and goes on to
the next one.  What the middleware sends in addition to tensors does not become less on
slow links, and schedules that send both ways at once have more of it: so each
has a link of its own.  Devices that compute change their speed within seconds;
so before and after each frame each of them computes the whole network by itself.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle
import json
from pathlib import Path
from statistics import median
import sys
import time

import numpy as np
import torch

from intradp_lab.emulation.network import ShapedLink
from intradp_lab.testbed.phases import load, wait_ready
from intradp_lab.testbed.side import say, serve_on
from intradp_lab.testbed.trial import Trial
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.dds.standalone import standalone_channel
from intradp_ros.link.predictor import make_predictor
from intradp_ros.profiling.machine import prepare_process, settle_process
from intradp_ros.runtime.models.catalogue import example_inputs, ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.timeline import Event, total
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
)

#: Lanes of a timeline with the kinds of events that are added up.
LANES = ((ROBOT, 'compute'), (SERVER, 'compute'), ('uplink', 'transfer'),
         ('downlink', 'transfer'))
WARM_UP = 3
#: Seconds after a change of the link until estimates have forgotten the rate before.
SETTLING = 2.5
#: How often a link is corrected at most, by what factor at a time, and what is close enough.
CORRECTIONS, MOST_CORRECTED, CLOSE = 2, 1.3, 0.03
_ALWAYS = 1e-9  # Mbit/s: a schedule for that little is used at any bandwidth
Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class PinnedRun:
    """
    What to run: entries of a book, so many frames of each (the trial's phases are not used).

    `real` computes on this machine instead of on emulated devices, on
    `pictures` (a file of pixels, a frame for each entry of its first
    dimension) if given.  Payload is taken to cross the shaped link at `efficiency` of
    its rate, until a schedule's first frames say more.
    """

    trial: Trial
    book: str
    entries: tuple[int, ...]
    frames: int
    namespaces: Mapping[str, str]
    real: bool = False
    pictures: str = ''
    efficiency: float = 1.0

    def save(self, path: Path) -> None:
        """Write the run to a file."""
        write_atomically(path, json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, path: Path) -> PinnedRun:
        """Read what `save` wrote."""
        data = json.loads(path.read_text())
        trial = Trial(**{**data['trial'], 'phases': ()})
        data.update(trial=trial, entries=tuple(data['entries']))
        return cls(**data)


@dataclass
class Frames:
    """
    What one schedule did: seconds of each frame, and by lane the seconds in which it was busy.

    `rate` is the Mbit/s that the other side measured last of what the robot
    sends, `whole` the seconds in which each real device computed the whole
    network by itself, about a frame.  Only frames that ended as planned are in
    the lists, the others are counted in `failed`.
    """

    entry: int
    latency: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    busy: list[dict[str, float]] = field(default_factory=list)
    whole: list[dict[str, float]] = field(default_factory=list)
    failed: int = 0


def load_frames(path: Path) -> list[Frames]:
    """Read what a run has written."""
    return [Frames(**row) for row in json.loads(path.read_text())]


def pinned(book: ScheduleBook, index: int) -> ScheduleBook:
    """
    Return a book with one schedule for every bandwidth, and one that offloads, if another.

    It has no curves for catching up, which are of other bandwidths: robots run it
    by plan, and compute rows themselves only where these are late.
    """
    chosen = book.entries[index]
    others: list[Entry] = [] if chosen.strategy == OFFLOAD else [
        entry for entry in book.entries if (entry.mbps, entry.strategy) == (chosen.mbps, OFFLOAD)]
    return replace(book, bounds=(), entries=tuple(
        replace(entry, mbps=_ALWAYS, low=0.0, high=float('inf'),
                anywhere=entry.anywhere and replace(entry.anywhere, catch_up=()))
        for entry in (chosen, *others)))


def serve(run: PinnedRun) -> None:
    """Serve until a signal ends the process."""
    model = _model(run, SERVER)
    with standalone_channel(run.trial.name, SERVER) as opened:
        serve_on(opened, model)


def play(run: PinnedRun) -> None:
    """Run all schedules and write what was seen."""
    model, book = _model(run, ROBOT), ScheduleBook.load(Path(run.book))
    link = ShapedLink(run.namespaces)
    inputs = _inputs(run, model)
    with standalone_channel(run.trial.name, ROBOT) as opened:
        client = RobotClient(model, opened, make_predictor(run.trial.predictor), print,
                             patience=PatiencePolicy(**run.trial.patience))
        settle_process()
        try:
            found = [frames for mbps, indices in _by_bandwidth(book, run.entries)
                     for frames in _play_at(run, client, link, book, mbps, indices, inputs)]
        finally:
            client.close()
    write_atomically(Path(run.trial.output), json.dumps([asdict(frames) for frames in found]))
    say('done')


def _by_bandwidth(book: ScheduleBook, entries: Sequence[int],
                  ) -> Iterator[tuple[float, list[int]]]:
    for mbps in sorted({book.entries[i].mbps for i in entries}):
        yield mbps, [i for i in entries if book.entries[i].mbps == mbps]


def _play_at(run: PinnedRun, client: RobotClient, link: ShapedLink, book: ScheduleBook,
             mbps: float, indices: Sequence[int], inputs: Iterator[Inputs]) -> Iterator[Frames]:
    """Run the schedules of one bandwidth."""
    for index in indices:
        entry = book.entries[index]
        say(f'entry {index} {mbps:g} {entry.strategy}')
        client.use_book(pinned(book, index))
        wait_ready(client)
        shaped = mbps / run.efficiency
        for _ in range(CORRECTIONS + 1):
            link.set_rate(shaped)
            factor = correction(mbps, _warm_up(client, entry.strategy, inputs))
            if factor == 1.0:
                break
            shaped *= factor
        yield _play_frames(run, client, index, entry.strategy, inputs)


def correction(mbps: float, rates: Sequence[float]) -> float:
    """Return by what factor a link should be faster where those were measured, not `mbps`."""
    known = [rate for rate in rates if rate > 0.0]
    factor = mbps / median(known) if known else 1.0
    if abs(factor - 1.0) <= CLOSE:
        return 1.0
    return min(MOST_CORRECTED, max(1.0 / MOST_CORRECTED, factor))


def _warm_up(client: RobotClient, strategy: str, inputs: Iterator[Inputs]) -> list[float]:
    """Run frames until estimates have settled, and some more; return the Mbit/s of those."""
    settled, rates = time.monotonic() + SETTLING, list[float]()
    while len(rates) < WARM_UP:
        outcome = client.infer(next(inputs), strategy=strategy)
        if time.monotonic() >= settled:
            rates.append(client.channel.report().send_rate * 8e-6 if outcome.stats.shared else 0.0)
    return rates


def _play_frames(run: PinnedRun, client: RobotClient, index: int, strategy: str,
                 inputs: Iterator[Inputs]) -> Frames:
    found, before = Frames(index), _whole(run, client, inputs)
    for _ in range(run.frames):
        outcome = client.infer(next(inputs), strategy=strategy)
        planned, lanes = _as_planned(client, outcome), busy(client.timeline(outcome))
        rate = client.channel.report().send_rate * 8e-6
        after = _whole(run, client, inputs)
        if planned and before is not None and after is not None:
            found.latency.append(outcome.stats.latency)
            found.rate.append(rate)
            found.busy.append(lanes)
            found.whole.append({side: (before[side] + after[side]) / 2 for side in before})
        else:
            found.failed += 1
        before = after
    return found


def _whole(run: PinnedRun, client: RobotClient, inputs: Iterator[Inputs],
           ) -> dict[str, float] | None:
    """Return the seconds that each real device takes for the whole; None if one gave none."""
    if not run.real:
        return {}
    own = client.infer(next(inputs), strategy=LOCAL)
    offloaded = client.infer(next(inputs), strategy=OFFLOAD)
    server = total(client.timeline(offloaded), SERVER, 'compute')
    if not offloaded.stats.shared or offloaded.local_catch_up or not server:
        return None
    return {ROBOT: total(own.events, ROBOT, 'compute'), SERVER: server}


def _as_planned(client: RobotClient, outcome: Outcome) -> bool:
    """Return whether the schedule was run to its end, with the server if it needs it."""
    agreement = client.connection.agreement
    if agreement is None or outcome.stats.recovered or outcome.stats.schedule:
        return False
    alone = not client.cache.get(agreement.book.entries[0].partition).schedule.transfers
    return alone or outcome.stats.shared


def busy(events: Sequence[Event]) -> dict[str, float]:
    """Return the seconds in which devices computed and each way of the link carried rows."""
    return {lane: total(events, lane, kind) for lane, kind in LANES}


def _model(run: PinnedRun, side: str) -> SharedModel:
    if not run.real:
        return load(run.trial, side)
    profile = run.trial.profile(side)
    return ModelSpec.parse(run.trial.model).load(run.trial.axis).tuned(profile.tuning)


def _inputs(run: PinnedRun, model: SharedModel) -> Iterator[Inputs]:
    """Return inputs without end."""
    if not run.pictures:
        return cycle([example_inputs(model)])
    return cycle([(torch.from_numpy(picture)[None],) for picture in np.load(run.pictures)])


def main() -> None:
    """Run the side that the command line names."""
    side, path = sys.argv[1:]
    prepare_process()
    {'robot': play, 'server': serve}[side](PinnedRun.load(Path(path)))


if __name__ == '__main__':
    main()
