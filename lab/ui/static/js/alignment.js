// The differing decisions of two runs: which is first, which comes next, and when each run took its own. Pure.
//
// A difference is {role, at_s, a, b, fields}: a and b are decisions {at_s, role, event, outcome, node, name, component, why} or null.

/** The words of a field that differs: "node: n1 / n2". @param {any} difference @param {string} field */
export function fieldWords(difference, field) {
  const of = (side) => (side ? side[field] || '(none)' : '(no such decision)');
  return `${field}: ${of(difference.a)} / ${of(difference.b)}`;
}

/** One line about a difference: "replicaset/web#0: kubelet.unbind_call only in B". @param {any} difference @param {[string, string]} names */
export function summary(difference, names = ['A', 'B']) {
  const {a, b, role} = difference;
  if (!a || !b) return `${role}: ${eventWords(a || b)} only in ${a ? names[0] : names[1]}`;
  return `${role}: ${(difference.fields || []).map((field) => fieldWords(difference, field)).join(', ') || 'time'}`;
}

/** "sched.attempt scheduled → n1". @param {any} decision */
export function eventWords(decision) {
  if (!decision) return 'no such decision';
  return [decision.event, decision.outcome, decision.node ? `→ ${decision.node}` : ''].filter(Boolean).join(' ');
}

/**
 * The moment of a difference in each run, in seconds of the run's clock. 'time': both at the same time, that of the difference;
 * 'decision': each at its own decision, at the same time where it has none; 'role': each at its last decision about the role that is
 * not after its own one, so that the two panes show the pod in the same step of its life.
 * @param {any} difference @param {'time'|'decision'|'role'} by @param {any[]} all differences, for 'role'
 * @returns {[number, number]}
 */
export function moments(difference, by, all = []) {
  const at = difference.at_s;
  if (by === 'time') return [at, at];
  const own = [difference.a?.at_s ?? at, difference.b?.at_s ?? at];
  if (by === 'decision') return /** @type {[number, number]} */ (own);
  const steps = ['a', 'b'].map((side) => all.filter((each) => each.role === difference.role && each[side]).map((each) => each[side].at_s));
  const number = ['a', 'b'].map((side, index) => (difference[side] ? steps[index].indexOf(difference[side].at_s) : -1));
  const place = Math.max(...number);
  return /** @type {[number, number]} */ (steps.map((list, index) => (number[index] >= 0 ? own[index] : list[Math.min(place, list.length - 1)] ?? at)));
}

/** The number of the difference after or before one; it ends at the ends. @param {number} now @param {1|-1} way @param {number} length */
export function step(now, way, length) {
  return Math.max(0, Math.min(length - 1, now + way));
}

/**
 * The pod of a run that has the role of a pod of another: owner and number are the same, of a pod without an owner its name; null where there is none.
 * @param {{pods: any, strings: string[]}} of columns @param {number} row @param {{pods: any, strings: string[]}} other columns
 * @returns {{ns: string, name: string}|null}
 */
export function sameRole(of, row, other) {
  const {name, role, role_number: number, owner, ns} = of.pods.columns, there = other.pods.columns;
  if (row < 0 || !role || !there.role) return null;
  const isOwned = Boolean(of.strings[owner[row]] && of.strings[role[row]]), key = isOwned ? 'role' : 'name';
  const [stem, place] = [of.strings[(isOwned ? role : name)[row]], of.strings[ns[row]]].map((text) => other.strings.indexOf(text));
  for (let at = 0; at < other.pods.rows; at++) {
    if (there.name[at] && there[key][at] === stem && (!isOwned || there.role_number[at] === number[row]) && there.ns[at] === place) return {ns: other.strings[there.ns[at]], name: other.strings[there.name[at]]};
  }
  return null;
}

/** The name of the object that plays a difference's role in a run, from the difference of that role next in time, or ''. */
export function nameOfRole(all, difference, side) {
  let found = '', least = Infinity;
  for (const each of all) {
    const far = each.role === difference.role && each[side] ? Math.abs(each[side].at_s - difference.at_s) : Infinity;
    if (far < least) { least = far; found = each[side].name || ''; }
  }
  return found;
}

/** Marks of one run's side in a span of time, at most one a pixel: [{x, at, n}] with the first difference of each. */
export function marksOf(differences, side, from, to, width) {
  const places = new Map();
  differences.forEach((each, at) => {
    const decision = each[side];
    if (!decision || decision.at_s < from || decision.at_s > to) return;
    const x = Math.round((decision.at_s - from) / Math.max(1e-9, to - from) * width), seen = places.get(x);
    if (seen) seen.n += 1; else places.set(x, {x, at, n: 1});
  });
  return [...places.values()];
}

/** A decision of an event line, as far as the log alone says: for the lane of all decisions. @param {any} line */
export function decisionOf(line) {
  const EVENTS = ['sched.attempt', 'sched.nominate', 'sched.victim', 'sched.bind_result', 'kubelet.admit', 'kubelet.reject', 'kubelet.unbind_call', 'kubelet.resize'];
  if (!line.obj || !EVENTS.includes(line.ev)) return null;
  return {at: line.t ?? (line.mono_ns || 0) / 1e9, event: line.ev, name: line.obj.ns ? `${line.obj.ns}/${line.obj.name}` : line.obj.name, node: line.node || '', outcome: (line.data || {}).outcome || (line.data || {}).reason || ''};
}

/** The difference of B and A, of that of A and B: a file has each pair of runs once. @param {any} found */
export function turned(found) {
  if (!found) return null;
  const swapped = (pair) => pair && {...pair, a: pair.b, b: pair.a};
  return {...found, counts: swapped(found.counts), first: swapped(found.first), differences: found.differences.map(swapped), reordered: swapped(found.reordered)};
}
