# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a workload needs before it can run: the captured model, two profiles and the books.

All of it goes into a folder and is found there again, as long as what it
depends on is the same.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
import hashlib
import json
from pathlib import Path

import torch

import intradp_lab
from intradp_lab.rivals.entries import with_rivals
from intradp_lab.testbed.intra_dp import intra_dp_book
from intradp_lab.testbed.operator_costs import profile_from_costs, shipped_costs
from intradp_lab.testbed.package_data import package_data
from intradp_lab.testbed.recorded import profile_from_recording, read_recording
from intradp_lab.testbed.systems import (
    BOOK,
    ENERGY_BOOK,
    EVOLVED_BOOK,
    INTRA_DP_BOOK,
    SYSTEMS,
)
from intradp_lab.testbed.workloads import Workload
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.cache_folder import code_digest, files_digest
from intradp_ros.core.workers import worker_pool
from intradp_ros.graph.serialise import graph_to_json, save_graph
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.profiling.profile import EncodingTiming, Profile
from intradp_ros.report.result_tables import write_json
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER, SIDES
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.make_book import bandwidth_grid, PlanningProblem
from intradp_ros.systems.sharing.book.plan_from_profiles import (
    book_from_profiles,
    ENERGY,
    PlanRequest,
)
from intradp_ros.systems.sharing.search.pool import Aim
from intradp_ros.wire.codecs.names import BITS

MODEL, PREPARED = 'model.graph', 'prepared.json'
#: What decides what a preparation holds: packages, and rooms of the laboratory.
_PLANNING = ('graph', 'link', 'profiling', 'schedule', 'split', 'systems/sharing', 'wire')
_ROOMS = ('rivals', 'testbed')
#: Truth values cross as bits: an eighth of their bytes, at about the speed of memory.
TRUTH_AS_BITS = EncodingTiming(1 / 8, 1e-9, 1e-9)


@dataclass(frozen=True)
class Planning:
    """For which links books are made: Mbit/s, seconds."""

    low: float
    high: float
    points: int
    delay: float
    overhead: float
    seed: int = 0


@dataclass(frozen=True)
class Prepared:
    """A workload with one kind of input, ready in a folder."""

    folder: Path
    axis: int
    devices: dict[str, str]
    whole_ms: dict[str, float]

    def profile(self, side: str) -> Path:
        """Return the file of a side's profile."""
        return self.folder / f'{side}.json'

    @property
    def digest(self) -> str:
        """What stands for profiles and books: 16 hex digits."""
        return files_digest(
            self.folder, (f for f in self.folder.glob('*.json') if f.name != PREPARED))

    @property
    def book(self) -> ScheduleBook:
        """The book of local, offload, the baselines, and ours for the least latency."""
        return ScheduleBook.load(self.folder / BOOK)


def prepare_all(wanted: Sequence[tuple[Workload, str]], folder: Path, planning: Planning,
                notify: Callable[[int, str], None], workers: int = 1) -> None:
    """
    Prepare workloads with kinds of input, several at a time.

    `notify` gets the count of those that are ready, and the latest one.
    """
    missing = [pair for pair in wanted if prepared(*pair, folder, planning) is None]
    done = len(wanted) - len(missing)
    for name in _each(missing, partial(_prepare, folder=folder, planning=planning), workers):
        done += 1
        notify(done, name)


def _each(pairs: Sequence[tuple[Workload, str]], function: Callable[..., str], workers: int,
          ) -> Iterator[str]:
    if len(pairs) < 2 or workers == 1:
        yield from (function(*pair) for pair in pairs)
        return
    with worker_pool(workers, 'spawn') as pool:
        yield from pool.completed(function, *zip(*pairs))


def name_of(workload: Workload, inputs: str) -> str:
    """Return the name of a workload with a kind of input, as folders have it."""
    return f'{workload.key}-{inputs}'


