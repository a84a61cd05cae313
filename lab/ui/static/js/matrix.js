// What the scheduler's explanation of a pod says of nodes, as rows of a table: nodes with equal answers are one row. Pure.
//
// A vector has one answer for each plugin: {kind: 'passed'|'rejected'|'none', text}. 'none' is drawn as "–": the plugin was not
// asked, because an earlier one had answered.

/** @typedef {{kind: 'passed'|'rejected'|'none', text: string}} Answer */
/** @typedef {{key: string, nodes: string[], count: number, answers: Answer[], resolvable: boolean|null}} Row */

const PREFIX = 'kube-scheduler-simulator.sigs.k8s.io/';
const PASSED = {kind: /** @type {'passed'} */ ('passed'), text: 'passed'}, NONE = {kind: /** @type {'none'} */ ('none'), text: '–'};
const rejected = (text) => ({kind: /** @type {'rejected'} */ ('rejected'), text});

/**
 * The matrix of filters. `found`: the document of `keplab explain pod/NAME -o json`. `exact` is false where only sums by plugin and
 * reason are known, so that a node with two reasons is counted in two rows.
 * @param {any} found @param {{onlyRejecting?: boolean}} how
 * @returns {{plugins: string[], rows: Row[], exact: boolean}}
 */
export function filterMatrix(found, {onlyRejecting = true} = {}) {
  const whole = fromAnnotations(found) || fromGroups(found) || fromSums(found);
  whole.rows.sort((a, b) => b.count - a.count || (a.key < b.key ? -1 : 1));
  if (!onlyRejecting) return whole;
  const keep = whole.plugins.map((_, at) => whole.rows.some((row) => row.answers[at]?.kind === 'rejected'));
  return {...whole, plugins: whole.plugins.filter((_, at) => keep[at]), rows: whole.rows.map((row) => ({...row, answers: row.answers.filter((_, at) => keep[at])}))};
}

/** Groups of nodes as the scheduler made them: {plugin, reasons, count, nodes, is_resolvable}, and the filters in their order. */
function fromGroups(found) {
  if (!found.node_groups || !found.node_groups.length) return null;
  const plugins = [...(found.filters || [])];
  for (const group of found.node_groups) if (group.plugin && !plugins.includes(group.plugin)) plugins.unshift(group.plugin);
  const rows = found.node_groups.map((group) => ({
    nodes: group.nodes, count: group.count, resolvable: group.plugin ? group.is_resolvable : null,
    answers: vector(plugins, group.plugin, (group.reasons || []).join(', ')),
    key: `${group.plugin}|${(group.reasons || []).join('|')}`,
  }));
  return {plugins, rows, exact: true};
}

/** Every plugin's answer for every node, as the switch scheduler.record=annotations keeps them. */
function fromAnnotations(found) {
  const text = (found.annotations || {})[`${PREFIX}filter-result`];
  if (!text) return null;
  const byNode = JSON.parse(text), plugins = /** @type {string[]} */ ([]);
  if (!Object.keys(byNode).length) return null;
  for (const answers of Object.values(byNode)) for (const plugin of Object.keys(answers)) if (!plugins.includes(plugin)) plugins.push(plugin);
  return {plugins, rows: grouped(Object.entries(byNode).map(([node, answers]) => [node, plugins.map((plugin) => (answers[plugin] === undefined ? NONE : answers[plugin] === 'passed' ? PASSED : rejected(answers[plugin])))])), exact: true};
}

/** Plugin → reason → number of nodes: what the record of decisions keeps of every pod. */
function fromSums(found) {
  const sums = found.rejected || {}, plugins = Object.keys(sums), rows = [];
  for (const plugin of plugins) for (const [reason, count] of Object.entries(sums[plugin])) rows.push({key: `${plugin}|${reason}`, nodes: [], count, resolvable: null, answers: vector(plugins, plugin, reason)});
  return {plugins, rows, exact: false};
}

const vector = (plugins, by, reason) => {
  const at = plugins.indexOf(by);
  return plugins.map((_, index) => (at < 0 || index < at ? PASSED : index === at ? rejected(reason || 'rejected') : NONE));
};

/**
 * Nodes with equal answers as one row.
 * @param {Array<[string, Answer[]]>} nodes @returns {Row[]}
 */
export function grouped(nodes) {
  const rows = new Map();
  for (const [node, answers] of nodes) {
    const key = answers.map((answer) => `${answer.kind[0]}${answer.text}`).join('|');
    const row = rows.get(key);
    if (row) { row.nodes.push(node); row.count += 1; } else rows.set(key, {key, nodes: [node], count: 1, answers, resolvable: null});
  }
  return [...rows.values()];
}

/**
 * The rows by zone or by node instead of by answers alone. Nodes that were counted and not named stay one row of their answers, last.
 * @param {Row[]} rows @param {'answers'|'zone'|'node'} by @param {Record<string, string>} zones of each node @returns {Array<Row & {part: string}>}
 */
