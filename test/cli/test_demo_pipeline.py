# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""`intradp demo-pipeline` as a whole: nothing lost, every message right, foreign files left."""
from __future__ import annotations

import json
from pathlib import Path

import cv2
import pytest

from intradp_lab.zoo.coco import detector
from intradp_lab.zoo.wheel_files import MissingWheelError


@pytest.mark.slow
def test_from_camera_to_bag(intradp, tmp_path: Path) -> None:
    try:
        detector()
    except MissingWheelError as error:
        pytest.skip(str(error))
    out = tmp_path / 'out'
    result = intradp('demo-pipeline', '--out', str(out), '--frames', '12')
    report = json.loads((out / 'report.json').read_text())
    assert result.status == 0
    assert set(report['networks']) == {'detector', 'segmenter'}
    for row in report['networks'].values():
        assert (row['frames'], row['lost'], row['equal']) == (12, 0, 12)
        assert row['extra_ms'] > 0 and row['median_ms'] > 0
    assert report['link_cut']['frames'] >= 4 and not report['link_cut']['lost']
    assert (out / 'bag' / 'metadata.yaml').is_file() and 'AGPL' in (out / 'page.html').read_text()
    assert cv2.imread(str(out / 'overlay.png')).std() > 20


def test_a_folder_with_other_files_is_left_alone(intradp, tmp_path: Path) -> None:
    (tmp_path / 'report.json').write_text('mine')
    result = intradp('demo-pipeline', '--out', str(tmp_path))
    assert result.status == 2 and 'holds files that are not of demo-pipeline' in result.err
    assert (tmp_path / 'report.json').read_text() == 'mine'