def prepared(workload: Workload, inputs: str, folder: Path, planning: Planning) -> Prepared | None:
    """Return what was prepared in a folder before, None if there is none or it is of old."""
    place = folder / name_of(workload, inputs)
    try:
        data = json.loads((place / PREPARED).read_text())
        if data.pop('key') != _key(workload, inputs, planning):
            return None
        return Prepared(place, **data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _key(workload: Workload, inputs: str, planning: Planning) -> str:
    """Return what a preparation depends on, as a short name."""
    times = _times(workload).read_text()
    lab = Path(intradp_lab.__file__).parent
    own = files_digest(lab, (f for room in _ROOMS for f in (lab / room).rglob('*.py')))
    text = repr((code_digest(*_PLANNING), own, SYSTEMS, workload, inputs, planning, times))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _times(workload: Workload) -> Path:
    """Return the shipped file that a workload's times come from."""
    if workload.recording:
        return package_data('devices', f'{workload.recording}.json')
    return package_data('operator_costs.json')


def _prepare(workload: Workload, inputs: str, folder: Path, planning: Planning) -> str:
    prepare_process()
    place = folder / name_of(workload, inputs)
    place.mkdir(parents=True, exist_ok=True)
    model = share_module(workload.module(inputs), (workload.example(inputs),))
    save_graph(model.split.captured, place / MODEL)
    profiles = {side: device_profile(workload, model, side) for side in SIDES}
    for side, profile in profiles.items():
        write_atomically(place / f'{side}.json', profile.to_json())
    for name, book in _books(model, profiles, planning, inputs).items():
        book.save(place / name)
    write_json(place / PREPARED, {
        'key': _key(workload, inputs, planning), 'axis': model.split.axis,
        'devices': {side: p.device for side, p in profiles.items()},
        'whole_ms': {side: 1e3 * p.whole_seconds for side, p in profiles.items()}})
    return name_of(workload, inputs)


def device_profile(workload: Workload, model: SharedModel, side: str) -> Profile:
    """Return the profile of a workload's device, recorded or from operator costs."""
    split = model.split
    if workload.recording:
        profile = profile_from_recording(
            split, model.digest, read_recording(_times(workload)), side)
    else:
        whole = workload.whole_ms and 1e-3 * workload.whole_ms[SIDES.index(side)]
        profile = profile_from_costs(split, model.digest, side, shipped_costs()[side], whole)
    return with_bits(profile, model)


def with_bits(profile: Profile, model: SharedModel) -> Profile:
    """Return a profile by which inputs that are truth values may cross as bits."""
    graph = model.split.graph
    truths = {v for v in graph.inputs if graph.values[v].dtype == torch.bool}
    if not truths:
        return profile
    return replace(profile, encodings=tuple(
        {BITS: TRUTH_AS_BITS} if value in truths else {} for value in range(len(graph.values))))


def _books(model: SharedModel, profiles: dict[str, Profile], planning: Planning, inputs: str,
           ) -> dict[str, ScheduleBook]:
    """Return the books of all systems that run with a kind of input, by file."""
    request = PlanRequest(
        graph_to_json(model.split.captured), profiles[ROBOT].to_json(),
        profiles[SERVER].to_json(), planning.low, planning.high, planning.points,
        planning.delay, planning.overhead, planning.seed)
    requests = {BOOK: request}
    if any(s.book == ENERGY_BOOK and inputs in s.inputs for s in SYSTEMS.values()):
        requests[ENERGY_BOOK] = replace(request, objective=ENERGY)
    setting = PlanningProblem(CostModel.from_profiles(model.split, profiles), planning.delay,
                              planning.overhead)
    grid = bandwidth_grid(planning.low, planning.high, planning.points)
    books = {name: ScheduleBook.from_json(book_from_profiles(asked))
             for name, asked in requests.items()}
    books[BOOK] = with_rivals(books[BOOK], replace(setting, aim=Aim(
        power=profiles[ROBOT].power, seed=planning.seed)))
    return {**books,
            **{name: intra_dp_book(setting, model.digest, grid, planning.seed, bands=bands)
               for name, bands in ((INTRA_DP_BOOK, False), (EVOLVED_BOOK, True))}}
