// Which event lines are marks of the time line, and what is written on them. Pure.

/** Kinds of marks, in the order of their tracks. */
export const TRACKS = [
  {id: 'decision', title: 'decisions', kinds: ['bind', 'reject', 'nominate', 'victim', 'unbind', 'resize', 'failed']},
  {id: 'fault', title: 'faults', kinds: ['fault', 'restart']},
  {id: 'violation', title: 'violations', kinds: ['violation']},
  {id: 'pin', title: 'pins', kinds: ['pin']},
];
/** Kinds that `.` and `,` stop at; decisions are too many for that. */
export const STOPS = new Set(['fault', 'restart', 'violation', 'pin', 'failed', 'unbind', 'reject']);

const DECISIONS = {
  'sched.attempt': (data) => (data.node ? ['bind', `→ ${data.node}`] : ['none', `${data.outcome || data.result || 'no node'}`]),
  'sched.nominate': (data) => ['nominate', `nominated ${data.node || ''}`],
  'sched.victim': (data) => ['victim', `victim ${data.reason || ''}`],
  'kubelet.reject': (data) => ['reject', `rejected ${data.reason || ''}`],
  'kubelet.unbind_call': (data) => ['unbind', `unbound ${data.reason || ''}`],
  'kubelet.resize': (data) => ['resize', `resize ${data.result || data.outcome || ''}`],
};

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
  if (line.ev === 'ui.command') return {id, time, rv, kind: 'fault', track: 'fault', label: `${data.action || ''} ${data.target || ''}`.trim(), process: data.target, end: data.for_s ? time + data.for_s : undefined, ref: line};
  if (/^(fault|chaos)\./.test(line.ev)) return {id, time, rv, kind: 'fault', track: 'fault', label: `${data.action || line.ev.split('.')[1]} ${data.target || line.comp}`, process: data.target || line.comp, ref: line};
  if (/\.(started|restart|restarted)$/.test(line.ev)) return {id, time, rv, kind: 'restart', track: 'fault', label: `${line.comp} started`, process: line.comp, ref: line};
  if (/violation/.test(line.ev)) return {id, time, rv, kind: 'violation', track: 'violation', label: data.message || line.ev, process: line.comp, ref: line};
  if (line.ev === 'store.commit' && data.phase === 'Failed') return {id, time, rv, kind: 'failed', track: 'decision', label: `${name} failed`, process: line.comp, ref: line};
  return null;
}
