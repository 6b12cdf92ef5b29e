# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Random tasks of training: blocks, losses, optimisers, options and data that nobody chose."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import math
import random
from typing import Any

import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812
from torch.nn.utils import parametrizations

from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.systems.training.base.task import TensorData, TrainingTask

Make = Callable[[random.Random], nn.Module]
WIDTH, CHANNELS, SIDE, LENGTH = 12, 4, 6, 5


class Of(nn.Module):
    """What a function computes with parts."""

    call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.call(self, x)
        return found


def around(part: nn.Module) -> nn.Module:
    return Of(lambda s, x: x + s.part(x), part=part)


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * 0.3)


def drawn_rows(s: Any, x: torch.Tensor) -> torch.Tensor:
    """Stochastic depth, by sample."""
    kept = torch.empty(x.shape[0], *[1] * (x.dim() - 1), dtype=x.dtype).bernoulli_(0.7)
    return x + kept * torch.tanh(s.part(x))


FLAT: list[Make] = [
    lambda r: nn.Linear(WIDTH, WIDTH, bias=r.random() < 0.5),
    lambda r: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)),
    lambda r: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH, affine=False)),
    lambda r: nn.Sequential(nn.BatchNorm1d(WIDTH, track_running_stats=False), nn.Tanh()),
    lambda r: nn.LayerNorm(WIDTH), lambda r: nn.RMSNorm(WIDTH),
    lambda r: nn.GroupNorm(3, WIDTH), lambda r: nn.Tanh(), lambda r: nn.PReLU(WIDTH),
    lambda r: nn.GELU(), lambda r: nn.Dropout(0.2), lambda r: nn.Softplus(),
    lambda r: around(nn.Sequential(nn.Linear(WIDTH, 20), nn.ReLU(inplace=True),
                                   nn.Linear(20, WIDTH))),
    lambda r: parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    lambda r: parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    lambda r: Of(lambda s, x: s.l(s.l(x).sin()), l=nn.Linear(WIDTH, WIDTH)),
    lambda r: Of(lambda s, x: F.bilinear(x, x.tanh(), s.w) * 0.3,
                 w=parameter(WIDTH, WIDTH, WIDTH)),
    lambda r: Of(lambda s, x: torch.fft.irfft(torch.fft.rfft(x) * s.w, n=WIDTH), w=parameter(7)),
    lambda r: Of(lambda s, x: torch.einsum('bi,ij,j->bj', x, s.w, s.v), w=parameter(WIDTH, WIDTH),
                 v=torch.rand(WIDTH)),
    lambda r: Of(lambda s, x: x.gather(1, x.argsort(1)) * s.w, w=parameter(WIDTH)),
    lambda r: Of(lambda s, x: x[:, s.order].cumsum(1) * s.w / 5, w=parameter(WIDTH),
                 order=torch.randperm(WIDTH)),
    lambda r: Of(lambda s, x: torch.cat([s.a(x[:, :4]), x[:, 4:] * s.w], 1), a=nn.Linear(4, 4),
                 w=parameter(8)),
    lambda r: Of(lambda s, x: sum(  # experts that a gate weighs
        g[:, None] * e(x) for g, e in zip(s.gate(x).softmax(1).unbind(1), s.experts)),
        gate=nn.Linear(WIDTH, 3), experts=nn.ModuleList(nn.Linear(WIDTH, WIDTH)
                                                        for _ in range(3))),
    lambda r: Of(lambda s, x: x + s.e((x * 2).long().clamp(-3, 3).add(3)).mean(1),
                 e=nn.Embedding(7, WIDTH, sparse=r.random() < 0.5)),
    lambda r: Of(lambda s, x: F.softmax(x @ s.keys.T / 3, 1) @ s.values,
                 keys=parameter(9, WIDTH), values=parameter(9, WIDTH)),
    lambda r: Of(drawn_rows, part=nn.Linear(WIDTH, WIDTH)),
    lambda r: Of(lambda s, x: x / (x.detach().abs().amax(1, keepdim=True) + 1) * s.w,
                 w=parameter(WIDTH)),
    lambda r: nn.ELU(),
]

