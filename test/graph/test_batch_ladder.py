# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One model for batches of several sizes: the same weights, and rows that equal rows alone."""
from __future__ import annotations

import re
import zipfile

import pytest
import torch
from torch import nn

from intradp_ros.graph.batch_ladder import as_run, capture_ladder, load_ladder, save_ladder
from intradp_ros.graph.graph_errors import GraphFormatError
from intradp_ros.graph.serialise import digest, load_graph, load_notes, save_graph


class Policy(nn.Module):
    """A picture and a state to two tensors; one constant depends on the size of the batch."""

    def __init__(self, mixes: bool = False) -> None:
        super().__init__()
        self.mixes = mixes
        self.pixels = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8 * 7 * 7 + 4, 6)

    def forward(self, image, state):
        x = self.pixels(image.float() / 255).flatten(1)
        x = self.head(torch.cat([x, state], 1))
        if self.mixes:
            x = x - x.mean(0)
        return {'actions': x + torch.arange(x.shape[0])[:, None] * 0, 'best': x.argmax(1)}


EXAMPLE = torch.zeros(1, 3, 16, 16, dtype=torch.uint8), torch.zeros(1, 4)


def test_batches_share_weights_and_their_rows_equal_rows_alone(tmp_path):
    torch.manual_seed(0)
    ladder = capture_ladder(Policy().eval(), EXAMPLE)
    assert list(ladder.graphs) == [1, 2, 4, 8] and ladder.rows and not ladder.why
    for graph in ladder.graphs.values():
        for name, tensor in graph.parameters.items():
            if tensor.numel() > 64:
                assert tensor is ladder.one.parameters[name]
    path = tmp_path / 'policy.graph'
    save_ladder(ladder, path, 'notes')
    save_graph(ladder.one, tmp_path / 'one.graph')
    assert path.stat().st_size < 3 * (tmp_path / 'one.graph').stat().st_size
    assert digest(load_graph(path)) == digest(ladder.one) and load_notes(path) == 'notes'
    again = load_ladder(path)
    assert list(again.graphs) == [1, 2, 4, 8]
    image = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8)
    state = torch.randn(8, 4)
    together = as_run(again.graphs[8])((image, state))
    for k in range(8):
        for one, all_ in zip(as_run(again.one)((image[k:k + 1], state[k:k + 1])), together):
            torch.testing.assert_close(one, all_[k:k + 1])


def test_a_model_that_mixes_rows_is_served_row_by_row():
    ladder = capture_ladder(Policy(mixes=True).eval(), EXAMPLE)
    assert list(ladder.graphs) == [1]
    assert ladder.why == 'a row of a batch of 2 differs from the row alone'


@pytest.mark.parametrize('module, example, why', [
    (nn.Linear(4, 2), torch.zeros(3, 4), 'input .* has no first dimension of 1'),
    (nn.Flatten(0), torch.zeros(1, 4), 'output 0 has no first dimension of 1'),
    (nn.Unflatten(1, (2, 2)), torch.zeros(1, 4), ''),
])
def test_whether_there_are_rows_is_seen(module, example, why):
    ladder = capture_ladder(nn.Sequential(nn.ReLU(), module).eval(), (example,), (1, 2))
    assert ladder.rows == (not why)
    assert re.search(why, ladder.why)


def test_an_archive_of_one_graph_has_one_rung(tmp_path):
    ladder = capture_ladder(Policy().eval(), EXAMPLE, (1,))
    save_graph(ladder.one, tmp_path / 'one.graph')
    assert 'captured for one row alone' in load_ladder(tmp_path / 'one.graph').why


def test_archives_with_other_batches_are_refused(tmp_path):
    ladder = capture_ladder(Policy().eval(), EXAMPLE, (1, 2))
    path = tmp_path / 'policy.graph'
    save_ladder(ladder, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def written(changed):
        with zipfile.ZipFile(path, 'w') as archive:
            for name, data in changed.items():
                archive.writestr(name, data)
        return path
    with pytest.raises(GraphFormatError, match='of the graph for 4 rows is missing, or another'):
        load_ladder(written(members | {'batch_4.json': members['batch_2.json']}
                            | {'batch_2.json': members['batch_2.json']}))
    with pytest.raises(GraphFormatError, match='missing, or another|not an archive'):
        load_ladder(written({name: data for name, data in members.items()
                             if name != 'batches.safetensors'}))
    with pytest.raises(GraphFormatError, match='other files'):
        load_ladder(written(members | {'batch_x.json': b'{}'}))
