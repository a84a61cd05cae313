// Where the page's data comes from: a server (LiveSource) or the file itself (ReplaySource). One interface, so that pages do
// not know which. Every answer is what /ui/v1 answers (docs/how-to/live-page.md); a replay file has the same documents in it.
//
//   meta() · subscribe(run, onFrame, onStatus) → unsubscribe · state(run, rv) → frames · recording(run) → index or null
//   objects(kind, {run, ns, q, rv, limit, continue}) · object(kind, ns, name, rv, run) · versions(kind, ns, name, run)
//   explain(ns, pod, rv, run) · queue(run) · mesh(run) · trace(ns, pod, run) · diff(a, b, options)
//   breakIt(target, action, more) · apply(yaml, {dryRun, force}) · put(kind, ns, name, document, {dryRun}) · remove(kind, ns, name)
//   job(request) · jobs() · jobOf(id) · cancel(id) · resultOf(id) · scenarios(). put takes a document, or YAML as text.
//
// A refusal is a `Refused` with Kubernetes' Status: {code, reason, message, details}.

import {turned} from 'keplab/alignment.js';

export class Refused extends Error {
  /** @param {any} status */
  constructor(status) {
    super(status.message || status.reason || 'refused');
    this.name = 'Refused';
    this.status = status;
    this.code = status.code || 0;
  }
}

const BACKOFF_S = [0.5, 1, 2, 4, 8];

/** A server at the page's own address. */
export class LiveSource {
  constructor() {
    this.kind = 'live';
    this.base = new URL('/ui/v1/', location.href);
    this.csrf = '';
    /** Sockets by run. @type {Map<string, Feed>} */
    this.feeds = new Map();
  }

  /** Trades the token of the address for a cookie, when there is one; the token leaves the address. */
  async open() {
    const token = new URLSearchParams(location.hash.slice(1)).get('t');
    if (!token) return;
    history.replaceState(null, '', location.pathname + location.search);
    await this.ask('session', {method: 'POST', body: {token}});
  }

  async meta() {
    const meta = await this.ask('meta');
    this.csrf = meta.csrf || '';
    return meta;
  }

  /** @param {string} path @param {{method?: string, body?: any, text?: string, query?: Record<string, any>, binary?: boolean, signal?: AbortSignal}} [how] */
  async ask(path, {method = 'GET', body, text, query = {}, binary = false, signal} = {}) {
    const url = new URL(path, this.base);
    for (const key in query) if (query[key] !== undefined && query[key] !== null && query[key] !== '') url.searchParams.set(key, String(query[key]));
    const headers = /** @type {Record<string, string>} */ ({});
    if (method !== 'GET') headers['X-Keplab-CSRF'] = this.csrf;
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    if (text !== undefined) headers['Content-Type'] = 'application/yaml';
    let answer;
    try {
      answer = await fetch(url, {method, headers, body: body === undefined ? text : JSON.stringify(body), credentials: 'same-origin', signal});
    } catch (error) {
      if (signal && signal.aborted) throw error;
      throw new Refused({code: 0, reason: 'Unreachable', message: 'The server of this page does not answer.'});
    }
    if (!answer.ok) {
      const status = await answer.json().catch(() => ({message: `${answer.status} ${answer.statusText}`}));
      throw new Refused({code: answer.status, ...status});
    }
    if (binary) return answer.arrayBuffer();
    if (answer.status === 204) return {};
    return (answer.headers.get('content-type') || '').includes('json') ? answer.json() : answer.text();
  }

  /** @param {string} run @param {(data: ArrayBuffer) => void} onFrame @param {(status: any) => void} onStatus */
  subscribe(run, onFrame, onStatus, rv = 0) {
    const feed = new Feed(new URL('socket', this.base), run, onFrame, onStatus, rv);
    this.feeds.set(run, feed);
    return () => { feed.close(); if (this.feeds.get(run) === feed) this.feeds.delete(run); };
  }

  /** Sends a message on a run's socket; false when it is closed. @param {string} run @param {any} message */
  send(run, message) {
    const feed = this.feeds.get(run);
    return Boolean(feed && feed.send(message));
  }