IMAGE: list[Make] = [
    lambda r: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=r.random() < 0.5,
                        padding_mode=r.choice(['zeros', 'reflect', 'circular'])),
    lambda r: nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
                            nn.BatchNorm2d(CHANNELS, momentum=r.choice([0.1, 0.37])),
                            nn.ReLU(inplace=True)),
    lambda r: nn.GroupNorm(2, CHANNELS),
    lambda r: nn.InstanceNorm2d(CHANNELS, affine=True, track_running_stats=r.random() < 0.5),
    lambda r: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS),
    lambda r: nn.Hardswish(), lambda r: nn.Dropout2d(0.2), lambda r: nn.SiLU(inplace=True),
    lambda r: nn.LocalResponseNorm(2), lambda r: nn.MaxPool2d(3, 1, 1),
    lambda r: nn.AvgPool2d(3, 1, 1), lambda r: nn.Sequential(
        nn.ConvTranspose2d(CHANNELS, CHANNELS, 2, stride=2), nn.MaxPool2d(2)),
    lambda r: nn.Sequential(nn.Conv2d(CHANNELS, 16, 1), nn.PixelShuffle(2), nn.AvgPool2d(2)),
    lambda r: torchvision().models.mobilenetv2.InvertedResidual(CHANNELS, CHANNELS, 1, 3),
    lambda r: torchvision().ops.SqueezeExcitation(CHANNELS, 3),
    lambda r: torchvision().ops.StochasticDepth(0.3, r.choice(['row', 'batch'])),
    lambda r: Of(lambda s, x: F.interpolate(F.interpolate(s.c(x), scale_factor=2.0,
                                                          mode='bilinear'), (SIDE, SIDE)),
                 c=nn.Conv2d(CHANNELS, CHANNELS, 1)),
    lambda r: Of(lambda s, x: s.n(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
                 n=nn.LayerNorm(CHANNELS)),
    lambda r: nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 1), nn.BatchNorm2d(CHANNELS).eval()),
    lambda r: around(nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
                                   nn.BatchNorm2d(CHANNELS), nn.Tanh())),
    lambda r: parametrizations.spectral_norm(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)),
    lambda r: Of(lambda s, x: F.unfold(x, 3, padding=1).reshape(-1, CHANNELS, 9, SIDE * SIDE).mul(
        s.w[:, None]).sum(2).reshape(-1, CHANNELS, SIDE, SIDE), w=parameter(9)),
    lambda r: Of(lambda s, x: x * s.t(x.mean((2, 3)))[:, :1, None, None],
                 t=nn.Linear(CHANNELS, 6)),
]


class Attention(nn.Module):
    """A layer of a transformer, with a mask of what is padded."""

    def __init__(self, r: random.Random) -> None:
        super().__init__()
        self.causal = r.random() < 0.4
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 16, r.choice([0.0, 0.2]), r.choice(['relu', 'gelu']), batch_first=True,
            norm_first=r.random() < 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=x.dtype)
        found: torch.Tensor = self.layer(x, mask if self.causal else None,
                                         is_causal=self.causal)
        return found


