// The worker, the views it fills, and the functions that move them: openRun, seek, play, toHead, search.
import {batch} from '@preact/signals';
import {View, views, view, state, notify, runOf, ALARMS, DENSE_MARKS, JOBS, RECORDED_LINES, STOP_MARKS} from 'keplab/state.js';
import {LiveSource, ReplaySource} from 'keplab/source.js';
import {viewsOf, scatter, emptyTable} from 'keplab/columns.js';
import {bounded, keyOf, markOf, withLengths} from 'keplab/marks.js';

/** @type {LiveSource|ReplaySource} */
export let source;
let worker;
let ids = 0;
const waiting = new Map();
const opened = new Map();
const HISTORY = 20000;
export const counters = {frames: 0, patches: 0, fulls: 0, gaps: 0};

function ask(message, transfer = []) {
  const id = ++ids;
  return new Promise((resolve, reject) => {
    waiting.set(id, {resolve, reject});
    worker.postMessage({...message, id}, transfer);
  });
}

/** The worker's script: a file of the server, or text inside a replay file. */
function workerAddress() {
  const inside = document.getElementById('worker-script');
  const address = inside ? URL.createObjectURL(new Blob([inside.textContent || ''], {type: 'text/javascript'})) : new URL('./js/worker.js', document.baseURI).href;
  const types = /** @type {any} */ (window).trustedTypes;
  return types ? types.createPolicy('keplab', {createScriptURL: () => address}).createScriptURL('') : address;
}

/** Starts worker and source; returns what /meta says. */
export async function start() {
  worker = new Worker(workerAddress());
  worker.onmessage = (event) => receive(event.data);
  const looked = () => worker.postMessage({t: 'seen', is: !document.hidden});
  document.addEventListener('visibilitychange', looked);
  looked();
  source = ReplaySource.present() ? new ReplaySource() : new LiveSource();
  await source.open();
  const meta = await source.meta();
  state.meta.value = {...meta, replay: source.kind === 'replay'};
  return meta;
}

function receive(message) {
  if (message.t === 'done') {
    const one = waiting.get(message.id);
    waiting.delete(message.id);
    if (one) { if (message.error) one.reject(new Error(message.error)); else one.resolve(message); }
    return;
  }
  const target = views.get(message.run);
  if (message.t === 'broken') { notify(message.error, 'bad'); return; }
  if (!target) return;
  if (message.t === 'want') {
    const data = /** @type {ReplaySource} */ (source).segment(message.run, message.at);
    worker.postMessage({t: 'segment', run: message.run, at: message.at, data}, data ? [data.buffer] : []);
  } else if (message.t === 'full') full(target, message);
  else if (message.t === 'patch') patch(target, message);
  else if (message.t === 'json') json(target, message);
  else if (message.t === 'clock') { target.time.value = message.time; }
}

function addStrings(target, strings) {
  const all = target.columns.peek().strings;
  if (strings.from === 1) all.length = 1;
  for (let i = 0; i < strings.list.length; i++) all[strings.from + i] = strings.list[i] ?? '';
}

function full(target, message) {
  counters.fulls += 1;
  const before = target.columns.peek();
  addStrings(target, message.strings);
  const fresh = {version: before.version + 1, nodes: message.tables.nodes || emptyTable(), pods: message.tables.pods || emptyTable(), strings: before.strings};
  batch(() => {
    target.columns.value = fresh;
    moved(target, message);
  });
  for (const watcher of target.watchers) watcher(null);
  answered(target.id);
}

function patch(target, message) {
  if (!message.buffer) { batch(() => moved(target, message)); return; }
  counters.patches += 1;
  addStrings(target, message.strings);
  const columns = target.columns.peek(), table = columns[message.table];
  const found = viewsOf(message.buffer, message.start, message.rows, message.columns);
  scatter(table, found.row, found);
  for (const watcher of target.watchers) watcher({table: message.table, rows: found.row});
  batch(() => {
    target.columns.value = {...columns, version: columns.version + 1};
    moved(target, message);
  });
}

