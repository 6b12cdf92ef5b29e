# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Choosing kernel variants by measurement on this device.

The layout is chosen for the whole graph: a convolution returns the layout it
works in, what follows keeps it, and a change costs a copy.  So the graph
runs whole in each layout with each variant, in turns, and operators that have
variants also run on fewer of their rows; each operator takes the variant
that is faster over all heights, and much slower at none; and what that gives
must beat the plain kernels as a whole.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch

from intradp_ros.profiling.parts import heights, Part, parts_of, time_part
from intradp_ros.profiling.rounds import bind_whole, BoundOperator, given, run_timed, Values
from intradp_ros.split.calls.tuning import tuned, Tuning, UNTUNED
from intradp_ros.split.calls.variants import CHANNELS_LAST, PACKED, PLAIN, SEPARABLE, variants_of
from intradp_ros.split.checks.verify import in_reals
from intradp_ros.split.local_operator import SplitGraph

SECONDS, ROUNDS = 2.0, (2, 6)  # of plain runs in each phase; at least and at most so many
GAIN = 0.985  # share of the plain kernels' time below which others are taken
HOPELESS = 1.3  # times the fastest above which a candidate is not run again
COLD = 0.5  # seconds that the first run of a candidate may take longer than later ones
BAD = 1.5  # times the fastest kernel's seconds that none may take at any height
LOOKS = 3  # times that fewer rows are run, of which the shortest counts
_ROUNDING, _TIES = 1e-4, 0.01
# For each layout, what operators prefer in a run of the whole graph: the first they have.
_TRIALS: Mapping[bool, Sequence[Sequence[str]]] = {
    False: ((PLAIN,), (SEPARABLE, PACKED)),
    True: ((CHANNELS_LAST,), (PACKED, SEPARABLE)),
}


Check = Callable[[], None]


def no_check() -> None:
    """Let a measurement go on."""


@dataclass
class _Candidate:
    """
    A tuning with the shortest time of each operator in runs of the whole graph.

    `lower` has those at fewer rows, of operators that have variants.
    """

    tuning: Tuning
    split: SplitGraph
    bound: tuple[BoundOperator, ...]
    seconds: list[float]
    runs: int = 0
    lower: dict[int, list[Part]] = field(default_factory=dict)

    @classmethod
    def of(cls, split: SplitGraph, tuning: Tuning) -> _Candidate:
        lean = tuned(split, tuning)
        return cls(tuning, lean, bind_whole(lean), [float('inf')] * len(split.operators))

    @property
    def whole(self) -> float:
        """Seconds of the whole graph, without what interrupted single runs."""
        return sum(self.seconds)

    def run(self, inputs: Sequence[torch.Tensor]) -> Values:
        """Run once, and keep the shortest times."""
        self.runs += 1
        values, seconds = run_timed(self.split, self.bound, inputs)
        self.seconds = list(map(min, self.seconds, seconds))
        return values

    def run_lower(self, inputs: Sequence[torch.Tensor], check: Check) -> None:
        """Run operators that have variants on fewer of their rows."""
        values = given(self.split, inputs)
        for op in self.bound:
            check()
            if variants_of(self.split.graph, op.local.operator):
                rows = heights(op.local.rows)[:-1]
                parts = parts_of(self.split, op.local, op.overwrites, rows)
                for part in parts * LOOKS:
                    time_part(self.split, op, part, values)
                self.lower[op.local.operator.id] = parts
            op.finish(op.kernel(op.inputs(values)), values)

    def at_all_heights(self, operator: int) -> list[float]:
        """Return the seconds of an operator by height, ascending."""
        return [*(part.least for part in self.lower.get(operator, ())), self.seconds[operator]]


