# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What moving bytes costs is measured between two real processes."""
from __future__ import annotations

from pathlib import Path

import pytest

from intradp_ros.dds import transport_cost
from intradp_ros.dds.transport_cost import (
    cached_transport_cost,
    measure_transport_cost,
    TransportCostError,
    with_transport_cost,
)
from intradp_ros.profiling.profile import CHUNK_BYTES, OperatorTiming, Profile, TransportCost

PROFILE = Profile('digest', 2, 'device', 1, (OperatorTiming((1, 8), (0.1, 0.4)),), 0.4)


@pytest.mark.usefixtures('domain')
def test_sending_and_receiving_a_chunk_costs_something(tmp_path: Path) -> None:
    cost = cached_transport_cost(tmp_path)
    for chunk, byte in ((cost.send_chunk, cost.send_byte),
                        (cost.receive_chunk, cost.receive_byte)):
        assert 1e-6 < chunk + byte * CHUNK_BYTES < 1.0
    (kept,) = tmp_path.iterdir()
    written = kept.stat().st_mtime_ns
    assert cached_transport_cost(tmp_path) == cost
    assert kept.stat().st_mtime_ns == written


@pytest.mark.usefixtures('domain')
def test_what_cannot_be_measured_counts_as_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv('INTRADP_TRANSPORT', 'carrier pigeons')
    with pytest.raises(TransportCostError, match='carrier pigeons'):
        measure_transport_cost()
    monkeypatch.delenv('INTRADP_TRANSPORT')
    with pytest.raises(TransportCostError, match='within 0.01 s'):
        measure_transport_cost(timeout=0.01)
    monkeypatch.setattr(transport_cost, 'TIMEOUT', 0.01)
    assert cached_transport_cost(tmp_path) == TransportCost()
    assert 'counts as nothing' in caplog.text and not list(tmp_path.iterdir())


def test_only_where_no_core_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_cost, 'available_cores', lambda: 2)
    roomy = with_transport_cost(PROFILE, tmp_path)
    assert (roomy.cores, roomy.moving, roomy.crowded) == (2, TransportCost(), False)
    assert not list(tmp_path.iterdir())