function moved(target, message) {
  if (message.buffer || message.tables) { target.rv.value = message.rv; target.time.value = message.time; }
  if (message.buffer && target.playing.peek() && !isLive(target.id) && message.rv >= target.head.peek().rv) target.playing.value = 0;
  if (isLive(target.id)) { target.head.value = message.head; target.firstHead ||= message.head.rv; }
  target.live.value = message.live && isLive(target.id);
  if (isLive(target.id) && message.head.rv) {
    const history = target.history.peek(), last = history.rv.length ? history.rv[history.rv.length - 1] : -1;
    if (message.head.rv > last) {
      history.t.push(message.head.time); history.rv.push(message.head.rv);
      if (history.t.length > HISTORY) { history.t.splice(1, HISTORY / 2); history.rv.splice(1, HISTORY / 2); }
      target.history.value = {t: history.t, rv: history.rv, estimated: history.estimated};
    }
  }
}

function json(target, {kind, header, rv, time}) {
  if (kind === 'lines') {
    // Lines have the monotonic clock of the machine; the page has the run's, which began at zero_s.
    const zero = runOf(target.id)?.clock?.zero_s || 0;
    for (const line of header.lines) line.t = (line.mono_ns || 0) / 1e9 - zero;
    const fresh = target.addLines(header.lines);
    if (target.history.peek().estimated === 2 || target.fromLines) addHistory(target, header.lines);
    appendMarks(target, fresh.map(markOf).filter(Boolean));
  } else if (kind === 'rates') target.rates.value = header;
  else if (kind === 'pools') target.pools.value = header;
  else if (kind === 'job') target.jobs.value = Object.fromEntries([...Object.entries(target.jobs.peek()).filter(([id]) => id !== header.id), [header.id, header]].slice(-JOBS));
  else if (kind === 'alarm') {
    target.alarms.value = [...target.alarms.peek(), header].slice(-ALARMS);
    if (header.alarm !== 'fault') addMarks(target, [{rv, time: header.time ?? time, kind: 'violation', label: header.message || header.invariant || 'violation', ref: header}]);
  } else if (kind === 'gap') { counters.gaps += 1; missed(target, header); }
}

/** When which version was committed, from event lines: of a recording that a server plays, and of a mesh that is not recorded, of the time before the page. */
function addHistory(target, lines) {
  const {t, rv, estimated = 0} = target.history.peek(), guessed = estimated === 1 ? 1 : 0, until = target.fromLines && target.firstHead || Infinity;
  const commits = lines.filter((line) => line.ev === 'store.commit' && line.rv && line.rv < until).map((line) => [line.t, line.rv]);
  if (!commits.length) return;
  const all = new Map(t.slice(guessed).map((time, at) => [rv[at + guessed], time]));
  for (const [time, number] of commits) all.set(number, time);
  const sorted = [...all].sort((a, b) => a[0] - b[0]);
  target.history.value = {t: sorted.map((pair) => pair[1]), rv: sorted.map((pair) => pair[0]), estimated: 0};
}

/** Marks by time; a mark that is there already is not doubled. */
function addMarks(target, more) {
  const keys = new Set(target.marks.peek().slice(-4000).map(keyOf));
  appendMarks(target, more.filter((mark) => !keys.has(keyOf(mark))));
}

/** Marks of which none is there yet. */
function appendMarks(target, fresh) {
  if (!fresh.length) return;
  const all = target.marks.peek();
  let next = all.concat(fresh);
  if (all.length && fresh[0].time < all[all.length - 1].time) next.sort((a, b) => a.time - b.time);
  if (fresh.some((mark) => mark.kind === 'heal')) next = withLengths(next);
  if (isLive(target.id)) next = bounded(next, DENSE_MARKS, STOP_MARKS);
  target.marks.value = next;
}

/** Something was not sent to us: the whole state is fetched again. */
async function missed(target, {from, to, lines = 0}) {
  target.gap.value = {from, to, lines};
  if (source.kind !== 'live' || lines) return;  // lines that were cut do not come again; columns do
  if (!source.send(target.id, {t: 'sub', view: 'cluster', run: target.id, rate: 20})) return;
}

const isLive = (id) => {
  const run = runOf(id);
  return source.kind === 'live' && (run ? run.kind === 'live' : id === 'live');
};

/**
 * Opens a run and returns its view; a second call returns the same.
 * @param {string} id @returns {Promise<View>}
 */
export function openRun(id) {
  if (!opened.has(id)) opened.set(id, open(id));
  return opened.get(id);
}

