# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Fetching blobs, each named by its SHA-256, from peers that may die, be slow, lack them or lie.

A state machine over (event, time).  Blobs are asked for in pieces, a few at a time.
A peer that is silent rests, and others go on with what it left.  A blob that
proves wrong came from a liar if one peer gave it all, and that one is asked nothing
more; otherwise it is asked for anew, from one peer alone.  So liars cost time, and
never let anything wrong be taken.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from intradp_ros.blobs.fetch_state import (
    Action,
    Ask,
    Availability,
    Blob,
    Came,
    Check,
    Checked,
    Drop,
    Event,
    Failed,
    Fetch,
    FetchTimes,
    Heard,
    Late,
    Peer,
    Request,
    Result,
)

#: Bytes of a piece, and how many pieces are asked for at once: of one peer, of all.
PIECE, OF_ONE, OF_ALL = 256 * 1024, 4, 16
#: Silences in a row after which another peer begins anew with a blob that needs one giver.
PARDONED = 2
_FADING = 0.9


def begin(blobs: Mapping[str, int | None], peers: frozenset[str], most: int, now: float) -> Fetch:
    """Return a fetch of some blobs of known or unknown size, none of them of more than `most`."""
    return Fetch({digest: Blob(nbytes, nbytes is None, nbytes is None)
                  for digest, nbytes in blobs.items()},
                 {name: Peer() for name in sorted(peers)}, most, progress=now)


def is_done(fetch: Fetch) -> bool:
    """Return whether all is there, and right."""
    return not fetch.blobs


def turn_to(fetch: Fetch, blobs: Mapping[str, int | None], peers: frozenset[str], now: float,
            ) -> Fetch:
    """Return a fetch of other blobs; what came of those that are still wanted is kept."""
    new = begin(blobs, peers, fetch.most, now)
    return replace(
        new, blobs={digest: fetch.blobs.get(digest, blob) for digest, blob in new.blobs.items()},
        peers={**new.peers, **{name: replace(peer, lacks=frozenset())
                               for name, peer in fetch.peers.items()}},
        requests={number: request for number, request in fetch.requests.items()
                  if request.digest in blobs}, number=fetch.number)


def step(fetch: Fetch, event: Event, now: float, times: FetchTimes = FetchTimes()) -> Result:
    """Take an event; return what follows from it."""
    out: tuple[Action, ...] = ()
    if isinstance(event, Heard):
        return _heard(fetch, event.number, now), ()
    if isinstance(event, Late):
        return _late(fetch, event.peer, now), ()
    if isinstance(event, Came):
        fetch, out = _came(fetch, event.number, now)
    elif isinstance(event, Availability):
        fetch, out = _availability(fetch, event, now)
    elif isinstance(event, Checked):
        fetch, out = _checked(fetch, event, now)
    else:
        fetch, out = _expire(fetch, now, times)
    if is_done(fetch):
        return fetch, out
    fetch, asks = _ask(fetch, now)
    return fetch, (*out, *asks, *map(Failed, _hopeless(fetch, now, times)))


def _heard(fetch: Fetch, number: int, now: float) -> Fetch:
    """Let those wait on that are asked of the same peer, and behind what came."""
    heard = fetch.requests.get(number)
    if heard is None:
        return fetch
    requests = {key: replace(request, heard=now)
                if key >= number and request.peer == heard.peer else request
                for key, request in fetch.requests.items()}
    peer = fetch.peers[heard.peer]
    peer = replace(peer, pace=max(now - heard.heard, _FADING * peer.pace))
    return replace(fetch, requests=requests, peers={**fetch.peers, heard.peer: peer})


def _late(fetch: Fetch, peer: str, now: float) -> Fetch:
    """Let wait on what a peer will only send after what it sends too late."""
    return replace(fetch, requests={
        number: replace(request, heard=now) if request.peer == peer else request
        for number, request in fetch.requests.items()})