  recording() { return null; }
  /** When which version of a recording was committed: {t, rv}. */
  history(run) { return this.ask('history', {query: {run: other(run)}}); }
  state(run, rv, signal) { return this.ask('state', {query: {run, rv}, binary: true, signal}); }
  /** @param {string} kind @param {any} [options] */
  objects(kind, {run, ns, q, rv, limit, continue: more} = {}) { return this.ask(`objects/${word(kind)}`, {query: {run: other(run), ns, q, rv, limit, continue: more}}); }
  object(kind, ns, name, rv, run) { return this.ask(objectPath(kind, ns, name), {query: {as: 'json', rv, run: other(run)}}).then(wrapped); }
  async versions(kind, ns, name, run) {
    const answer = await this.ask(`${objectPath(kind, ns, name)}/versions`, {query: {run: other(run)}});
    return {...answer, versions: answer.versions || answer.items};
  }
  explain(ns, pod, rv, run) { return this.ask(`explain/${word(ns)}/${word(pod)}`, {query: {rv, run: other(run)}}); }
  queue(run, rv) { return this.ask('queue', {query: {run: other(run), rv}}); }
  mesh(run) { return this.ask('mesh', {query: {run: other(run)}}); }
  trace(ns, pod, run) { return this.ask(`trace/${word(ns)}/${word(pod)}`, {query: {run: other(run)}}); }
  diff(a, b, options = {}) { return this.ask('diff', {query: {a, b, ...options}}); }
  breakIt(target, action, more = {}) { return this.ask('break', {method: 'POST', body: {target, action, ...more}}); }
  apply(yaml, {dryRun = false, force = false} = {}) { return this.ask('apply', {method: 'POST', body: {yaml, dry_run: dryRun, force}}); }
  put(kind, ns, name, document, {dryRun = false} = {}) { return this.ask(objectPath(kind, ns, name), {method: 'PUT', [typeof document === 'string' ? 'text' : 'body']: document, query: {dryRun: dryRun ? 'All' : undefined}}); }
  remove(kind, ns, name) { return this.ask(objectPath(kind, ns, name), {method: 'DELETE'}); }
  job(request) { return this.ask('jobs', {method: 'POST', body: request}); }
  jobs() { return this.ask('jobs'); }
  jobOf(id) { return this.ask(`jobs/${word(id)}`); }
  cancel(id) { return this.ask(`jobs/${word(id)}`, {method: 'DELETE'}); }
  resultOf(id) { return this.ask(`jobs/${word(id)}/result`); }
  scenarios() { return this.ask('scenarios'); }
}

const word = encodeURIComponent;
const other = (run) => (run === 'live' ? undefined : run);
const objectPath = (kind, ns, name) => `objects/${word(kind)}/${word(ns || '-')}/${word(name)}`;
const wrapped = (answer) => (answer && answer.document ? answer : {document: answer, rv: Number(answer?.metadata?.resourceVersion || 0), time: null});

/** One socket of one run, which comes back by itself. */
class Feed {
  constructor(url, run, onFrame, onStatus, rv) {
    this.url = new URL(url);
    this.url.protocol = this.url.protocol === 'https:' ? 'wss:' : 'ws:';
    this.run = run; this.onFrame = onFrame; this.onStatus = onStatus;
    this.rv = rv; this.tries = 0; this.closed = false; this.timer = 0; this.late = /** @type {any} */ (null);
    this.socket = /** @type {WebSocket} */ (this.connect());
  }

  connect() {
    const socket = this.socket = new WebSocket(this.url);
    socket.binaryType = 'arraybuffer';
    socket.onopen = () => {
      this.send({t: 'sub', view: 'cluster', run: this.run, rate: 20, rv: this.rv || undefined});
      if (this.late) this.send(this.late);
      this.late = null;
    };
    socket.onmessage = (event) => {
      if (typeof event.data === 'string') {
        const message = JSON.parse(event.data);
        if (message.t === 'ping') this.send({t: 'pong'});
        else if (message.t === 'error') this.onStatus({kind: 'error', text: message.message});
        return;
      }
      if (this.tries >= 0) { this.tries = -1; this.onStatus({kind: 'live'}); }
      const rv = new DataView(event.data).getFloat64(8, true);
      if (rv > this.rv) this.rv = rv;
      this.onFrame(event.data);
    };
    socket.onclose = (event) => {
      if (this.closed || this.socket !== socket) return;
      if (this.tries < 0) this.tries = 0;
      this.onStatus({kind: event.code === 4401 ? 'refused' : 'stale', text: event.reason});
      const wait = BACKOFF_S[Math.min(this.tries, BACKOFF_S.length - 1)];
      this.tries += 1;
      this.timer = window.setTimeout(() => this.connect(), wait * 1000);
    };
    return socket;
  }