async function open(id) {
  if (!views.has(id)) views.set(id, new View(id));
  const target = /** @type {View} */ (views.get(id));
  if (!isLive(id)) target.linesMax = RECORDED_LINES;
  const index = source.recording(id);
  if (index) {
    const dict = /** @type {ReplaySource} */ (source).dict(id);
    await ask({t: 'open', run: id, index, dict}, dict ? [dict.buffer] : []);
    target.head.value = {rv: index.to_rv, time: index.t1};
    target.history.value = await /** @type {ReplaySource} */ (source).json(id, 'history');
    await seek(index.to_rv, id);
    /** @type {ReplaySource} */ (source).lines(id).then((lines) => {
      target.addLines(lines || []);
      if (index.lines_left) target.gap.value = {from: 0, to: 0, lines: index.lines_left};
      addMarks(target, [...(index.marks || []), ...(lines || []).map(markOf).filter(Boolean)].sort((a, b) => a.time - b.time));
    });
  } else {
    const run = runOf(id), last = run && run.kind !== 'live' ? run.to_rv : 0;
    if (last) target.head.value = {rv: last, time: run.t1};
    if (run && run.t1 !== undefined) target.history.value = last ? {t: [run.t0, run.t1], rv: [run.from_rv, last], estimated: 2} : {t: [run.t0 || 0], rv: [Math.max(1, run.from_rv || 1)], estimated: 1};
    const known = /** @type {LiveSource} */ (source).history(id).then((found) => {
      if (!found.t.length) {
        // Nothing of this mesh is recorded: the event log says when which version was committed.
        if (!last) { target.fromLines = true; addHistory(target, target.lines.peek()); }
        return;
      }
      // Of a mesh, what was seen meanwhile stands behind it.
      const now = target.history.peek(), from = now.estimated || 0, behind = last ? [] : now.rv.map((rv, at) => [rv, now.t[at]]).slice(from).filter((pair) => pair[0] > found.rv[found.rv.length - 1]);
      target.history.value = {t: [...found.t, ...behind.map((pair) => pair[1])], rv: [...found.rv, ...behind.map((pair) => pair[0])], estimated: 0};
    }, () => undefined);  // without it versions are taken to have come evenly
    if (last) await known;
    source.subscribe(id, (data) => {
      counters.frames += 1;
      worker.postMessage({t: 'frame', run: id, data}, [data]);
    }, (status) => { if (status.kind !== 'live') answered(id); if (id === view.peek().id) connected(status); }, last);
  }
  return target;
}

function connected(status) {
  const now = state.connection.peek();
  if (status.kind === 'live') state.connection.value = {kind: 'live', since: Date.now(), text: ''};
  else if (status.kind === 'error') notify(status.text, 'bad');
  else if (status.kind !== now.kind) state.connection.value = {kind: status.kind, since: Date.now(), text: status.text || ''};
}

/** Looks at another run. @param {string} id */
export async function showRun(id) {
  view.value = await openRun(id);
}

let inquiry = /** @type {AbortController|null} */ (null);
/** Who waits for the state that a server seeks in one of its recordings, by run. */
const sought = new Map();

function answered(id) {
  sought.get(id)?.();
  sought.delete(id);
}

/** Asks a server for a version of one of its recordings. */
function answerOf(id, rv) {
  return new Promise((resolve) => {
    sought.set(id, resolve);
    if (!source.send(id, {t: 'seek', run: id, rv})) answered(id);
  });
}

/**
 * Shows a version (the last committed one at or before it), and a time until which nothing else was. Returns the version.
 * @param {number} rv @param {string} id @param {number} time
 */
export async function seek(rv, id = view.peek().id, time = -Infinity) {
  const target = /** @type {View} */ (views.get(id)), mine = target.seeks += 1;
  const shown = await show(rv, id);
  if (mine === target.seeks && !target.live.peek()) target.time.value = Math.max(target.time.peek(), time);
  return shown;
}

