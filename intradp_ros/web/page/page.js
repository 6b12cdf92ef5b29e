// Copyright 2026 The intradp_ros developers
// SPDX-License-Identifier: Apache-2.0

// Draws the views that /stream gives.  All texts are set as text: there is no markup in a view.
'use strict';

const $ = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
const query = new Map();
const pictures = new Map();
// The views of a page that opens without a server.
const kept = $('kept') && JSON.parse($('kept').textContent);
let view = null, looking = null, timer = 0;
let key = kept ? '' : sessionStorage.getItem('key') || '';

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') made.addEventListener(name, value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
const el = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);
const title = (text) => svg('title', {}, text);
const round = (value) => Number(value.toPrecision(4)).toLocaleString('en');

function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((each) => each * power >= raw * 0.999) * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++)
    found.push(k * step);
  return found;
}

// Axes with a grid; returns what turns figures into places, and the drawing.
function axes(width, height, [x0, x1], [y0, y1], xLabel, yLabel, left = 52) {
  const right = width - 12, bottom = height - 40, top = 18;
  const x = (v) => left + (v - x0) / (x1 - x0 || 1) * (right - left);
  const y = (v) => bottom - (v - y0) / (y1 - y0 || 1) * (bottom - top);
  const drawn = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img'});
  for (const v of yLabel === null ? [] : ticks(y0, y1, 4)) drawn.append(
    svg('line', {class: 'grid', x1: left, x2: right, y1: y(v), y2: y(v)}),
    svg('text', {x: left - 6, y: y(v) + 4, 'text-anchor': 'end'}, round(v)));
  for (const v of ticks(x0, x1, Math.max(2, Math.floor((right - left) / 90)))) drawn.append(
    svg('line', {class: 'grid', x1: x(v), x2: x(v), y1: top, y2: bottom}),
    svg('text', {x: x(v), y: bottom + 16, 'text-anchor': 'middle'}, round(v)));
  drawn.append(
    svg('line', {class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom}),
    svg('text', {x: right, y: height - 6, 'text-anchor': 'end'}, xLabel),
    yLabel ? svg('text', {x: 0, y: 11}, yLabel) : '');
  return {x, y, drawn, left, right, top, bottom};
}

const legend = (entries) => el('div', {class: 'legend'}, ...entries.map(([name, colour]) => {
  const mark = el('i');
  mark.style.background = colour;
  return el('span', {}, mark, name);
}));
const figure = (block, ...children) => el('figure', {}, el('figcaption', {}, block.caption),
  ...children);
const inline = (text) => text.split('`').map((part, k, {length}) => k % 2 && k + 1 < length
  ? el('code', {}, part) : k % 2 ? `\`${part}` : part);
const choose = (name, value) => () => { query.set(name, value); look(); };

