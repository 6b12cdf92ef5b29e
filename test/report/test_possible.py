# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What sites can do at most: of what is asked for, by executors that serve several services."""
from __future__ import annotations

import pytest

from intradp_ros.report.view.possible import MOST, possible

ONE, OTHER = ('dock', 0), ('hall', 0)


@pytest.mark.parametrize(('offered', 'rates', 'most'), [
    ({'a': 10.0}, {(ONE, 'a'): 20.0}, 10.0),                              # all that is asked for
    ({'a': 30.0}, {(ONE, 'a'): 20.0, (OTHER, 'a'): 5.0}, 25.0),           # all that they can do
    ({'a': 10.0, 'b': 30.0}, {(ONE, 'a'): 20.0, (ONE, 'b'): 10.0}, 15.0),  # half of the time each
    ({'a': 50.0, 'b': 50.0}, {(ONE, 'a'): 20.0, (OTHER, 'b'): 7.0}, 27.0),
    ({'a': 50.0}, {(ONE, 'b'): 20.0}, 0.0), ({}, {}, 0.0)])
def test_no_choice_of_sites_can_do_more(offered, rates, most) -> None:
    assert possible(offered, rates) == pytest.approx(most)


def test_of_too_many_executors_nothing_is_said() -> None:
    assert possible({'a': 1.0}, {((f's{k}', 0), 'a'): 1.0 for k in range(MOST + 1)}) is None