SEQUENCE: list[Make] = [
    Attention, Attention,
    lambda r: Of(lambda s, x: s.p(s.r(x)[0]), p=nn.Linear(8, WIDTH), r=r.choice(
        [nn.RNN, nn.GRU, nn.LSTM])(WIDTH, 8, r.choice([1, 2]), batch_first=True)),
    lambda r: Of(lambda s, x: s.r(x)[0], r=r.choice([nn.GRU, nn.LSTM])(
        WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)),
    lambda r: Of(lambda s, x: s.r(x.transpose(0, 1))[0].transpose(0, 1), r=nn.LSTM(
        WIDTH, 16, proj_size=WIDTH)),
    lambda r: nn.LayerNorm(WIDTH), lambda r: around(nn.Linear(WIDTH, WIDTH)),
    lambda r: Of(lambda s, x: x + s.p(torch.arange(LENGTH)), p=nn.Embedding(LENGTH, WIDTH)),
    lambda r: Of(lambda s, x: s.c(x.transpose(1, 2)).transpose(1, 2),
                 c=nn.Conv1d(WIDTH, WIDTH, 3, padding=1)),
    lambda r: Of(lambda s, x: s.n(x.transpose(1, 2)).transpose(1, 2), n=nn.BatchNorm1d(WIDTH)),
    lambda r: Of(lambda s, x: s.n(s.l(x).flatten(0, 1)).unflatten(0, (-1, LENGTH)),
                 n=nn.BatchNorm1d(WIDTH), l=nn.Linear(WIDTH, WIDTH)),
    lambda r: Of(lambda s, x: F.glu(s.l(x)), l=nn.Linear(WIDTH, 2 * WIDTH)),
    lambda r: nn.Dropout1d(0.2), lambda r: nn.Dropout(0.1),
    lambda r: Of(lambda s, x: torch.stack([s.c(row) for row in x.unbind(1)], 1),
                 c=nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())),
    lambda r: Of(lambda s, x: torch.logcumsumexp(x * s.w, 1), w=parameter(WIDTH)),
]


class Network(nn.Module):
    """A stem, blocks with ways around them, and a head; results of several forms."""

    def __init__(self, r: random.Random) -> None:
        super().__init__()
        self.kind = r.choice(['flat', 'image', 'sequence', 'words'])
        self.form = r.choice(['tensor', 'tensor', 'dict', 'tuple'])
        of = {'flat': FLAT, 'image': IMAGE}.get(self.kind, SEQUENCE)
        stems: dict[str, Callable[[], nn.Module]] = {
            'flat': lambda: r.choice([nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Identity()]),
            'image': lambda: r.choice([
                nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.AvgPool2d(3, 1, 1)]),
            'sequence': lambda: nn.Linear(WIDTH, WIDTH),
            'words': lambda: nn.Embedding(20, WIDTH, padding_idx=r.choice([None, 0]),
                                          sparse=r.random() < 0.4)}
        self.stem = stems[self.kind]()
        self.blocks = nn.ModuleList([r.choice(of)(r) for _ in range(r.choice([0, 1, 3, 5, 8]))])
        self.skips = [k for k in range(len(self.blocks)) if r.random() < 0.3]
        if r.random() < 0.15 and len(self.blocks) > 2:
            self.blocks[-1] = self.blocks[0]
        self.head = nn.Linear(CHANNELS if self.kind == 'image' else WIDTH, 10)
        self.early = nn.Linear(self.head.in_features, 10)
        if self.kind == 'words' and r.random() < 0.4 and isinstance(self.stem, nn.Embedding):
            self.back = nn.Linear(WIDTH, 20, bias=False)
            self.back.weight = self.stem.weight
        for part in self.modules():
            if r.random() < 0.05 and part is not self:
                part.requires_grad_(False)
        if self.kind == 'image' and r.random() < 0.3:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> Any:
        x = first = self.stem(x)
        for k, block in enumerate(self.blocks):
            x = block(x) if k not in self.skips else block(x) + 0.5 * first
        if hasattr(self, 'back'):
            x = x + self.back(x) @ self.stem.weight * 0.1
        last, early = (self.head(self._pooled(x)), self.early(self._pooled(first)))
        return {'tensor': last, 'dict': {'more': [early], 'out': last, 'none': None},
                'tuple': (early, last)}[self.form]

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3)) if self.kind == 'image' else x if self.kind == 'flat' else x.mean(1)


