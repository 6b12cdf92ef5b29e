# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the coordinator's node reads from its parameters."""
from __future__ import annotations

import pytest

from intradp_ros.nodes.fleet.coordinator_node import read_candidates


def test_candidates_have_names_and_priorities() -> None:
    assert read_candidates(['', 'backup', 'dock=5', 'spare=-1']) == {
        'backup': 0, 'dock': 5, 'spare': -1}


@pytest.mark.parametrize('text', ['dock=high', 'dock=', '=5', 'a b', 'dock=1=2'])
def test_what_names_no_candidate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='parameter candidates'):
        read_candidates([text])
