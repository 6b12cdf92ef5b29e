# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether samples are the same in each process, whatever was taken before, and with what."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
import copy
import datetime
import sys
import threading
import time
import types
from typing import Any

import numpy as np
import torch

from intradp_ros.systems.training.base.reading import take
from intradp_ros.systems.training.base.structure import rows_of, taken_apart
from intradp_ros.systems.training.base.task import (
    Data,
    examples,
    TaskError,
    TensorData,
    TrainingTask,
)
from intradp_ros.systems.training.base.user_code import (
    changed_between,
    counted,
    drawing,
    is_library,
    MOST_NUMBERS,
    objects_reached,
)
from intradp_ros.systems.training.layers.export_checks import generators
from intradp_ros.systems.training.layers.trying import done

#: Samples that are taken in other orders; the seed of what the copy draws; times by which it is
#: seen that data draw, since other threads may draw now and then.
_TAKEN, _DRAWN, _TRIES = 4, 29, 3
#: What other libraries name clocks, which nobody can set forth: a name, and what stands by it.
_OTHERS = {'datetime64': {'now', 'today'}, 'Timestamp': {'now', 'today', 'utcnow'}}
#: Where code reads a clock: its names, the place, and which.
_Read = tuple[dict[str, Any], str, str]
#: Seconds by which clocks are set forth: to another second, hour, half of the day, day and season.
_FORTH = (1.7, 4e3, 2.6e4, 4.7e4, 1.1e6, 9e6)
_CLOCKS = [getattr(time, f'{name}{kind}') for kind in ('', '_ns') for name in (
    'time', 'monotonic', 'perf_counter')]
_CALENDARS = [time.localtime, time.gmtime, time.ctime]
_DATES = [datetime.datetime.now, datetime.datetime.utcnow, datetime.datetime.today,
          datetime.date.today]


def try_data(task: TrainingTask, untouched: Data | None, drawn: bool) -> None:
    """
    Take samples together, alone, and from a copy of the data that nothing was taken from yet.

    Before that, the first samples were taken from the task's data; `drawn` says whether the
    process's generators moved then.

    :raises TaskError: if one is another in the end, or that cannot be seen: it is drawn when it is
        first taken, and kept.
    """
    data = task.data
    if isinstance(data, TensorData) or hasattr(data, 'examples'):
        return  # what lies elsewhere is tried there
    numbers, before = list(range(min(_TAKEN, len(data)))), drawn_so_far()
    first, reads_clocks = taken_at_times(data, numbers)
    for k in reversed(numbers):
        if not _row_is(first, k, _taken(data, [k])):
            raise TaskError(f'sample {k} is another one when it is taken alone than together with '
                            'others: let the dataset return a tensor of its own each time (a '
                            'clone() of what it writes to again), and draw by the number of the '
                            'sample')
    draws_once, draws_again, same = drawn and before == drawn_so_far(), False, True
    if untouched is not None:
        with drawing(_DRAWN), _reads_of_clocks() as read:
            before = drawn_so_far()
            same = all(_row_is(first, k, _taken(untouched, [k])) for k in reversed(numbers))
            draws_again = before != drawn_so_far()
        if (read := _of_users(read)) and not reads_clocks:
            raise _by_time(read[0], 'data', 'when a sample is first taken')
    if not same or draws_once and not draws_again:
        raise TaskError('the data draw at random when a sample is first taken, and keep it: '
                        'devices, which take samples in other orders, would have other ones. Let '
                        'the dataset draw by the number of the sample: '
                        'generator=torch.Generator().manual_seed(k)')


def taken_twice(data: Data, samples: Sequence[int], what: str = 'data') -> tuple[Any, list[float]]:
    """
    Take samples twice; return them, and the seconds of each.

    :raises TaskError: if they differ, or others might: by draws that nothing seeds, or a count.
    """
    for _ in range(_TRIES):
        taken, seconds, counts, states = [], [], [], [drawn_so_far()]
        for _ in range(2):
            begun = time.perf_counter()
            taken.append(_taken(data, samples, what))
            seconds.append(time.perf_counter() - begun)
            states.append(drawn_so_far())
            counts.append(counted(**{what: data}))
        (one, structure), (two, again) = map(taken_apart, taken)
        same = structure == again and len(one) == len(two) and all(
            a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
            for a, b in zip(one, two))
        if not same or not any(a != b != c for a, b, c in zip(*states)):
            break
    else:
        same = False
    if not same:
        raise TaskError(
            f'{what}.take draws by generators of the process, or returns other values each time, '
            f'for the samples {list(samples)}: a round that is played again would train on other '
            'samples; draw by the number of the sample instead, '
            'generator=torch.Generator().manual_seed(k), and write to a clone() of what is kept. '
            'What is to differ from round to round is made by Items(dataset, augment=...)')
    if changed := changed_between(*counts):
        raise TaskError(f'{changed} changes with each time that samples are taken: what a dataset '
                        'counts is not the same on all devices. Let it remember nothing, and draw '
                        'by the number of the sample')
    return taken[0], seconds


def taken_at_times(data: Data, samples: Sequence[int], what: str = 'data') -> tuple[Any, bool]:
    """
    Take samples now and at other times; return them, and whether clocks are read for them.

    :raises TaskError: if they differ, or that cannot be seen.  What packages read, for a log say,
        counts where samples differ.
    """
    with _reads_of_clocks() as read:
        found = _taken(data, samples, what)
    users = {id(names): names for names, _, _ in read}
    for seconds in _FORTH if read else ():
        with _set_forth(users.values(), seconds), _reads_of_clocks() as plainly:
            again = _taken(data, samples, what)
        same = all(_row_is(found, k, rows_of(again, slice(k, k + 1))) for k in samples)
        if not same or (plainly := _of_users(plainly)):
            raise _by_time((plainly or read)[0], what, 'and returns other samples at other times'
                           if not same else 'so that nobody can set it forth to try it: import '
                           'time, or datetime, on top of the module')
    return found, bool(read)


