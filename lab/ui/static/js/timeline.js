// The time line: the strip below every page, and the same with all its tracks as a page. Drag seeks, the wheel zooms.
import {html, signal, useEffect, useRef} from 'keplab/html.js';
import {state, view, notify, originOf, select} from 'keplab/state.js';
import {seek, seekTime, play, toHead} from 'keplab/engine.js';
import {register, run} from 'keplab/commands.js';
import {TRACKS, STOPS, keyOf} from 'keplab/marks.js';
import {theme, processColour} from 'keplab/colours.js';
import {count, moment} from 'keplab/format.js';

/** The part of time that is shown: {from, to}, or null for all of it. One for the strip and the page. */
const shownSpan = signal(/** @type {{from: number, to: number}|null} */ (null));
/** Whether all of a mesh's time was asked for. */
const wholeTime = signal(false);
const LATELY_S = 300;
const isMesh = (id) => (state.meta.peek().runs || []).some((each) => each.id === id && each.kind === 'live');
const SPEEDS = [0.1, 0.5, 1, 2, 5, 10, 50];
const speed = signal(1);
let focused = 0;

/** From the first thing that is known to the newest. @param {any} of */
export function extent(of) {
  const {t} = of.history.value, marks = of.marks.value, head = of.head.value;
  let from = t.length ? t[0] : head.time;
  if (marks.length) from = Math.min(from, marks[0].time);
  return {from, to: Math.max(head.time, marks.length ? marks[marks.length - 1].time : 0, from + 0.001)};
}

function range(of) {
  const all = extent(of), part = shownSpan.value;
  if (part) return part;
  // A mesh runs for hours: what was lately is shown, until more is asked for.
  return wholeTime.value || !isMesh(of.id) || all.to - all.from <= LATELY_S ? all : {from: all.to - LATELY_S, to: all.to};
}

/** Zooms around a time; out to everything. @param {number} factor @param {number} around */
function zoom(factor, around) {
  const all = extent(view.peek()), {from, to} = range(view.peek());
  const wide = Math.max(0.001, (to - from) * factor);
  if (wide >= all.to - all.from) { shownSpan.value = null; wholeTime.value = true; return; }
  const share = (around - from) / (to - from), start = Math.max(all.from, Math.min(all.to - wide, around - share * wide));
  shownSpan.value = {from: start, to: start + wide};
}

function pan(share) {
  const all = extent(view.peek()), {from, to} = range(view.peek()), wide = to - from;
  const start = Math.max(all.from, Math.min(all.to - wide, from + share * wide));
  if (wide < all.to - all.from) shownSpan.value = {from: start, to: start + wide};
}

/** The mark that was gone to, and the version that shows it; NaN on the way there. */
let stood = {mark: /** @type {any} */ (null), of: /** @type {any} */ (null), rv: NaN};

/** To the mark before or after the one that was gone to, else what is shown. @param {1|-1} way */
function toMark(way) {
  const of = view.peek(), now = of.time.peek(), marks = of.marks.peek().filter((mark) => STOPS.has(mark.kind));
  const isThere = stood.of === of && (Number.isNaN(stood.rv) || stood.rv === of.rv.peek()), at = isThere ? marks.findIndex((mark) => keyOf(mark) === keyOf(stood.mark)) : -1;
  const next = at >= 0 ? marks[at + way] : way > 0 ? marks.find((mark) => mark.time > now + 1e-6) : marks.filter((mark) => mark.time < now - 1e-6).pop();
  if (!next) { notify(`No mark ${way > 0 ? 'after' : 'before'} this moment.`); return; }
  goTo(next);
}

/** Shows a mark's moment; what it is about is selected once it is there. */
function goTo(mark) {
  const of = view.peek(), mine = stood = {mark, of, rv: NaN}, object = mark.ref?.obj;
  (mark.rv ? seek(mark.rv, of.id, mark.time) : seekTime(mark.time)).then(() => {
    mine.rv = of.rv.peek();
    if (mine === stood && object && (object.kind === 'Pod' || object.kind === 'Node')) select({kind: object.kind === 'Pod' ? 'pods' : 'nodes', ns: object.ns || '', name: object.name});
  });
  notify(`${mark.kind}: ${mark.label}`);
  const {from, to} = range(view.peek());
  if (mark.time < from || mark.time > to) shownSpan.value = {from: mark.time - (to - from) / 2, to: mark.time + (to - from) / 2};
}