  send(message) {
    if (this.socket.readyState !== WebSocket.OPEN) {
      // A moment that was asked for before the socket was open is asked for when it is.
      if (message.t === 'seek') this.late = message;
      return false;
    }
    this.socket.send(JSON.stringify(message));
    return true;
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket.close();
  }
}

/**
 * Recordings inside the page: <script type="application/json" id="replay-index"> says what there is, and each part is a
 * <script type="application/octet-stream" id="replay-RUN-PART"> of base64'd gzip.
 */
export class ReplaySource {
  constructor() {
    this.kind = 'replay';
    this.index = JSON.parse(/** @type {HTMLElement} */ (document.getElementById('replay-index')).textContent || '{}');
    this.cache = new Map();
  }

  static present() { return document.getElementById('replay-index') !== null; }

  async open() {}
  async meta() { return this.index.meta; }

  /** The bytes of a part, still gzip'd; the text leaves the document, so that it is in memory once. */
  bytes(run, part) {
    const element = document.getElementById(`replay-${run}-${part}`);
    if (!element) return null;
    const found = fromBase64(element.textContent || '');
    return found;
  }

  /** A part that is JSON. */
  json(run, part) {
    const key = `${run}-${part}`;
    if (!this.cache.has(key)) {
      const bytes = this.bytes(run, part);
      this.cache.set(key, bytes ? unzipped(bytes).then((body) => JSON.parse(new TextDecoder().decode(body))) : Promise.resolve(null));
    }
    return this.cache.get(key);
  }

  recording(run) { return this.index.runs[run]; }
  dict(run) { return this.bytes(run, 'dict'); }
  segment(run, at) { return this.bytes(run, `segment-${at}`); }
  lines(run) { return this.json(run, 'lines'); }
  subscribe() { return () => {}; }

  /** The tables of objects: for each object its versions, with the cells of each. */
  async catalogue(run) {
    const found = await this.json(run, 'objects');
    if (!found) throw new Refused({code: 404, reason: 'NotFound', message: 'This file was written without objects (--detail decisions).'});
    if (!found.byKey) {
      found.byKey = new Map();
      for (const each of found.objects) found.byKey.set(`${each.kind}/${each.ns}/${each.name}`, each);
    }
    return found;
  }

  async objects(kind, {run = this.index.first, ns = '', q = '', rv = Infinity, limit = 500, continue: more = ''} = {}) {
    const catalogue = await this.catalogue(run), about = kindOf(catalogue.kinds, kind);
    const wanted = q.toLowerCase(), all = [];
    for (const each of catalogue.objects) {
      if (each.kind !== about.kind || (ns && each.ns !== ns)) continue;
      if (wanted && !`${each.ns}/${each.name}`.toLowerCase().includes(wanted)) continue;
      const at = versionAt(each.versions, rv);
      if (at && at.type !== 'DELETED') all.push({ns: each.ns, name: each.name, cells: at.cells, created: each.created, rv: at.rv});
    }
    all.sort((a, b) => (a.ns === b.ns ? compare(a.name, b.name) : compare(a.ns, b.ns)));
    const from = Number(more) || 0, rows = all.slice(from, from + limit);
    return {...about, rows, total: all.length, continue: from + limit < all.length ? String(from + limit) : ''};
  }

  async object(kind, ns, name, rv = Infinity, run = this.index.first) {
    const each = await this.find(kind, ns, name, run);
    const at = versionAt(each.versions, rv);
    if (!at || at.type === 'DELETED') throw new Refused({code: 404, reason: 'NotFound', message: `${kind} "${name}" did not exist at this version`});
    if (!at.body) throw new Refused({code: 404, reason: 'NotFound', message: `body not recorded: ${kind} "${name}" at rv ${at.rv}`});
    const [part, from, length] = at.body, key = `${run}-docs-${part}`;
    if (!this.cache.has(key)) {
      const bytes = this.bytes(run, `docs-${part}`);
      this.cache.set(key, bytes ? unzipped(bytes) : Promise.resolve(new ArrayBuffer(0)));
    }
    const text = new TextDecoder().decode(new Uint8Array(await this.cache.get(key), from, length));
    return {document: JSON.parse(text), rv: at.rv, time: at.time};
  }

