// Which event lines are marks of the time line, and what is written on them. Pure.

/** Kinds of marks, in the order of their tracks. */
export const TRACKS = [
  {id: 'decision', title: 'decisions', kinds: ['bind', 'unschedulable', 'reject', 'nominate', 'victim', 'unbind', 'resize', 'failed']},
  {id: 'fault', title: 'faults, commands', kinds: ['fault', 'heal', 'start', 'command']},
  {id: 'violation', title: 'violations', kinds: ['violation']},
  {id: 'pin', title: 'pins', kinds: ['pin']},
];
/** Kinds that `.` and `,` stop at; decisions are too many for that. */
export const STOPS = new Set(['fault', 'heal', 'start', 'command', 'violation', 'pin', 'failed', 'unbind', 'reject']);

const DECISIONS = {
  'sched.attempt': (data) => (data.node ? ['bind', `→ ${data.node}`] : ['unschedulable', `${data.outcome || data.result || 'no node'}`]),
  'sched.nominate': (data) => ['nominate', `nominated ${data.node || ''}`],
  'sched.victim': (data) => ['victim', `victim ${data.reason || ''}`],
  'kubelet.reject': (data) => ['reject', `rejected ${data.reason || ''}`],
  'kubelet.unbind_call': (data) => ['unbind', `unbound ${data.reason || ''}`],
  'kubelet.resize': (data) => ['resize', `resize ${data.result || data.outcome || ''}`],
};

/** What tells a mark from all others. @param {any} mark */
export const keyOf = (mark) => mark.id || `${mark.time}|${mark.kind}|${mark.label}`;

/**
 * The newest marks: so many of those that are dense, and of those that are stopped at, so that what was broken an hour ago is not pushed
 * out by decisions. They are a fiftieth more before they are cut. @param {any[]} marks @param {number} dense @param {number} stops
 */
export function bounded(marks, dense, stops) {
  let some = 0;
  for (const mark of marks) some += STOPS.has(mark.kind) ? 1 : 0;
  if (marks.length - some <= dense * 1.02 && some <= stops * 1.02) return marks;
  let skipDense = marks.length - some - dense, skipStops = some - stops;
  return marks.filter((mark) => (STOPS.has(mark.kind) ? skipStops-- <= 0 : skipDense-- <= 0));
}

const BREAKS = new Set(['kill', 'pause', 'cut', 'slow', 'heal']);
/** Faults that go on until they are healed. */
const LASTING = new Set(['pause', 'cut', 'slow']);

/**
 * Marks in the order of time in which a fault has the length that it had: its end is where it was healed.
 * @param {any[]} marks
 */
export function withLengths(marks) {
  const open = new Map(), found = [];
  for (const mark of marks) {
    const key = `${mark.process}|${mark.what}`;
    if (mark.kind === 'fault' && LASTING.has(mark.what)) { open.set(key, found.length); found.push(mark); continue; }
    const at = mark.kind === 'heal' ? open.get(key) : undefined;
    if (at === undefined) { found.push(mark); continue; }
    open.delete(key);
    found[at] = {...found[at], end: mark.time, open: false};
  }
  return found;
}

/** The mark of an event line, or null. @param {any} line */
export function markOf(line) {
  const time = line.t ?? (line.mono_ns || 0) / 1e9, rv = line.rv ?? line.rv_seen ?? 0, data = line.data || {};
  const name = line.obj ? (line.obj.ns ? `${line.obj.ns}/${line.obj.name}` : line.obj.name) : '';
  const id = `${line.comp}/${line.inc}/${line.seq}`;
  const decision = DECISIONS[line.ev];
  if (decision) {
    const [kind, label] = decision({node: line.node, ...data});
    return {id, time, rv, kind, track: 'decision', label: `${name} ${label}`.trim(), process: line.comp, ref: line};
  }
  if (line.ev === 'ui.command') {
    // What breaks something is marked when the supervisor does it.
    if (BREAKS.has(data.command)) return null;
    return {id, time, rv, kind: 'command', track: 'fault', label: `${data.command || ''} ${data.target || [data.kind, data.namespace && `${data.namespace}/`, data.name].filter(Boolean).join(' ')}`.trim(), process: line.comp, ref: line};
  }
  if (line.ev === 'fault.heal') return {id, time, rv, kind: 'heal', track: 'fault', label: `${data.what || 'fault'} of ${data.target || line.comp} healed`, process: data.target || line.comp, what: data.what, ref: line};
  if (/^(fault|chaos)\./.test(line.ev)) {
    const what = data.what || data.action || line.ev.split('.')[1];
    return {id, time, rv, kind: 'fault', track: 'fault', label: `${what} ${data.target || line.comp}`, process: data.target || line.comp, what, end: data.for_s ? time + data.for_s : undefined, open: LASTING.has(what) && !data.for_s, ref: line};
  }
  if (line.ev === 'proc.start') return {id, time, rv, kind: 'start', track: 'fault', label: `${line.comp} started`, process: line.comp, ref: line};
  if (/violation/.test(line.ev)) return {id, time, rv, kind: 'violation', track: 'violation', label: data.message || line.ev, process: line.comp, ref: line};
  if (line.ev === 'store.commit' && data.phase === 'Failed') return {id, time, rv, kind: 'failed', track: 'decision', label: `${name} failed`, process: line.comp, ref: line};
  return null;
}
