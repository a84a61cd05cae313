// The filter of the cluster: words such as `ns=shop phase=Pending priority>100 zone!=zone-a web`. Pure.
//
// All words must hold. Words about nodes (zone, ready, cordoned, taint, node) also hold for the pods on them. A word without a
// sign is a part of a pod's or node's name.
import {PHASES, POOLS, FLAG} from 'keplab/columns.js';

const WORD = /^([a-z_.]+)(!=|>=|<=|=|>|<|~)(.*)$/i;
const POD = {ns: 'text', namespace: 'text', pod: 'text', phase: 'phase', pool: 'pool', priority: 'number', cpu: 'number', mem: 'number', owner: 'text', role: 'text', reason: 'text', flag: 'flag'};
const NODE = {zone: 'text', node: 'text', taint: 'text', ready: 'yes', cordoned: 'yes', devices: 'number', pods: 'number'};
const COLUMN = {ns: 'ns', namespace: 'ns', pod: 'name', owner: 'owner', role: 'role', reason: 'reason', priority: 'priority', cpu: 'cpu_m', mem: 'mem', zone: 'zone', node: 'name', taint: 'taints', devices: 'devices', pods: 'req_pods'};
const UNITS = {k: 1e3, M: 1e6, G: 1e9, Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3};

/** Names that a filter may use, for the hint below the field. */
export const FILTER_WORDS = [...Object.keys(POD), ...Object.keys(NODE)];

/**
 * Reads a filter. @param {string} text
 * @returns {{error: string, empty: boolean, compile: (columns: any) => {pods: (row: number) => boolean, nodes: (row: number) => boolean}}}
 */
export function parseFilter(text) {
  const terms = [], names = [];
  let error = '';
  for (const word of text.trim().split(/\s+/).filter(Boolean)) {
    const found = WORD.exec(word);
    if (!found) { names.push(word.toLowerCase()); continue; }
    const [, key, sign, value] = found, low = key.toLowerCase(), about = POD[low] || NODE[low];
    if (!about) { error = `"${key}" is not a word of filters: ${FILTER_WORDS.join(', ')}`; continue; }
    if (about === 'number' && Number.isNaN(amount(low, value))) { error = `${key}${sign}${value}: "${value}" is not a number`; continue; }
    if (about === 'phase' && !PHASES.some((each) => each.toLowerCase() === value.toLowerCase())) { error = `phase is one of ${PHASES.join(', ')}; not "${value}"`; continue; }
    terms.push({key: low, sign, value, about, table: POD[low] ? 'pods' : 'nodes'});
  }
  const compile = ({nodes, pods, strings}) => {
    const ofPods = terms.filter((term) => term.table === 'pods').map((term) => test(term, pods, strings));
    const ofNodes = terms.filter((term) => term.table === 'nodes').map((term) => test(term, nodes, strings));
    const nodeHolds = (row) => ofNodes.every((each) => each(row));
    const podColumns = pods.columns, nodeColumns = nodes.columns;
    const named = (number) => { const own = strings[number].toLowerCase(); return names.every((each) => own.includes(each)); };
    const nodeNamed = names.length ? memo(strings, named) : () => true;
    return {
      pods: (row) => {
        const node = podColumns.node[row];
        if (!ofPods.every((each) => each(row))) return false;
        if (ofNodes.length && (node < 0 || !nodeHolds(node))) return false;
        return !names.length || nodeNamed(podColumns.name[row]) || (node >= 0 && nodeNamed(nodeColumns.name[node]));
      },
      nodes: (row) => nodeHolds(row) && (!names.length || nodeNamed(nodeColumns.name[row])),
    };
  };
  return {error, empty: !terms.length && !names.length, compile};
}

function memo(strings, holds) {
  const known = new Int8Array(strings.length);
  return (number) => {
    if (number >= known.length) return holds(number);  // a string that came since
    if (!known[number]) known[number] = holds(number) ? 1 : -1;
    return known[number] === 1;
  };
}

function amount(key, value) {
  const found = /^(-?[\d.]+)(m|k|M|G|Ki|Mi|Gi)?$/.exec(value);
  if (!found) return NaN;
  const number = Number(found[1]);
  if (key === 'cpu') return found[2] === 'm' ? number : number * 1000;
  return number * (UNITS[found[2]] || 1);
}

function test(term, table, strings) {
  const {key, sign, value, about} = term, columns = table.columns;
  if (about === 'number') {
    const wanted = amount(key, value), column = columns[COLUMN[key]];
    if (sign === '>') return (row) => column[row] > wanted;
    if (sign === '<') return (row) => column[row] < wanted;
    if (sign === '>=') return (row) => column[row] >= wanted;
    if (sign === '<=') return (row) => column[row] <= wanted;
    return sign === '!=' ? (row) => column[row] !== wanted : (row) => column[row] === wanted;
  }
  const not = sign === '!=';
  if (about === 'phase' || about === 'pool') {
    const list = about === 'phase' ? PHASES : POOLS, wanted = list.findIndex((each) => each.toLowerCase().replace(/ /g, '_') === value.toLowerCase().replace(/[ -]/g, '_'));
    const column = columns[about];
    return (row) => (column[row] === wanted) !== not;
  }
  if (about === 'flag') {
    const bit = FLAG[Object.keys(FLAG).find((each) => each.toLowerCase() === value.toLowerCase().replace(/[_-]/g, '')) || ''] || 0, column = columns.flags;
    return (row) => ((column[row] & bit) !== 0) !== not;
  }
  if (about === 'yes') {
    const wanted = /^(yes|true|1)$/i.test(value) !== not;
    return key === 'ready' ? (row) => (columns.ready[row] === 1) === wanted : (row) => (columns.unschedulable[row] === 1) === wanted;
  }
  const column = columns[COLUMN[key]], low = value.toLowerCase();
  if (key === 'role') {
    // A role is what stands before its number, and 1 + the number, 0 where it has none.
    const spelled = (row) => { const stem = strings[column[row]].toLowerCase(), number = columns.role_number[row]; return number ? `${stem}#${number - 1}` : stem; };
    return (row) => (sign === '~' ? spelled(row).includes(low) : spelled(row) === low) !== not;
  }
  const partly = sign === '~' || key === 'taint' || key === 'reason' || key === 'owner';
  const holds = memo(strings, (number) => { const own = strings[number].toLowerCase(); return partly ? own.includes(low) : own === low; });
  return (row) => holds(column[row]) !== not;
}