def choose_tuning(split: SplitGraph, inputs: Sequence[torch.Tensor], seconds: float = SECONDS,
                  check: Check = no_check) -> Tuning:
    """
    Measure which kernels run a graph fastest on this device, in this process.

    Kernels whose results differ from the plain ones by more than rounding
    are never chosen.  Plain runs take about `seconds` in each of two phases;
    `check` is called between runs, and may raise.
    """
    plain, *others = _distinct(split)
    if not others:
        return UNTUNED
    wanted = plain.run(inputs)
    others = [c for c in others if _alike(c.run(inputs), wanted)]
    _take_turns([plain, *others], inputs, seconds, check)
    tried = [plain, *others]
    best = min(c.whole for c in tried)
    for candidate in (tried := [c for c in tried if c.whole <= HOPELESS * best]):
        candidate.run_lower(inputs, check)
    mixed = [_Candidate.of(split, tuning) for tuning in _mixed(split, tried)]
    mixed = [c for c in mixed if _alike(c.run(inputs), wanted)]
    _take_turns([plain, *mixed], inputs, seconds, check)
    fastest = min([plain, *mixed], key=lambda c: c.whole)
    return fastest.tuning if fastest.whole < GAIN * plain.whole else UNTUNED


def _distinct(split: SplitGraph) -> list[_Candidate]:
    """Return one candidate for each tuning that the trials lead to, the plain one first."""
    available = {op.operator.name: variants_of(split.graph, op.operator)
                 for op in split.operators}
    images = any(CHANNELS_LAST in variants for variants in available.values())
    found = [UNTUNED]
    for layout, trials in _TRIALS.items():
        for wanted in trials if images or not layout else ():
            chosen = {name: _preferred(variants, wanted, layout)
                      for name, variants in available.items()}
            tuning = Tuning(layout, {name: v for name, v in chosen.items() if v != PLAIN})
            if tuning not in found:
                found.append(tuning)
    return [_Candidate.of(split, tuning) for tuning in found]


def _preferred(available: Sequence[str], wanted: Sequence[str], layout: bool) -> str:
    """Return the first wanted variant there is; a convolution must have the layout."""
    if CHANNELS_LAST in available and not layout:
        return PLAIN
    fallback = CHANNELS_LAST if CHANNELS_LAST in available else PLAIN
    return next((v for v in wanted if v in available), fallback)


def _take_turns(candidates: Sequence[_Candidate], inputs: Sequence[torch.Tensor],
                seconds: float, check: Check) -> None:
    """Run candidates that have run in turns, so that what else the machine does hits all alike."""
    fewest, most = ROUNDS
    for _ in range(min(most, max(fewest, round(seconds / candidates[0].whole)))):
        best = min(c.whole for c in candidates)
        for candidate in candidates:
            check()
            if candidate is candidates[0] or not _is_hopeless(candidate, best):
                candidate.run(inputs)


def _is_hopeless(candidate: _Candidate, best: float) -> bool:
    """Return whether more runs cannot make a candidate the fastest."""
    allowed = COLD if candidate.runs < 2 else 0.0
    return candidate.whole > HOPELESS * best + allowed


def _mixed(split: SplitGraph, candidates: Sequence[_Candidate]) -> list[Tuning]:
    """Return for each layout the tuning in which each operator has its best variant."""
    found = []
    for layout in _TRIALS:
        alike = [c for c in candidates if c.tuning.channels_last == layout]
        variants = {}
        for op in split.operators if alike else ():
            name, times = op.operator.name, [c.at_all_heights(op.operator.id) for c in alike]
            chosen = alike[best_of(times)].tuning
            if name in chosen.variants:
                variants[name] = chosen.variants[name]
        if variants:
            found.append(Tuning(layout, variants))
    return found


def best_of(times: Sequence[Sequence[float]]) -> int:
    """
    Return which of several kernels to take, by the seconds of each at some heights.

    The one that is fastest on average, in parts of the fastest at each
    height, and not much slower at any.
    """
    fastest = [max(1e-9, min(at)) for at in zip(*times)]
    behind = [[t / f for t, f in zip(of_one, fastest)] for of_one in times]
    return min(range(len(times)), key=lambda k: (max(behind[k]) > BAD, fmean(behind[k])))


def _alike(got: Values, wanted: Values) -> bool:
    """Return whether outputs differ by rounding only, but for a few that rounding tips over."""
    return all(_differing(got[v], wanted[v]) <= _TIES for v in wanted)


def _differing(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the share of elements that differ by more than rounding."""
    got, wanted = in_reals(got).double(), in_reals(wanted).double()
    finite = wanted[wanted.isfinite()]
    spread = (finite.max() - finite.min()).item() if finite.numel() else 0.0
    same = torch.isclose(got, wanted, rtol=0.0, atol=_ROUNDING * spread, equal_nan=True)
    return 1.0 - same.double().mean().item() if same.numel() else 0.0
