// Why a pod is where it is: over any page. What each plugin said of which nodes, scores, what would help, and its attempts.
import {html, useEffect, useMemo, useState} from 'keplab/html.js';
import {state, view, select, copy, go, rowOf, runOf} from 'keplab/state.js';
import {POOL_IDS} from 'keplab/columns.js';
import {source, seek, seekTime} from 'keplab/engine.js';
import {useAnswer, useSummary} from 'keplab/answers.js';
import {Tabs} from 'keplab/tabs.js';
import {filterMatrix, regrouped, finalMatrix, scoreMatrix, groupTitle, nodesOf, attemptDifference} from 'keplab/matrix.js';
import {timeOf} from 'keplab/flow.js';
import {count, moment, span, counted} from 'keplab/format.js';

const SHOWN = 24;

/** The pod that is selected; of a page with objects, the pod that is open. */
function chosen() {
  const one = state.selected.value;
  return one && one.kind === 'pods' ? one : null;
}

/** Which pool of the queue a pod is in at the moment that is shown. @param {{ns: string, name: string}} pod */
function poolOf({ns, name}) {
  const row = rowOf('pods', ns, name);
  return row < 0 ? '' : POOL_IDS[view.peek().columns.peek().pods.columns.pool[row]];
}

/** One line: pool, since when, attempts, what wakes it, when it is tried again by time alone. */
function Head({found}) {
  const pool = (found.pool || '').replace('_', ' '), facts = [];
  if (found.node) facts.push(html`<span class="phase phase-${found.phase || 'Pending'}">${found.phase || 'bound'} on <button class="plain link" onClick=${() => select({kind: 'nodes', ns: '', name: found.node})}>${found.node}</button></span>`);
  else if (pool) facts.push(html`<span class="phase phase-Pending">${pool}${found.pool_since_s !== null && found.pool_since_s !== undefined ? ` for ${span(found.pool_since_s)}` : ''}</span>`);
  else facts.push(html`<span class="phase phase-${found.phase || 'Pending'}">${found.phase || found.outcome || 'not in the queue'}</span>`);
  if (found.attempts) facts.push(html`<span>attempt ${found.attempts}</span>`);
  if (found.evaluated) facts.push(html`<span>${count(found.feasible_count ?? 0)} of ${counted(found.evaluated, 'node')} fit</span>`);
  if (found.next_attempt_in_s !== null && found.next_attempt_in_s !== undefined) facts.push(html`<span>next by time alone in ${span(found.next_attempt_in_s)}</span>`);
  if (found.nominated_node) facts.push(html`<span>nominated ${found.nominated_node}</span>`);
  if (found.gated_by) facts.push(html`<span>gated by ${found.gated_by}</span>`);
  if (found.moved_by) facts.push(html`<span>moved by ${found.moved_by}</span>`);
  return html`<div class="facts">${facts}</div>
    ${found.message && html`<p class="message wrap">${found.message}</p>`}
    ${Object.keys(found.excluded || {}).length > 0 && html`<p class="wrap">excluded nodes: ${Object.entries(found.excluded).map(([node, why]) => `${node} (${typeof why === 'object' ? JSON.stringify(why) : why})`).join(', ')}</p>`}
    ${found.kubelet && html`<p class="wrap">kubelet: ${typeof found.kubelet === 'string' ? found.kubelet : waiting(found.kubelet)}</p>`}`;
}

