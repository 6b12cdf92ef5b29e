# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Documents are as `tools/check_documents.py` wants them, and it finds what is not."""
from __future__ import annotations

import ast
from pathlib import Path

import check_documents
import draw_pictures
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *check_documents.documents()]


@pytest.mark.parametrize('page', PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert [*check_documents.dead_links(page), *check_documents.dead_paths(page)] == []


@pytest.mark.parametrize('page', check_documents.documents(), ids=lambda path: path.name)
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    assert list(check_documents.without_purpose(page)) == []


def test_nothing_else_is_wrong() -> None:
    assert [*check_documents.problems(), *check_documents.message_problems()] == []


def test_dead_links_and_paths_are_found(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text('# A b\n[1](#a-b) [2](page.md#a-b) [3](#c) [4](no.md) [5](https://c.d/e#f)\n'
                    '<img src="no.svg"> `core/limits.py` `core/no_such.py`\n')
    assert list(check_documents.dead_links(page)) == [
        'dead link #c', 'dead link no.md', 'dead link no.svg']
    assert list(check_documents.dead_paths(page)) == ['no file core/no_such.py']


def test_a_page_without_purpose_is_found(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text('# Nodes\n\n| a | b |\n')
    assert list(check_documents.without_purpose(page))
    page.write_text('# Nodes\n\nAll nodes, with their topics. For people who start them.\n')
    assert not list(check_documents.without_purpose(page))


def test_results_without_a_command_are_found(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text('# R\n\n## One\n\nIt took 5 ms.\n\n## Two\n\n    make demo\n\n6 ms.\n')
    assert list(check_documents.claims_without_command(page)) == [
        'section "One" has figures and names no command']


def test_words_are_counted_without_code_and_links() -> None:
    text = ('One [two](three/four.md) five.\n\n```\nsix seven\n```\n\n| eight | **9** |\n'
            '<!-- by: x -->')
    assert check_documents.words(text) == 5
    assert check_documents.numbers('ROS 2 takes 5 ms, 1,024 of 48; arXiv 2507.05829') == [
        '5', '1,024', '48']


def test_house_words_are_found_in_messages_and_help() -> None:
    tree = ast.parse("raise ValueError(f'{x}: say the mend')\nlog.warning('it was told')\n"
                     "name = 'told'\nEPILOG = 'beside it'\n")
    said = [word for _, text in check_documents.messages(tree)
            for word in check_documents.house_words(text)]
    assert {each.split(':')[0] for each in said} == {'"told"', '"mend"', '"beside"'}
    assert not list(check_documents.house_words('a breakthrough; recommend; bedside'))


def test_only_what_was_never_released_is_counted() -> None:
    log = 'Log\n^^^\n\nForthcoming\n-----------\n* one two\n\n0.1.0 (2026-11-21)\n---------\n* x\n'
    assert check_documents.unreleased(log).split() == ['*', 'one', 'two']


def test_pictures_say_what_the_tables_say() -> None:
    readme = '| VGG19 | 97 | 27.2 | 26.9 | **21.8** | −19 % |\n| a | b |\n'
    assert draw_pictures.results(readme) == [draw_pictures.Result('VGG19', 97, 27.2, 26.9, 21.8)]
    assert '21.8 ms, 19 % less' in draw_pictures.win(
        draw_pictures.LIGHT, draw_pictures.results(readme))
    assert draw_pictures.stale() == []
