// The difference of two lists of lines by Myers' algorithm (An O(ND) difference algorithm and its variations, 1986). Pure.

/** @typedef {{kind: 'same'|'added'|'removed', text: string, a: number, b: number}} Row a and b: line numbers from 1, 0 where there is none */

const MOST = 4000;

/**
 * The shortest script from `a` to `b`. Beyond 4,000 differing lines the middle is taken as replaced.
 * @param {string[]} a @param {string[]} b @returns {Row[]}
 */
export function diff(a, b) {
  let start = 0, endA = a.length, endB = b.length;
  while (start < endA && start < endB && a[start] === b[start]) start += 1;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA -= 1; endB -= 1; }
  const rows = [];
  for (let i = 0; i < start; i++) rows.push(row('same', a[i], i, i));
  rows.push(...middle(a, b, start, endA, endB));
  for (let i = 0; i < a.length - endA; i++) rows.push(row('same', a[endA + i], endA + i, endB + i));
  return rows;
}

const row = (kind, text, a, b) => ({kind, text, a: kind === 'added' ? 0 : a + 1, b: kind === 'removed' ? 0 : b + 1});

function middle(a, b, start, endA, endB) {
  const n = endA - start, m = endB - start, most = n + m, rows = [];
  if (!most) return rows;
  const replaced = () => {
    for (let i = start; i < endA; i++) rows.push(row('removed', a[i], i, 0));
    for (let i = start; i < endB; i++) rows.push(row('added', b[i], 0, i));
    return rows;
  };
  if (!n || !m) return replaced();
  // furthest[k + most]: how far along a the best path on diagonal k came; one copy a step, to walk back by.
  const furthest = new Int32Array(2 * most + 2), steps = [];
  search: for (let d = 0; d <= most; d++) {
    if (d > MOST) return replaced();
    steps.push(furthest.slice(most - d, most + d + 1));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && furthest[most + k - 1] < furthest[most + k + 1]);
      let x = down ? furthest[most + k + 1] : furthest[most + k - 1] + 1, y = x - k;
      while (x < n && y < m && a[start + x] === b[start + y]) { x += 1; y += 1; }
      furthest[most + k] = x;
      if (x >= n && y >= m) break search;
    }
  }
  let x = n, y = m;
  for (let d = steps.length - 1; d >= 0; d--) {
    const before = steps[d], at = (k) => before[k + d], k = x - y;
    const down = d > 0 && (k === -d || (k !== d && at(k - 1) < at(k + 1)));
    const from = d === 0 ? 0 : down ? at(k + 1) : at(k - 1), fromY = d === 0 ? 0 : from - (down ? k + 1 : k - 1);
    const cornerX = d === 0 ? 0 : down ? from : from + 1, cornerY = d === 0 ? 0 : down ? fromY + 1 : fromY;
    while (x > cornerX && y > cornerY) { x -= 1; y -= 1; rows.push(row('same', a[start + x], start + x, start + y)); }
    if (d > 0) {
      if (down) { y -= 1; rows.push(row('added', b[start + y], 0, start + y)); } else { x -= 1; rows.push(row('removed', a[start + x], start + x, 0)); }
    }
  }
  return rows.reverse();
}

/**
 * Rows without what is the same for long: only `around` lines beside each change are left, a gap says how many went.
 * @param {Row[]} rows @param {number} around
 */
export function folded(rows, around = 3) {
  const keep = new Uint8Array(rows.length);
  rows.forEach((each, at) => { if (each.kind !== 'same') for (let i = Math.max(0, at - around); i <= Math.min(rows.length - 1, at + around); i++) keep[i] = 1; });
  const out = /** @type {any[]} */ ([]);
  let skipped = 0;
  rows.forEach((each, at) => {
    if (keep[at]) { if (skipped) out.push({kind: 'gap', count: skipped}); skipped = 0; out.push(each); } else skipped += 1;
  });
  if (skipped) out.push({kind: 'gap', count: skipped});
  return out;
}

/** Pairs for two columns: what was removed beside what was added. @param {any[]} rows */
export function split(rows) {
  const pairs = [];
  let at = 0;
  while (at < rows.length) {
    if (rows[at].kind === 'same' || rows[at].kind === 'gap') { pairs.push([rows[at], rows[at]]); at += 1; continue; }
    const removed = [], added = [];
    while (at < rows.length && (rows[at].kind === 'removed' || rows[at].kind === 'added')) { (rows[at].kind === 'removed' ? removed : added).push(rows[at]); at += 1; }
    for (let i = 0; i < Math.max(removed.length, added.length); i++) pairs.push([removed[i] || null, added[i] || null]);
  }
  return pairs;
}
