# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Requests of recorded files, and those that come as in a public trace."""
import numpy as np
import pytest

from intradp_lab.serving.recorded import like_azure, read_azure, read_recorded, write_recorded
from intradp_ros.systems.serving.arrivals import arrivals


def busiest(times, seconds=10):
    counts = np.bincount((times // seconds).astype(int))
    return counts.max() / counts.mean()


def spread(times):
    gaps = np.diff(times)
    return gaps.std() / gaps.mean()


@pytest.mark.parametrize('kind, count, gap, variation, peak', [
    ('conversations', 19366, 0.1808, 1.094, 1.776), ('code', 8819, 0.3896, 13.15, 12.76)])
def test_generated_requests_come_as_those_of_the_trace(kind, count, gap, variation, peak):
    """Means over seeds beside the trace's own figures."""
    drawn = [like_azure(kind, 1 / gap, count, seed) for seed in range(20)]
    assert all((np.diff(one) > 0).all() and abs(one[-1] / count / gap - 1) < 1e-9
               for one in drawn)
    assert np.mean([spread(one) for one in drawn]) == pytest.approx(variation, rel=0.04)
    assert np.mean([busiest(one) for one in drawn]) == pytest.approx(peak, rel=0.1)
    assert len({tuple(one[:5]) for one in drawn}) == 20


def test_recorded_requests_are_read_as_they_were_written(tmp_path):
    some = arrivals([0.125, 1 / 3], [0.1, 0.2], site=[1, 0], service=[0, 1], priority=[-1, 2],
                    stream=[5, -1], number=[2**62, 7])
    path = tmp_path / 'hour.csv'
    write_recorded(path, some, ['a', 'b'], ['detector', 'policy'])
    again = read_recorded(path, ['a', 'b'], ['detector', 'policy'])
    assert all((x == y).all() for x, y in zip(some, again))


GOOD = 'time,site,service,remaining,priority,stream,number\n'


@pytest.mark.parametrize('text, line, complaint', [
    (GOOD + '0,a,none,1,0,0,0\n', 2, 'service is .none.: write one of detector'),
    (GOOD + '0,a,detector,-1,0,0,0\n', 2, 'remaining .* seconds'),
    (GOOD + '\nnan,a,detector,1,0,0,0\n', 3, 'time .* seconds'),
    (GOOD + '0,a,detector,1,0,0,99999999999999999999\n', 2, 'number .* 64 bits'),
    (GOOD + '0,a\n', 2, 'service'), ('time,site\n', 1, 'lacks the columns service'),
    (GOOD + '0' * 2000 + '\n', 2, 'longer than')])
def test_complaints_about_files_name_the_line(tmp_path, text, line, complaint):
    path = tmp_path / 'bad.csv'
    path.write_text(text)
    with pytest.raises(ValueError, match=f'bad.csv:{line}: .*{complaint}'):
        read_recorded(path, ['a'], ['detector'])


def test_files_of_the_trace_are_read_with_all_digits(tmp_path):
    path = tmp_path / 'trace.csv'
    path.write_text('TIMESTAMP,ContextTokens,GeneratedTokens\n'
                    '2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:16:00,879,55\n'
                    '2023-11-16 18:15:50.9951690,396,109\n')
    assert read_azure(path) == pytest.approx([0, 4.314579, 13.31941])
    path.write_text('TIMESTAMP\n2023-11-16 18:15:46\nyesterday\n')
    with pytest.raises(ValueError, match='trace.csv:3: begins with no time'):
        read_azure(path)
    path.write_bytes(b'\xff\xfe')
    with pytest.raises(ValueError, match='UTF-8'):
        read_azure(path)