function pin() {
  const of = view.peek(), time = of.time.peek(), rv = of.rv.peek();
  of.marks.value = [...of.marks.peek(), {id: `pin/${rv}`, time, rv, kind: 'pin', track: 'pin', label: `pin rv ${count(rv)}`}].sort((a, b) => a.time - b.time);
}

register([
  {id: 'time.next-mark', title: 'To the next mark', keys: ['.'], group: 'time', run: () => toMark(1)},
  {id: 'time.previous-mark', title: 'To the mark before', keys: [','], group: 'time', run: () => toMark(-1)},
  {id: 'time.pin', title: 'Pin this moment', keys: ['P'], group: 'time', run: pin},
  {id: 'time.all', title: 'Show the whole time', group: 'time', run: () => { shownSpan.value = null; wholeTime.value = true; }},
  {id: 'time.zoom-in', title: 'Zoom in (time line has the focus)', keys: ['w'], group: 'time', when: () => focused > 0, run: () => zoom(0.6, state.time.peek())},
  {id: 'time.zoom-out', title: 'Zoom out (time line has the focus)', keys: ['s'], group: 'time', when: () => focused > 0, run: () => zoom(1 / 0.6, state.time.peek())},
  {id: 'time.left', title: 'Earlier part (time line has the focus)', keys: ['a'], group: 'time', when: () => focused > 0, run: () => pan(-0.25)},
  {id: 'time.right', title: 'Later part (time line has the focus)', keys: ['d'], group: 'time', when: () => focused > 0, run: () => pan(0.25)},
  {id: 'time.fit', title: 'Fit (time line has the focus)', keys: ['f'], group: 'time', when: () => focused > 0, run: () => { shownSpan.value = null; wholeTime.value = !wholeTime.peek(); }},
]);

const AXIS = 16;

/** The rows of a time line: [{id, title, kind, height}]. @param {any} of @param {boolean} full */
function rowsOf(of, full) {
  if (!full) return [{id: 'density', title: 'versions', kind: 'density', height: 20}, {id: 'marks', title: 'marks', kind: 'marks', height: 16}];
  const rows = [{id: 'density', title: 'versions', kind: 'density', height: 64}];
  const processes = new Set();
  for (const line of of.lines.value) if (line.comp) processes.add(line.comp);
  for (const name of [...processes].sort().slice(0, 40)) rows.push({id: name, title: name, kind: 'process', height: 20});
  for (const track of TRACKS) rows.push({id: track.id, title: track.title, kind: 'track', height: track.id === 'decision' ? 34 : 24});
  return rows;
}

/** Draws; returns places of marks for the pointer. */
function draw(canvas, of, full, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d')), colours = theme().text;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const {from, to} = range(of), x = (time) => (time - from) / (to - from) * width;
  const places = /** @type {any[]} */ ([]);
  let y = 0;
  for (const row of rowsOf(of, full)) {
    if (row.kind === 'density') density(pen, of, from, to, width, y, row.height, colours);
    else if (row.kind === 'process') processTrack(pen, of, row.id, x, from, to, width, y, row.height, colours);
    else marksTrack(pen, of, row, x, from, to, width, y, row.height, colours, places, full);
    y += row.height;
    pen.fillStyle = colours.line;
    if (full) pen.fillRect(0, y - 0.5, width, 0.5);
  }
  axis(pen, x, from, to, width, y, colours);
  const head = x(of.head.value.time), now = x(of.time.value);
  if (head < width) { pen.fillStyle = colours.sunk; pen.fillRect(head, 0, width - head, y); }
  pen.fillStyle = colours.accent;
  pen.fillRect(now - 1, 0, 2, y + 3);
  pen.beginPath(); pen.moveTo(now - 5, 0); pen.lineTo(now + 5, 0); pen.lineTo(now, 7); pen.fill();
  return places;
}