function waiting(kubelet) {
  const skip = new Set(['kubelet', 'pod', 'uid']);
  return Object.entries(kubelet).filter(([name, value]) => !skip.has(name) && value !== null && value !== '' && !(Array.isArray(value) && !value.length)).map(([name, value]) => `${name.replaceAll('_', ' ')} ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(' · ');
}

function Nodes({row}) {
  const [open, setOpen] = useState(false);
  if (row.count === 1 && row.nodes.length) return html`<button class="plain link" onClick=${() => select({kind: 'nodes', ns: '', name: row.nodes[0]})}>${row.nodes[0]}</button>`;
  if (!row.nodes.length) return groupTitle(row);
  return html`<button class="plain" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? '▾' : '▸'} ${groupTitle(row)}</button>
    ${open && html`<div class="names">${row.nodes.slice(0, 200).map((name) => html`<button key=${name} class="plain link" onClick=${() => select({kind: 'nodes', ns: '', name})}>${name}</button> `)}${row.count > Math.min(200, row.nodes.length) ? html`<span class="soft">and ${count(row.count - Math.min(200, row.nodes.length))} more</span>` : ''}</div>`}`;
}

/** The zone of each node, as the columns have it. */
function zonesOf() {
  const {nodes, strings} = state.columns.peek(), {name, zone} = nodes.columns, found = /** @type {Record<string, string>} */ ({});
  if (name) for (let row = 0; row < nodes.rows; row++) if (name[row]) found[strings[name[row]]] = strings[zone[row]];
  return found;
}

const GROUPS = [['answers', 'answers'], ['zone', 'zone and answers'], ['node', 'nothing: a row a node']], ROWS = 200;

function Filters({found}) {
  const [by, setBy] = useState(/** @type {any} */ ('answers'));
  const [only, setOnly] = useState(true), matrix = useMemo(() => filterMatrix(found, {onlyRejecting: only}), [found, only]);
  if (!matrix.rows.length) return html`<p class="soft">${found.outcome === 'scheduled' || found.node ? 'Of a pod that was placed the record keeps how many nodes fitted, not what each filter said.' : found.is_past ? `Rejected by ${(found.rejected_by || []).join(', ') || 'no plugin that is recorded'}.` : 'No filter was asked yet.'}</p>`;
  const resolvable = matrix.rows.some((row) => row.resolvable !== null), rows = regrouped(matrix.rows, by, by === 'zone' ? zonesOf() : {}), left = rows.slice(ROWS).reduce((sum, row) => sum + row.count, 0);
  return html`<div class="toolbar"><label>group nodes by <select value=${by} onChange=${(event) => setBy(event.target.value)}>${GROUPS.map(([id, title]) => html`<option key=${id} value=${id}>${title}</option>`)}</select></label><label class="check"><input type="checkbox" checked=${only} onChange=${() => setOnly(!only)} /> only plugins that rejected</label></div>
    <div class="scroll-x"><table class="matrix" aria-label="answers of filters by node"><thead><tr>${by === 'zone' && html`<th scope="col">zone</th>`}<th scope="col">nodes</th><th scope="col" class="num">count</th>${matrix.plugins.map((plugin) => html`<th key=${plugin} scope="col">${plugin}</th>`)}${resolvable && html`<th scope="col">preemption</th>`}</tr></thead>
    <tbody>${rows.slice(0, ROWS).map((row) => html`<tr key=${row.key} data-count=${row.count}>${by === 'zone' && html`<td>${row.part || '–'}</td>`}<th scope="row"><${Nodes} row=${row} /></th><td class="num">${count(row.count)}</td>
      ${row.answers.map((answer, at) => html`<td key=${at} class="answer ${answer.kind}" title=${answer.kind === 'none' ? 'not asked: an earlier filter had answered' : undefined}>${answer.text}</td>`)}
      ${resolvable && html`<td class="soft">${row.resolvable === null ? '' : row.resolvable ? 'may help' : 'cannot help'}</td>`}</tr>`)}</tbody></table></div>
    ${left > 0 && html`<p class="soft small-print">and ${counted(left, 'more node')}</p>`}
    ${!matrix.exact && html`<p class="soft small-print">By reason: a node with two reasons is counted in both rows.</p>`}`;
}

function Scores({found, mode, setMode}) {
  const table = useMemo(() => scoreMatrix(found, mode), [found, mode]), raw = Boolean((found.annotations || {})['kube-scheduler-simulator.sigs.k8s.io/score-result']);
  const [all, setAll] = useState(false);
  if (!table.rows.length) return html`<${Unscored} found=${found} />`;
  const shown = all ? table.rows : table.rows.slice(0, SHOWN);
  return html`<div class="toolbar">
      <button class="small" aria-pressed=${mode === 'raw'} disabled=${!raw} title=${raw ? undefined : 'raw scores are kept with --set scheduler.record=annotations'} onClick=${() => setMode('raw')}>raw</button><button class="small" aria-pressed=${mode === 'score'} onClick=${() => setMode('score')}>normalised</button><button class="small" aria-pressed=${mode === 'weighted'} onClick=${() => setMode('weighted')}>weighted</button>
      <${Chosen} table=${table} /></div>
    <div class="scroll-x"><table class="matrix scores" aria-label="scores by node"><thead><tr><th scope="col">nodes</th>${table.plugins.map((plugin, at) => html`<th key=${plugin} scope="col" class="num">${plugin}<span class="soft"> ×${table.weights[at]}</span></th>`)}</tr></thead>
    <tbody>${shown.map((row) => html`<tr key=${row.key} class=${row.winner ? 'winner' : ''}><th scope="row">${row.winner ? '★ ' : ''}<${Nodes} row=${row} />${row.tied ? html` <span class="tag">tie</span>` : ''}</th>${row.scores.map((value, at) => html`<td key=${at} class="num">${value ?? '–'}</td>`)}</tr>`)}</tbody></table></div>
    ${table.rows.length > SHOWN && html`<button class="small" onClick=${() => setAll(!all)}>${all ? 'fewer' : `${count(table.rows.length - SHOWN)} more rows`}</button>`}`;
}

const Unscored = ({found}) => {
  const fit = found.feasible_count || 0, placed = found.outcome === 'scheduled' || found.node;
  return html`<p class="soft">${fit > 1 ? `${count(fit)} nodes fitted; their scores were not recorded.` : fit || placed ? 'One node fitted, so none was scored.' : 'No node fitted, so none was scored.'}</p>`;
};

/** Whether a scheduler has tried the pod, or says now what it would find. */
const isTried = (found) => Boolean(found.attempts || found.outcome || (found.decisions || []).length || (found.node_groups || []).length);

/** Which node was chosen, and which others had as much. */
function Chosen({table}) {
  const others = table.ties.filter((name) => name !== table.winner);
  if (!table.winner) return others.length ? html`<span class="soft">${others.length} nodes are at the top: drawn by lot</span>` : null;
  return html`<span class="soft">chosen <b>${table.winner}</b>${others.length ? `, tied with ${others.slice(0, 6).join(', ')}${others.length > 6 ? ` and ${others.length - 6} more` : ''}: drawn by lot` : ''}</span>`;
}

/** What it came to: nodes by their sums, how far each is behind the one that was chosen, and which plugins made that. */
function Final({found}) {
  const table = useMemo(() => finalMatrix(found), [found]), [all, setAll] = useState(false);
  if (!table.rows.length) return html`<${Unscored} found=${found} />`;
  const shown = all ? table.rows : table.rows.slice(0, SHOWN);
  return html`<div class="toolbar"><${Chosen} table=${table} /></div>
    <div class="scroll-x"><table class="matrix final" aria-label="final scores by node"><thead><tr><th scope="col">nodes</th><th scope="col" class="num">count</th><th scope="col" class="num">final</th><th scope="col" class="num">behind</th><th scope="col">because of</th></tr></thead>
    <tbody>${shown.map((row) => html`<tr key=${row.key} class=${row.winner ? 'winner' : ''}><th scope="row">${row.winner ? '★ ' : ''}<${Nodes} row=${row} />${row.tied ? html` <span class="tag">tie</span>` : ''}</th><td class="num">${count(row.count)}</td><td class="num"><b>${row.final ?? '–'}</b></td><td class="num">${row.behind ? row.behind : '–'}</td><td class="wrap soft">${row.because.map((each) => `${each.plugin} ${each.by > 0 ? '+' : '−'}${Math.abs(each.by)}`).join(', ') || '–'}</td></tr>`)}</tbody></table></div>
    ${table.rows.length > SHOWN && html`<button class="small" onClick=${() => setAll(!all)}>${all ? 'fewer' : `${count(table.rows.length - SHOWN)} more rows`}</button>`}
    <p class="soft small-print">The sum of the weighted scores; behind: how far below the best.</p>`;
}

function WouldFit({found}) {
  const list = found.would_fit_if || [];
  if (found.is_past) return html`<p class="soft small-print">Not known of the past: ${(found.left_out || []).join('; ')}.</p>`;
  if (found.node || (found.gated_by && !list.length)) return null;
  if (!list.length) return html`<p class="soft">No single change of the pod or of one node would make it fit${found.pool ? '' : ', or it is not in the queue'}.</p>`;
  return html`<table aria-label="changes that would make it fit"><thead><tr><th>would fit if</th><th>then on</th><th><span class="sr-only">try it</span></th></tr></thead><tbody>${list.map((each) => {
    return html`<tr key=${each.change}><td class="wrap">${each.change}${each.before && each.after ? html` <span class="soft">(${each.before} → ${each.after})</span>` : ''}</td><td class="wrap">${nodesOf(each)}</td>
      <td><button class="small" title="copies a command that simulates the mesh from this version on" onClick=${() => copy(`keplab fork --at ${state.rv.peek()}`, `keplab fork --at ${state.rv.peek()}: write the change into its scenario`)}>try it in a fork</button></td></tr>`;
  })}</tbody></table>`;
}

/** The pod's attempts, from the event log or from the recorded decisions; two of them can be compared. */
function Attempts({pod, found}) {
  const lines = state.lines.value, run = runOf(state.run.value), origin = run?.wall_s || 0;
  const list = useMemo(() => {
    const own = lines.filter((line) => line.ev === 'sched.attempt' && line.obj && line.obj.ns === pod.ns && line.obj.name === pod.name).map((line) => ({t: timeOf(line), rv: line.rv_seen || line.rv || 0, node: line.node || '', ...line.data}));
    return own.length ? own : (found.decisions || []).filter((each) => each.event === 'sched.attempt');
  }, [lines, found, pod.ns, pod.name]);
  const [pair, setPair] = useState(/** @type {number[]} */ ([])), shown = list.slice(-40), first = list.length - shown.length;
  useEffect(() => setPair([]), [pod.ns, pod.name]);
  const toggle = (at) => setPair(pair.includes(at) ? pair.filter((each) => each !== at) : [...pair, at].slice(-2).sort((a, b) => a - b));
  if (!list.length) return html`<p class="soft">No attempt is in the lines that this page has.</p>`;
  const [a, b] = pair.length === 2 ? pair : list.length > 1 ? [list.length - 2, list.length - 1] : [-1, -1], rows = a >= 0 ? attemptDifference(list[a], list[b]) : [];
  return html`<ol class="attempts" start=${first + 1}>${shown.map((each, index) => {
    const at = first + index;
    return html`<li key=${at}><button class="small" aria-pressed=${pair.includes(at)} title="choose two to compare" onClick=${() => toggle(at)}>${each.attempt || at + 1}</button>
      <button class="plain link" title="show this moment" onClick=${() => (each.rv ? seek(each.rv) : seekTime(each.t))}>${moment(each.t, origin)}</button> <span>${each.outcome || ''}${each.node ? ` → ${each.node}` : ''}</span> <span class="soft wrap">${(each.plugins || []).join(', ')}</span></li>`;
  })}</ol>
    ${a >= 0 && rows.length > 0 && html`<table aria-label="difference of two attempts"><thead><tr><th>field</th><th>attempt ${list[a].attempt || a + 1}</th><th>attempt ${list[b].attempt || b + 1}</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.field}><th scope="row">${row.field}</th><td class="wrap">${row.a}</td><td class="wrap">${row.b}</td></tr>`)}</tbody></table>`}${a >= 0 && !rows.length && html`<p class="soft">Attempts ${list[a].attempt || a + 1} and ${list[b].attempt || b + 1} say the same.</p>`}`;
}