const draw = {
  headline: (b) => el('p', {class: `headline ${b.tone}`}, b.text),
  facts: (b) => el('div', {class: 'scroll'}, el('table', {class: 'facts'},
    b.caption ? el('caption', {}, b.caption) : null,
    el('tbody', {}, ...b.rows.map(([name, value]) =>
      el('tr', {}, el('th', {scope: 'row'}, name), el('td', {}, ...inline(value))))))),
  remarks: (b) => el('ul', {class: 'remarks'}, ...b.texts.map((text) =>
    el('li', {}, ...inline(text)))),
  table(b) {
    const words = b.head.map((_, k) => b.rows.some((row) => row.length === b.head.length
      && !/^([\d–+-]|$)/.test(row[k]))
      ? 'word' : undefined);
    return el('div', {class: b.head.length > 4 ? 'scroll wide' : 'scroll', tabindex: 0},
      el('table', {class: 'cards'},
        el('caption', {}, b.caption),
        el('thead', {}, el('tr', {}, ...b.head.map((h, k) =>
          el('th', {scope: 'col', class: words[k]}, h)))),
        el('tbody', {}, ...b.rows.map((row) => el('tr',
          {class: b.ours && row[0] === b.ours ? 'ours' : ''},
          ...row.map((cell, k) =>
            el(k ? 'td' : 'th', {class: cell.length > 40 ? 'text' : words[k], scope: k ? undefined
              : 'row', 'data-label': b.head[k], colspan: k && k + 1 === row.length
              && k + 1 < b.head.length ? b.head.length - k : undefined}, cell)))))));
  },
  map: (b) => el('div', {class: 'map'},
    ...b.machines.map((m) => el('div', {class: `machine ${m.state}`}, el('b', {}, m.name), ' ',
      el('span', {}, m.role), ' ', el('span', {class: 'tone'}, m.state),
      ...m.lines.map((text) => el('div', {}, text)))),
    b.media.length ? el('div', {class: 'media'}, ...b.media.map((m) =>
      el('div', {class: `medium ${m.state}`}, el('b', {}, m.name), ' ',
        m.ends.join(' ↔ '), m.ends.length ? ': ' : '', m.text, ' ',
        m.state === 'well' ? '' : el('span', {class: 'tone'}, m.state)))) : null),
  line(b, width) {
    const all = b.series.flatMap((s) => s.points);
    const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
    const a = axes(width, 240, [Math.min(...xs), Math.max(...xs)],
      [Math.min(0, ...ys), Math.max(...ys) * 1.05 || 1], b.x, b.y);
    for (const s of b.series) {
      a.drawn.append(svg('polyline', {fill: 'none', stroke: s.colour, 'stroke-width': 2,
        'stroke-dasharray': s.dash ? '5 4' : undefined,
        points: s.points.map((p) => `${a.x(p[0])},${a.y(p[1])}`).join(' ')}, title(s.name)));
    }
    if (b.cursor !== null) a.drawn.append(svg('line', {class: 'cursor', x1: a.x(b.cursor),
      x2: a.x(b.cursor), y1: a.top, y2: a.bottom}));
    return figure(b, a.drawn, legend(b.series.map((s) => [s.name, s.colour])));
  },
  frames(b, width) {
    const most = Math.max(1e-9, ...b.rows.map((r) => Math.max(
      r.values.reduce((sum, v) => sum + v, 0), r.predicted || 0, r.limit || 0)));
    const a = axes(width, 260, [0, b.rows.length], [0, most * 1.05], 'frame', 'ms');
    const step = (a.right - a.left) / b.rows.length;
    b.rows.forEach((row, k) => {
      let level = 0;
      const text = [row.text, ...b.parts.map(([name], i) => `${name} ${round(row.values[i])} ms`),
        row.predicted ? `predicted ${round(row.predicted)} ms` : ''].filter(Boolean).join(', ');
      const group = svg('g', {class: 'pick', click: choose(b.pick, row.id)},
        title(text));
      row.values.forEach((value, i) => {
        group.append(svg('rect', {x: a.x(k), y: a.y(level + value),
          width: Math.max(1, step - (step > 4 ? 1 : 0)),
          height: Math.max(0, a.y(level) - a.y(level + value)), fill: b.parts[i][1]}));
        level += value;
      });
      for (const [value, dash] of [[row.predicted, undefined], [row.limit, '3 2']])
        if (value) group.append(svg('line', {class: 'ink', x1: a.x(k), x2: a.x(k) + step,
          y1: a.y(value), y2: a.y(value), 'stroke-width': 2, 'stroke-dasharray': dash}));
      if (row.id === b.chosen) group.append(svg('rect', {class: 'chosen', x: a.x(k) - 1,
        y: a.top, width: step + 1, height: a.bottom - a.top}));
      a.drawn.append(group);
    });
    return figure(b, a.drawn, legend([...b.parts, ['predicted', 'var(--ink)']]),
      el('div', {class: 'legend'}, 'Choose a frame to see more of it.'));
  },
  gantt(b, width) {
    const last = Math.max(...b.spans.map((s) => s[4])), first = Math.min(
      ...b.spans.map((s) => s[3])), row = 26, left = 78;
    const a = axes(width, 46 + row * b.lanes.length + 12, [first, last], [0, 1], b.unit, null,
      left);
    const at = new Map(b.lanes.map(([name], k) => [name, k]));
    const colours = new Map(b.lanes);
    for (const [name, k] of at) a.drawn.append(
      svg('text', {x: 0, y: a.top + row * k + 16}, name.length > 11 ? name.slice(0, 10) + '…' : name));
    for (const [lane, kind, name, start, stop] of b.spans) a.drawn.append(svg('rect', {
      x: a.x(start), y: a.top + row * at.get(lane) + 2, width: Math.max(0.6, a.x(stop) - a.x(start)),
      height: row - 5, fill: colours.get(lane), opacity: kind === 'wait' ? 0.25 : 0.9},
      title(`${lane}: ${name}, ${round(start)} to ${round(stop)} ${b.unit}`)));
    const box = figure(b, a.drawn);
    box.classList.add('wide');
    return box;
  },
  bands(b, width) {
    const parts = [];
    if (b.stages.length) {
      const end = b.stages[b.stages.length - 1][0];
      const a = axes(width, 220, [0, end], [100, 0], 'operators, in order', 'rows from the top, %');
      let begin = 0;
      for (const [stop, share] of b.stages) {
        for (const [side, top, bottom] of [[0, 0, share], [1, share, 1]]) {
          if (bottom <= top) continue;
          const wide = a.x(stop) - a.x(begin), high = a.y(100 * bottom) - a.y(100 * top);
          a.drawn.append(svg('rect', {x: a.x(begin), y: a.y(100 * top), width: wide, height: high,
            fill: b.lanes[side], stroke: 'var(--paper)'}, title(
            `${['robot', 'server'][side]}: ${round(100 * (bottom - top))} % of the rows of `
            + `operators ${begin} to ${stop - 1}`)), wide < 40 || high < 16 ? ''
            : svg('text', {class: 'onbar', x: a.x(begin) + wide / 2, 'text-anchor': 'middle',
              y: a.y(100 * top) + high / 2 + 4}, `${Math.round(100 * (bottom - top))} %`));
        }
        begin = stop;
      }
      parts.push(a.drawn, legend([['computed by the robot', b.lanes[0]],
        ['computed by the server', b.lanes[1]]]));
    }
    if (b.image) parts.push(picture(b));
    const box = figure(b, ...parts);
    if (!b.stages.length) box.classList.add('alone');
    return box;
  },
};

