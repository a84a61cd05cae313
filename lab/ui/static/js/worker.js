// Decodes frames, folds them into columns, keeps checkpoints, seeks and searches. A classic script: import maps do not reach workers.
//
// Messages in:  {t: 'frame', run, data}                     one frame of a live run, folded into its head
//               {t: 'stream', id, run, data}                frames, each with its length before it: a state to show
//               {t: 'open', id, run, index, dict}           a recording: index of segments, the dictionary's frames
//               {t: 'segment', id, run, at, data}           one segment's bytes (gzip), asked for by {t: 'want'}
//               {t: 'freeze', id, run}                      stay at what is shown, while the head goes on
//               {t: 'seek', id, run, rv} · {t: 'play', run, speed, time} · {t: 'head', run} · {t: 'search', id, run, q, limit}
//               {t: 'seen', is}                             whether anybody looks at the page: else changes are not handed on
//               {t: 'state', id, run}                       all columns of what is shown, as plain arrays (tests)
// Messages out: {t: 'full'|'patch', run, rv, time, inGroup, head, …} · {t: 'json', kind, run, …} · {t: 'want', run, at} · {t: 'done', id, …}
'use strict';

const KIND = {dict: 1, nodes: 2, pods: 3, delta: 4, lines: 5, rates: 6, pools: 7, job: 8, alarm: 9, gap: 10};
const NAMES = Object.fromEntries(Object.entries(KIND).map(([name, number]) => [number, name]));
const TYPES = {i8: Int8Array, u8: Uint8Array, i16: Int16Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array, f32: Float32Array, f64: Float64Array};
const HEAD = 24;
const IN_GROUP = 1, REPLACES = 2;
const CACHED_SEGMENTS = 6;
/** How often a page that nobody looks at is told how far its runs are, in ms. */
const UNSEEN_EVERY = 1000;
let isSeen = true;
const utf8 = new TextDecoder();

/** Reads one frame. Raises an Error that says what is wrong with it. */
function decode(buffer, start = 0, length = buffer.byteLength - start) {
  const view = new DataView(buffer, start, length);
  if (length < HEAD + 4) throw new Error(`a frame of ${length} bytes is too short`);
  const kind = view.getUint8(0), version = view.getUint8(1);
  if (version !== 1) throw new Error(`frame version ${version} is not known; this page reads version 1`);
  const flags = view.getUint16(2, true), rows = view.getUint32(4, true);
  const rv = view.getFloat64(8, true), time = view.getFloat64(16, true);
  const size = view.getUint32(HEAD, true);
  const data = Math.ceil((HEAD + 4 + size) / 8) * 8;
  const header = JSON.parse(utf8.decode(new Uint8Array(buffer, start + HEAD + 4, size)) || '{}');
  return {kind, flags, rows, rv, time, header, buffer, data: start + data};
}

/**
 * The columns of a frame as arrays; views when they are aligned and stored as their type, else copies. A column may be stored in a
 * smaller type, or be one row of values that all rows have ('same').
 */
function columnsOf(frame) {
  const found = {};
  for (const [name, type, width, offset, narrow] of frame.header.columns) {
    const Type = TYPES[type], Stored = !narrow || narrow === 'same' ? Type : TYPES[narrow];
    if (!Type || !Stored) throw new Error(`column ${name} has the unknown type ${Type ? narrow : type}`);
    const at = frame.data + offset, count = frame.rows * width, stored = narrow === 'same' ? width : count;
    const values = at % Stored.BYTES_PER_ELEMENT === 0 ? new Stored(frame.buffer, at, stored) : new Stored(frame.buffer.slice(at, at + stored * Stored.BYTES_PER_ELEMENT));
    if (narrow === 'same') {
      const all = found[name] = new Type(count);
      if (width === 1) all.fill(values[0]); else for (let i = 0; i < count; i += width) all.set(values, i);
    } else found[name] = narrow ? new Type(values) : values;
  }
  return found;
}

/** One state: two tables and the strings; `apply` is the whole fold, for live and for replay. */
class Model {
  constructor() {
    this.strings = [''];
    this.tables = {nodes: {rows: 0, schema: [], columns: {}}, pods: {rows: 0, schema: [], columns: {}}};
    this.rv = 0; this.time = 0; this.inGroup = false;
  }

