// What the page knows, as signals. Pages read it and call the functions below; they never fetch.
//
// `view` is the run that is looked at; `state.rv`, `state.columns` … follow it. A page that shows two runs (difference)
// calls `openRun(id)` and reads the views it is given. Views are only written by app.js, from messages of the worker.
import {signal, computed} from '@preact/signals';
import {emptyTable} from 'keplab/columns.js';

/** Event lines that are kept of a mesh: as many as its server sends to a page that opens; of a recording all that are sent. */
export const LINES = 5000, RECORDED_LINES = 5e4;
/** Marks that are kept of a mesh: dense ones (decisions), and those that `.` and `,` stop at. */
export const DENSE_MARKS = 5000, STOP_MARKS = 2000;
/** Alarms and jobs that are kept; a server judges and lists fewer. */
export const ALARMS = 200, JOBS = 200;

/** @typedef {{rv: number, time: number, kind: string, label: string, process?: string, ref?: any, end?: number}} Mark a point of the time line */
/** @typedef {{kind: string, ns: string, name: string}} Selected kind is a resource: pods, nodes, deployments … */

/** One run as the page sees it. */
export class View {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** Version and time that are shown: the time is that of the version, or later. */
    this.rv = signal(0);
    this.time = signal(0);
    /** The newest version and time that are known. */
    this.head = signal({rv: 0, time: 0});
    /** True while what is shown is the newest of a live run. */
    this.live = signal(false);
    this.playing = signal(0);
    /** Moments that were asked for. */
    this.seeks = 0;
    /** Done when a server has answered them. @type {Promise<any>} */
    this.sought = Promise.resolve();
    /** {version, nodes, pods, strings}: a new object at each change, around the same arrays. `columns.js` has their form.
     * @type {import('@preact/signals').Signal<{version: number, nodes: import('keplab/columns.js').Table, pods: import('keplab/columns.js').Table, strings: string[]}>} */
    this.columns = signal({version: 0, nodes: emptyTable(), pods: emptyTable(), strings: ['']});
    /** Event lines, oldest first, at most `linesMax`: a new array object at each change. @type {import('@preact/signals').Signal<any[]>} */
    this.lines = signal([]);
    this.linesMax = LINES;
    /** How many lines were dropped from the front of `lines`. */
    this.dropped = 0;
    /** The number of the newest line of each process: they come in their order. @type {Map<string, number>} */
    this.newest = new Map();
    this.rates = signal(null);
    this.pools = signal(null);
    /** Violations of invariants, newest last. @type {import('@preact/signals').Signal<any[]>} */
    this.alarms = signal([]);
    this.jobs = signal({});
    /** Marks of the time line, by time. @type {import('@preact/signals').Signal<Mark[]>} */
    this.marks = signal([]);
    /** Density of versions: pairs of time and rv, by rv; the first `estimated` of them were not seen. @type {import('@preact/signals').Signal<{t: number[], rv: number[], estimated?: number}>} */
    this.history = signal({t: [], rv: [], estimated: 0});
    /** Whether event lines say when versions were committed before the first one that was seen here: of a mesh that is not recorded. */
    this.fromLines = false;
    this.firstHead = 0;
    /** A span that was missed: {from, to}, or null. */
    this.gap = signal(/** @type {{from: number, to: number, lines: number}|null} */ (null));
    /** Rows changed by the last patch, for pictures that draw only those: {table, rows} or null when everything is new. */
    this.changed = null;
    /** Functions that are called with each change, before signals: (change) => void; change is null for everything. @type {Set<(change: {table: string, rows: any}|null) => void>} */
    this.watchers = new Set();
  }

  /** Adds what is not known yet, and returns it: a connection that comes back brings some of them again. @param {any[]} more */
  addLines(more) {
    const fresh = more.filter((line) => {
      const process = `${line.comp}/${line.inc}`, known = this.newest.get(process) || 0;
      if (line.seq > known) this.newest.set(process, line.seq);
      return !(line.seq <= known);
    });
    if (!fresh.length) return fresh;
    const all = this.lines.peek().concat(fresh);
    const over = all.length - this.linesMax;
    if (over > 0) { this.dropped += over; all.splice(0, over); }
    this.lines.value = all;
    return fresh;
  }
}

const live = new View('live');

export const views = new Map([['live', live]]);
/** The run that is looked at. */
export const view = signal(live);

