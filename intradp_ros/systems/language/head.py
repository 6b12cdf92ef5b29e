# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The head of a language model: requests in, tokens out.

It owns tokenizer, embedding, last norm and matrix, sampling, grammar, stop texts, and
the numbers of pages; devices own blocks, keys and values.  When those are lost, with a
device or a plan, what a request has so far is computed again as a prompt, and the same tokens
follow.

Threads: `submit`, cancelling and `state` from any; the engine's thread calls what
`engine.HeadCallbacks` names, and calls `heard` of the requests; a thread of its own looks at
deadlines.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
import math
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from intradp_ros.core.owned_errors import ends_process, reason_of
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.requests.admission import AdmissionLimits, Fate
from intradp_ros.runtime.requests.text_requests import (
    Piece,
    Sampling,
    TextEnd,
    TextRequest,
    TokenChance,
)
from intradp_ros.systems.language.drafts import DRAFTS, expected_of, Pace
from intradp_ros.systems.language.grammar import Grammar, UnmetSchemaError
from intradp_ros.systems.language.head_requests import (
    CERTAIN,
    Drawing,
    Failures,
    Heard,
    Request,
    RequestBook,
)
from intradp_ros.systems.language.kernels import kernels
from intradp_ros.systems.language.lanes import Lane, PAGE, Part
from intradp_ros.systems.language.manifest import COMPUTED, Manifest
from intradp_ros.systems.language.memory import LOGIT_ROWS
from intradp_ros.systems.language.prompts import Prompts
from intradp_ros.systems.language.sampler import adjusted, draw, log_chances
from intradp_ros.systems.language.seats import Seats
from intradp_ros.systems.language.segment_plan import SegmentPlan

#: Tokens of an answer that are assumed for a prediction, where a request names no limit.
ASSUMED_TOKENS = 64
#: Part of a token's time from which on waiting for a disk is worth a word.
BRAKE = 0.05
#: Seconds that a token of the prompt, and one of the answer, take before any was measured.
_GUESS_PROMPT, _GUESS_TOKEN = 0.0, 0.0
_SMOOTHING = 0.2
_LOOK = 0.05


@dataclass(frozen=True, slots=True)
class HeadPolicy:
    """
    Tokens of prompts in a lane at once (`chunk`); requests in service, waiting, of a client.

    After `patience` seconds, and `slack` times the longest round of late, hidden states that
    do not come are given up.  `lanes` is the most lanes of a round; 0: one for each device.
    After `rest` seconds without requests the plan's first step is used again.  Where no token
    comes for `hold` seconds, requests are refused.  Pages are given out for
    `reserve` tokens ahead.  Up to `drafts` tokens of each request are looked up and checked in a
    round, where that pays.
    """

    chunk: int = 128
    limits: AdmissionLimits = AdmissionLimits()
    patience: float = 10.0
    slack: float = 10.0
    lanes: int = 0
    rest: float = 5.0
    hold: float = 60.0
    reserve: int = 128
    drafts: int = DRAFTS


@dataclass
class _Flight:
    """What a lane computes now: since when, and how many tokens are expected to be drawn."""

    parts: list[tuple[Request, Part]]
    begun: float
    drawn: float = 0.0

    @property
    def tokens(self) -> int:
        """Return how many tokens are computed."""
        return sum(part.count for _, part in self.parts)

    @property
    def wanted(self) -> int:
        """Return for how many of them logits are wanted."""
        return sum(part.wanted for _, part in self.parts)


@dataclass
class HeadState:
    """
    How a head does: counts since the beginning; seconds of late.

    `uncovered` are the seconds that each device waits for its disk in a round.
    """

    tokens: int = 0
    prompt_tokens: int = 0
    shared_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    token_seconds: float = math.nan
    serving: int = 0
    waiting: int = 0
    restarts: int = 0
    fates: dict[str, int] = field(default_factory=dict)
    uncovered: dict[str, float] = field(default_factory=dict)

    @property
    def brake(self) -> str:
        """Return the device whose disk holds the others up most, '' if none does."""
        name = max(self.uncovered, key=self.uncovered.__getitem__, default='')
        return name if name and self.uncovered[name] > BRAKE * self.token_seconds else ''