class Lion(torch.optim.Optimizer):
    """An optimiser of a user's own."""

    def __init__(self, params: Any, lr: float = 1e-3, decay: float = 0.0) -> None:
        super().__init__(params, {'lr': lr, 'decay': decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is None:
                    continue
                kept = self.state[p].setdefault('mean', torch.zeros_like(p))
                p.mul_(1 - group['lr'] * group['decay'])
                way = kept * 0.9 + p.grad * 0.1
                p.add_(way / (way.abs() + 1e-2), alpha=-group['lr'])
                kept.mul_(0.99).add_(p.grad, alpha=0.01)


def in_groups(kind: Any, r: random.Random, **options: Any) -> Callable[[Any], Any]:
    """Return an optimiser; perhaps with groups by shape, or rates by layer."""
    way = r.choice(['one', 'decay', 'rates'])

    def make(named: Sequence[tuple[str, nn.Parameter]]) -> Any:
        if way == 'one':
            return kind([p for _, p in named], **options)
        decay = 'decay' if kind is Lion else 'weight_decay'
        if way == 'decay' and kind is not torch.optim.Rprop:
            return kind([{'params': [p for _, p in named if p.dim() > 1], decay: 1e-2},
                         {'params': [p for _, p in named if p.dim() <= 1]}], **options)
        rate = options['lr']
        return kind([{'params': [p], 'lr': rate * (0.5 if name.startswith('stem') else 1.0)}
                     for name, p in named], **options)
    return make


def optimisers(r: random.Random) -> Callable[[Any], Any]:
    optim = torch.optim
    makers: list[Callable[[], Callable[[Any], Any]]] = [
        lambda: in_groups(optim.SGD, r, lr=0.05, momentum=0.9, nesterov=True),
        lambda: in_groups(optim.SGD, r, lr=0.05, momentum=0.5, dampening=0.3),
        lambda: in_groups(optim.SGD, r, lr=0.05),
        lambda: in_groups(optim.Adam, r, lr=1e-3, eps=1e-3),
        lambda: in_groups(optim.Adam, r, lr=1e-3, eps=1e-3, amsgrad=True, foreach=False),
        lambda: in_groups(optim.AdamW, r, lr=1e-3, eps=1e-3, fused=True),
        lambda: in_groups(optim.RMSprop, r, lr=1e-3, eps=1e-2, centered=True, momentum=0.3),
        lambda: in_groups(optim.Adagrad, r, lr=1e-2, eps=1e-2, lr_decay=0.1),
        lambda: in_groups(optim.NAdam, r, lr=1e-3, eps=1e-3),
        lambda: in_groups(optim.RAdam, r, lr=1e-3, eps=1e-3),
        lambda: in_groups(optim.Adadelta, r, lr=0.5, eps=1e-3),
        lambda: in_groups(optim.Adamax, r, lr=1e-3, eps=1e-3),
        lambda: in_groups(Lion, r, lr=1e-3)]
    return r.choice(makers)()


def schedules(r: random.Random, rounds: int) -> Callable[[int], float] | None:
    once = torch.optim.lr_scheduler.OneCycleLR(
        torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0), 1.0, total_steps=rounds + 1,
        cycle_momentum=False)
    rates = [float(once.get_last_lr()[0])]
    for _ in range(rounds):
        once.optimizer.step()
        once.step()
        rates.append(float(once.get_last_lr()[0]))
    kinds: list[Callable[[int], float] | None] = [
        None, None, lambda k: min(1.0, k / 3), lambda k: 0.5 * (1 + math.cos(k / rounds * 3.14)),
        lambda k: float(0.1 ** (k // 3)), lambda k: rates[k]]
    return r.choice(kinds)


def losses(r: random.Random, form: str) -> Callable[[Any, torch.Tensor], Any]:
    """Return a loss of samples that count alike, by weights of classes, or some not at all."""
    kind = r.choice(['alike', 'alike', 'weights', 'ignored', 'soft', 'apart'])
    weights = torch.linspace(0.2, 2, 10)
    share = r.choice([0.0, 0.4])

    def one(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if kind == 'soft':
            return (outputs.log_softmax(1) * -F.one_hot(targets, 10)).sum(1) \
                + 1e-2 * outputs.pow(2).mean(1)
        found = F.cross_entropy(
            outputs, targets, weights.to(outputs.dtype) if kind == 'weights' else None,
            reduction='none', label_smoothing=0.1 if kind == 'alike' else 0.0)
        if kind == 'apart':
            found = found * (found.detach() / found.detach().mean()).sqrt()
        return found * (targets > 2) if kind == 'ignored' else found

    def loss(found: Any, targets: torch.Tensor) -> Any:
        outputs = found if form == 'tensor' else found['out'] if form == 'dict' else found[1]
        made = one(outputs, targets)
        if form != 'tensor' and share:
            made = made + share * one(found['more'][0] if form == 'dict' else found[0], targets)
        if kind == 'weights':
            return made, weights[targets]
        return (made, targets > 2) if kind == 'ignored' else made
    return loss


@dataclass(frozen=True)
class Case:
    """
    A task, and who trains it: devices, losses of them, pauses, who comes late, data.

    `rough`: it computes with bfloat16, too.
    """

    task: TrainingTask
    devices: str
    faults: dict[str, tuple[int, str]]
    late: str
    pauses: tuple[int, ...]
    data: tuple[tuple[str, int], ...]
    rough: bool


def random_case(seed: int, rounds: int = 6) -> Case:
    """Return the case of a seed."""
    r = random.Random(seed)
    torch.manual_seed(seed)
    grain = r.choice([2, 3, 4, 5])
    batch = r.choice([grain, 2 * grain, 3 * grain + 2, 5 * grain, 4 * grain + 2])
    samples = r.choice([batch, batch + 1, 2 * batch + 3, 61])
    samples = max(samples, batch)
    network = Network(r)
    inputs = {
        'flat': lambda: torch.randn(samples, WIDTH).double(),
        'image': lambda: torch.randn(samples, CHANNELS, SIDE, SIDE).double(),
        'sequence': lambda: torch.randn(samples, LENGTH, WIDTH).double(),
        'words': lambda: torch.randint(0, 20, (samples, LENGTH))}[network.kind]()
    autocast = torch.bfloat16 if r.random() < 0.06 else None
    micro_batches = r.randint(1, min(4, -(-batch // grain)))
    task = TrainingTask(
        network.double(), losses(r, network.form), optimisers(r),
        TensorData((inputs,), torch.randint(0, 10, (samples,))), batch, grain, micro_batches,
        rounds, seed=seed, clip=r.choice([None, None, 0.05, 1.0, 100.0]),
        schedule=schedules(r, rounds), autocast=autocast, freeze_norms=r.random() < 0.2)
    devices = 'abcd'[:r.choice([1, 2, 3, 3, 4, 4])]
    late = ''.join(name for name in devices[1:] if r.random() < 0.15)
    there = [name for name in devices if name not in late]
    dying = r.sample(there[1:], r.randint(0, len(there) - 1)) if len(there) > 1 else []
    actions = [*(f'{kind}{k}' for kind in 'FB' for k in range(micro_batches)), 'S', 'U']
    faults = {name: (r.randrange(rounds), r.choice(actions)) for name in dying}
    staying = [name for name in there if name not in faults]
    data: tuple[tuple[str, int], ...] = ()
    if r.random() < 0.3 and not late:
        first = r.randint(1, samples - 1) if samples > 1 else 0
        data = ((staying[0], first), (staying[-1], samples - first)) \
            if len(staying) > 1 and first else ((staying[0], samples),)
    return Case(task, ''.join(there), faults, late,
                tuple(r.sample(range(1, rounds), r.choice([0, 0, 1]))), data,
                autocast is not None)


def draws_otherwise(task: TrainingTask) -> bool:
    """Whether a task draws in ways that one process in plain PyTorch does not follow."""
    return any(isinstance(part, nn.Dropout1d | nn.Dropout2d | torchvision().ops.StochasticDepth)
               or getattr(part, 'call', None) is drawn_rows for part in task.module.modules())