def _came(fetch: Fetch, number: int, now: float) -> Result:
    request = fetch.requests.get(number)
    if request is None or not request.nbytes:
        return fetch, ()
    blob = fetch.blobs[request.digest]
    got = blob.got + request.nbytes
    blob = replace(blob, got=got, givers=blob.givers | {request.peer}, checked=got == blob.nbytes)
    fetch = _but(_with(_heard(fetch, number, now), request.digest, blob), number)
    peer = fetch.peers[request.peer]
    peer = replace(peer, silences=max(0, peer.silences - 1))
    return (replace(fetch, peers={**fetch.peers, request.peer: peer}, progress=now),
            (Check(request.digest),) if blob.checked else ())


def _availability(fetch: Fetch, event: Availability, now: float) -> Result:
    request = fetch.requests.get(event.number)
    if request is None or request.peer != event.peer:
        return fetch, ()
    if event.nbytes is not None and request.nbytes:
        return fetch, ()  # it has the blob, and will send the piece
    if event.nbytes is not None and 0 < event.nbytes <= fetch.most:
        blob = replace(fetch.blobs[request.digest], nbytes=event.nbytes,
                       givers=frozenset((event.peer,)))
        return replace(_but(_with(fetch, request.digest, blob), event.number), progress=now), ()
    # It does not have it, or not such a one.
    peer = fetch.peers[event.peer]
    peer = replace(peer, lacks=peer.lacks | {request.digest}, silences=0)
    return _lose(replace(fetch, peers={**fetch.peers, event.peer: peer}), event.number)


def _checked(fetch: Fetch, event: Checked, now: float) -> Result:
    blob = fetch.blobs.get(event.digest)
    if blob is None or not blob.checked:
        return fetch, ()
    if event.right:
        left = {digest: other for digest, other in fetch.blobs.items() if digest != event.digest}
        return replace(fetch, blobs=left, progress=now), ()
    if len(blob.givers) > 1:
        return _anew(_with(fetch, event.digest, replace(blob, alone=True)), event.digest)
    (liar,) = blob.givers
    return _without(fetch, liar)


def _without(fetch: Fetch, liar: str) -> Result:
    """Ask a peer nothing more, and drop all that it gave."""
    out: tuple[Action, ...] = ()
    fetch = replace(fetch, peers={
        **fetch.peers, liar: replace(fetch.peers[liar], lied=True)})
    for digest, blob in fetch.blobs.items():
        if liar in blob.givers:
            fetch, more = _anew(fetch, digest)
            out += more
    for number in [key for key, request in fetch.requests.items() if request.peer == liar]:
        fetch, more = _lose(fetch, number)
        out += more
    return fetch, out


def _expire(fetch: Fetch, now: float, times: FetchTimes) -> Result:
    """Give up requests that nothing came of; let peers rest that are silent, or too slow."""
    late = {number: request for number, request in fetch.requests.items()
            if now - request.heard >= fetch.peers[request.peer].patience(times)
            or now - request.asked >= times.slowest}
    for name in dict.fromkeys(request.peer for request in late.values()):
        if all(key in late for key, request in fetch.requests.items() if request.peer == name):
            peer = fetch.peers[name]
            rest = min(times.longest, times.rest * 2 ** min(16, peer.silences))
            fetch = replace(fetch, peers={**fetch.peers, name: replace(
                peer, silences=peer.silences + 1, rests_until=now + rest)})
    out: tuple[Action, ...] = ()
    for number in late:
        fetch, more = _lose(fetch, number)
        out += more
    return fetch, out


def _lose(fetch: Fetch, number: int) -> Result:
    """Let a piece be asked for again; or all of a blob whose one giver does not go on with it."""
    request = fetch.requests.get(number)
    if request is None:
        return fetch, ()  # it went with its blob
    blob, peer = fetch.blobs[request.digest], fetch.peers[request.peer]
    if not request.nbytes:
        return _but(fetch, number), ()
    if blob.alone and (not blob.got or peer.lied or request.digest in peer.lacks
                       or peer.silences > PARDONED):
        return _anew(fetch, request.digest)
    return _with(_but(fetch, number), request.digest,
                 replace(blob, lost=(*blob.lost, request.offset))), ()


