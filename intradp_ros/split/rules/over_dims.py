# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators that work along some dimensions: local if the split dimension is not one of them."""
from __future__ import annotations

from intradp_ros.split.calls.site import follow, normal_dim, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kind
from intradp_ros.split.rules.any_rows import split_any_rows


def split_scan(site: Site) -> Split | None:
    """Split an operator along the dimensions it does not work along; else it yields any rows."""
    lead = site.lead()
    if lead is None:
        return None
    return split_any_rows(site, lead[1]) if lead[1] in _dims(site) else follow(
        site, Kind.ROW, lead[1])


def split_along(site: Site) -> Split | None:
    """Split an operator that keeps the dimensions it works along (softmax, GLU, top k)."""
    lead = site.lead()
    if lead is None or lead[1] in _dims(site):
        return None
    return follow(site, Kind.ROW, lead[1])


def split_reduction(site: Site) -> Split | None:
    """Split a reduction over other dimensions; over the rows it is global."""
    lead = site.lead()
    if lead is None:
        return None
    dims = _dims(site)
    if lead[1] in dims:
        return None
    dropped = 0 if site.call.argument('keepdim') else sum(d < lead[1] for d in dims)
    return follow(site, Kind.ROW, lead[1] - dropped)


def split_normalisation(site: Site) -> Split | None:
    """Split a normalisation over the last dimensions (layer norm)."""
    lead = site.lead()
    if lead is None or not site.only_first_output():
        return None
    normalised = len(site.call.argument('normalized_shape'))
    if lead[1] >= len(site.shape(lead[0])) - normalised:
        return None
    return follow(site, Kind.ROW, lead[1])


def _dims(site: Site) -> set[int]:
    """Return the dimensions an operator works along; none given means all."""
    rank = len(site.shape(site.operator.args[0]))
    dims = site.call.argument('dim')
    if dims is None or dims == []:
        return set(range(rank))
    return {normal_dim(d, rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])}


RULES: dict[str, Rule] = {
    **rules(split_scan, (
        'aten._fft_c2c.default',
        'aten._fft_c2r.default',
        'aten._fft_r2c.default',
        'aten.argsort.default',
        'aten.argsort.stable',
        'aten.cummax.default',
        'aten.cummin.default',
        'aten.cumprod.default',
        'aten.cumsum.default',
        'aten.fft_fft.default',
        'aten.fft_fft2.default',
        'aten.fft_fftn.default',
        'aten.fft_fftshift.default',
        'aten.fft_hfft.default',
        'aten.fft_ifft.default',
        'aten.fft_ifft2.default',
        'aten.fft_ifftn.default',
        'aten.fft_ifftshift.default',
        'aten.fft_ihfft.default',
        'aten.fft_irfft.default',
        'aten.fft_irfft2.default',
        'aten.fft_irfftn.default',
        'aten.fft_rfft.default',
        'aten.fft_rfft2.default',
        'aten.fft_rfftn.default',
        'aten.logcumsumexp.default',
        'aten.sort.default',
        'aten.sort.stable',
    )),
    **rules(split_along, (
        'aten._log_softmax.default',
        'aten._softmax.default',
        'aten.glu.default',
        'aten.log_softmax.int',
        'aten.softmax.int',
        'aten.topk.default',
    )),
    **rules(split_reduction, (
        'aten.all.dim',
        'aten.amax.default',
        'aten.amin.default',
        'aten.any.dim',
        'aten.aminmax.default',
        'aten.argmax.default',
        'aten.argmin.default',
        'aten.kthvalue.default',
        'aten.linalg_vector_norm.default',
        'aten.logsumexp.default',
        'aten.max.dim',
        'aten.mean.dim',
        'aten.median.dim',
        'aten.min.dim',
        'aten.mode.default',
        'aten.nansum.default',
        'aten.nanmean.default',
        'aten.nanmedian.dim',
        'aten.prod.dim_int',
        'aten.std.correction',
        'aten.std.dim',
        'aten.sum.dim_IntList',
        'aten.var.correction',
        'aten.var.dim',
        'aten.var_mean.correction',
        'aten.var_mean.dim',
    )),
    **rules(split_normalisation, (
        'aten.layer_norm.default', 'aten.native_layer_norm.default', 'aten.rms_norm.default')),
}
