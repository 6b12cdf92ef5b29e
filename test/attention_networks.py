# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Small networks that attend, look up, sample and recur, built as well-known ones are."""
from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class QueryDetector(nn.Module):
    """Learned queries look at all pixels through an encoder and a decoder (DETR)."""

    def __init__(self, width: int = 16, queries: int = 6) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 5, 4, 2), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1))
        self.places = nn.Parameter(torch.randn(1, 8 * 12, width))
        self.queries = nn.Parameter(torch.randn(1, queries, width))
        settings = {'dim_feedforward': 32, 'dropout': 0.0, 'batch_first': True}
        self.encoder = nn.TransformerEncoderLayer(width, 4, **settings)
        self.decoder = nn.TransformerDecoderLayer(width, 4, **settings)
        self.classes, self.boxes = nn.Linear(width, 5), nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = self.stem(x).flatten(2).transpose(1, 2) + self.places
        found = self.decoder(self.queries, self.encoder(pixels))
        return self.classes(found), self.boxes(found).sigmoid()


class ReducedAttention(nn.Module):
    """Each pixel attends to a coarser image, then mixes with its neighbours (SegFormer)."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.coarse = nn.Conv2d(width, width, reduction, reduction)
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.enter, self.leave = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.mix = nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[2:]
        tokens = x.flatten(2).transpose(1, 2)
        tokens = tokens + self.attend(self.before(tokens), size)
        wide = self.enter(self.between(tokens)).transpose(1, 2).unflatten(2, size)
        tokens = tokens + self.leave(F.gelu(self.mix(wide)).flatten(2).transpose(1, 2))
        return tokens.transpose(1, 2).unflatten(2, size)

    def attend(self, tokens: torch.Tensor, size: torch.Size) -> torch.Tensor:
        coarse = self.coarse(tokens.transpose(1, 2).unflatten(2, size)).flatten(2).transpose(1, 2)
        query = self.query(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2)
        key, value = self.key_value(coarse).unflatten(2, (2, self.heads, -1)).permute(
            2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value)
        return attended.transpose(1, 2).flatten(2)


class Segmenter(nn.Module):
    """Two scales of pixels that attend, put together at the finer one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 7, 4, 3), nn.Conv2d(16, 24, 3, 2, 1)
        self.fine, self.coarse = ReducedAttention(16, 2, 4), ReducedAttention(24, 3, 2)
        self.head = nn.Conv2d(16 + 24, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.fine(self.first(x))
        coarse = self.coarse(self.second(fine))
        coarse = F.interpolate(coarse, size=fine.shape[2:], mode='bilinear')
        return F.interpolate(
            self.head(torch.cat((fine, coarse), 1)), size=x.shape[2:], mode='bicubic')


class LineReader(nn.Module):
    """Reads a line of text: convolutions, then a recurrent layer along the width (CRNN)."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3, 1, 1),
            nn.ReLU(), nn.MaxPool2d((2, 1)))
        self.recurrent = nn.LSTM(12, 10, bidirectional=True, batch_first=True)
        self.letters = nn.Linear(20, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        line = self.convolutions(x).mean(2).transpose(1, 2)
        return self.letters(self.recurrent(line)[0]).log_softmax(2)


class Warp(nn.Module):
    """Moves features by a flow that depends on the place (optical flow, alignment)."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.flow = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 2, 5, 1, 2)
        self.head = nn.Conv2d(8, 4, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.features(x).relu()
        flow = self.flow(features).permute(0, 2, 3, 1).tanh()
        still = F.affine_grid(
            torch.eye(2, 3, dtype=x.dtype)[None], list(features.shape), align_corners=False)
        moved = F.grid_sample(features, still + 0.3 * flow, align_corners=False)
        return self.head(moved)


class PlacedAttention(nn.Module):
    """Attention with scores for relative heights and widths (MViT, SAM)."""

    def __init__(self, width: int = 12, size: tuple[int, int] = (10, 8)) -> None:
        super().__init__()
        self.size = size
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.heights = nn.Parameter(torch.randn(size[0], size[0], width) / 4)
        self.widths = nn.Parameter(torch.randn(size[1], size[1], width) / 4)
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.stem(x).permute(0, 2, 3, 1)
        query, key, value = self.query_key_value(tokens).chunk(3, -1)
        scores = torch.einsum('bhwc,byxc->bhwyx', query, key) / query.shape[-1] ** 0.5
        scores = scores + torch.einsum('bhwc,hyc->bhwy', query, self.heights)[..., None]
        scores = scores + torch.einsum('bhwc,wxc->bhwx', query, self.widths)[..., None, :]
        weights = scores.flatten(3).softmax(-1).unflatten(3, self.size)
        return self.head(tokens + torch.einsum('bhwyx,byxc->bhwc', weights, value))