  apply(frame) {
    if (frame.kind === KIND.dict) {
      const {strings, from} = frame.header;
      if (frame.flags & REPLACES) this.strings.length = from;  // they have other numbers from now on
      for (let i = 0; i < strings.length; i++) this.strings[from + i] = strings[i];
      return;
    }
    if (frame.kind === KIND.nodes || frame.kind === KIND.pods) this.replace(frame.kind === KIND.nodes ? 'nodes' : 'pods', frame);
    else if (frame.kind === KIND.delta) this.change(frame);
    else return;
    this.rv = frame.rv; this.time = frame.time; this.inGroup = (frame.flags & IN_GROUP) !== 0;
  }

  replace(name, frame) {
    const columns = columnsOf(frame), table = {rows: frame.rows, schema: frame.header.columns.map(([n, t, w]) => [n, t, w]), columns: {}};
    for (const key in columns) table.columns[key] = columns[key].buffer === frame.buffer ? columns[key].slice() : columns[key];  // deltas are written into it
    this.tables[name] = table;
  }

  change(frame) {
    const table = this.tables[frame.header.table], columns = columnsOf(frame), rows = columns.row;
    let most = table.rows;
    for (let i = 0; i < rows.length; i++) if (rows[i] >= most) most = rows[i] + 1;
    if (!table.schema.length) table.schema = frame.header.columns.filter(([n]) => n !== 'row').map(([n, t, w]) => [n, t, w]);
    for (const [name, type, width] of frame.header.columns) {
      if (name === 'row') continue;
      let to = table.columns[name];
      if (!to || to.length < most * width) {
        const more = new TYPES[type](Math.max(most * width, to ? to.length * 2 : 16));
        if (to) more.set(to);
        to = table.columns[name] = more;
      }
      const from = columns[name];
      if (width === 1) for (let i = 0; i < rows.length; i++) to[rows[i]] = from[i];
      else for (let i = 0; i < rows.length; i++) for (let k = 0; k < width; k++) to[rows[i] * width + k] = from[i * width + k];
    }
    table.rows = most;
  }

  /** Copies of all columns, ready to be transferred. */
  copy() {
    const tables = {}, transfer = [];
    for (const name of ['nodes', 'pods']) {
      const table = this.tables[name], columns = {}, width = {};
      for (const [key, , wide] of table.schema) {
        columns[key] = table.columns[key].slice(0, table.rows * wide);
        width[key] = wide;
        transfer.push(columns[key].buffer);
      }
      tables[name] = {rows: table.rows, columns, width};
    }
    return {tables, transfer};
  }
}

/** One run: its head (what is newest), and what is shown, which is the head or a state of the past. */
class Run {
  constructor(id) {
    this.id = id; this.head = new Model(); this.shown = this.head; this.sentStrings = 1;
    this.recording = null; this.timer = 0; this.needsFull = true; this.toldAt = 0;
  }

  strings() {
    const all = this.shown.strings, from = Math.min(this.sentStrings, all.length);
    this.sentStrings = all.length;
    return {from, list: all.slice(from)};
  }

  send(type, more, transfer = []) {
    const {rv, time, inGroup} = this.shown;
    postMessage({t: type, run: this.id, rv, time, inGroup, head: {rv: this.head.rv, time: this.head.time}, live: this.shown === this.head, ...more}, transfer);
  }

  full() {
    const {tables, transfer} = this.shown.copy();
    this.needsFull = false;
    this.send('full', {tables, strings: this.strings()}, transfer);
  }

  /** A frame of a live run. */
  take(frame) {
    if (frame.kind > KIND.delta) {
      postMessage({t: 'json', kind: NAMES[frame.kind] || String(frame.kind), run: this.id, rv: frame.rv, time: frame.time, header: frame.header});
      return;
    }
    this.head.apply(frame);
    if (frame.kind === KIND.dict) {
      if (frame.flags & REPLACES && this.shown === this.head) this.sentStrings = 1;
      return;
    }
    if (this.shown !== this.head) { this.send('patch', {}); return; }  // says only how far the head is
    if (frame.kind !== KIND.delta) {
      // Nodes come first, pods after them: a picture is sent when both are there.
      this.needsFull = true;
      if (frame.kind === KIND.pods) this.full();
    } else if (!isSeen) {
      this.needsFull = true;
      if (performance.now() - this.toldAt >= UNSEEN_EVERY) { this.toldAt = performance.now(); this.send('patch', {}); }
    } else if (this.needsFull) this.full();
    else this.patch(frame);
  }

  patch(frame) {
    const whole = frame.buffer.byteLength === frame.data + bytesOf(frame) && !(frame.shared);
    const buffer = whole ? frame.buffer : frame.buffer.slice(frame.data, frame.data + bytesOf(frame));
    this.send('patch', {
      table: frame.header.table, columns: frame.header.columns, rows: frame.rows, buffer, start: whole ? frame.data : 0, strings: this.strings(),
    }, [buffer]);
  }
}