// A picture, with the rows of the last operator that is divided drawn over it.
function picture(b) {
  const image = el('img', {alt: b.caption});
  const name = `${b.image}#${b.number}`;
  if (!pictures.has(name)) {
    for (const old of [...pictures.keys()].filter((each) => each.startsWith(`${b.image}#`)))
      pictures.delete(old);
    pictures.set(name, ask(`picture?name=${encodeURIComponent(b.image)}&v=${b.number}`)
      .then((answer) => answer.ok ? answer.blob() : Promise.reject(new Error('no picture')))
      .then((blob) => URL.createObjectURL(blob)));
  }
  pictures.get(name).then((url) => { image.src = url; }, () => image.remove());
  const divided = b.stages.filter(([, share]) => share > 0 && share < 1).pop()
    || b.stages[b.stages.length - 1];
  if (!divided) return el('div', {class: 'picture'}, image);
  const share = 100 * divided[1];
  const over = svg('svg', {viewBox: '0 0 100 100', preserveAspectRatio: 'none'},
    svg('rect', {x: 0, y: 0, width: 100, height: share, fill: b.lanes[0], opacity: 0.28}),
    svg('rect', {x: 0, y: share, width: 100, height: 100 - share, fill: b.lanes[1],
      opacity: 0.28}));
  return el('div', {class: 'picture'}, image, over);
}