/** Versions a second as bars of two pixels. */
function density(pen, of, from, to, width, y, height, colours) {
  const {t, rv, estimated = 0} = of.history.value, bars = new Float64Array(Math.max(1, Math.ceil(width / 3)));
  let most = 0;
  for (let i = Math.max(1, estimated + (estimated ? 1 : 0), lowerBound(t, from)); i < t.length && t[i - 1] <= to; i++) {
    const at = Math.floor((t[i] - from) / (to - from) * bars.length);
    if (at >= 0 && at < bars.length) { bars[at] += rv[i] - rv[i - 1]; if (bars[at] > most) most = bars[at]; }
  }
  pen.fillStyle = colours.running;
  for (let i = 0; i < bars.length; i++) if (bars[i]) { const h = Math.max(1, bars[i] / most * (height - 4)); pen.fillRect(i * 3, y + height - h, 2, h); }
  if (most && height > 40) { pen.fillStyle = colours.soft; pen.font = '11px system-ui, sans-serif'; pen.textBaseline = 'top'; pen.fillText(`${count(most / ((to - from) / bars.length))} versions/s`, 4, y + 2); }
}

function processTrack(pen, of, name, x, from, to, width, y, height, colours) {
  pen.fillStyle = colours.line;
  pen.fillRect(0, y + height / 2, width, 1);
  pen.fillStyle = processColour(name);
  let last = -1;
  for (const line of of.lines.value) {
    if (line.comp !== name) continue;
    const at = Math.round(x(timeOf(line)));
    if (at === last || at < 0 || at > width) continue;
    last = at;
    pen.fillRect(at, y + 5, 1, height - 10);
  }
}

const timeOf = (line) => line.t ?? (line.mono_ns || 0) / 1e9;
const COLOUR = {bind: 'running', unschedulable: 'pending', reject: 'failed', failed: 'failed', unbind: 'unbound', victim: 'unbound', nominate: 'pending', resize: 'kubelet', fault: 'failed', heal: 'running', command: 'accent', start: 'soft', violation: 'failed', pin: 'accent'};

function marksTrack(pen, of, row, x, from, to, width, y, height, colours, places, full) {
  const all = of.marks.value, middle = y + height / 2;
  const start = lowerBoundBy(all, from - (to - from), (mark) => mark.time);
  let lastText = -1;
  const buckets = new Map();
  for (let i = start; i < all.length && all[i].time <= to; i++) {
    const mark = all[i];
    if (full ? (mark.track || mark.kind) !== row.id : !STOPS.has(mark.kind)) continue;
    const at = x(mark.time), end = mark.open ? x(of.head.value.time) : mark.end ? x(mark.end) : at;
    if (end < 0) continue;
    // Where decisions are dense, one of each kind a pixel is enough.
    const key = `${Math.round(at)}|${mark.kind}`;
    if (buckets.has(key)) continue;
    buckets.set(key, true);
    const colour = colours[COLOUR[mark.kind]] || colours.soft;
    pen.strokeStyle = pen.fillStyle = colour; pen.lineWidth = 2;
    if (end > at + 1) pen.fillRect(at, middle - 2, end - at, 4);
    symbol(pen, mark.kind, at, full && height > 30 ? y + 10 : middle);
    places.push({x: at, y: middle, mark});
    if (full && at > lastText + 4) {
      pen.fillStyle = colours.ink; pen.font = '11px system-ui, sans-serif'; pen.textBaseline = 'middle';
      const text = mark.label.length > 42 ? `${mark.label.slice(0, 41)}…` : mark.label, wide = pen.measureText(text).width;
      if (height > 30) { pen.fillText(text, at - 4, y + 25); lastText = at + wide; } else { pen.fillText(text, at + 8, middle); lastText = at + wide + 10; }
    }
  }
}

/** A form for each kind, so that colour is never alone. */
function symbol(pen, kind, x, y) {
  const r = 4;
  pen.beginPath();
  if (kind === 'reject' || kind === 'failed' || kind === 'violation') { pen.moveTo(x - r, y - r); pen.lineTo(x + r, y + r); pen.moveTo(x + r, y - r); pen.lineTo(x - r, y + r); pen.stroke(); } else if (kind === 'fault') { pen.moveTo(x, y - r); pen.lineTo(x + r, y + r); pen.lineTo(x - r, y + r); pen.closePath(); pen.fill(); } else if (kind === 'unbind' || kind === 'victim') { pen.moveTo(x + r, y - r + 1); pen.lineTo(x - r, y); pen.lineTo(x + r, y + r - 1); pen.stroke(); } else if (kind === 'pin') { pen.moveTo(x, y + r + 1); pen.lineTo(x - r, y - r); pen.lineTo(x + r, y - r); pen.closePath(); pen.fill(); } else if (kind === 'unschedulable' || kind === 'nominate') { pen.arc(x, y, r - 1, 0, 7); pen.stroke(); } else { pen.arc(x, y, r - 0.5, 0, 7); pen.fill(); }
}

