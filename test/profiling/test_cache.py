# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is kept on disk is found again by the code that made it, and by no other."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
import shutil

import pytest
import torch

from intradp_ros.core import cache_folder
from intradp_ros.core.cache_folder import code_digest
from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.profiling.cache import cached_profile
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.runtime.models.model import share_module
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.plan_from_profiles import book_from_profiles, PlanRequest


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Return a function after which the package is as in a folder."""

    def put(root: Path) -> None:
        monkeypatch.setattr(cache_folder, '__file__', str(root / 'core' / 'cache_folder.py'))
        code_digest.cache_clear()

    code_digest.cache_clear()
    yield put
    code_digest.cache_clear()


@pytest.fixture
def upgrade(install: Callable[[Path], None], tmp_path: Path) -> Callable[[], None]:
    """Return a function after which the code is another one."""

    def change() -> None:
        root = tmp_path / 'release'
        for name in ('profiling', 'split'):
            shutil.copytree(Path(cache_folder.__file__).parents[1] / name, root / name)
        (root / 'split' / 'new_rule.py').write_text('RULE = 1\n')
        install(root)

    return change


def test_every_file_counts_by_place_and_content(
        tmp_path: Path, install: Callable[[Path], None]) -> None:
    def digest_of(*packages: str) -> str:
        install(tmp_path)
        return code_digest(*packages)

    files = tmp_path / 'graph' / 'a.py', tmp_path / 'graph' / 'deep' / 'b.py'
    files[1].parent.mkdir(parents=True)
    (tmp_path / 'profiling').mkdir()
    for file in (*files, tmp_path / 'profiling' / 'cache.py'):
        file.write_text('x = 1\n')
    seen = [digest_of('graph')]
    (tmp_path / 'graph' / 'notes.txt').write_text('not code')
    assert digest_of('graph') == seen[0] and len(seen[0]) == 16
    seen.append(digest_of('graph', 'profiling'))
    files[1].write_text('x = 2\n')
    seen.append(digest_of('graph'))
    files[1].rename(tmp_path / 'graph' / 'c.py')
    seen.append(digest_of('graph'))
    assert len({*seen}) == len(seen)


def test_the_installed_code_has_one() -> None:
    assert code_digest('graph') != code_digest('split') != code_digest()


def test_another_release_measures_and_plans_anew(
        tmp_path: Path, upgrade: Callable[[], None]) -> None:
    """It may have other operators, or others in the place of those that were measured."""
    source = torch.randn(1, 3, 12, 12)
    model = share_module(torch.nn.Conv2d(3, 4, 3).eval(), (source,))
    measured = []

    def measure() -> object:
        measured.append(measure_profile(model.split, [source], budget=0.0))
        return measured[-1]

    def book() -> str:
        profile = cached_profile(model.digest, model.split.axis, measure, tmp_path).to_json()
        request = PlanRequest(graph_to_json(model.split.captured), profile, profile, points=2)
        keys.append(request.key)
        return book_from_profiles(request, tmp_path / 'books')

    keys: list[str] = []
    first = book()
    assert book() == first and len(measured) == 1 and keys[0] == keys[1]
    upgrade()
    assert ScheduleBook.from_json(book()).digest == model.digest
    assert len(measured) == 2 and keys[2] != keys[0]
