# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The overview marks every value of every case, and refuses what a logarithm cannot show."""
from __future__ import annotations

import pytest

from intradp_lab.report.overview_plot import overview_figure

PANELS = {'indoors': {'VGG': {'local': 118.0, 'shared': 45.0, 'bound': 30.0},
                      'pose': {'local': 900.0, 'shared': 300.0}},
          'outdoors': {'pose': {'local': 900.0, 'shared': 350.0}}}


def test_all_values_are_marked_in_their_rows() -> None:
    figure = overview_figure(PANELS, 'ms')
    for axes, rows in zip(figure.axes, PANELS.values()):
        marked = {(line.get_label(), y, x) for line in axes.lines if line.get_marker() != 'None'
                  for x, y in zip(line.get_xdata(), line.get_ydata())}
        assert marked == {(system, ['VGG', 'pose'].index(case), value)
                          for case, row in rows.items() for system, value in row.items()}
    legend, = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ['local', 'shared', 'bound']


@pytest.mark.parametrize('panels', [{}, {'indoors': {}}, {'indoors': {'VGG': {'local': 0.0}}}])
def test_what_cannot_be_drawn_is_refused(panels: dict[str, dict[str, dict[str, float]]]) -> None:
    with pytest.raises(ValueError, match='above 0'):
        overview_figure(panels, 'ms')