function axis(pen, x, from, to, width, y, colours) {
  const rough = (to - from) / Math.max(2, width / 120), power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || rough;
  const origin = originOf(state.run.peek());
  pen.font = '11px system-ui, sans-serif'; pen.textBaseline = 'top';
  // Whole steps of what is written there: of the wall's clock, or of the run's.
  const shift = origin ? (origin / step - Math.floor(origin / step)) * step : 0;
  for (let number = Math.ceil((from + shift) / step); number * step - shift <= to; number++) {
    const at = number * step - shift;
    pen.fillStyle = colours.line; pen.fillRect(x(at), 0, 1, y);
    pen.fillStyle = colours.soft;
    const text = origin ? moment(at + 1e-6, origin).slice(0, step >= 1 ? 8 : 12) : `${Number(at.toPrecision(12))} s`;
    if (x(at) + pen.measureText(text).width < width) pen.fillText(text, x(at) + 3, y + 2);
  }
}

function lowerBound(list, value) { return lowerBoundBy(list, value, (each) => each); }
function lowerBoundBy(list, value, of) {
  let low = 0, high = list.length;
  while (low < high) { const middle = (low + high) >> 1; if (of(list[middle]) < value) low = middle + 1; else high = middle; }
  return low;
}

/** When something was committed next after a time, or last before it. @param {number} time @param {boolean} isAfter */
function committed(time, isAfter) {
  const {t} = view.peek().history.peek();
  return t[isAfter ? lowerBound(t, time + 1e-9) : lowerBound(t, time - 1e-9) - 1] ?? time;
}

