# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The page of `intradp view` in a real browser: its figures are the report's, nothing is cut."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
import json
from pathlib import Path
import re
from typing import Any

from browser import browser, Page
import pytest
from recorded_bag import recorded
from recorded_demos import DEMOS, MARKUP, record

from intradp_ros.cli.view import Replay
from intradp_ros.cli.view_bag import opened
from intradp_ros.report.view.standing_page import write_page
from intradp_ros.web.access import ApiKeys
from intradp_ros.web.view_app import ViewServer

pytestmark = pytest.mark.slow
KEY = 'a-key-of-enough-characters'
#: What a page of each demo says of the figures of its report.
SAID = {
    'sharing': ['104 ms', '93.5 ms', '102 ms', '311 ms', '304 ms', '17.5 Mbit/s', '41 kB',
                '52 kB', '6.50 J', '1 of 1'],
    'fleet': ['411 ms', '412 ms', '413 ms', '408 ms', '4.11 J', '500 ms', '8.50, predicted 8.75',
              '0.12 s', '913 ms', '77', '41', '17', '621 ms', '731 ms'],
    'language': ['5.83 tokens', '172 ms', '178 ms', '160 ms', 'disk of drone', '574 of 720 MB',
                 '15.5 ms', '53.5 ms', '79.5 ms', '42.5 kB', '562 ms', '298 ms', '2,946 ms',
                 '100 Mbit/s'],
    'training': ['146 ms', '138 ms', '156 ms', '2.4721', '2.4722', '1.8e-15', '99.66 %', '198 ms',
                 '45.5 ms', '294 ms', '536 ms'],
    'serving': ['85.6', '85.7', '2124', '2141', '535 ms', '86', '1836', '59.5 requests/s',
                '84.6 requests/s', '107 requests/s', 'hall'],
    'perception': ['600 ms', '60', '31', '13', '200 Mbit/s', '40 of 40 frames']}


@pytest.fixture(scope='module')
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp('browser')) as found:
        yield found


def shown(page: Page, folder: Path, keys: ApiKeys | None = None, **window: Any) -> Any:
    server = ViewServer(Replay(opened(folder)), '127.0.0.1', 0, keys)
    page.open('about:blank')  # the page of before asks its server, which has ended, again
    page.errors.clear()
    page.open(server.url, **window)
    if keys is None:
        page.until("document.querySelectorAll('section').length > 0 && "
                   "document.getElementById('state').textContent === 'recorded'")
    return closing(server)


@pytest.mark.parametrize('demo', DEMOS)
def test_figures_are_those_of_the_report(page: Page, tmp_path: Path, demo: str) -> None:
    record(tmp_path / 'd', demo)
    with shown(page, tmp_path / 'd'):
        text = page.text()
        assert [each for each in SAID[demo] if each not in text] == []
        assert not re.search(r'undefined|NaN|\[object|null|\b\w+_ms\b', text)
    assert page.errors == []


@pytest.mark.parametrize('demo', DEMOS)
def test_a_page_without_a_server_says_the_same(page: Page, tmp_path: Path, demo: str) -> None:
    record(tmp_path, demo)
    write_page(tmp_path)
    page.open('about:blank')
    page.errors.clear()
    page.open((tmp_path / 'page.html').as_uri(), width=400)
    page.until("document.querySelectorAll('section').length > 0")
    text = page.text()
    assert [each for each in SAID[demo] if each not in text] == []
    assert page.run('document.documentElement.scrollWidth') <= 400
    steps = page.run("document.getElementById('slider').max")
    page.run("""{const s = document.getElementById('slider'); s.value = s.max;
                s.dispatchEvent(new Event('input'));}""")
    assert page.run("document.getElementById('replay').hidden") == (steps == '0')
    assert steps == '0' or page.text() != text
    if demo == 'sharing':
        page.until("document.querySelector('.picture img').naturalWidth === 30")
    assert page.errors == []