function Victims({found}) {
  const pod = (name) => { const [ns, rest] = String(name).split('/'); return {kind: 'pods', ns, name: rest}; };
  if (!(found.victims || []).length && !found.preempted_by) return null;
  return html`<h3>Preemption</h3>
    ${found.victims?.length > 0 && html`<p>victims: ${found.victims.map((name) => html`<button key=${name} class="plain link" onClick=${() => select(pod(name))}>${name}</button> `)}</p>`}
    ${found.preempted_by && html`<p>preempted by <button class="plain link" onClick=${() => select(pod(found.preempted_by))}>${found.preempted_by}</button></p>`}`;
}

const TABS = [['filter', 'Filter'], ['score', 'Score'], ['final', 'Final']];

function Explain({close}) {
  const pod = chosen(), [tab, setTab] = useState(''), [mode, setMode] = useState(/** @type {any} */ ('score'));
  const answer = useAnswer((rv) => (pod ? source.explain(pod.ns, pod.name, rv, state.run.peek()) : Promise.resolve(null)), [pod?.ns, pod?.name], {every: 1});
  // Of the past the columns know the pool of every moment, also between versions.
  const found = answer.value?.is_past ? {...answer.value, pool: poolOf(pod)} : answer.value, shown = tab || (found && (found.outcome === 'scheduled' || found.node) ? 'final' : 'filter');
  useEffect(() => setTab(''), [pod?.ns, pod?.name]);
  useSummary(found && pod ? `Pod ${pod.name}: ${found.pool || found.phase || found.outcome}. ${found.message || ''}` : '');
  return html`<header class="toolbar"><h2 class="wrap">${pod ? `${pod.ns}/${pod.name}` : 'Explain a pod'}</h2><span class="grow"></span>
      ${pod && html`<button class="small" onClick=${() => go('objects', ['pods', pod.ns, pod.name])}>YAML</button><button class="small" onClick=${() => go('trace')}>trace</button>
      <button class="small" title="the same from a terminal" onClick=${() => copy(`keplab explain pod/${pod.name} -n ${pod.ns}`)}>copy command</button>`}<button class="small" aria-label="close" onClick=${close}>✕</button></header>
    ${!pod ? html`<p class="soft">Select a pod: <kbd>/</kbd> searches names, <kbd>g</kbd> <kbd>q</kbd> lists those that wait.</p>`
      : answer.error && !found ? html`<p class="error" role="alert">${answer.error.message}</p>` : !found ? html`<p class="empty">loading …</p>`
        : html`<${Head} found=${found} />
          ${found.is_past && html`<p class="soft small-print">As it was recorded at rv ${count(found.rv || state.rv.value)}.</p>`}
          ${isTried(found) ? html`<${Tabs} label="what the plugins said" tabs=${TABS} shown=${shown} choose=${setTab} />
          <div role="tabpanel" aria-label=${shown}>${shown === 'filter' ? html`<${Filters} found=${found} />` : shown === 'score' ? html`<${Scores} found=${found} mode=${mode} setMode=${setMode} />` : html`<${Final} found=${found} />`}</div>`
    : html`<p class="soft">No scheduler has tried it${found.node ? ': it came with its node' : ''}.</p>`}
          <${WouldFit} found=${found} />
          ${(found.wakes_on || []).length > 0 && html`<details><summary>wakes on ${counted(found.wakes_on.length, 'event')}</summary><ul class="plain-list">${found.wakes_on.map((each) => html`<li key=${each}><code>${each}</code></li>`)}</ul></details>`}
          ${found.features?.length > 0 && html`<p class="wrap">features that nodes lack: ${found.features.map((each) => each.node + ' · ' + each.missing.join(', ')).join('; ')}</p>`}
          ${(found.devices || []).length > 0 && html`<details><summary>devices on ${counted(found.devices.length, 'node')}</summary><ul class="plain-list">${found.devices.map((each, at) => html`<li key=${at} class="wrap">${typeof each === 'string' ? each : Object.values(each).map((value) => (typeof value === 'object' ? JSON.stringify(value) : String(value))).join(' · ')}</li>`)}</ul></details>`}
          <${Victims} found=${found} />
          ${isTried(found) && html`<h3>Attempts</h3><${Attempts} pod=${pod} found=${found} />`}`}`;
}

export const page = {id: 'explain', key: 'x', title: 'Explain the pod', icon: 'M12 17v.5M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .9-1 1.7v.5M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18Z', overlay: true, Component: Explain, commands: []};
