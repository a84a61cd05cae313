// The scheduling queue as a picture of fixed places, and widths of lines by their rates. Pure.

/** Pools in the order of the picture; `id` as `keplab explain scheduler/queue` names them. */
export const QUEUE_POOLS = [
  {id: 'gated', title: 'gated', about: 'a PreEnqueue plugin keeps the pod out', x: 0.02, y: 0.1},
  {id: 'active', title: 'active', about: 'next in line', x: 0.27, y: 0.1},
  {id: 'in_flight', title: 'in flight', about: 'its cycle runs', x: 0.52, y: 0.1},
  {id: 'backoff', title: 'backoff', about: 'waits for its back-off', x: 0.27, y: 0.62},
  {id: 'error_backoff', title: 'error backoff', about: 'waits after an error', x: 0.52, y: 0.62},
  {id: 'unschedulable', title: 'unschedulable', about: 'waits for an event', x: 0.77, y: 0.62},
  {id: 'bound', title: 'bound', about: 'has its node', x: 0.77, y: 0.1},
];

/** The width of a line by its rate: nothing at 0, then by the logarithm from 1 to `most`. @param {number} rate a second @param {number} most */
export function lineWidth(rate, most = 10) {
  if (!(rate > 0)) return 0;
  return Math.min(most, 1 + Math.log10(1 + rate) * (most - 1) / 4);
}

/**
 * Moves between pools within a span of time, from the lines of the event log: each {from, to, count, rate, by: [[what, count]…], lines}.
 * `sched.moved` says every move; without it what ends a cycle is known (sched.attempt, sched.gated …), and `sampled` is true.
 * @param {any[]} lines @param {number} now @param {number} seconds
 */
export function flows(lines, now, seconds) {
  const found = new Map(), from = now - seconds;
  let whole = false, rescued = 0;
  for (let i = lines.length - 1; i >= 0; i--) if (lines[i].ev === 'sched.moved') { whole = true; break; }
  for (let i = lines.length - 1; i >= 0; i--) {
    const line = lines[i], at = timeOf(line);
    if (at < from - 5) break;
    if (at < from || at > now + 1e-6) continue;
    if (line.ev === 'sched.flush_rescue') rescued += 1;
    for (const move of movesOf(line, whole)) {
      const key = `${move.from}>${move.to}`;
      if (!found.has(key)) found.set(key, {from: move.from, to: move.to, count: 0, reasons: new Map(), lines: []});
      const flow = found.get(key);
      flow.count += 1;
      flow.reasons.set(move.by, (flow.reasons.get(move.by) || 0) + 1);
      if (flow.lines.length < 500) flow.lines.push({...move, at, line});
    }
  }
  return {sampled: !whole, rescued, flows: [...found.values()].map((flow) => ({...flow, rate: flow.count / Math.max(0.001, seconds), by: [...flow.reasons].sort((a, b) => b[1] - a[1])})).sort((a, b) => b.count - a.count)};
}

export const timeOf = (line) => line.t ?? (line.mono_ns || 0) / 1e9;

/** The moves that one line is about. @param {any} line @param {boolean} whole every move has a line of its own */
export function movesOf(line, whole) {
  const data = line.data || {}, pod = line.obj ? (line.obj.ns ? `${line.obj.ns}/${line.obj.name}` : line.obj.name) : '';
  if (line.ev === 'sched.moved') return [{from: data.from || '', to: data.to || '', by: data.by || '', hint: data.hint || '', pod}];
  if (line.ev === 'sched.attempt' && data.outcome === 'scheduled') return [{from: 'in_flight', to: 'bound', by: 'bind', hint: line.node || data.node || '', pod}];
  if (whole) return [];
  if (line.ev === 'sched.attempt') return [{from: 'in_flight', to: data.outcome === 'error' ? 'error_backoff' : 'unschedulable', by: (data.plugins || []).join(', ') || data.outcome || '', hint: '', pod}];
  if (line.ev === 'sched.gated') return [{from: '', to: 'gated', by: data.plugin || data.by || '', hint: '', pod}];
  if (line.ev === 'sched.ungated') return [{from: 'gated', to: 'active', by: data.plugin || data.by || '', hint: '', pod}];
  return [];
}

/** A curve between two pools: four points of a cubic, in shares of the picture. Moves back bend below, others above. */
export function curve(from, to, width, height, box) {
  const a = QUEUE_POOLS.find((pool) => pool.id === from), b = QUEUE_POOLS.find((pool) => pool.id === to);
  if (!a || !b || a === b) return null;
  const left = (pool) => pool.x * width, top = (pool) => pool.y * height;
  if (a.y === b.y) {
    const way = b.x > a.x ? 1 : -1, x0 = left(a) + (way > 0 ? box.w : 0), x1 = left(b) + (way > 0 ? 0 : box.w), y = top(a) + box.h * (way > 0 ? 0.38 : 0.72);
    const far = Math.abs(b.x - a.x) > 0.3 ? (a.y < 0.4 ? -1 : 1) * box.h * 0.75 : 0;
    return [[x0, y], [x0 + (x1 - x0) * 0.35, y + far], [x0 + (x1 - x0) * 0.65, y + far], [x1, y]];
  }
  const down = b.y > a.y ? 1 : -1, x0 = left(a) + box.w * (down > 0 ? 0.64 : 0.36), x1 = left(b) + box.w * (down > 0 ? 0.64 : 0.36), y0 = top(a) + (down > 0 ? box.h : 0), y1 = top(b) + (down > 0 ? 0 : box.h);
  return [[x0, y0], [x0, y0 + (y1 - y0) * 0.5], [x1, y0 + (y1 - y0) * 0.5], [x1, y1]];
}

/** A point of a cubic. @param {number[][]} points @param {number} t */
export function pointOf(points, t) {
  const u = 1 - t, w = [u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t];
  return [0, 1].map((axis) => points.reduce((sum, point, at) => sum + point[axis] * w[at], 0));
}

/**
 * Rows of the mesh: the stores first, then the others by component, with the link of each. `links` is what /mesh says.
 * @param {any} found the document of /mesh
 */
export function meshRows(found) {
  const links = new Map((found.links || []).map((link) => [link.from, link]));
  const isStore = (process) => /^(apiserver|etcd)/.test(process.name);
  const order = ['scheduler', 'controllers', 'claim-controller', 'kubelet'], rank = (name) => { const at = order.findIndex((each) => name.startsWith(each)); return at < 0 ? order.length : at; };
  const natural = (a, b) => a.name.localeCompare(b.name, 'en', {numeric: true});
  const stores = (found.processes || []).filter(isStore).sort(natural);
  const rows = (found.processes || []).filter((process) => !isStore(process)).sort((a, b) => rank(a.name) - rank(b.name) || natural(a, b));
  return {stores, rows: rows.map((process) => ({process, link: links.get(process.name) || null, fault: (links.get(process.name) || {}).fault || null}))};
}

/** A fault in words with its sign: "✂ cut both ways, 8 s more". @param {any} fault */
export function faultWords(fault) {
  if (!fault) return '';
  const left = fault.left_s === null || fault.left_s === undefined ? '' : `, ${Math.ceil(fault.left_s)} s more`;
  if (fault.action === 'cut') return `✂ cut${fault.way && fault.way !== 'both' ? ` ${fault.way}` : ''}${left}`;
  if (fault.action === 'slow') return `~ slow +${Math.round((fault.slow_s || 0) * 1000)} ms${left}`;
  if (fault.action === 'pause') return `❚❚ paused${left}`;
  return `${fault.action}${left}`;
}