export const state = {
  view,
  run: computed(() => view.value.id),
  rv: computed(() => view.value.rv.value),
  time: computed(() => view.value.time.value),
  head: computed(() => view.value.head.value),
  live: computed(() => view.value.live.value),
  playing: computed(() => view.value.playing.value),
  columns: computed(() => view.value.columns.value),
  lines: computed(() => view.value.lines.value),
  pools: computed(() => view.value.pools.value),
  rates: computed(() => view.value.rates.value),
  alarms: computed(() => view.value.alarms.value),
  marks: computed(() => view.value.marks.value),
  gap: computed(() => view.value.gap.value),
  jobs: computed(() => view.value.jobs.value),

  /** The answer of /meta: {version, flags: {write, break}, runs: [{id, title, arm, seed, from_rv, to_rv, t0, t1, kind}], switches, …}. @type {import('@preact/signals').Signal<any>} */
  meta: signal({version: '', flags: {write: false, break: false}, runs: [], switches: [], replay: false}),
  flags: computed(() => state.meta.value.flags || {write: false, break: false}),
  /** What happened to the connection: {kind: 'starting'|'live'|'replay'|'stale'|'refused', since, text}. */
  connection: signal({kind: 'starting', since: 0, text: ''}),
  /** The object that is selected on every page. @type {import('@preact/signals').Signal<Selected|null>} */
  selected: signal(null),
  /** The page that is shown, and its words after the name: `#/objects/pods?ns=shop` is {id: 'objects', path: ['pods'], query: {ns: 'shop'}}. */
  route: signal({id: 'cluster', path: /** @type {string[]} */ ([]), query: /** @type {Record<string, string>} */ ({})}),
  /** The overlay that is open over the page, by id, or ''. */
  overlay: signal(''),
  /** 'light' or 'dark', as drawn; `themeChoice` is 'auto', 'light' or 'dark'. */
  theme: signal('light'),
  themeChoice: signal('auto'),
  reducedMotion: signal(false),
  /** One line at the bottom that goes away: {text, kind: ''|'bad', at}. */
  notice: signal({text: '', kind: '', at: 0}),
  /** What a screen reader is told about the picture, at most every 5 s. */
  summary: signal(''),
};

/** @param {string} text @param {''|'bad'} kind */
export function notify(text, kind = '') {
  state.notice.value = {text, kind, at: Date.now()};
}

/** Copies a text; where that is not allowed, shows a short one. @param {string} text @param {string} what */
export function copy(text, what = text) {
  navigator.clipboard?.writeText(text).then(() => notify(`Copied ${what}`), () => notify(text.includes('\n') ? 'The browser did not allow copying.' : text));
}

/** @param {Selected|null} what */
export function select(what) {
  state.selected.value = what;
}

/** What an address says, in the form of `state.route`. @param {string} address */
export function routeOf(address) {
  // What nobody could have encoded stands for itself.
  const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  const [path, more = ''] = address.replace(/^#\/?/, '').split('?'), [id, ...rest] = path.split('/').map(decoded);
  return {id, path: rest, query: Object.fromEntries(new URLSearchParams(more))};
}

/**
 * Shows a page at once, and says so in the address: go('objects', ['pods'], {ns: 'shop'}).
 * @param {string} id @param {string[]} path @param {Record<string, string>} query
 */
export function go(id, path = [], query = {}) {
  const words = [id, ...path].map(encodeURIComponent).join('/'), more = new URLSearchParams(query).toString();
  const address = `#/${words}${more ? `?${more}` : ''}`;
  // The event of the address comes after keys that were pressed meanwhile: they belong to the new page.
  state.route.value = routeOf(address);
  location.hash = address;
}

/**
 * The row of a pod or node, or -1.
 * @param {'nodes'|'pods'} table @param {string} ns @param {string} name @param {View} of
 */
export function rowOf(table, ns, name, of = view.peek()) {
  const {strings, [table]: {rows, columns}} = of.columns.peek();
  if (!columns.name) return -1;
  const wanted = strings.indexOf(name), place = table === 'pods' ? strings.indexOf(ns) : 0;
  if (wanted <= 0) return -1;
  for (let row = 0; row < rows; row++) if (columns.name[row] === wanted && (table === 'nodes' || columns.ns[row] === place)) return row;
  return -1;
}

export const runOf = (id) => (state.meta.value.runs || []).find((each) => each.id === id);

/** Seconds between a run's clock and 1970. @param {string} id */
export function wallOf(id) {
  const run = runOf(id);
  return run?.clock?.wall_s ?? run?.wall_s ?? 0;
}

/** The same for what is written on the screen: 0 in a simulation, whose seconds are shown as they are. @param {string} id */
export function originOf(id) {
  return runOf(id)?.clock?.is_virtual ? 0 : wallOf(id);
}

/** What a run is called: its arm and seed, else its file. @param {any} run */
export function runName(run) {
  if (!run) return '';
  if (run.kind === 'live') return run.title || run.id;
  const seed = run.seed !== undefined && run.seed !== null && run.seed !== '' ? `seed ${run.seed}` : '';
  return run.arm ? [run.arm, seed].filter(Boolean).join(' · ') : run.file || run.title || run.id;
}

/** The moment as it is copied: `run/arm/seed@rv`. @param {View} of */
export function momentOf(of = view.peek()) {
  const run = runOf(of.id);
  const words = run && run.kind !== 'live' ? [run.short || run.title || run.id, run.arm, run.seed].filter((word) => word !== undefined && word !== null && word !== '') : [of.id];
  return `${words.join('/')}@rv${of.rv.peek()}`;
}
