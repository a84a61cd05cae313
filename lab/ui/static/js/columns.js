// The page's copy of the columns. The worker folds; this file only writes what the worker says has changed.
//
// A table is {rows, columns: {name: typed array}, width: {name: n}}: column `numa` of width 8 has 8 values a row.
// A row whose `name` is 0 is free. Strings are numbers of `strings`, in which 0 is "".

export const PHASES = ['Pending', 'Running', 'Succeeded', 'Failed', 'Unknown'];
export const POOLS = ['', 'in flight', 'active', 'backoff', 'error backoff', 'unschedulable', 'gated'];
/** The same as `keplab explain` names them. */
export const POOL_IDS = POOLS.map((pool) => pool.replace(' ', '_'));
export const FLAG = {terminating: 1, nominated: 2, resizePending: 4, excluded: 8, group: 16, unbound: 32};

/** @typedef {Uint8Array|Uint16Array|Uint32Array|Int32Array|Float32Array|Float64Array} Values */
/** @typedef {{rows: number, columns: Record<string, Values>, width: Record<string, number>}} Table */

const TYPES = {u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, i32: Int32Array, f32: Float32Array, f64: Float64Array};

/** @returns {Table} */
export function emptyTable() {
  return {rows: 0, columns: {}, width: {}};
}

/**
 * Views of a frame's columns, without a copy. `columns` is the header's list of [name, type, width, offset].
 * @param {ArrayBuffer} buffer @param {number} start @param {number} rows @param {Array<[string, string, number, number]>} columns
 * @returns {Record<string, Values>}
 */
export function viewsOf(buffer, start, rows, columns) {
  const views = /** @type {Record<string, Values>} */ ({});
  for (const [name, type, width, offset] of columns) views[name] = new TYPES[type](buffer, start + offset, rows * width);
  return views;
}

/**
 * Writes changed rows into a table, which grows when a row lies beyond it.
 * @param {Table} table @param {Values} rows @param {Record<string, Values>} views
 */
export function scatter(table, rows, views) {
  let most = table.rows;
  for (let i = 0; i < rows.length; i++) if (rows[i] >= most) most = rows[i] + 1;
  for (const name in views) {
    if (name === 'row') continue;
    const from = views[name], width = rows.length ? from.length / rows.length : table.width[name] || 1;
    table.width[name] = width;
    const to = grown(table, name, from, most * width);
    if (width === 1) for (let i = 0; i < rows.length; i++) to[rows[i]] = from[i];
    else for (let i = 0; i < rows.length; i++) for (let k = 0; k < width; k++) to[rows[i] * width + k] = from[i * width + k];
  }
  table.rows = most;
}

/** The column with at least `length` values; it doubles, so that growing row by row stays cheap. */
function grown(table, name, like, length) {
  const now = table.columns[name];
  if (now && now.length >= length) return now;
  const Type = /** @type {any} */ (like.constructor);
  const more = new Type(Math.max(length, now ? now.length * 2 : 16));
  if (now) more.set(now);
  table.columns[name] = more;
  return more;
}