  async versions(kind, ns, name, run = this.index.first) {
    const each = await this.find(kind, ns, name, run);
    return {versions: each.versions.map(({rv, time, type, writer, trace_id, body}) => ({rv, time, type, writer, trace_id, recorded: Boolean(body)}))};
  }

  async find(kind, ns, name, run) {
    const catalogue = await this.catalogue(run), about = kindOf(catalogue.kinds, kind);
    const each = catalogue.byKey.get(`${about.kind}/${ns || ''}/${name}`);
    if (!each) throw new Refused({code: 404, reason: 'NotFound', message: `${kind} "${name}" is not in this recording`});
    return each;
  }

  /** A document that was computed when the file was written, or a refusal that says so. A file without a recording has those of what it was written of. */
  async precomputed(run, key, what) {
    const documents = await this.json(this.index.runs[run] ? run : 'all', 'documents');
    const found = documents && documents[key];
    if (found === undefined || found === null) throw new Refused({code: 404, reason: 'NotFound', message: `${what} is not in this file`});
    return found;
  }

  async explain(ns, pod, rv = Infinity, run = this.index.first) {
    const all = await this.precomputed(run, `explain/${ns}/${pod}`, `What a scheduler decided about pod ${ns}/${pod}`);
    // Each has what is other than before it.
    const known = all.at.filter((each) => each.rv <= rv);
    if (!known.length) throw new Refused({code: 404, reason: 'NotFound', message: all.is_cut ? `Why pod ${ns}/${pod} was where it was before version ${all.at[0].rv} is not in this file` : `The recording has no pod ${ns}/${pod} at this version`});
    return {...Object.assign({}, ...known), decisions: all.decisions};
  }

  queue(run = this.index.first) { return this.precomputed(run, 'queue', 'The queue'); }
  mesh(run = this.index.first) { return this.precomputed(run, 'mesh', 'The mesh'); }
  trace(ns, pod, run = this.index.first) { return this.precomputed(run, `trace/${ns}/${pod}`, `A trace of pod ${ns}/${pod}`); }

  async diff(a, b, options = {}) {
    const how = options.times ? '-times' : '', there = await this.json('all', `diff-${a}-${b}${how}`);
    const found = there || turned(await this.json('all', `diff-${b}-${a}${how}`));
    if (!found) throw new Refused({code: 404, reason: 'NotFound', message: `A difference of ${a} and ${b} is not in this file`});
    return found;
  }

  async jobs() { return {jobs: []}; }
  async scenarios() { return {scenarios: []}; }
  /** The comparison, the runs or the traces that this file was written of, or a refusal. */
  async resultOf() {
    const found = await this.json('all', 'result');
    if (!found) throw new Refused({code: 404, reason: 'NotFound', message: 'A comparison is not in this file.'});
    return found;
  }
  async absent() { throw new Refused({code: 405, reason: 'MethodNotAllowed', message: 'This is a recording: nothing can be changed.'}); }
  breakIt() { return this.absent(); }
  apply() { return this.absent(); }
  put() { return this.absent(); }
  remove() { return this.absent(); }
  job() { return this.absent(); }
  jobOf() { return this.absent(); }
  cancel() { return this.absent(); }
  send() { return false; }
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** The kind that a word means: its plural, singular, short name or Kind. */
function kindOf(kinds, given) {
  const found = kinds.find((each) => each.kind === given || (each.names || []).includes(String(given).toLowerCase()));
  if (!found) throw new Refused({code: 404, reason: 'NotFound', message: `the recording has no resource "${given}"`});
  return found;
}

/** The last of an object's versions at or before rv, or null. @param {any[]} versions @param {number} rv */
function versionAt(versions, rv) {
  let low = 0, high = versions.length - 1, found = /** @type {any} */ (null);
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (versions[middle].rv <= rv) { found = versions[middle]; low = middle + 1; } else high = middle - 1;
  }
  return found;
}

/** @param {string} text */
export function fromBase64(text) {
  const Bytes = /** @type {any} */ (Uint8Array);
  if (Bytes.fromBase64) return Bytes.fromBase64(text.trim());
  const binary = atob(text.trim()), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** @param {Uint8Array} bytes */
export async function unzipped(bytes) {
  const stream = new Blob([/** @type {any} */ (bytes)]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}
