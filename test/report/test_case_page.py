# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The page of a case stands alone, escapes what it is given, and says what was checked."""
from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
import re
from typing import Any

import pytest

from intradp_lab.report.case_page import case_page, CaseFacts, exactness_sentence, OutageFacts
from intradp_lab.report.statements import outage_sentence
from intradp_ros.runtime.transport.timeline import Event

NAME = 'nets:make <script>alert("1")</script> & co'


def row(mean: float) -> dict[str, Any]:
    return {'mean_ms': mean, 'std_ms': 2.0, 'median_ms': mean, 'p95_ms': 1.2 * mean,
            'transmission_ms': 10.0, 'transmission_share': 0.4, 'frames': 30, 'bytes_up': 150528,
            'bytes_down': 40, 'energy_j': 0.5, 'power_w': 9.0, 'predicted_ms': mean,
            'error_median': None, 'error_p95': None, 'switches': 1, 'recovered': 0}


def checked(difference: float, exact: bool) -> dict[str, Any]:
    return {'frames': 30, 'recovered': 0, 'schedules': 3, 'checked': 2, 'frames_checked': 28,
            'difference': difference, 'exact': exact}


ARRIVED = {'robot': {'chunks': 10, 'nbytes': 1000, 'wrong': 0},
           'server': {'chunks': 20, 'nbytes': 2000, 'wrong': 0}}
SPANS = (Event('robot', 'compute', 'conv <1>', 0.0, 0.03),
         Event('uplink', 'transfer', 'x[0:5]', 0.0, 0.01),
         Event('server', 'compute', 'conv', 0.01, 0.02))
FACTS = CaseFacts(
    NAME, 'robot alone 80 ms', {'local': row(80.0), 'shared': row(40.0)},
    {'local': [(0.0, 80.0), (0.1, 80.0)], 'shared': [(0.0, 41.0), (0.1, 39.0)]},
    [(0.0, 40.0), (0.1, 30.0)],
    {'local': [(10.0, 80.0), (50.0, 80.0)], 'shared': [(10.0, 60.0), (50.0, 35.0)],
     'bound': [(10.0, 50.0), (50.0, 20.0)]},
    {'local': SPANS[:1], 'shared': SPANS}, [('link', 'shaped & replayed')], 30.0,
    {'systems': {'local': checked(0.0, True), 'shared': checked(3e-7, True)},
     'arrived': ARRIVED, 'adjusted': True, 'telling': True}, 'a board', '../index.html')


class Reader(HTMLParser):
    """Collects text, tags and what a page loads, and holds that tags close in order."""

    VOID = frozenset({'meta', 'br', 'link', 'img'})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags, self.loads = '', [], []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value for name, value in attrs
                       if name in ('src', 'href', 'xlink:href', 'srcset')]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope='module')
def page() -> str:
    return case_page(FACTS)


def test_names_are_text_and_never_markup(page: str) -> None:
    reader = Reader(page)
    assert 'script' not in reader.tags and NAME in reader.text
    assert 'conv <1>' in reader.text and 'shaped & replayed' in reader.text


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    loads = Reader(page).loads
    assert [load for load in loads if not load.startswith('#')] == ['../index.html']
    assert not re.search(r'url\((?!#)|@import', page)


def test_pictures_are_described_and_follow_the_theme(page: str) -> None:
    pictures = re.findall(r'<svg[^>]*>', page)
    assert len(pictures) == 4 and all('aria-label="' in picture for picture in pictures)
    assert not any(re.search(r'\s(width|height)=', picture) for picture in pictures)
    drawn = page[page.index('<svg'):].lower()
    assert 'currentcolor' in drawn and '#222222' not in drawn and '#000000' not in drawn


def test_it_says_who_wins_and_what_was_checked(page: str) -> None:
    text = ' '.join(Reader(page).text.split())
    assert 'Sharing wins: 40.0 ms an inference, 50 % less than local' in text
    assert 'Yes: 4 of 6 schedules' in text and '3e-7' in text and 'were rescaled' in text
    assert 'all 30 chunks (3.00 kB)' in text and 'modelled (power states: a board)' in text


def test_what_is_wrong_is_said() -> None:
    found = {'systems': {'shared': checked(0.2, False)},
             'arrived': {'robot': {'chunks': 10, 'nbytes': 1000, 'wrong': 3}},
             'adjusted': True, 'telling': False}
    sentence = exactness_sentence(found)
    assert sentence.startswith('No: the largest difference is 2e-1')
    assert '3 of 10 chunks did NOT arrive' in sentence and 'an error may not show' in sentence
    nothing = {'systems': {'shared': {**checked(0.0, True), 'checked': 0}}, 'arrived': ARRIVED}
    assert exactness_sentence(nothing) == 'No schedule was checked.'


def test_a_case_without_checks_does_not_claim_any() -> None:
    text = Reader(case_page(replace(FACTS, exactness={}, bound_ms=None, home=''))).text
    assert 'This was not checked in this run.' in text and 'times bound' not in text


OUTAGES: dict[str, Any] = {
    'mbps': 20.0, 'alone_ms': 80.0, 'timeout_ms': 300.0, 'limit_ms': 388.0, 'back_within_s': 1.0,
    'frames': 50, 'shared': 40, 'recovered': 2, 'transport': 'udp <x>', 'rows': [
        {'begin_s': 3.0, 'seconds': 0.5, 'frames': 2, 'worst_ms': 350.0, 'back_s': 0.12,
         'missed': []},
        {'begin_s': 6.5, 'seconds': 2.0, 'frames': 9, 'worst_ms': 500.0, 'back_s': None,
         'missed': ['took too long', 'did not share again']}]}


def test_outages_are_reported_with_what_was_missed() -> None:
    facts = OutageFacts(OUTAGES, {'shared': [(0.0, 41.0)]}, [(0.0, 20.0), (3.0, 0.0)])
    reader = Reader(case_page(replace(FACTS, outages=facts)))
    text = ' '.join(reader.text.split())
    assert 'Not as wanted in 1 of 2 outages: all 50 inferences had their result' in text
    assert 'took 500 ms (at most 388 ms wanted), sharing began again within 0.12 s' in text
    assert 'did not while the run saw it after 1 outage.' in text and '--transport' not in text
    assert 'took too long, did not share again' in text and 'udp <x>' in text
    assert reader.tags.count('svg') == 5


def test_outages_of_what_is_never_shared_say_nothing() -> None:
    assert 'outages change nothing' in outage_sentence({**OUTAGES, 'shared': 0})


@pytest.mark.parametrize('back, hinted', [(0.9, False), (1.04, True), (None, True)])
def test_a_late_return_over_tcp_names_the_fix(back: float | None, hinted: bool) -> None:
    rows = [{**OUTAGES['rows'][0], 'back_s': back}]
    sentence = outage_sentence({**OUTAGES, 'transport': 'large_data', 'rows': rows})
    assert ('--transport udp' in sentence) is hinted and sentence.endswith('.')
    assert (back is None) or f'within {back:.2f} s' in sentence


def test_a_case_without_systems_is_refused() -> None:
    with pytest.raises(ValueError, match='at least one system'):
        case_page(replace(FACTS, systems={}))
