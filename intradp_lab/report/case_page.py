# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The page of one case: what systems made of one model on one robot, server and link."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from intradp_lab.report.page import render, size_text
from intradp_lab.report.statements import headline, milliseconds, outage_sentence, remarks
from intradp_lab.report.svg import inline_svg
from intradp_lab.report.trace_plot import trace_figure
from intradp_ros.report.book_plot import book_figure, Curve
from intradp_ros.report.spans import SpanLike
from intradp_ros.report.timeline_plot import timeline_figure, totals
from intradp_ros.report.view.blocks import power


@dataclass(frozen=True)
class OutageFacts:
    """
    What outages did: figures of `testbed.outages.outage_figures`, and curves over seconds.

    `latencies` are points of (seconds, ms) by system, `link` those of (seconds, Mbit/s).
    """

    figures: Mapping[str, Any]
    latencies: Mapping[str, Curve]
    link: Curve


@dataclass(frozen=True)
class CaseFacts:
    """
    What the page of a case says.

    `systems` are the figures of `testbed.figures` by system; `latencies`
    points of (seconds, ms) by system, one for each inference; `link` points
    of (seconds, Mbit/s); `predicted` the books' curves of (Mbit/s, ms), with
    the lower bound as ``bound``; `bound_ms` its mean over the run.
    `timelines` are the spans of a typical inference of each system,
    `exactness` what `testbed.exactness` found.  `measured` are terms and
    texts that say how; `home` is the address of the page of all cases;
    `outages` are of a run whose link failed, if there was one.
    """

    title: str
    subtitle: str
    systems: Mapping[str, Mapping[str, Any]]
    latencies: Mapping[str, Curve]
    link: Curve
    predicted: Mapping[str, Curve]
    timelines: Mapping[str, Sequence[SpanLike]]
    measured: Sequence[tuple[str, str]]
    bound_ms: float | None = None
    exactness: Mapping[str, Any] = field(default_factory=dict)
    power: str = ''
    home: str = ''
    outages: OutageFacts | None = None


def case_page(facts: CaseFacts) -> str:
    """
    Return the page as HTML.

    :raises ValueError: if no system ran.
    """
    if not facts.systems:
        raise ValueError('a case needs at least one system that ran')
    return render(
        'case.html', title=facts.title, subtitle=facts.subtitle, home=facts.home,
        headline=headline(facts.systems), remarks=remarks(facts.systems, facts.bound_ms),
        systems=facts.systems, bound_ms=facts.bound_ms, power=facts.power,
        slowest=max(row['mean_ms'] for row in facts.systems.values()),
        trace=_trace(facts), book=_book(facts), timelines=_timelines(facts),
        exactness=_exactness(facts.exactness), outages=_outages(facts.outages),
        measured=facts.measured)


def _trace(facts: CaseFacts) -> str:
    return inline_svg(
        trace_figure(facts.link, facts.latencies, facts.title),
        f'Bandwidth of the link and latency of every inference over time, for {facts.title}')


def _book(facts: CaseFacts) -> str:
    return inline_svg(book_figure(facts.predicted, facts.title),
                      f'Predicted latency over bandwidth by system, for {facts.title}')


def _timelines(facts: CaseFacts) -> dict[str, dict[str, str]]:
    return {name: {'text': _duration(spans),
                   'svg': inline_svg(timeline_figure(spans, name),
                                     f'Timeline of an inference by {name}: {totals(spans)}')}
            for name, spans in facts.timelines.items() if spans}


def _duration(spans: Sequence[SpanLike]) -> str:
    first, last = min(span.start for span in spans), max(span.stop for span in spans)
    return milliseconds(1e3 * (last - first))


def _exactness(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was checked, with the sentence that answers the question."""
    if not found:
        return {}
    return {'systems': found['systems'], 'sentence': exactness_sentence(found)}


def _outages(facts: OutageFacts | None) -> dict[str, Any]:
    """Return figures of outages with a picture, and the sentence that answers the question."""
    if facts is None:
        return {}
    picture = inline_svg(
        trace_figure(facts.link, facts.latencies, 'while the link fails'),
        'Bandwidth of a link that fails, and latency of every inference over time')
    return {**facts.figures, 'sentence': outage_sentence(facts.figures), 'picture': picture}


def exactness_sentence(found: Mapping[str, Any]) -> str:
    """Say whether all that was checked is exact, and whether all bytes arrived."""
    rows = [row for row in found['systems'].values() if row['checked']]
    if not rows:
        return 'No schedule was checked.'
    checked, ran = sum(r['checked'] for r in rows), sum(r['schedules'] for r in
                                                        found['systems'].values())
    largest = power(max(row['difference'] for row in rows))
    exact = all(row['exact'] for row in rows)
    answer = (f'Yes: {checked} of {ran} schedules of all systems were checked, and the largest '
              f"difference is {largest} of the output's spread, which is rounding." if exact else
              f"No: the largest difference is {largest} of the output's spread ({checked} of "
              f'{ran} schedules were checked).')
    return ' '.join([answer, *_weights(found), _arrival(found['arrived'])])


def _weights(found: Mapping[str, Any]) -> list[str]:
    """Say so if the check had other weights, or if an error might not have shown."""
    if not found['telling']:
        return ['But outputs hardly depend on the input, so that an error may not show.']
    return ['Where outputs hardly depend on the input, as with random weights, weights were '
            'rescaled for the check, so that an error would show.'] if found['adjusted'] else []


def _arrival(arrived: Mapping[str, Mapping[str, int]]) -> str:
    chunks, nbytes, wrong = (sum(side[key] for side in arrived.values())
                             for key in ('chunks', 'nbytes', 'wrong'))
    if wrong:
        return f'{wrong} of {chunks} chunks did NOT arrive as they were sent.'
    return (f'In the run, all {chunks} chunks ({size_text(nbytes)}) that arrived were byte for '
            'byte those that were sent.')
