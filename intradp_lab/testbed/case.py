# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One run of several systems on one link, from the processes to the files in its folder."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from intradp_lab.emulation.settings import LinkSettings
from intradp_lab.emulation.trace import LinkTrace
from intradp_lab.report.trace_plot import draw_trace
from intradp_lab.testbed.exactness import exactness
from intradp_lab.testbed.experiment import Notify, run_on
from intradp_lab.testbed.figures import figures
from intradp_lab.testbed.pages import write_case_page
from intradp_lab.testbed.traces import write_trace
from intradp_lab.testbed.trial import Seen, Trial
from intradp_ros.report.result_tables import write_json

REPORT, TRACE, SEEN = 'report.json', 'trace.csv', 'seen.json'


@dataclass(frozen=True)
class CaseRun:
    """
    What is run in a folder, and what its report says of it.

    `bounds` are pairs of Mbit/s and seconds below which no schedule can be;
    `link` is what the link is like besides its rate, which is the trace's.
    """

    folder: Path
    title: str
    trial: Trial
    trace: LinkTrace
    seconds: float
    bounds: Sequence[tuple[float, float]]
    link: LinkSettings = field(default_factory=LinkSettings)

    def measure(self, transport: str, notify: Notify) -> dict[str, Any]:
        """
        Let all systems run, and return the report that is written to the folder.

        :raises NetworkError, ChildError: if this machine cannot provide the link, or a process
            fails.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        write_trace(self.trace, self.folder / TRACE)
        seen, name = run_on(transport, self.link, self.folder, self.trial, self.trace, notify)
        report = {
            'model': self.title, 'link_seconds': self.seconds, 'transport': name,
            'link': asdict(self.link),
            'devices': 'emulated from profiles', 'systems': {s.system: figures(s) for s in seen},
            'bounds_ms': [[mbps, 1e3 * bound] for mbps, bound in self.bounds]}
        write_json(self.folder / REPORT, report)
        self._draw(seen)
        return report

    def check(self, report: dict[str, Any], seen: Sequence[Seen], budget: float) -> dict[str, Any]:
        """Return the report with what was found of exactness in about `budget` seconds."""
        checked = {**report, 'exactness': exactness(self.trial, seen, budget)}
        write_json(self.folder / REPORT, checked)
        return checked

    def page(self, home: str = '') -> Path:
        """Write the page of the report, with a link to `home` if there is one."""
        return write_case_page(self.folder, self.title, home)

    def _draw(self, seen: Sequence[Seen]) -> None:
        shown = [(t, mbps) for t, mbps in self.trace.resampled() if t <= self.seconds]
        curves = {s.system: [(t, 1e3 * latency) for t, latency in zip(s.at, s.latency)]
                  for s in seen}
        draw_trace(shown, curves, self.folder / 'trace.png', self.title)