function bytesOf(frame) {
  let end = 0;
  for (const [, type, width, offset] of frame.header.columns) end = Math.max(end, offset + frame.rows * width * TYPES[type].BYTES_PER_ELEMENT);
  return end;
}

/** Yields the frames of a stream in which each has its length before it. A torn end is left out. */
function* framesOf(buffer) {
  const view = new DataView(buffer);
  let at = 0;
  while (at + 4 <= buffer.byteLength) {
    const length = view.getUint32(at, true);
    if (at + 4 + length > buffer.byteLength) return;
    // A frame's columns are aligned to its own beginning, so it is read where that is aligned too.
    if ((at + 4) % 8 === 0) { const frame = decode(buffer, at + 4, length); frame.shared = true; yield frame; }
    else yield decode(buffer.slice(at + 4, at + 4 + length));
    at += 4 + length;
  }
}

async function unzipped(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}

/** The segments of a recording: each begins with a checkpoint, and is kept unpacked only while it is used. */
class Recording {
  constructor(run, index) {
    this.run = run; this.index = index; this.packed = new Map(); this.waiting = new Map(); this.unpacked = new Map();
    this.position = null;  // {at, next}: the segment and the frame that a fold would apply next
  }

  /** The last segment that begins at or before `rv`. */
  segmentOf(rv) {
    const starts = this.index.segments;
    let low = 0, high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle].rv <= rv) low = middle; else high = middle - 1;
    }
    return low;
  }

  async bytes(at) {
    if (!this.packed.has(at)) {
      if (!this.waiting.has(at)) {
        let resolve;
        this.waiting.set(at, {promise: new Promise((done) => { resolve = done; }), resolve: (b) => resolve(b)});
        postMessage({t: 'want', run: this.run.id, at});
      }
      await this.waiting.get(at).promise;
    }
    return this.packed.get(at);
  }

  arrived(at, data) {
    this.packed.set(at, data);
    const waiting = this.waiting.get(at);
    this.waiting.delete(at);
    if (waiting) waiting.resolve();
  }

  async frames(at) {
    let found = this.unpacked.get(at);
    if (found) { this.unpacked.delete(at); this.unpacked.set(at, found); return found; }
    found = [...framesOf(await unzipped(await this.bytes(at)))];
    this.unpacked.set(at, found);
    if (this.unpacked.size > CACHED_SEGMENTS) this.unpacked.delete(this.unpacked.keys().next().value);
    return found;
  }

  /** Folds to the last version ≤ rv at which one may stop: a recording has frames at ends of groups alone. */
  async seek(rv) {
    const at = this.segmentOf(rv), frames = await this.frames(at), model = this.run.shown;
    let next = 0;
    const here = this.position;
    if (here && here.at === at && here.rv <= rv) next = here.next;  // further on in the same segment: fold from here
    let end = next;
    for (let i = next; i < frames.length; i++) {
      if (frames[i].rv > rv) break;
      end = i + 1;
    }
    for (let i = next; i < end; i++) model.apply(frames[i]);
    this.position = {at, next: end, rv: model.rv};
    return end !== next;
  }

  /** Sends, as patches, the committed versions up to a time; returns false at the end. */
  async advance(time) {
    let {at, next} = this.position;
    let frames = await this.frames(at);
    for (;;) {
      if (next >= frames.length) {
        if (at + 1 >= this.index.segments.length) return false;
        at += 1; next = 0; frames = await this.frames(at);
        while (next < frames.length && frames[next].flags & REPLACES) next += 1;  // the state is already what the checkpoint says
        this.position = {at, next, rv: this.run.shown.rv};
        continue;
      }
      if (frames[next].time > time) return true;
      const frame = frames[next];
      this.run.shown.apply(frame);
      if (frame.kind === KIND.delta) this.run.patch(frame);
      next += 1;
      this.position = {at, next, rv: this.run.shown.rv};
    }
  }
}

const runs = new Map();
const runOf = (id) => { if (!runs.has(id)) runs.set(id, new Run(id)); return runs.get(id); };

let chain = Promise.resolve();
/** Seeks of a run are done one after the other; of those that wait only the last matters. */
const latest = new Map();

