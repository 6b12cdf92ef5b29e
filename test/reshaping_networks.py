# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Small networks whose rows go through reshapes: windows, patches, tokens, shuffles, volumes."""
from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor


class SelfAttention(nn.Module):
    """Attention among tokens (batch, tokens, width), with a table added to the scores."""

    def __init__(self, width: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.heads = heads
        self.enter, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn(heads, tokens, tokens))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.enter(x).reshape(
            batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5 + self.table
        if mask is not None:
            windows = len(mask)
            scores = scores.view(batch // windows, windows, self.heads, tokens, tokens)
            scores = (scores + mask.unsqueeze(1)).view(-1, self.heads, tokens, tokens)
        return self.leave((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width))


class ShiftedWindows(nn.Module):
    """Attention in windows, which are shifted by half their size (Swin)."""

    def __init__(self, width: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.norm, self.attention = nn.LayerNorm(width), SelfAttention(width, 2, window ** 2)

    def forward(self, x: Tensor) -> Tensor:
        _, height, width, channels = x.shape
        y = F.pad(self.norm(x), (0, 0, 0, -width % self.window, 0, -height % self.window))
        y = torch.roll(y, (-self.shift, -self.shift), (1, 2)) if self.shift else y
        parts = self.partition(y)
        mask = self.partition(self.areas(y)) if self.shift else None
        if mask is not None:
            mask = (mask != mask.transpose(1, 2)).to(x.dtype) * -100
        parts = self.attention(parts, mask)
        n = self.window
        y = parts.view(1, y.shape[1] // n, y.shape[2] // n, n, n, channels).permute(
            0, 1, 3, 2, 4, 5).reshape(y.shape)
        y = torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y
        return x + y[:, :height, :width]

    def partition(self, x: Tensor) -> Tensor:
        _, height, width, channels = x.shape
        n = self.window
        return x.view(1, height // n, n, width // n, n, channels).permute(
            0, 1, 3, 2, 4, 5).reshape(-1, n * n, channels)

    def areas(self, x: Tensor) -> Tensor:
        """Give numbers to the parts of the image that the shift made neighbours."""
        rows, columns = (
            (torch.arange(size) >= size - self.window).int()
            + (torch.arange(size) >= size - self.shift) for size in x.shape[1:3])
        return (3 * rows[:, None] + columns).reshape(1, *x.shape[1:3], 1)


class Swin(nn.Module):
    """Patches, two blocks of windows, patches merged two by two, two blocks, a classifier."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 4, 4)
        self.fine = nn.Sequential(ShiftedWindows(width, 4, 0), ShiftedWindows(width, 4, 2))
        self.merge = nn.Linear(4 * width, 2 * width)
        self.coarse = nn.Sequential(
            ShiftedWindows(2 * width, 4, 0), ShiftedWindows(2 * width, 4, 2))
        self.leave = nn.Linear(2 * width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fine(self.enter(x).permute(0, 2, 3, 1))
        x = torch.cat([x[:, a::2, b::2] for b in (0, 1) for a in (0, 1)], -1)
        return self.leave(self.coarse(self.merge(x)).mean((1, 2)))


class VisionTransformer(nn.Module):
    """Patches as tokens, a class token in front, a position table, classes and a map."""

    def __init__(self, tokens: int, width: int = 16, depth: int = 2) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 8, 8)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 1 + tokens, width))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), SelfAttention(width, 2, 1 + tokens),
                          nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth))
        self.classes, self.map = nn.Linear(width, 5), nn.Linear(width, 64)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        high, wide = x.shape[2] // 8, x.shape[3] // 8
        x = self.enter(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = x + block(x)
        pixels = self.map(x[:, 1:]).transpose(1, 2).unflatten(2, (high, wide))
        return self.classes(x[:, 0]), F.pixel_shuffle(pixels, 8)


class Shuffled(nn.Module):
    """A stem by space-to-depth, and units that shuffle channels (ShuffleNet)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.enter = nn.Conv2d(12, width, 3, padding=1)
        self.units = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width // 2, width // 2, 3, padding=1), nn.ReLU())
            for _ in range(3))
        self.leave = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        x = x.view(batch, channels, height // 2, 2, width // 2, 2).permute(
            0, 3, 5, 1, 2, 4).reshape(batch, 4 * channels, height // 2, width // 2)
        x = self.enter(x)
        for unit in self.units:
            kept, changed = x.chunk(2, 1)
            x = torch.cat([kept, unit(changed)], 1)
            batch, channels, height, width = x.shape
            x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(x.shape)
        return self.leave(x)


class Unfolded(nn.Module):
    """Pixels at one place of all patches attend to each other, channels on the way (MobileViT)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, width, 3, 2, 1), nn.Conv2d(2 * width, 2, 3, 1, 1)
        self.mix = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        _, channels, height, width = x.shape
        high, wide = height // 2, width // 2
        y = x.reshape(channels * high, 2, wide, 2).transpose(1, 2)
        y = y.reshape(1, channels, high * wide, 4).transpose(1, 3).reshape(4, -1, channels)
        y = self.mix(y)
        y = F.scaled_dot_product_attention(y, y, y)
        y = y.view(1, 4, high * wide, channels).transpose(1, 3)
        y = y.reshape(channels * high, wide, 2, 2).transpose(1, 2).reshape(x.shape)
        return self.leave(torch.cat([x, y], 1))


class Reduced(nn.Module):
    """Keys and values from a coarser image of the tokens, then an image again (SegFormer, PVT)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 7, 4, 3)
        self.query, self.pair = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.coarser, self.depthwise = nn.Conv2d(width, width, 2, 2), nn.Conv2d(
            width, width, 3, padding=1, groups=width)
        self.norm, self.leave = nn.LayerNorm(width), nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        size = x.shape
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        coarse = self.coarser(tokens.transpose(1, 2).reshape(size)).flatten(2).transpose(1, 2)
        key, value = self.pair(coarse).view(1, -1, 2, size[1]).unbind(2)
        tokens = tokens + F.scaled_dot_product_attention(self.query(tokens), key, value)
        image = self.depthwise(tokens.transpose(1, 2).view(size))
        tokens = tokens + F.gelu(image.flatten(2).transpose(1, 2))
        image = tokens.permute(0, 2, 1).unflatten(-1, size[2:])
        return F.interpolate(self.leave(image), scale_factor=4, mode='bilinear')


class Volume(nn.Module):
    """A U-Net on an occupancy grid."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.enter = nn.Sequential(
            nn.Conv3d(1, width, 3, padding=1), nn.InstanceNorm3d(width, affine=True), nn.ReLU())
        self.down = nn.Sequential(nn.Conv3d(width, 2 * width, 3, 2, 1), nn.ReLU())
        self.up = nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.leave = nn.Conv3d(2 * width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = self.enter(x)
        return self.leave(torch.cat([high, self.up(self.down(high))], 1))


class Levels(nn.Module):
    """Tokens of an image at three scales joined, mixed, divided and made images again (DETR)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, 2, 1)
        self.coarser = nn.ModuleList(nn.Conv2d(width, width, 3, 2, 1) for _ in range(2))
        self.level = nn.Parameter(torch.randn(3, width))
        self.mix = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, x: Tensor) -> Tensor:
        images = [self.enter(x)]
        for module in self.coarser:
            images.append(module(images[-1]))
        sizes = [image.shape[2:] for image in images]
        tokens = torch.cat([image.flatten(2).transpose(1, 2) + self.level[k]
                            for k, image in enumerate(images)], 1)
        parts = self.mix(tokens).split([size.numel() for size in sizes], 1)
        maps = [part.transpose(1, 2).unflatten(2, size) for part, size in zip(parts, sizes)]
        return sum(F.interpolate(y, size=sizes[0]) for y in maps)