async function show(rv, id) {
  const target = /** @type {View} */ (views.get(id));
  target.playing.value = 0;
  if (source.recording(id)) return (await ask({t: 'seek', run: id, rv})).rv;
  if (!isLive(id)) {
    // One after the other; of those that wait only the last.
    const mine = target.seeks;
    target.sought = target.sought.then(() => (mine === target.seeks ? answerOf(id, Math.round(rv)) : undefined));
    await target.sought;
    return target.rv.peek();
  }
  if (rv >= target.head.peek().rv) { toHead(id); return target.head.peek().rv; }
  if (inquiry) inquiry.abort();
  const mine = inquiry = new AbortController();
  try {
    const data = await /** @type {LiveSource} */ (source).state(id, Math.round(rv), mine.signal);
    if (mine.signal.aborted) return target.rv.peek();
    return (await ask({t: 'stream', run: id, data}, [data])).rv;
  } catch (error) {
    if (!mine.signal.aborted) notify(String(error.message || error), 'bad');
    return target.rv.peek();
  }
}

/** The version that was the newest at a time. @param {number} time @param {View} target */
export function rvAt(time, target = view.peek()) {
  const {t, rv} = target.history.peek();
  let low = 0, high = t.length - 1, found = 0;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (t[middle] <= time) { found = middle; low = middle + 1; } else high = middle - 1;
  }
  if (!rv.length) return 0;
  const next = found + 1, far = next < t.length && rv[next] > rv[found] + 1 && t[next] > t[found];
  return far && time > t[found] ? Math.floor(rv[found] + (rv[next] - rv[found]) * (time - t[found]) / (t[next] - t[found])) : rv[found];
}

/** @param {number} time @param {string} id */
export function seekTime(time, id = view.peek().id) {
  const target = /** @type {View} */ (views.get(id));
  return seek(rvAt(time, target), id, target.history.peek().estimated ? -Infinity : time);
}

/** Back to what is newest. @param {string} id */
export function toHead(id = view.peek().id) {
  const target = /** @type {View} */ (views.get(id));
  target.playing.value = 0;
  if (!isLive(id)) return seek(target.head.peek().rv, id);
  // A moment asked for before does not come in between.
  inquiry?.abort();
  target.seeks += 1;
  worker.postMessage({t: 'head', run: id});
  return Promise.resolve(target.head.peek().rv);
}

let player = 0;

/** Of a recording that a server plays: it sends versions, and between them time passes here. */
function passTime(target, speed) {
  const from = target.time.peek(), began = performance.now();
  player = window.setInterval(() => {
    if (target.playing.peek() !== speed) { clearInterval(player); return; }
    target.time.value = Math.max(target.time.peek(), Math.min(target.head.peek().time, from + (performance.now() - began) / 1000 * speed));
  }, 50);
}

/** Plays from what is shown; speed 0 stops. @param {number} speed @param {string} id */
export async function play(speed, id = view.peek().id) {
  const target = /** @type {View} */ (views.get(id));
  clearInterval(player);
  if (!isLive(id)) {
    if (speed && target.rv.peek() >= target.head.peek().rv) await seek(target.history.peek().rv[0] || 0, id);
    target.playing.value = speed;
    const how = {t: 'play', run: id, speed, time: target.time.peek()};
    if (source.recording(id)) worker.postMessage(how);
    else if (source.send(id, how) && speed) passTime(target, speed);
    return;
  }
  if (!speed) { target.playing.value = 0; if (target.live.peek()) await ask({t: 'freeze', run: id}); return; }
  if (target.live.peek()) return;
  // The past of a live run has no stream of its own: states are asked for, four a second, until the head is reached.
  let now = target.time.peek(), busy = false;
  target.playing.value = speed;
  player = window.setInterval(async () => {
    if (busy || !target.playing.peek()) return;
    busy = true;
    now += speed / 4;
    const rv = rvAt(now, target), wanted = target.playing.peek();
    if (rv >= target.head.peek().rv) { clearInterval(player); toHead(id); } else if (rv !== target.rv.peek()) { await seek(rv, id, now); target.playing.value = wanted; } else target.time.value = Math.max(target.time.peek(), now);
    busy = false;
  }, 250);
}

/** Pods and nodes whose name has a text in it. @param {string} q @param {number} limit @returns {Promise<Array<{kind: string, ns: string, name: string, row: number}>>} */
export async function search(q, limit = 50) {
  return (await ask({t: 'search', run: view.peek().id, q, limit})).hits;
}

/** Everything the worker holds of a run, as plain arrays: for tests. @param {string} id */
export function workerState(id = view.peek().id) {
  return ask({t: 'state', run: id});
}