const handlers = {
  frame({run, data}) { runOf(run).take(decode(data)); },

  stream({id, run, data}) {
    const target = runOf(run);
    stop(target);
    const past = new Model();
    past.strings = target.head.strings.slice();
    for (const frame of framesOf(data)) past.apply(frame);
    target.shown = past;
    target.sentStrings = 1;
    target.full();
    postMessage({t: 'done', id, rv: past.rv, time: past.time});
  },

  head({run}) {
    const target = runOf(run);
    if (target.recording || target.shown === target.head) return;
    target.shown = target.head;
    target.sentStrings = 1;
    target.full();
  },

  seen({is}) {
    isSeen = is;
    for (const run of runs.values()) if (is && run.needsFull && !run.recording && run.shown === run.head && run.head.rv) run.full();
  },

  /** Shows the head as it is now, and goes on folding behind it. */
  freeze({id, run}) {
    const target = runOf(run);
    if (target.shown === target.head) {
      const still = new Model(), {tables} = target.head.copy();
      still.strings = target.head.strings.slice();
      for (const name of ['nodes', 'pods']) still.tables[name] = {rows: tables[name].rows, schema: target.head.tables[name].schema, columns: tables[name].columns};
      still.rv = target.head.rv; still.time = target.head.time; still.inGroup = target.head.inGroup;
      target.shown = still;
      target.send('patch', {});
    }
    postMessage({t: 'done', id, rv: target.shown.rv, time: target.shown.time});
  },

  async open({id, run, index, dict}) {
    const target = runOf(run);
    target.recording = new Recording(target, index);
    target.shown = new Model();
    for (const frame of framesOf(await unzipped(dict))) target.shown.apply(frame);
    target.head = {rv: index.to_rv, time: index.t1, strings: target.shown.strings};
    postMessage({t: 'done', id});
  },

  segment({run, at, data}) { runOf(run).recording.arrived(at, data); },

  seek({id, run, rv}) {
    const target = runOf(run);
    stop(target);
    latest.set(run, id);
    chain = chain.then(async () => {
      if (latest.get(run) === id) {
        await target.recording.seek(rv);
        target.full();
      }
      postMessage({t: 'done', id, rv: target.shown.rv, time: target.shown.time});
    }).catch((error) => postMessage({t: 'done', id, error: String(error.message || error)}));
  },

  play({run, speed, time}) {
    const target = runOf(run);
    stop(target);
    if (!speed || !target.recording) return;
    let last = performance.now(), now = Math.max(target.shown.time, time), busy = false;
    target.timer = setInterval(async () => {
      if (busy) return;
      busy = true;
      const stamp = performance.now();
      now += (stamp - last) / 1000 * speed;
      last = stamp;
      const timer = target.timer;
      try {
        const more = await target.recording.advance(now);
        if (timer !== target.timer) return;
        if (!more) stop(target); else postMessage({t: 'clock', run, time: now});
      } finally { busy = false; }
    }, 33);
  },

  search({id, run, q, limit = 50}) {
    const {strings, tables} = runOf(run).shown, wanted = q.toLowerCase(), hits = [];
    const matching = new Uint8Array(strings.length);
    for (let i = 1; i < strings.length; i++) if (strings[i] !== undefined && strings[i].toLowerCase().includes(wanted)) matching[i] = 1;
    for (const kind of ['nodes', 'pods']) {
      const {rows, columns} = tables[kind];
      for (let row = 0; row < rows && hits.length < limit; row++) {
        const name = columns.name[row];
        if (!name) continue;
        const place = kind === 'pods' && columns.ns[row] ? strings[columns.ns[row]] : '';
        if (matching[name] || (place && `${place}/${strings[name]}`.toLowerCase().includes(wanted))) hits.push({kind, ns: place, name: strings[name], row});
      }
    }
    postMessage({t: 'done', id, hits});
  },

  state({id, run}) {
    const target = runOf(run), tables = {};
    for (const name of ['nodes', 'pods']) {
      const {rows, schema, columns} = target.shown.tables[name];
      tables[name] = {rows, columns: Object.fromEntries(schema.map(([key, , width]) => [key, Array.from(columns[key].subarray(0, rows * width))]))};
    }
    postMessage({t: 'done', id, rv: target.shown.rv, time: target.shown.time, strings: target.shown.strings, tables});
  },
};

function stop(run) {
  if (run.timer) clearInterval(run.timer);
  run.timer = 0;
}

onmessage = (event) => {
  const message = event.data;
  try {
    const answer = handlers[message.t](message);
    if (answer instanceof Promise) answer.catch((error) => postMessage({t: 'done', id: message.id, error: String(error.message || error)}));
  } catch (error) {
    postMessage({t: message.id ? 'done' : 'broken', id: message.id, run: message.run, error: String(error.message || error)});
  }
};
