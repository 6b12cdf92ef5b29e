# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is measured is measured once, and anew where its file is damaged or of another key."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from intradp_ros.core.measured_once import figures_once, measured_once, measured_path


@dataclass(frozen=True)
class Figures:
    """As rooms keep them."""

    rate: float
    direct: bool = True
    parts: tuple[float, ...] = ()


@pytest.mark.parametrize('damaged', [
    '', '{', '[]', '3', 'null', '{}', '{"rate": "x"}', '{"rate": null}', '{"rate": true}',
    '{"rate": -1}', '{"rate": NaN}', '{"rate": Infinity}', '{"rate": 0}', '{"rate": [1]}',
    '{"rate": 1, "direct": 2}', '{"rate": 1, "parts": ["x"]}', '{"rate": 1, "parts": [-1.0]}',
    '{"rate": 1, "other": 2}', '[' * 100_000, '{"rate": 1}' + ' ' * (5 << 20), '\ud800'])
def test_damaged_figures_are_measured_anew(damaged: str, tmp_path: Path) -> None:
    path, measured = measured_path('disk', 'a machine', folder=tmp_path), []

    def found() -> Figures:
        return figures_once(path, Figures, lambda: measured.append(1) or Figures(
            2.0, False, (1.0, 0.0)), lambda figures: figures.rate > 0)

    assert found() == found() == Figures(2.0, False, (1.0, 0.0)) and len(measured) == 1
    path.write_bytes(damaged.encode('utf-8', 'surrogatepass'))
    assert found() == found() == Figures(2.0, False, (1.0, 0.0)) and len(measured) == 2
    path.write_text('{"rate": 3}')
    assert found() == Figures(3) and len(measured) == 2


def test_each_key_has_a_file_of_its_own(tmp_path: Path) -> None:
    keys = [('a', 'b'), ('ab', ''), ('', 'ab'), ('a b',), ('a', 'b', '')]
    paths = [measured_path('kind', *key, folder=tmp_path) for key in keys]
    paths += [measured_path('kind', 'a', 'b', packages=('core',), folder=tmp_path)]
    for number, path in enumerate(paths):
        assert measured_once(path, lambda n=number: n, int, str) == number
    assert [measured_once(path, lambda: -1, int, str) for path in paths] == [*range(len(paths))]


def test_what_cannot_be_kept_is_measured_each_time(tmp_path: Path) -> None:
    (tmp_path / 'profiles').write_text('a file, where a folder should be')
    path = measured_path('kind', folder=tmp_path)
    for number in (1, 2):
        with pytest.warns(UserWarning, match='INTRADP_CACHE'):
            assert measured_once(path, lambda n=number: n, int, str) == number