export function regrouped(rows, by, zones = {}) {
  if (by === 'answers') return rows.map((row) => ({...row, part: ''}));
  const named = /** @type {any[]} */ ([]), counted = /** @type {any[]} */ ([]);
  for (const row of rows) {
    const parts = /** @type {Map<string, string[]>} */ (new Map());
    for (const node of row.nodes) {
      const part = by === 'node' ? node : zones[node] || 'no zone';
      const list = parts.get(part);
      if (list) list.push(node); else parts.set(part, [node]);
    }
    for (const [part, nodes] of parts) named.push({...row, key: `${part}|${row.key}`, part: by === 'zone' ? part : '', nodes, count: nodes.length});
    if (row.count > row.nodes.length) counted.push({...row, key: `|${row.key}`, part: '', nodes: [], count: row.count - row.nodes.length});
  }
  const text = (row) => (by === 'zone' ? row.part : row.nodes[0]);
  named.sort((a, b) => text(a).localeCompare(text(b), 'en', {numeric: true}) || b.count - a.count);
  return [...named, ...counted];
}

/** "n-1 … 2" for a group: the first name, and how many more there are. @param {Row} row */
export function groupTitle(row) {
  if (!row.nodes.length) return `${row.count} ${row.count === 1 ? 'node' : 'nodes'}`;
  return row.count === 1 ? row.nodes[0] : `${row.nodes[0]} … and ${row.count - 1} more`;
}

/**
 * The table of scores: a row a node, a column a plugin; nodes with equal scores are one row. `mode`: 'score' is what the plugin said
 * after NormalizeScore (0 to 100), 'weighted' the same times the weight, 'raw' before it (where it is recorded).
 * @param {any} found @param {'raw'|'score'|'weighted'} mode
 * @returns {{plugins: string[], weights: number[], rows: Array<{key: string, nodes: string[], count: number, scores: Array<number|null>, final: number|null, winner: boolean, tied: boolean}>, winner: string, ties: string[]}}
 */
export function scoreMatrix(found, mode = 'score') {
  const raw = mode === 'raw' && (found.annotations || {})[`${PREFIX}score-result`];
  const scores = raw ? turned(JSON.parse(raw)) : found.scores || {}, weights = found.weights || {}, final = found.final || {};
  const plugins = Object.keys(scores), names = [...new Set([...Object.keys(final), ...plugins.flatMap((plugin) => Object.keys(scores[plugin]))])];
  const best = Math.max(...Object.values(final).map(Number), -Infinity), ties = names.filter((name) => Number(final[name]) === best && best > -Infinity);
  // Of a pod whose binding is on its way the node is that which its scheduler has nominated.
  const winner = found.node || (ties.includes(found.nominated_node) ? found.nominated_node : '');
  const rows = new Map();
  for (const name of names) {
    const list = plugins.map((plugin) => (scores[plugin][name] === undefined ? null : Number(scores[plugin][name]) * (mode === 'weighted' ? weights[plugin] ?? 1 : 1)));
    const total = final[name] === undefined ? null : Number(final[name]), own = name === winner, key = `${own}|${total}|${list.join('|')}`;
    const row = rows.get(key);
    if (row) { row.nodes.push(name); row.count += 1; } else rows.set(key, {key, nodes: [name], count: 1, scores: list, final: total, winner: own, tied: ties.length > 1 && total === best});
  }
  return {plugins, weights: plugins.map((plugin) => weights[plugin] ?? 1), rows: [...rows.values()].sort((a, b) => (b.winner ? 1 : 0) - (a.winner ? 1 : 0) || (b.final ?? -1) - (a.final ?? -1) || (a.nodes[0] < b.nodes[0] ? -1 : 1)), winner, ties: ties.length > 1 ? ties : []};
}

/**
 * What the scores came to: as `scoreMatrix`, and of each row how far it is `behind` the first one (null where either has no sum), and `because` of which plugins,
 * the largest difference of weighted scores first.
 * @param {any} found
 */
export function finalMatrix(found) {
  const table = scoreMatrix(found, 'weighted'), top = table.rows[0];
  const rows = table.rows.map((row) => ({
    ...row, behind: row.final === null || top.final === null ? null : top.final - row.final,
    because: table.plugins.map((plugin, at) => ({plugin, by: (row.scores[at] ?? 0) - (top.scores[at] ?? 0)})).filter((each) => each.by !== 0).sort((a, b) => Math.abs(b.by) - Math.abs(a.by)),
  }));
  return {...table, rows};
}

/** node → plugin → value as plugin → node → value. */
function turned(byNode) {
  const found = {};
  for (const node in byNode) for (const plugin in byNode[node]) (found[plugin] ||= {})[node] = byNode[node][plugin];
  return found;
}

/** `fits`, where a change helps: "n1, n2, n3 and 1 more". @param {{nodes: string[], node_count: number}} change */
export function nodesOf(change) {
  const more = change.node_count - change.nodes.length;
  return change.nodes.join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** What differs between two attempts: [{field, a, b}]. @param {any} a @param {any} b */
export function attemptDifference(a, b) {
  const fields = ['outcome', 'node', 'feasible', 'evaluated', 'plugins', 'nominated', 'message', 'error'];
  const text = (value) => (value === undefined || value === null || value === '' ? '–' : Array.isArray(value) ? value.join(', ') || '–' : String(value));
  return fields.map((field) => ({field, a: text(a[field]), b: text(b[field])})).filter((each) => each.a !== each.b);
}