def _by_time(read: _Read, what: str, how: str) -> TaskError:
    return TaskError(
        f'{what}.take reads a clock, {read[2]} at {read[1]}, {how}. Devices take samples when '
        'they come to them, and a round that is played again would train on other ones. Let '
        'samples depend on their number alone; what is to differ from round to round is made by '
        'Items(dataset, augment=...)')


@contextmanager
def _reads_of_clocks() -> Iterator[list[_Read]]:
    """Note what code reads clocks meanwhile: its names, the place, and the clock."""
    clocks, read = {*_CLOCKS, *_CALENDARS, *_DATES, time.strftime}, list[_Read]()

    def called(frame: types.FrameType, event: str, function: Any) -> None:
        names, code = frame.f_globals, frame.f_code
        place = f'{code.co_filename}:{frame.f_lineno}'
        if event == 'c_call' and function in clocks and \
                not is_library(str(names.get('__name__', ''))):
            read.append((names, place, f'{function.__module__ or "datetime"}.{function.__name__}'))
        elif event == 'call' and '-packages' not in place:
            read.extend((names, place, name) for name in _OTHERS.keys() & {*code.co_names}
                        if _OTHERS[name] & {*code.co_names, *filter(_is_text, code.co_consts)})
    if sys.getprofile():  # somebody profiles the trial: it stays
        yield read
        return
    sys.setprofile(called)
    try:
        yield read
    finally:
        sys.setprofile(None)


def _of_users(read: list[_Read]) -> list[_Read]:
    """Return those that are not of packages."""
    return [one for one in read if '-packages' not in one[1]]


def _is_text(one: Any) -> bool:
    return isinstance(one, str)


@contextmanager
def _set_forth(users: Iterable[dict[str, Any]], seconds: float) -> Iterator[None]:
    """Let what modules of users name a clock be so far ahead, for this thread."""
    others = _ahead(seconds)
    kept = []
    for names in users:
        for name, value in list(names.items()):
            other = others.get(value) if value.__hash__ and isinstance(
                value, types.BuiltinFunctionType | type | types.ModuleType) else None
            if other is not None:
                kept.append((names, name, value))
                names[name] = other
    try:
        yield
    finally:
        for names, name, value in kept:
            names[name] = value


def _ahead(seconds: float) -> dict[Any, Any]:
    """Return clocks that are so far ahead for this thread, by the plain ones."""
    here = threading.get_ident()

    def by() -> float:
        return seconds if threading.get_ident() == here else 0.0

    def clock(read: Callable[[], Any], unit: int = 1) -> Any:
        return lambda: read() + type(read())(by() * unit)

    def calendar(read: Callable[[float], Any]) -> Any:
        return lambda at=None: read(time.time() + by() if at is None else at)
    found = {read: clock(read, 10 ** 9 if read.__name__.endswith('_ns') else 1)
             for read in _CLOCKS} | {read: calendar(read) for read in _CALENDARS}
    found[time.strftime] = lambda form, at=None: time.strftime(
        form, time.localtime(time.time() + by()) if at is None else at)

    class Kind(type):
        def __instancecheck__(cls, one: Any) -> bool:
            return isinstance(one, cls.__base__)  # type: ignore[arg-type]

    class Date(datetime.date, metaclass=Kind):
        @classmethod
        def today(cls) -> Any:
            return datetime.date.fromtimestamp(time.time() + by())

    class Datetime(datetime.datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.fromtimestamp(time.time() + by(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.timezone.utc).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()
    found |= {datetime.datetime: Datetime, datetime.date: Date}
    for module in (time, datetime):
        copied = types.ModuleType(module.__name__)
        vars(copied).update((name, found.get(value, value) if value.__hash__ else value)
                            for name, value in vars(module).items())
        found[module] = copied
    return found


def drawn_so_far() -> tuple[object, ...]:
    """Return the states of the process's generators, of Python, NumPy and PyTorch."""
    python, *numpy = generators()
    return python, numpy, torch.get_rng_state().tolist()


def _taken(data: Data, samples: Sequence[int], what: str = 'data') -> Any:
    return done(f'{what}.take', lambda: examples(data, len(samples))
                if hasattr(data, 'examples') else take(data, samples))


def _row_is(together: Any, row: int, alone: Any) -> bool:
    """Whether a row is what was taken alone; what is padded by what is taken with it, may be."""
    (one, structure), (other, again) = (taken_apart(whole) for whole in (
        rows_of(together, slice(row, row + 1)), alone))
    return structure != again or all(
        a.shape != b.shape or torch.equal(a.nan_to_num(), b.nan_to_num())
        for a, b in zip(one, other))


def untouched_copy(data: Data) -> Data | None:
    """Return a copy; large arrays and what is of libraries it shares.  None if there is none."""
    if isinstance(data, TensorData) or hasattr(data, 'examples'):
        return None
    shared = {id(one): one for one in objects_reached(data) if _stays(one)}
    try:
        return copy.deepcopy(data, shared)
    except Exception:  # locks, files and the like
        return None


def _stays(one: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.numel() > MOST_NUMBERS
    if isinstance(one, np.ndarray):
        return one.size > MOST_NUMBERS
    kind = str(type(one).__module__).partition('.')[0]
    file = getattr(sys.modules.get(kind), '__file__', None) or ''
    return 'site-packages' in file and kind not in ('torch', 'numpy', 'intradp_ros')
