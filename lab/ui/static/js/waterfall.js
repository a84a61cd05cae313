// A pod's spans as a waterfall: where each bar lies, and pieces of the critical path that add up to the total. Pure.

/**
 * Shares as whole numbers that add up to a whole number: the largest remainders are rounded up.
 * @param {number[]} values @param {number} whole @returns {number[]}
 */
export function apportioned(values, whole) {
  const floors = values.map((value) => Math.floor(value + 1e-9)), rest = whole - floors.reduce((sum, value) => sum + value, 0);
  const order = values.map((value, at) => [value - floors[at], at]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  for (let i = 0; i < Math.abs(rest); i++) floors[order[(rest > 0 ? i : order.length - 1 - i) % order.length][1]] += Math.sign(rest);
  return floors;
}

/**
 * `found`: the document of /trace. Times are in microseconds since the request that created the pod; `pieces[].us` are whole and add
 * up to `total_us`.
 * @param {any} found
 */
export function layout(found) {
  const begin = found.begin_ns ?? Math.min(...found.spans.map((span) => span.start_ns));
  const at = (ns) => (ns - begin) / 1000;
  const depths = new Map((found.rows || []).map((row) => [row.span_id, row]));
  const rows = found.spans.map((span, index) => {
    const about = (found.rows && found.rows[index]) || depths.get(span.span_id) || {depth: 0, critical: false};
    return {span, depth: about.depth, critical: about.critical, from: at(span.start_ns), to: Math.max(at(span.start_ns), at(span.end_ns)), title: titleOf(span)};
  });
  const total = Math.round(found.total_ms * 1000), exact = (found.critical_path || []).map((piece) => piece.ms * 1000), whole = exact.length ? apportioned(exact, total) : [];
  let cursor = 0;
  const pieces = (found.critical_path || []).map((piece, index) => {
    const from = cursor, own = (found.pieces || [])[index];
    cursor += exact[index];
    return {what: piece.what, us: whole[index], from, to: cursor, span_id: own ? own.span_id : '', way: piece.what.startsWith('on the way')};
  });
  const first = Math.min(0, ...rows.map((row) => row.from)), last = Math.max(total, ...rows.map((row) => row.to));
  return {rows, pieces, total_us: total, first, last, phase: found.phase, connected: found.is_connected !== false, later: found.later || 0};
}

/** What is written at a bar: the process's work, without the name of the service's protocol. @param {any} span */
export function titleOf(span) {
  const about = span.attributes || {}, notes = [];
  const resource = about['keplab.resource'];
  if (resource && resource !== 'pods') notes.push(resource);
  if (about['k8s.node.name']) notes.push(`on ${about['k8s.node.name']}`);
  if (about['keplab.reason']) notes.push(about['keplab.reason']);
  if ((about['keplab.attempt'] ?? 1) !== 1) notes.push(`attempt ${about['keplab.attempt']}`);
  return [span.name.replace(/^mesh\.v1\.ApiServer\//, ''), ...notes].join(' ');
}

/** Where pieces of two pods differ, by name: [{what, a, b, difference}] in µs, the largest first. @param {any[]} a @param {any[]} b */
export function compared(a, b) {
  const sums = (pieces) => { const found = new Map(); for (const piece of pieces) found.set(piece.what, (found.get(piece.what) || 0) + piece.us); return found; };
  const left = sums(a), right = sums(b), names = [...new Set([...left.keys(), ...right.keys()])];
  return names.map((what) => ({what, a: left.get(what) ?? null, b: right.get(what) ?? null, difference: (right.get(what) || 0) - (left.get(what) || 0)})).sort((x, y) => Math.abs(y.difference) - Math.abs(x.difference));
}

/** Microseconds with all their digits: 637831 is "637.831 ms", 12 is "0.012 ms". @param {number} us */
export function exactly(us) {
  const sign = us < 0 ? '−' : '', text = String(Math.abs(us)).padStart(4, '0'), whole = text.slice(0, -3).replace(/\B(?=(\d{3})+$)/g, ',');
  return `${sign}${whole}.${text.slice(-3)} ms`;
}

/** Round values for an axis from `from` to `to`, at most `most`. @param {number} from @param {number} to @param {number} most */
export function ticks(from, to, most = 8) {
  const wide = Math.max(1e-9, to - from), rough = wide / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => wide / value <= most) || 10 * power, found = [];
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-6; value += step) found.push(Math.abs(value) < step / 1e6 ? 0 : value);
  return found;
}