function show() {
  document.title = `${view.title} - intradp view`;
  $('title').textContent = view.title;
  $('replay').hidden = view.length < 2;
  $('slider').max = view.length - 1;
  if (document.activeElement !== $('slider') || timer) $('slider').value = view.at;
  $('step').textContent = view.step || `${view.at + 1} of ${view.length}`;
  reuse($('options'), view.options.map((o) => [o.name, JSON.stringify(o), () => el('label', {},
    el('input', {type: 'checkbox', checked: o.on ? '' : undefined, change: (event) => {
      query.set(o.name, event.target.checked ? '1' : '0');
      look();
    }}), ' ', o.label, ' ')]));
  reuse($('nav'), view.sections.map((s) => [s.id, s.title,
    () => el('a', {href: `#${s.id}`}, s.title)]));
  reuse($('main'), [
    ...view.notes.map((text, k) => [`note ${k}`, text, () => el('p', {class: 'note'}, text)]),
    ...view.sections.map((s) => [s.id, s.title, () => el('section', {id: s.id},
      el('h2', {}, s.title), el('div', {class: 'blocks'}))])]);
  for (const s of view.sections) {
    const box = $(s.id).querySelector('.blocks');
    const wide = document.body.clientWidth - 32;
    const half = wide > 1050 ? (wide - 26) / 2 : wide;
    reuse(box, s.blocks.map((b, k) => [`${k} ${b.kind}`, JSON.stringify([b, wide]),
      () => draw[b.kind](b, Math.max(280, b.kind === 'gantt' ? wide : half))]));
  }
}

// Put elements into a box; one whose text is the same stays as it is.
function reuse(box, wanted) {
  const old = new Map([...box.children].map((child) => [child.dataset.name, child]));
  const made = wanted.map(([name, text, make]) => {
    const before = old.get(name);
    if (before && before.dataset.text === text) return before;
    const found = make();
    found.dataset.name = name;
    found.dataset.text = text;
    return found;
  });
  if (made.length !== box.children.length || made.some((child, k) => child !== box.children[k]))
    box.replaceChildren(...made);
}

const ask = (path, signal) => fetch(path, {signal, headers: key
  ? {authorization: `Bearer ${key}`} : {}});

function say(text, tone) {
  $('state').textContent = text;
  $('state').className = tone;
}

function replay() {
  const at = Number(query.get('at') || 0), far = (one) => Math.abs(one.at - at);
  const found = kept.views.reduce((best, one) => far(one) < far(best) ? one : best);
  view = {...found, sections: found.sections.map((s) => ({...s, blocks: s.blocks.map(
    ([k, places]) => ({...kept.blocks[k], ...places}))}))};
  say('recorded', '');
  show();
}

async function look() {
  if (kept) return replay();
  if (looking) looking.abort();
  const mine = looking = new AbortController();
  try {
    const answer = await ask(`stream?${new URLSearchParams([...query])}`, mine.signal);
    $('login').hidden = answer.status !== 401;
    if (!answer.ok) {
      say(answer.status === 401 ? 'a key is needed' : `refused (${answer.status})`, 'out');
      if (answer.status !== 401) setTimeout(() => mine === looking && look(), 2000);
      return;
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ''; ;) {
      const {done, value} = await reader.read();
      if (done) throw new Error('the stream ended');
      text += value;
      const lines = text.split('\n');
      text = lines.pop();
      const last = lines.filter(Boolean).pop();
      if (last) {
        view = JSON.parse(last);
        say(view.live ? 'live' : 'recorded', '');
        show();
      }
    }
  } catch (error) {
    if (mine !== looking) return;
    say('no connection: is intradp view running?', 'out');
    setTimeout(() => mine === looking && look(), 1000);
  }
}

$('login').addEventListener('submit', (event) => {
  event.preventDefault();
  key = $('key').value.trim();
  sessionStorage.setItem('key', key);
  look();
});
$('slider').addEventListener('input', () => { query.set('at', $('slider').value); look(); });
$('play').addEventListener('click', () => {
  if (timer) { clearInterval(timer); timer = 0; } else timer = setInterval(() => {
    query.set('at', (Number(query.get('at') || view.at) + 1) % view.length);
    look();
  }, 500);
  $('play').textContent = timer ? 'Pause' : 'Play';
});
let resized = 0;
addEventListener('resize', () => {
  clearTimeout(resized);
  resized = setTimeout(() => view && show(), 100);
});
for (const [name, url] of Object.entries(kept ? kept.pictures : {}))
  pictures.set(`${name}#0`, Promise.resolve(url));
if (location.hash.startsWith('#at=')) query.set('at', location.hash.slice(4));
look();