/** The canvas with its pointer and keys. */
export function TimeCanvas({full = false}) {
  const canvas = useRef(/** @type {HTMLCanvasElement|null} */ (null)), box = useRef(/** @type {HTMLElement|null} */ (null)), tip = useRef(/** @type {HTMLElement|null} */ (null));
  const kept = useRef(/** @type {any} */ ({places: [], asked: 0, width: 0}));
  const of = view.value;
  const rows = rowsOf(of, full), height = rows.reduce((sum, row) => sum + row.height, 0) + AXIS;
  void [of.time.value, of.head.value, of.marks.value, of.history.value, shownSpan.value, state.theme.value, full && of.lines.value];
  const ask = () => {
    const own = kept.current;
    if (own.asked) return;
    own.asked = requestAnimationFrame(() => {
      own.asked = 0;
      if (canvas.current && own.width) own.places = draw(canvas.current, view.peek(), full, own.width, own.height);
    });
  };
  kept.current.height = height;
  useEffect(ask);
  useEffect(() => {
    const seen = new ResizeObserver(() => { kept.current.width = box.current?.clientWidth || 0; ask(); });
    if (box.current) seen.observe(box.current);
    const own = /** @type {HTMLCanvasElement} */ (canvas.current);
    let held = false, wanted = /** @type {number|null} */ (null), busy = false, aim = 0;
    const timeAt = (event) => { const place = own.getBoundingClientRect(), {from, to} = range(view.peek()); return from + (event.clientX - place.left) / place.width * (to - from); };
    // One seek at a time; the last place of the pointer wins.
    const drag = async (time) => {
      wanted = aim = time;
      if (busy) return;
      busy = true;
      while (wanted !== null) { const next = wanted; wanted = null; await seekTime(Math.min(next, view.peek().head.peek().time)).catch((error) => notify(error.message, 'bad')); }
      busy = false;
    };
    const near = (event) => {
      const place = own.getBoundingClientRect(), px = event.clientX - place.left, py = event.clientY - place.top;
      return kept.current.places.filter((each) => Math.abs(each.x - px) < 6 && Math.abs(each.y - py) < 14).sort((a, b) => Math.abs(a.x - px) - Math.abs(b.x - px))[0];
    };
    const on = {
      pointerdown: (event) => { if (event.button) return; own.focus(); own.setPointerCapture(event.pointerId); const hit = near(event); if (hit) { goTo(hit.mark); return; } held = true; drag(timeAt(event)); },
      pointermove: (event) => {
        if (held) { drag(timeAt(event)); return; }
        const hit = near(event), time = timeAt(event), {to, from} = range(view.peek());
        const label = tip.current;
        if (!label) return;
        label.textContent = hit ? `${hit.mark.kind}: ${hit.mark.label}\n${moment(hit.mark.time, originOf(view.peek().id))}` : moment(Math.max(from, Math.min(to, time)), originOf(view.peek().id));
        label.hidden = false;
        const place = own.getBoundingClientRect(), px = event.clientX - place.left;
        label.style.left = `${Math.max(0, Math.min(px + 10, place.width - label.offsetWidth))}px`;
      },
      pointerup: () => { held = false; },
      pointerleave: () => { if (tip.current) tip.current.hidden = true; },
      wheel: (event) => { event.preventDefault(); if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 600); else zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY)) / 400), timeAt(event)); },
      focus: () => { focused += 1; }, blur: () => { focused = Math.max(0, focused - 1); },
      keydown: (event) => {
        const {from, to} = range(view.peek()), step = {ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: -0.1, PageUp: 0.1}[event.key];
        if (!step) return;
        event.preventDefault(); event.stopPropagation();
        // From where the keys before it lead, and over a time in which nothing was committed.
        const now = busy ? aim : view.peek().time.peek(), next = now + step * (to - from);
        drag(step > 0 ? Math.max(next, committed(now, true)) : Math.min(next, committed(now, false)));
      },
    };
    for (const name in on) own.addEventListener(name, on[name], {passive: false});
    return () => { for (const name in on) own.removeEventListener(name, on[name]); seen.disconnect(); if (document.activeElement === own) focused = Math.max(0, focused - 1); };
  }, [full]);
  const {from, to} = extent(of), origin = originOf(of.id);
  return html`<div class="time-canvas ${full ? 'full' : ''}">
    ${full && html`<div class="time-names" aria-hidden="true">${rows.map((row) => html`<div key=${row.id} style=${{height: `${row.height}px`}}>${row.title}</div>`)}</div>`}
    <div class="time-box" ref=${box} style=${{height: `${height}px`}}>
      <canvas ref=${canvas} tabindex="0" role="slider" aria-label="moment that is shown" aria-valuemin=${from} aria-valuemax=${to} aria-valuenow=${of.time.value} aria-valuetext="rv ${of.rv.value}, ${moment(of.time.value, origin)}"></canvas>
      <div class="tip" ref=${tip} hidden></div>
    </div></div>`;
}

/** Buttons that move the moment. */
export function Transport() {
  const playing = state.playing.value, replay = state.meta.value.replay;
  return html`<div class="transport">
    <button class="small" aria-label="to the mark before" title="mark before (,)" onClick=${() => toMark(-1)}>◀</button>
    <button class="small" aria-label=${playing || (state.live.value && !replay) ? 'stop' : 'play'} title="play or stop (space)" onClick=${() => play(playing || (state.live.value && !replay) ? 0 : speed.value)}>${playing || (state.live.value && !replay) ? '❚❚' : '▶'}</button>
    <button class="small" aria-label="to the next mark" title="next mark (.)" onClick=${() => toMark(1)}>▶❘</button>
    <select aria-label="speed" value=${String(speed.value)} onChange=${(event) => { speed.value = Number(event.target.value); if (state.playing.peek()) play(speed.value); }}>${SPEEDS.map((each) => html`<option key=${each} value=${String(each)}>${each}×</option>`)}</select>
    <button class="small" title="newest (End)" aria-label="to what is newest" onClick=${() => toHead()}>▶▮</button>
    <button class="small" title="copy run/arm/seed@rv (c)" onClick=${() => run('shell.copy-moment')}>copy</button>
  </div>`;
}

/** The strip below every page. */
export function Strip() {
  return html`<footer class="strip" aria-label="time line"><${Transport} /><${TimeCanvas} /></footer>`;
}

export {goTo};