@pytest.mark.parametrize('width', [400, 1600])
@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_nothing_is_cut(page: Page, tmp_path: Path, width: int, theme: str) -> None:
    for demo in DEMOS:
        record(tmp_path / demo, demo)
        with shown(page, tmp_path / demo, width=width, theme=theme):
            assert page.run('document.documentElement.scrollWidth') <= width
            narrow = page.run("""[...document.querySelectorAll('main *')].filter((e) =>
                !e.closest('.scroll, svg') && e.scrollWidth > e.clientWidth + 1
                && getComputedStyle(e).display !== 'inline').map((e) => e.outerHTML)""")
            assert narrow == [], demo
            ink, paper = page.run("""['color', 'backgroundColor'].map((name) =>
                Math.max(...getComputedStyle(document.body)[name].match(/\\d+/g)))""")
            assert (ink > paper) == (theme == 'dark')


def test_slider_frames_and_play(page: Page, tmp_path: Path) -> None:
    record(tmp_path / 'd', 'sharing')
    with shown(page, tmp_path / 'd'):
        page.run("""{const s = document.getElementById('slider'); s.value = 4;
                    s.dispatchEvent(new Event('input'));}""")
        page.until("document.body.innerText.includes('server killed')"
                   " && document.body.innerText.includes('524 ms')")
        page.run("document.querySelectorAll('g.pick')[5].dispatchEvent(new Event('click'))")
        page.until("document.body.innerText.includes('712 ms')"
                   " && document.getElementById('step').textContent === '6 of 6'")
        page.run("document.getElementById('play').click()")
        page.until("document.getElementById('step').textContent === '3 of 6'")
        titles = page.run("[...document.querySelectorAll('svg title')].map(t => t.textContent)")
        assert 'shared, frame 2, inference 312 ms, decoding, publishing 2.5 ms, predicted 304 ms' \
            in [each.replace('303.5', '304') for each in titles]
        page.until("document.querySelector('.picture img').naturalWidth === 30")
        over = page.run("""[...document.querySelectorAll('.picture rect')].map((r) =>
            [r.getAttribute('y'), r.getAttribute('height')])""")
        assert over == [['0', '25'], ['25', '75']]
    assert page.errors == []


def test_texts_of_strangers_stay_texts(page: Page, tmp_path: Path) -> None:
    for demo in ('sharing', 'language'):
        record(tmp_path / demo, demo)
        with shown(page, tmp_path / demo):
            assert MARKUP in page.text()
            assert page.run("document.querySelectorAll('b, img[src=x]').length") == page.run(
                "document.querySelectorAll('.machine b, .medium b').length")
            assert page.run('document.title') != '1'


def test_a_key_is_asked_for_and_kept(page: Page, tmp_path: Path) -> None:
    record(tmp_path / 'd', 'serving')
    file = tmp_path / 'keys'
    file.write_text(f'someone {KEY}\n')
    file.chmod(0o600)
    with shown(page, tmp_path / 'd', ApiKeys.load(file)):
        page.until("!document.getElementById('login').hidden")
        assert 'goodput' not in page.text()
        page.run(f"""document.getElementById('key').value = {json.dumps(KEY)};
                     document.querySelector('#login button').click()""")
        page.until("document.body.innerText.includes('goodput')")
        assert page.run("document.getElementById('login').hidden")


def test_a_bag(page: Page, tmp_path: Path) -> None:
    with shown(page, recorded(tmp_path / 'bag')):
        page.run("""{const s = document.getElementById('slider'); s.value = 39;
                    s.dispatchEvent(new Event('input'));}""")
        page.until("document.getElementById('step').textContent === '19.0 of 19.0 s'"
                   " && document.body.innerText.includes('b refuses: too hot')")
        page.until("document.querySelector('.picture img').naturalWidth === 8")
        page.run("document.querySelectorAll('g.pick')[3].dispatchEvent(new Event('click'))")
        page.until("document.querySelector('.facts tbody').innerText.includes('43.5 ms')")
    assert page.errors == []


def test_an_end_of_the_server_is_said(page: Page, tmp_path: Path) -> None:
    record(tmp_path / 'd', 'serving')
    with shown(page, tmp_path / 'd'):
        pass
    page.until("document.getElementById('state').textContent.startsWith('no connection')")