def _anew(fetch: Fetch, digest: str) -> Result:
    """Begin a blob from its first byte; what was asked for of it is of no interest."""
    left = {number: request for number, request in fetch.requests.items()
            if request.digest != digest}
    return _with(replace(fetch, requests=left), digest, fetch.blobs[digest].anew()), \
        (Drop(digest),)


def _ask(fetch: Fetch, now: float) -> tuple[Fetch, tuple[Ask, ...]]:
    """Ask for as much as may be in flight, of each peer in turn."""
    asks: list[Ask] = []
    usable = [name for name, peer in fetch.peers.items()
              if not peer.lied and now >= peer.rests_until]
    silences = {name: peer.silences for name, peer in fetch.peers.items()}
    inflight = dict.fromkeys(fetch.peers, 0)
    for request in fetch.requests.values():
        inflight[request.peer] += 1
    while usable and len(fetch.requests) < OF_ALL:
        name = min(usable, key=lambda peer: (inflight[peer], silences[peer]))
        digest = _next(fetch, name) if inflight[name] < max(1, OF_ONE >> silences[name]) \
            else None
        if digest is None:
            usable.remove(name)
            continue
        fetch, asked = _asked(fetch, name, digest, now)
        inflight[name] += 1
        asks.append(asked)
    return fetch, tuple(asks)


def _next(fetch: Fetch, peer: str) -> str | None:
    """Return the blob of which to ask a peer a piece: best one that no other gives."""
    others: dict[str, set[str]] = {digest: set(blob.givers - {peer})
                                   for digest, blob in fetch.blobs.items()}
    asked = set()
    for request in fetch.requests.values():
        asked.add(request.digest)
        others[request.digest] |= {request.peer} - {peer}
    lacks = fetch.peers[peer].lacks
    found = [digest for digest, blob in fetch.blobs.items()
             if digest not in lacks and not (blob.alone and others[digest])
             and _is_open(blob, digest in asked)]
    return min(found, key=lambda digest: bool(others[digest]), default=None)


def _is_open(blob: Blob, asked: bool) -> bool:
    """Return whether there is something to ask for."""
    if blob.nbytes is None:
        return not asked
    return bool(blob.lost) or blob.asked < blob.nbytes


def _asked(fetch: Fetch, peer: str, digest: str, now: float) -> tuple[Fetch, Ask]:
    blob, number = fetch.blobs[digest], fetch.number + 1
    offset = nbytes = 0
    if blob.nbytes is not None:
        offset, *lost = blob.lost or (blob.asked,)
        nbytes = min(PIECE, blob.nbytes - offset)
        blob = replace(blob, lost=tuple(lost), asked=max(blob.asked, offset + nbytes))
    request = Request(peer, digest, offset, nbytes, now, now)
    fetch = _with(fetch, digest, blob)
    return (replace(fetch, number=number, requests={**fetch.requests, number: request}),
            Ask(number, request))


def _hopeless(fetch: Fetch, now: float, times: FetchTimes) -> Iterator[str]:
    """Yield the reason for which there is nothing to wait for, if there is one."""
    honest = {name: peer for name, peer in fetch.peers.items() if not peer.lied}
    liars = ', '.join(sorted(set(fetch.peers) - set(honest)))
    names = ', '.join(honest) or 'nobody'
    for digest in fetch.blobs:
        if all(digest in peer.lacks for peer in honest.values()):
            yield f'{digest[:12]} is not to be had of {names}' + (
                f'; {liars} sent something else' if liars else '')
            return
    if now - fetch.progress >= times.hopeless:
        yield f'{names} sent nothing for {times.hopeless:g} s'


def _with(fetch: Fetch, digest: str, blob: Blob) -> Fetch:
    return replace(fetch, blobs={**fetch.blobs, digest: blob})


def _but(fetch: Fetch, number: int) -> Fetch:
    return replace(fetch, requests={key: request for key, request in fetch.requests.items()
                                    if key != number})