class Head:
    """
    Requests of a model, on the device that has embedding and head; a `TextModel`.

    `embed` makes hidden states of token ids, `logits` makes logits (float32) of hidden
    states; `tokenizer` is that of `transformers`, None where only `submit_tokens` is used.
    """

    def __init__(self, manifest: Manifest, embed: Callable[[Tensor], Tensor],
                 logits: Callable[[Tensor], Tensor], tokenizer: Any = None,
                 policy: HeadPolicy = HeadPolicy()) -> None:
        self.manifest, self.policy, self.tokenizer = manifest, policy, tokenizer
        self._embed, self._logits = embed, logits
        self._book = RequestBook(policy.limits)
        self._seats = Seats(policy.reserve)
        self._flight: dict[int, _Flight] = {}
        self._progressed = self._got_on = time.monotonic()
        self._state = HeadState()
        self._longest = 0.0
        self._pace = Pace()
        self._prompt_seconds, self._token_seconds = _GUESS_PROMPT, _GUESS_TOKEN
        self._prompts = Prompts(manifest, tokenizer)
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._clock = threading.Thread(target=self._look, name='head-deadlines', daemon=True)
        self._clock.start()

    @property
    def name(self) -> str:
        """The model's name."""
        return self.manifest.name

    def submit(self, request: TextRequest, heard: Heard) -> Callable[[Fate], None]:
        """
        Take a request; see `TextModel`.

        :raises ValueError: if the prompt is longer than the context, or the schema is none.
        """
        tokens = self._prompts.tokens(request)
        grammar = self._prompts.grammar(request.schema)
        return self._taken(request, tokens, heard, grammar)

    def submit_tokens(self, tokens: Sequence[int], heard: Heard, max_tokens: int | None = None,
                      sampling: Sampling = Sampling(), stop: tuple[str, ...] = (),
                      grammar: Grammar | None = None, remaining: float = math.inf,
                      priority: int = 0, client: str = '', logits: list[Tensor] | None = None,
                      ) -> Callable[[Fate], None]:
        """
        Take a request whose prompt is tokens; `logits` collects those of each token drawn.

        :raises ValueError: if the prompt is empty, or longer than the context.
        """
        request = TextRequest(tuple(tokens), max_tokens or None, sampling, stop,
                              remaining=remaining, priority=priority, client=client)
        return self._taken(request, list(tokens), heard, grammar, logits)

    def _taken(self, asked: TextRequest, tokens: list[int], heard: Heard,
               grammar: Grammar | None, logits: list[Tensor] | None = None,
               ) -> Callable[[Fate], None]:
        prefers, prompts = self.manifest.generation, self._prompts
        room = self.manifest.context - len(tokens)
        if not tokens or room < 1:
            raise ValueError(f'a prompt of {len(tokens)} tokens: this model takes 1 to '
                             f'{self.manifest.context - 1}')
        for what, some in (('the prompt', tokens), ('stop_token_ids', asked.stop_tokens),
                           ('logit_bias', [token for token, _ in asked.sampling.logit_bias])):
            if wrong := [token for token in some if not 0 <= token < prompts.vocabulary]:
                raise ValueError(f'{what}: there is no token {wrong[0]}, but 0..'
                                 f'{prompts.vocabulary - 1}')
        wanted = asked.max_tokens or prefers.get('max_new_tokens')
        if not wanted and 'max_length' in prefers:
            wanted = int(prefers['max_length']) - len(tokens)
            if wanted < 1:
                raise ValueError(f'a prompt of {len(tokens)} tokens, but this model ends at '
                                 f'{prefers["max_length"]} (max_length): say max_tokens')
        most = min(room, wanted or room)
        least = asked.min_tokens
        if least is None:
            least = min(most, prefers.get('min_new_tokens', 0))
        elif least > most:
            raise ValueError(f'min_tokens is {least}, but an answer has at most {most} tokens')
        if grammar and (asked.ignore_ends or asked.min_tokens):
            raise ValueError('an answer that meets a schema ends with it: ignore_eos and '
                             'min_tokens do not go with one')
        text = prompts.text(asked, tokens)
        sampling = prompts.sampling(asked.sampling)
        ends = prompts.stop_tokens(asked) | (
            frozenset() if asked.ignore_ends else prompts.ends)
        now = time.monotonic()
        with self._changed:
            if self._closed:
                heard(TextEnd(Fate.REFUSED, 'the head stops', prompt_tokens=len(tokens)))
                return lambda fate: None
            expected = most if wanted else min(most, ASSUMED_TOKENS)
            ticket = self._book.admission.ask(
                now, asked.client,
                len(tokens) * self._prompt_seconds + expected * self._token_seconds,
                asked.remaining, asked.priority)
            request = Request(ticket, heard, tokens, len(tokens), most, Drawing(
                sampling, text, grammar, ends, least, asked.logprobs, logits), now)
            self._book.requests[ticket.number] = request
            with self._owned(request):
                self._admit()
            self._changed.notify_all()

        return lambda fate: self._book.withdraw(ticket.number, fate)

    def devices(self, number: int) -> None:
        """Learn how many devices compute: so many lanes keep all of them at work."""
        with self._changed:
            self._seats.lane_count = self.policy.lanes or max(1, number)

    def state(self) -> HeadState:
        """Return how the head does."""
        with self._changed:
            found = self._state
            return HeadState(
                found.tokens, found.prompt_tokens, self._seats.shared_tokens,
                found.drafted_tokens, found.accepted_tokens,
                self._token_seconds or math.nan,
                self._book.admission.serving, self._book.admission.waiting, found.restarts,
                {fate.value: count for fate, count in self._book.admission.counts().items()},
                dict(found.uncovered))

    def close(self, reason: str = 'the head stops') -> None:
        """End all requests with a reason, and stop."""
        with self._changed:
            self._closed = True
            for number in list(self._book.requests):
                self._book.admission.end(number, time.monotonic(), Fate.REFUSED, reason)
            self._report_ends()
            self._changed.notify_all()
        self._clock.join()
        self._prompts.close()

    def prepare(self) -> None:
        """Make beforehand what a first request with a schema would wait for."""
        self._prompts.prepare()

    # What the engine asks for (engine.HeadCallbacks).

    def begin(self, ended: int) -> int:
        """Return the lanes of the next round; wait a moment if there is nothing to do."""
        seats, admission = self._seats, self._book.admission
        with self._changed:
            self._admit()
            if seats.wanted_step != seats.step:
                return 0
            if not ended and not any(seats.lanes):
                self._changed.wait(_LOOK)
                seats.rest(not admission.serving and not admission.waiting, self.policy.rest)
                self._admit()
            return max((number + 1 for number, lane in enumerate(seats.lanes) if lane), default=0)

    def choose_tokens(self, lane: int) -> tuple[Lane, Tensor]:
        """Return what a lane computes next: a token of each request, and chunks of prompts."""
        with self._changed:
            requests = self._seats.lanes[lane] = [
                r for r in self._seats.lanes[lane] if not r.over]
            flight = self._flight[lane] = _Flight([], time.monotonic())
            budget = self.policy.chunk
            prompts = any(len(r.tokens) - r.computed > 1 for r in requests)
            others = len(requests)
            for request in tuple(requests):
                others -= 1
                with self._owned(request):
                    left = len(request.tokens) - request.computed
                    count = left if left == 1 else min(left, budget)
                    if not count or not self._seats.has_room(request, request.computed + count):
                        continue
                    budget -= count if left > 1 else 0
                    draft = request.draft = [] if prompts else \
                        self._drafted(request, flight, others)
                    wanted = (1 + len(draft)) * (count == left)
                    stop = request.computed + count + len(draft)
                    flight.parts.append((request, Part(
                        request.computed, count + len(draft), request.pages[:-(-stop // PAGE)],
                        wanted)))
                    flight.drawn += bool(wanted) + expected_of(request.lookup.chance, len(draft))
                    request.computed = stop
        found = self._each(self._embed, flight.parts, lambda request, part: torch.tensor(
            [*request.tokens[part.start:part.stop], *request.draft], dtype=torch.long))
        with self._changed:
            kept = flight.parts = [pair for pair, _ in found]
        if not kept:
            return Lane(()), torch.zeros(0, self.manifest.width, dtype=COMPUTED)
        return Lane(tuple(part for _, part in kept)), torch.cat([hidden for _, hidden in found])

    def sample(self, lane: int, hidden: Tensor) -> None:
        """Draw a token for each request of a lane whose tokens were all computed."""
        flight = self._flight.pop(lane)
        now = self._progressed = time.monotonic()
        seconds = now - flight.begun
        self._longest = max(seconds, self._longest * (1 - _SMOOTHING))
        tokens, wanted = flight.tokens, flight.wanted
        rows, row = {}, 0
        for request, part in flight.parts:
            rows[id(request)] = slice(row, row + part.wanted)
            row += part.wanted
        logits = self._each(self._logits, [pair for pair in flight.parts if pair[1].wanted],
                            lambda request, part: hidden[rows[id(request)]])
        with self._changed:
            for request, part in flight.parts:
                if part.stop >= request.failures.until:
                    request.failures, self._got_on = Failures(), now
                if not request.over and not request.draft and (
                        part.count > 1 or part.stop % PAGE == 0):
                    with self._owned(request):
                        self._seats.name_pages(request, part.stop)
            drawn = 0
            for (request, _), found in logits:
                if not request.over:
                    with self._owned(request):
                        drawn += self._draw_checked(request, found, now)
            self._state.tokens += drawn
            self._state.prompt_tokens += tokens - wanted
            if tokens == wanted > 0:
                requests = len(flight.parts)
                self._token_seconds = _smooth(
                    self._token_seconds, seconds * requests / max(drawn, requests))
                others = self._flight.values()
                if all(other.tokens == other.wanted for other in others):
                    self._pace.add(tokens + sum(other.tokens for other in others),
                                   time.monotonic() - flight.begun)
            elif tokens:
                self._prompt_seconds = _smooth(self._prompt_seconds, seconds / tokens)
            self._report_ends()

    def _each(self, function: Callable[[Tensor], Tensor], pairs: Sequence[tuple[Request, Part]],
              given: Callable[[Request, Part], Tensor],
              ) -> list[tuple[tuple[Request, Part], Tensor]]:
        """
        Return what a function makes for each request: at once, or one by one where that fails.

        A request for which it fails by itself is refused, and left out.
        """
        if not pairs:
            return []
        with suppress(BaseException):
            parts = [given(*pair) for pair in pairs]
            made = torch.split(function(torch.cat(parts)), [len(part) for part in parts])
            return list(zip(pairs, made, strict=True))
        found = []
        for pair in pairs:
            with self._owned(pair[0]):
                found.append((pair, function(given(*pair))))
        return found

    @contextmanager
    def _owned(self, request: Request) -> Iterator[None]:
        """Let an error refuse the request that it belongs to, and end nothing else."""
        try:
            yield
        except BaseException as error:  # noqa: B902 - a panic of an extension as well
            if ends_process(error):
                raise
            request.wrong = isinstance(error, UnmetSchemaError)
            self._refuse(request, reason_of(error))

    def _refuse(self, request: Request, reason: str) -> None:
        """End a request that cannot be gone on with, whatever state it is in."""
        with self._changed:
            self._book.refuse(request, reason)

    def broke(self, reason: str, lane: int | None, certain: bool) -> None:
        """
        Learn that a round failed, in a lane if that is known; then keys and values are lost.

        Its requests are computed again: those that are suspected one at a time, and one that
        fails by itself is refused with the reason.  That is `certain` of an error; hidden states
        that do not come are a request's fault only if others got on in the meantime.
        """
        now = time.monotonic()
        with self._changed:
            flights = (self._flight[lane],) if lane in self._flight else self._flight.values()
            suspects = [r for flight in flights for r, _ in flight.parts if not r.over] \
                or [r for placed in self._seats.lanes for r in placed if not r.over] \
                or [r for r in self._book.requests.values() if not r.over]
            for request in suspects:
                request.failures.first = min(request.failures.first, now)
                request.failures.count += CERTAIN if certain else 1
                request.failures.until = max(
                    request.failures.until, min(request.computed, len(request.tokens)))
            if len(suspects) == 1 and suspects[0].failures.count >= CERTAIN:
                if certain or self._got_on > suspects[0].failures.first:
                    self._refuse(suspects[0], reason)
            elif certain and all(request.failures.count > 2 * CERTAIN for request in suspects):
                for request in suspects:  # there is no telling whose it is
                    self._refuse(request, reason)
            self._report_ends()

    def waited(self, seconds: Mapping[str, float]) -> None:
        """Learn how long each device waited for its disk in a round."""
        with self._changed:
            known = self._state.uncovered
            self._state.uncovered = {
                name: known.get(name, new) + _SMOOTHING * (new - known.get(name, new))
                for name, new in seconds.items()}

    def late(self, seconds: float) -> bool:
        """Return whether hidden states were awaited for too long."""
        return seconds > max(self.policy.patience, self.policy.slack * self._longest)

    def restart(self, plan: SegmentPlan) -> int:
        """Let all requests in service be computed again from their first token."""
        with self._changed:
            self._flight.clear()
            self._pace, self._longest = Pace(), 0.0
            seats, alone = self._seats, self._book.alone()
            serving = sorted(self._book.serving(), key=lambda r: r.ticket.order)
            seats.begin_anew(plan, serving)
            capacity = plan.most_pages * PAGE
            for number, request in enumerate(serving):
                self._state.restarts += 1
                request.most = min(request.most, capacity - request.prompt)
                if len(request.tokens) >= capacity or request.answer >= request.most:
                    self._refuse(request, 'the new plan has no room for it')
                    continue
                with self._owned(request):
                    if alone in (None, request) and seats.placed(request):
                        seats.lanes[number % len(seats.lanes)].append(request)
                    else:
                        seats.paused.append(request)
            self._report_ends()
            return seats.step

    def resume(self, plan: SegmentPlan) -> int:
        """Take back what was in flight, and go on with all else."""
        with self._changed:
            for flight in self._flight.values():
                for request, part in flight.parts:
                    request.computed = min(request.computed, part.start)
            self._flight.clear()
            self._go_to(plan, plan.step_for(self._seats.table.used))
            while len(self._seats.lanes) < self._seats.lane_count:
                self._seats.lanes.append([])
            return self._seats.step

    def step(self) -> int:
        """Return the step that is wanted now, with nothing in flight: from now on it is there."""
        with self._changed:
            if self._seats.plan and self._seats.wanted_step != self._seats.step:
                self._go_to(self._seats.plan, self._seats.wanted_step)
            return self._seats.step

    def _go_to(self, plan: SegmentPlan, step: int) -> None:
        self._pace = Pace()  # others compute, or read more
        self._seats.go_to(plan, step)

    @property
    def _drafts(self) -> int:
        """Return how many tokens are drafted at most: none whose bits depend on others'."""
        plan = self._seats.plan
        return self.policy.drafts if plan and plan.exact and kernels().library else 0

    def _admit(self) -> None:
        """Take those that wait into lanes, as far as there is room."""
        seats, book = self._seats, self._book
        if not seats.lanes or seats.plan is None:
            return
        seats.paused = [request for request in seats.paused if not request.over]
        if alone := book.alone():
            for request in [r for lane in seats.lanes for r in lane if r is not alone]:
                seats.let_go(request)
            if alone in seats.paused:
                with self._owned(alone):
                    if seats.placed(alone):
                        seats.paused.remove(alone)
                        seats.lanes[0].append(alone)
                    else:
                        seats.want_place(alone)
            return
        while seats.paused:  # they were taken before
            request = seats.paused[0]
            with self._owned(request):
                if not seats.placed(request):
                    seats.want_place(request)
                    return
                seats.seat(request)
            seats.paused.pop(0)
        while True:
            ticket = book.admission.begin(time.monotonic())
            if ticket is None:
                break
            if ticket.number not in book.requests:
                book.admission.end(ticket.number, time.monotonic(), Fate.REFUSED)
                continue
            request = book.requests[ticket.number]
            request.most = min(request.most, seats.plan.most_pages * PAGE - request.prompt)
            if request.most < 1:
                self._refuse(request, f'{request.prompt} tokens of prompt: the plan has room for '
                             f'{seats.plan.most_pages * PAGE} tokens, prompts and answers '
                             'together')
                continue
            with self._owned(request):
                if seats.placed(request):
                    seats.seat(request)
                    continue
                seats.want_place(request)
                book.admission.put_back(ticket)
                break

    def _drafted(self, request: Request, own: _Flight, others: int) -> list[int]:
        """
        Return what may come next, as far as that pays and there is room for it.

        `own` is its lane so far; `others` are the requests that follow in it, of a token each.
        """
        together = 1 + others + sum(flight.tokens for flight in self._flight.values())
        drawn = 1 + others + sum(flight.drawn for flight in self._flight.values())
        most = min(self._drafts, request.most - request.answer - 1,
                   len(request.pages) * PAGE - len(request.tokens),
                   min(self.policy.chunk, LOGIT_ROWS) - 1 - others - own.tokens)
        if most < 1 or request.failures.count:
            return []
        found = request.lookup.find(request.tokens, most)
        return found[:self._pace.worthwhile(together, drawn, request.lookup.chance, len(found))]

    def _draw_checked(self, request: Request, logits: Tensor, now: float) -> int:
        """Draw tokens as long as the ones before were those drafted; return how many."""
        draft, request.draft = request.draft, []
        drawn = 0
        for row in logits:
            expected = request.lookup.find(request.tokens, 1) if self._drafts else []
            before = len(request.tokens)
            self._draw(request, row, now)
            drawn += 1
            new = request.tokens[before:]
            if expected:
                request.lookup.outcomes.add(new == expected)
            if request.finish or new != draft[drawn - 1:drawn]:
                break
        if draft:
            self._state.drafted_tokens += len(draft)
            self._state.accepted_tokens += drawn - 1
            request.computed = len(request.tokens) - 1
            self._seats.name_pages(request, request.computed)
        return drawn

    def _draw(self, request: Request, logits: Tensor, now: float) -> None:
        """Draw a token for a request, and say what it adds to the answer."""
        how = request.drawing
        if how.logits is not None:
            how.logits.append(logits.clone())
        scores = adjusted(logits, how.sampling, request.tokens, request.prompt)
        token = draw(scores, how.sampling, len(request.tokens), self._allowed(request, scores))
        if math.isnan(request.first):
            request.first = now - request.asked
        is_end = token in how.ends
        finish, text = 'stop' if is_end else '', ''
        if not is_end:
            request.tokens.append(token)
            if how.grammar and how.grammar.take(token):
                finish = 'stop'
            if how.text:
                text = how.text.add(token, request.answer >= how.least)
                finish = 'stop' if how.text.stopped else finish
            if request.answer >= request.most:
                finish = finish or 'length'
        if finish and how.text:
            text += how.text.end()
            finish = 'tool_calls' if finish == 'stop' and how.text.calls else finish
        chances = () if how.logprobs is None or is_end else (
            self._chance(logits, token, how.logprobs),)
        if text or not is_end:
            request.heard(Piece(text, () if is_end else (token,), chances))
        if finish:
            request.finish = finish
            self._book.admission.end(request.ticket.number, time.monotonic(),
                                Fate.RESUMED if request.resumed else Fate.DONE)
        else:
            self._book.admission.progress(request.ticket.number, now,
                                     (request.most - request.answer) * self._token_seconds)

    def _allowed(self, request: Request, logits: Tensor) -> npt.NDArray[np.bool_] | None:
        """Return which tokens may be drawn for a request (vocabulary, bool); None for all."""
        how = request.drawing
        allowed = how.grammar.allowed() if how.grammar else None
        prefers = self.manifest.generation
        not_now = [*prefers.get('suppress_tokens', ())]
        if not request.answer:
            not_now += prefers.get('begin_suppress_tokens', ())
        if request.answer < how.least and not how.grammar:
            not_now += how.ends
        if not_now:
            allowed = np.ones(len(logits), np.bool_) if allowed is None else allowed
            allowed[[token for token in not_now if token < len(allowed)]] = False
        return allowed

    def _chance(self, logits: Tensor, token: int, count: int) -> TokenChance:
        own, likely = log_chances(logits, token, count)
        write = self._prompts.token_bytes
        return TokenChance(token, write(token), own, tuple(
            (other, write(other), chance) for other, chance in likely))

    def _look(self) -> None:
        """End what is late, on a thread of its own: also while nothing can be computed."""
        steady = Steady('deadlines of requests')

        def look() -> None:
            self._book.admission.expire(time.monotonic())
            self._give_up()
            self._report_ends()
        while not self._closed:
            with self._changed:
                self._changed.wait(_LOOK)
                steady.do(look, None)

    def _give_up(self) -> None:
        """
        Refuse requests where nothing was computed for long: the fleet is out of reach.

        One with a deadline waits for that.
        """
        now = time.monotonic()
        if not self._book.requests:
            self._progressed = now
        elif now - self._progressed > self.policy.hold:
            for request in list(self._book.requests.values()):
                if math.isinf(request.ticket.deadline):
                    self._refuse(request, f'no token came for {self.policy.hold:g} s: devices of '
                                 'the plan are out of reach')

    def _report_ends(self) -> None:
        """Say to each request that has ended what became of it; once."""
        self._book.report_ends(self._seats.table.give_back)


def _smooth(old: float, new: float) -> float:
    return old + _SMOOTHING * (new - old) if old else new
