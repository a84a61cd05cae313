// The cluster: nodes and pods as an image, the card of what is selected, and the same as a table.
import {html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState} from 'keplab/html.js';
import {state, view, select, rowOf, wallOf} from 'keplab/state.js';
import {register, run} from 'keplab/commands.js';
import {Picture, MODES, GROUPS, blockOf, fragmentation} from 'keplab/picture.js';
import {parseFilter} from 'keplab/filter.js';
import {VirtualTable} from 'keplab/table.js';
import {cividis} from 'keplab/colours.js';
import {PHASES, POOLS, FLAG} from 'keplab/columns.js';
import {allocations, cpuNumbers} from 'keplab/cpus.js';
import {count, cpu, memory, age, percent, counted} from 'keplab/format.js';
import {source} from 'keplab/engine.js';

const mode = signal('phase'), group = signal('zone'), filterText = signal(''), asTable = signal(false), tableOf = signal('nodes');
/** The picture that is drawn, for commands and tests. */
const drawn = {picture: /** @type {Picture|null} */ (null)};

/** Counts of pods by phase, and nodes not ready, of what is shown. */
function useCounts() {
  const {version, nodes, pods} = state.columns.value;
  const last = useRef({version: -1, at: 0, value: /** @type {any} */ (null), of: /** @type {any} */ (null)});
  const now = performance.now();
  // Counting 100,000 pods is a millisecond; five times a second is enough to read.
  if (last.current.value && last.current.of === pods && now - last.current.at < 200 && last.current.version !== version) return last.current.value;
  const phases = [0, 0, 0, 0, 0];
  let all = 0, ready = 0, known = 0, cordoned = 0, pending = 0;
  const c = pods.columns;
  for (let row = 0; row < pods.rows; row++) if (c.name[row]) { all += 1; phases[c.phase[row]] += 1; if (c.node[row] < 0) pending += 1; }
  const n = nodes.columns;
  for (let row = 0; row < nodes.rows; row++) if (n.name[row]) { known += 1; if (n.ready[row] === 1) ready += 1; if (n.unschedulable[row]) cordoned += 1; }
  last.current = {version, at: now, of: pods, value: {phases, pods: all, nodes: known, ready, cordoned, unplaced: pending}};
  return last.current.value;
}

/** Summaries for screen readers, at most every 5 s. */
function useSummary(counts) {
  const last = useRef(0);
  useEffect(() => {
    if (Date.now() - last.current < 5000) return;
    last.current = Date.now();
    state.summary.value = `${counted(counts.nodes, 'node')}, ${counts.nodes - counts.ready} not ready; ${counted(counts.pods, 'pod')}, ${counts.phases[0]} pending, ${counts.phases[1]} running, ${counts.phases[3]} failed`;
  }, [counts]);
}

function Legend({counts}) {
  const m = MODES[mode.value];
  return html`<div class="legend">
    ${m.pods ? PHASES.map((phase, at) => html`<span key=${phase} class="phase phase-${phase}">${phase} <b>${count(counts.phases[at])}</b></span>`)
      : html`<span class="scale"><span>0</span><span class="bar" aria-hidden="true" style=${{background: `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((t) => `rgb(${cividis(t).join(' ')})`).join(', ')})`}}></span><span>${m.most || '100 %'}</span></span>`}
    ${m.pods && html`<span class="phase phase-Terminating">terminating, unbound</span>`}
    <span class="soft">◌ hatched: not ready ${count(counts.nodes - counts.ready)}</span><span class="soft">⌧ dotted: cordoned ${count(counts.cordoned)}</span>
    <span class="grow"></span><b class="counter">${counted(counts.nodes, 'node')}, ${counted(counts.pods, 'pod')}</b>
  </div>`;
}

function Canvas() {
  const canvas = useRef(/** @type {HTMLCanvasElement|null} */ (null)), box = useRef(/** @type {HTMLElement|null} */ (null)), tip = useRef(/** @type {HTMLElement|null} */ (null));
  const shown = view.value, selected = state.selected.value;
  useEffect(() => {
    const own = /** @type {HTMLCanvasElement} */ (canvas.current), place = /** @type {HTMLElement} */ (box.current);
    const picture = new Picture(own, shown);
    drawn.picture = picture;
    const measure = () => picture.resize(place.clientWidth, place.clientHeight, window.devicePixelRatio || 1);
    const seen = new ResizeObserver(measure);
    seen.observe(place);
    picture.configure({mode: mode.peek(), group: group.peek(), filter: filterOf(filterText.peek())});
    measure();
    const stop = listen(own, picture, tip);
    const keplab = /** @type {any} */ (window).__keplab;
    if (keplab) {
      keplab.picture = picture;
      keplab.pixel = (ns, name) => { const row = rowOf('pods', ns, name); return row < 0 ? null : picture.pixel(row); };
    }
    return () => { stop(); seen.disconnect(); picture.stop(); if (drawn.picture === picture) drawn.picture = null; };
  }, [shown]);
  useEffect(() => { drawn.picture?.configure({mode: mode.value, group: group.value, filter: filterOf(filterText.value)}); }, [mode.value, group.value, filterText.value, state.theme.value]);
  useEffect(() => {
    const picture = drawn.picture;
    if (!picture) return;
    picture.selectedPod = selected && selected.kind === 'pods' ? rowOf('pods', selected.ns, selected.name) : -1;
    const node = selected && selected.kind === 'nodes' ? rowOf('nodes', '', selected.name) : -1;
    const slot = picture.selectedPod >= 0 ? picture.slotOf[picture.selectedPod] : -1;
    picture.selectedNode = node >= 0 ? node : blockOf(slot);
    picture.ask();
  }, [selected, state.columns.value.version]);
  return html`<div class="picture" ref=${box}>
    <canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="map of nodes" aria-label="Nodes and pods. Arrow keys move between nodes, Enter zooms in, f fits; the table button gives the same as a table."></canvas>
    <div class="tip" ref=${tip} hidden></div>
  </div>`;
}

function filterOf(text) {
  const read = parseFilter(text);
  return read.empty ? null : read;
}

/** Mouse, wheel and keys on the canvas. */
function listen(canvas, picture, tipRef) {
  let held = /** @type {any} */ (null), moved = 0;
  const point = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const choose = (hit, px) => {
    if (!hit) { select(null); return; }
    const {nodes, pods, strings} = picture.view.columns.peek();
    if (hit.pod >= 0 && (px >= 3 || hit.node < 0)) select({kind: 'pods', ns: strings[pods.columns.ns[hit.pod]], name: strings[pods.columns.name[hit.pod]]});
    else if (hit.node >= 0) select({kind: 'nodes', ns: '', name: strings[nodes.columns.name[hit.node]]});
  };
  const on = {
    pointerdown: (event) => { if (event.button) return; held = point(event); moved = 0; canvas.setPointerCapture(event.pointerId); },
    pointermove: (event) => {
      const [x, y] = point(event);
      if (held) { moved += Math.abs(x - held[0]) + Math.abs(y - held[1]); if (moved > 3) { picture.pan(x - held[0], y - held[1]); canvas.style.cursor = 'grabbing'; } held = [x, y]; hide(); return; }
      const hit = picture.at(x, y);
      const changed = (picture.hover && picture.hover.block) !== (hit && hit.block);
      picture.hover = hit;
      if (changed) picture.ask();
      show(hit, x, y);
    },
    pointerup: (event) => { canvas.style.cursor = ''; if (held && moved <= 3) choose(picture.at(...point(event)), picture.scale); held = null; },
    pointerleave: () => { picture.hover = null; picture.ask(); hide(); },
    dblclick: (event) => { const hit = picture.at(...point(event)); if (hit) picture.zoomTo(hit.block, Math.max(14, picture.scale * 2)); },
    wheel: (event) => {
      event.preventDefault();
      const [x, y] = point(event), step = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
      if (event.shiftKey) picture.pan(-step, 0); else picture.zoom(Math.exp(-Math.max(-240, Math.min(240, step)) / 300), x, y);
      hide();
    },
    keydown: (event) => {
      const by = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
      if (by && !event.ctrlKey) {
        event.preventDefault(); event.stopPropagation();
        if (event.shiftKey) { picture.pan(-60 * by[0], -60 * by[1]); return; }
        const next = picture.selectedNode < 0 ? picture.neighbour(-1, 0, 0) : picture.neighbour(picture.selectedNode, by[0], by[1]);
        picture.selectedNode = next;
        const {nodes, strings} = picture.view.columns.peek();
        if (next >= 0 && next < picture.nodeRows) select({kind: 'nodes', ns: '', name: strings[nodes.columns.name[next]]});
        picture.ask();
      } else if (event.key === 'Enter' && picture.selectedNode >= 0) { picture.zoomTo(picture.selectedNode, 20); event.stopPropagation(); } else if (event.key === '+' || event.key === '=') picture.zoom(1.4);
      else if (event.key === '-') picture.zoom(1 / 1.4);
    },
  };
  const show = (hit, x, y) => {
    const tip = tipRef.current;
    if (!tip) return;
    if (!hit || (hit.node < 0 && hit.pod < 0)) { hide(); return; }
    const {nodes, pods, strings} = picture.view.columns.peek(), parts = [];
    if (hit.pod >= 0) parts.push(`${strings[pods.columns.ns[hit.pod]]}/${strings[pods.columns.name[hit.pod]]}  ${PHASES[pods.columns.phase[hit.pod]]}${pods.columns.pool[hit.pod] ? `, ${POOLS[pods.columns.pool[hit.pod]]}` : ''}`);
    if (hit.node >= 0) {
      const c = nodes.columns, row = hit.node;
      parts.push(`${strings[c.name[row]]}  ${c.ready[row] === 1 ? 'Ready' : 'not ready'}${c.unschedulable[row] ? ', cordoned' : ''}  cpu ${cpu(c.req_cpu_m[row])}/${cpu(c.cpu_m[row])}  pods ${c.req_pods[row]}/${c.pods[row]}`);
    }
    tip.textContent = parts.join('\n');
    tip.hidden = false;
    tip.style.left = `${Math.min(x + 14, picture.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > picture.height ? y - tip.offsetHeight - 8 : y + 18}px`;
  };
  const hide = () => { if (tipRef.current) tipRef.current.hidden = true; };
  for (const name in on) canvas.addEventListener(name, on[name], {passive: false});
  return () => { for (const name in on) canvas.removeEventListener(name, on[name]); };
}

function Bar({label, part, whole, show = count, sign = ''}) {
  const t = whole ? Math.min(1, part / whole) : 0;
  return html`<div class="meter"><span class="what">${label}</span>
    <span class="track" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax=${whole || 0} aria-valuenow=${Math.min(part, whole || 0)}><span class="fill ${part > whole ? 'over' : ''}" style=${{width: `${t * 100}%`}}></span></span>
    <span class="figure">${show(part)}/${show(whole)}${sign}</span></div>`;
}

/** What the scheduler counts and what the kubelet holds, where that is not the same. */
function Views({cpus, sizes}) {
  const parts = [[cpus, cpu, 'cpu'], [sizes, memory, 'memory']].filter(([[counted, held]]) => counted !== held).map(([[counted, held], show, what]) => `${what} ${show(counted)} − ${show(held)}`);
  return html`<p class="soft views" title="requests that the scheduler counts − what the kubelet has allocated to pods that it has seen">scheduler − kubelet: ${parts.length ? html`<b>${parts.join(', ')}</b>` : 'the same'}</p>`;
}

/** The CPUs that containers have to themselves, as cells and in words. */
function CpuSets({own, given, most}) {
  const {pods, strings} = state.columns.value, p = pods.columns, of = new Map(), words = [];
  for (const row of own) {
    const key = `${strings[p.ns[row]]}/${strings[p.name[row]]}`, found = given.get(key);
    if (!found) continue;
    for (const [container, set] of Object.entries(found.cpus)) {
      words.push([`${key} ${container}`, `${set}${found.numas.length ? `, memory of NUMA ${found.numas.join(', ')}` : ''}`]);
      for (const number of cpuNumbers(set)) of.set(number, `${key} ${container}`);
    }
    if (!Object.keys(found.cpus).length) words.push([key, `memory of NUMA ${found.numas.join(', ')}`]);
  }
  if (!words.length) return null;
  const cells = Math.min(512, Math.max(most, ...[...of.keys()].map((number) => number + 1)));
  return html`<h3>CPU sets</h3>${of.size > 0 && html`<div class="cpus" role="img" aria-label="${of.size} CPUs of containers alone, of ${cells}">${Array.from({length: cells}, (_, number) => html`<span key=${number} class=${of.has(number) ? 'taken' : ''} title=${`CPU ${number}: ${of.get(number) || 'shared'}`}></span>`)}</div>`}
    <dl class="pairs sets">${words.map(([who, set]) => html`<dt key=${`${who}t`} class="wrap">${who}</dt><dd key=${who} class="mono">${set}</dd>`)}</dl>`;
}

/** What containers of a node's pods have to themselves at the moment that is shown. */
function useAllocations(node) {
  const lines = state.lines.value, until = state.live.value ? Infinity : state.time.value;
  return useMemo(() => (node ? allocations(lines, node, until + 1e-6) : new Map()), [lines, node, until]);
}

/** What a node has and what is asked of it; its pods. */
function NodeCard({name}) {
  const {nodes, pods, strings} = state.columns.value, row = rowOf('nodes', '', name), given = useAllocations(name);
  if (row < 0) return html`<p class="empty">Node ${name} is not there at this version.</p>`;
  const c = nodes.columns, p = pods.columns, own = [];
  for (let each = 0; each < pods.rows; each++) if (p.name[each] && p.node[each] === row) own.push(each);
  own.sort((a, b) => p.phase[a] - p.phase[b] || p.priority[b] - p.priority[a] || (strings[p.name[a]] < strings[p.name[b]] ? -1 : 1));
  const phases = [0, 1, 2, 3, 4].map((k) => c.phases[row * 5 + k]);
  const ready = ['not ready', 'Ready', 'unknown'][c.ready[row]];
  const numa = [0, 1, 2, 3, 4, 5, 6, 7].filter((k) => c.numa[row * 8 + k] > 0);
  const torn = fragmentation(c, row);
  return html`<section class="card" aria-label="node ${name}">
    <h2>${name}</h2>
    <p class="facts"><span class=${c.ready[row] === 1 ? 'good' : 'bad'}>${ready}</span>${c.unschedulable[row] ? html`<span class="bad">cordoned</span>` : ''}<span>${strings[c.zone[row]] || 'no zone'}</span><span class="soft">age ${age(now() - c.created[row])}</span></p>
    ${c.taints[row] ? html`<p class="soft wrap">taints ${strings[c.taints[row]]}</p>` : ''}
    <${Bar} label="cpu" part=${c.req_cpu_m[row]} whole=${c.cpu_m[row]} show=${cpu} />
    <${Bar} label="memory" part=${c.req_mem[row]} whole=${c.mem[row]} show=${memory} />
    <${Bar} label="pods" part=${c.req_pods[row]} whole=${c.pods[row]} />
    ${c.devices[row] > 0 && html`<${Bar} label="devices" part=${c.used_devices[row]} whole=${c.devices[row]} />`}
    ${numa.map((k) => html`<${Bar} key=${k} label="NUMA ${k}" part=${c.numa_req[row * 8 + k] * 1000} whole=${c.numa[row * 8 + k] * 1000} show=${cpu} />`)}
    ${torn !== null && numa.length > 1 && html`<p class="soft">free cores are torn to ${percent(torn, 1)}</p>`}
    <${Views} cpus=${[c.req_cpu_m[row], c.held_cpu_m[row]]} sizes=${[c.req_mem[row], c.held_mem[row]]} />
    <${CpuSets} own=${own} given=${given} most=${Math.round(c.cpu_m[row] / 1000)} />
    <p class="facts">${phases.map((number, at) => (number ? html`<span key=${at} class="phase phase-${PHASES[at]}">${PHASES[at]} ${number}</span>` : ''))}</p>
    <p class="actions"><button class="small" onClick=${() => run('cluster.zoom-to')}>zoom to it</button> <a class="button small" href="#/objects/nodes/-/${encodeURIComponent(name)}">document</a></p>
    <h3>${counted(own.length, 'pod')}</h3>
    <ul class="pods">${own.slice(0, 300).map((each) => html`<li key=${each}><button class="plain phase phase-${p.flags[each] & FLAG.terminating ? 'Terminating' : PHASES[p.phase[each]]}" onClick=${() => select({kind: 'pods', ns: strings[p.ns[each]], name: strings[p.name[each]]})}>${strings[p.ns[each]]}/${strings[p.name[each]]}</button><span class="soft num">${cpu(p.cpu_m[each])}</span></li>`)}</ul>
    ${own.length > 300 && html`<p class="soft">and ${count(own.length - 300)} more: filter <code>node=${name}</code></p>`}
  </section>`;
}

/** Seconds since 1970 at the moment that is shown. */
function now() {
  return state.time.peek() + wallOf(state.run.peek());
}

/** A pod: where it is, what it asks for, and its containers from the document. */
function PodCard({ns, name}) {
  const {pods, nodes, strings} = state.columns.value, row = rowOf('pods', ns, name), rv = state.rv.value;
  const [document, setDocument] = useState(/** @type {any} */ (null));
  const flags = row >= 0 ? pods.columns.flags[row] : 0, phase = row >= 0 ? pods.columns.phase[row] : 0, at = row >= 0 ? pods.columns.node[row] : -1;
  const node = at >= 0 ? strings[nodes.columns.name[at]] : '', given = useAllocations(node);
  useEffect(() => {
    let current = true;
    source.object('pods', ns, name, state.live.peek() ? undefined : rv, state.run.peek()).then((found) => { if (current) setDocument(found.document); }, () => { if (current) setDocument(null); });
    return () => { current = false; };
  }, [ns, name, phase, at, flags, state.live.value ? 0 : rv]);
  if (row < 0) return html`<p class="empty">Pod ${ns}/${name} is not there at this version.</p>`;
  const c = pods.columns, held = given.get(`${ns}/${name}`);
  const words = Object.entries({terminating: 'terminating', nominated: 'nominated', resizePending: 'resize pending', excluded: 'excluded', group: 'in a group', unbound: 'was unbound before'}).filter(([key]) => flags & FLAG[key]).map((each) => each[1]);
  const statuses = new Map((document?.status?.containerStatuses || []).map((each) => [each.name, each]));
  return html`<section class="card" aria-label="pod ${name}">
    <h2>${name}</h2>
    <p class="facts"><span class="phase phase-${flags & FLAG.terminating ? 'Terminating' : PHASES[phase]}">${PHASES[phase]}</span>${c.pool[row] ? html`<span>${POOLS[c.pool[row]]}</span>` : ''}${words.map((word) => html`<span key=${word}>${word}</span>`)}</p>
    <dl class="pairs">
      <dt>namespace</dt><dd>${ns}</dd>
      <dt>node</dt><dd>${node ? html`<button class="plain link" onClick=${() => select({kind: 'nodes', ns: '', name: node})}>${node}</button>` : 'none'}</dd>
      ${c.nominated[row] >= 0 && html`<dt>nominated</dt><dd>${strings[nodes.columns.name[c.nominated[row]]]}</dd>`}
      ${c.owner[row] ? html`<dt>owner</dt><dd>${strings[c.owner[row]]}</dd>` : ''}
      <dt>priority</dt><dd>${c.priority[row]}</dd><dt>requests</dt><dd>cpu ${cpu(c.cpu_m[row])}, memory ${memory(c.mem[row])}</dd>
      ${node && (c.held_cpu_m[row] !== c.cpu_m[row] || c.held_mem[row] !== c.mem[row]) && PHASES[phase] !== 'Succeeded' && PHASES[phase] !== 'Failed' && html`<dt>kubelet holds</dt><dd>${c.held_cpu_m[row] || c.held_mem[row] ? `cpu ${cpu(c.held_cpu_m[row])}, memory ${memory(c.held_mem[row])}` : 'nothing yet'}</dd>`}
      <dt>age</dt><dd>${age(now() - c.created[row])}</dd>
      ${c.reason[row] ? html`<dt>reason</dt><dd class="wrap">${strings[c.reason[row]]}</dd>` : ''}
    </dl>
    ${document && html`<h3>containers</h3><ul class="containers">${[...(document.spec?.initContainers || []), ...(document.spec?.containers || [])].map((each) => {
      const status = statuses.get(each.name), requests = each.resources?.requests || {}, has = status?.allocatedResources || status?.resources?.requests;
      return html`<li key=${each.name}><b>${each.name}</b> <span class="soft">${status ? Object.keys(status.state || {})[0] || 'waiting' : 'not started'}${status?.restartCount ? `, ${status.restartCount} restarts` : ''}</span>
        <div class="soft wrap">${Object.entries(requests).map(([key, value]) => `${key} ${value}`).join(', ') || 'no requests'}${has && JSON.stringify(has) !== JSON.stringify(requests) ? ` → allocated ${Object.entries(has).map(([key, value]) => `${key} ${value}`).join(', ')}` : ''}${(each.resources?.claims || []).map((claim) => `, claim ${claim.name}`).join('')}${(status?.allocatedResourcesStatus || []).flatMap((one) => (one.resources || []).map((device) => `, ${device.resourceID}${device.health ? ` (${device.health})` : ''}`)).join('')}${held?.cpus[each.name] ? `, CPUs ${held.cpus[each.name]} alone` : ''}</div></li>`;
    })}</ul>`}
    <p class="actions"><button class="small" onClick=${() => run('pod.toggle') || run('explain.toggle')}>explain <kbd>x</kbd></button> <a class="button small" href="#/objects/pods/${encodeURIComponent(ns)}/${encodeURIComponent(name)}">document</a></p>
  </section>`;
}

function Table() {
  const {nodes, pods, strings, version} = state.columns.value, selected = state.selected.value, n = nodes.columns, p = pods.columns;
  const filter = filterText.value;
  const which = tableOf.value, slow = useRef({at: 0, rows: /** @type {number[]} */ ([]), key: ''});
  const key = `${which}|${filter}`, stamp = performance.now();
  if (slow.current.key !== key || stamp - slow.current.at > 500 || slow.current.rows.length === 0) {
    const holds = filterOf(filter)?.compile({nodes, pods, strings}), table = which === 'nodes' ? nodes : pods, rows = [];
    for (let row = 0; row < table.rows; row++) if (table.columns.name[row] && (!holds || (which === 'nodes' ? holds.nodes(row) : holds.pods(row)))) rows.push(row);
    slow.current = {at: stamp, rows, key};
  }
  void version;
  const ofNodes = [
    {id: 'name', title: 'Name', width: 'minmax(120px, 2fr)', cell: (row) => strings[n.name[row]]},
    {id: 'ready', title: 'Status', cell: (row) => `${['NotReady', 'Ready', 'Unknown'][n.ready[row]]}${n.unschedulable[row] ? ', cordoned' : ''}`},
    {id: 'zone', title: 'Zone', cell: (row) => strings[n.zone[row]]},
    {id: 'cpu', title: 'CPU', num: true, cell: (row) => `${cpu(n.req_cpu_m[row])}/${cpu(n.cpu_m[row])}`, sort: (row) => n.req_cpu_m[row] / (n.cpu_m[row] || 1)},
    {id: 'mem', title: 'Memory', num: true, cell: (row) => `${memory(n.req_mem[row])}/${memory(n.mem[row])}`, sort: (row) => n.req_mem[row] / (n.mem[row] || 1)},
    {id: 'pods', title: 'Pods', num: true, cell: (row) => `${n.req_pods[row]}/${n.pods[row]}`, sort: (row) => n.req_pods[row]},
    {id: 'pending', title: 'Pending', num: true, cell: (row) => String(n.phases[row * 5]), sort: (row) => n.phases[row * 5]},
    {id: 'failed', title: 'Failed', num: true, cell: (row) => String(n.phases[row * 5 + 3]), sort: (row) => n.phases[row * 5 + 3]},
    {id: 'devices', title: 'Devices', num: true, cell: (row) => (n.devices[row] ? `${n.used_devices[row]}/${n.devices[row]}` : '–'), sort: (row) => n.devices[row]},
    {id: 'numa', title: 'NUMA torn', num: true, cell: (row) => { const t = fragmentation(n, row); return t === null ? '–' : percent(t, 1); }, sort: (row) => fragmentation(n, row) ?? -1},
    {id: 'view', title: 'Sched. − kubelet', num: true, cell: (row) => { const gap = n.req_cpu_m[row] - n.held_cpu_m[row]; return gap ? `${gap < 0 ? '−' : ''}${cpu(Math.abs(gap))}` : '0'; }, sort: (row) => n.req_cpu_m[row] - n.held_cpu_m[row]},
    {id: 'taints', title: 'Taints', width: 'minmax(90px, 2fr)', cell: (row) => strings[n.taints[row]]},
  ];
  const ofPods = [
    {id: 'ns', title: 'Namespace', cell: (row) => strings[p.ns[row]]},
    {id: 'name', title: 'Name', width: 'minmax(160px, 2fr)', cell: (row) => strings[p.name[row]]},
    {id: 'phase', title: 'Phase', cell: (row) => PHASES[p.phase[row]]},
    {id: 'pool', title: 'Queue', cell: (row) => POOLS[p.pool[row]] || ''},
    {id: 'node', title: 'Node', cell: (row) => (p.node[row] >= 0 ? strings[n.name[p.node[row]]] : '')},
    {id: 'priority', title: 'Priority', num: true, cell: (row) => String(p.priority[row]), sort: (row) => p.priority[row]},
    {id: 'cpu', title: 'CPU', num: true, cell: (row) => cpu(p.cpu_m[row]), sort: (row) => p.cpu_m[row]},
    {id: 'mem', title: 'Memory', num: true, cell: (row) => memory(p.mem[row]), sort: (row) => p.mem[row]},
    {id: 'owner', title: 'Owner', width: 'minmax(110px, 1.4fr)', cell: (row) => strings[p.owner[row]]},
    {id: 'age', title: 'Age', num: true, cell: (row) => age(now() - p.created[row]), sort: (row) => -p.created[row]},
  ];
  const picked = selected ? (selected.kind === which ? rowOf(/** @type {any} */ (which), selected.ns, selected.name) : -1) : -1;
  const pick = (row) => select(which === 'nodes' ? {kind: 'nodes', ns: '', name: strings[n.name[row]]} : {kind: 'pods', ns: strings[p.ns[row]], name: strings[p.name[row]]});
  return html`<div class="twin"><div class="toolbar"><button aria-pressed=${which === 'nodes'} onClick=${() => { tableOf.value = 'nodes'; }}>nodes</button><button aria-pressed=${which === 'pods'} onClick=${() => { tableOf.value = 'pods'; }}>pods</button><span class="soft">${counted(slow.current.rows.length, 'row')}</span></div>
    <${VirtualTable} key=${which} label=${which} columns=${which === 'nodes' ? ofNodes : ofPods} rows=${slow.current.rows} keyOf=${(row) => row} picked=${picked} onPick=${pick} empty=${filterText.value.trim() ? `No ${which} fit the filter.` : `There are no ${which} at this version.`} /></div>`;
}

function Cluster() {
  const counts = useCounts(), selected = state.selected.value, read = useMemo(() => parseFilter(filterText.value), [filterText.value]);
  const field = useRef(/** @type {HTMLInputElement|null} */ (null));
  useSummary(counts);
  useLayoutEffect(() => register([
    {id: 'cluster.fit', title: 'Fit the whole cluster', keys: ['f'], run: () => { drawn.picture?.fit(); drawn.picture?.layout(); drawn.picture?.paintAll(); drawn.picture?.ask(); }},
    {id: 'cluster.zoom-to', title: 'Zoom to what is selected', keys: ['z'], run: () => { const picture = drawn.picture; if (picture) picture.zoomTo(picture.selectedNode, 20); }},
    {id: 'cluster.table', title: 'Picture or table', keys: ['T'], run: () => { asTable.value = !asTable.peek(); }},
    {id: 'cluster.filter', title: 'Filter', keys: ['F'], run: () => field.current?.focus()},
    ...Object.entries(MODES).map(([id, each]) => ({id: `cluster.colour-${id}`, title: `Colour by ${each.title}`, run: () => { mode.value = id; }})),
  ].map((command) => ({group: 'cluster', ...command}))), []);
  return html`
    <h1 class="sr-only">Cluster</h1>
    <div class="toolbar">
      <label>colour by <select value=${mode.value} onChange=${(event) => { mode.value = event.target.value; }}>${Object.entries(MODES).map(([id, each]) => html`<option key=${id} value=${id}>${each.title}</option>`)}</select></label>
      <label>group by <select value=${group.value} onChange=${(event) => { group.value = event.target.value; }}>${Object.entries(GROUPS).map(([id, each]) => html`<option key=${id} value=${id}>${each.title}</option>`)}</select></label>
      <label class="grow">filter <input ref=${field} class="filter" type="text" spellcheck=${false} placeholder="ns=shop phase=Pending priority>100 zone=zone-a" value=${filterText.value} aria-invalid=${Boolean(read.error)} onInput=${(event) => { filterText.value = event.target.value; }} onKeyDown=${(event) => { if (event.key === 'Escape') { filterText.value = ''; event.target.blur(); event.stopPropagation(); } }} /></label>
      <button aria-pressed=${asTable.value} onClick=${() => { asTable.value = !asTable.value; }}>table</button>
      ${!asTable.value && html`<button onClick=${() => run('cluster.fit')} aria-label="fit">fit</button>`}
    </div>
    ${read.error && html`<p class="error" role="alert">${read.error}</p>`}
    <div class="split"><div class="main-part">${asTable.value ? html`<${Table} />` : html`<${Canvas} />`}${!asTable.value && counts.nodes + counts.pods === 0 && state.rv.value > 0 && html`<p class="empty over">There are no nodes and pods at this version.${state.live.value ? ' An emulated node is an object like any other: ' : ''}${state.live.value && html`<code>keplab up --nodes N</code> begins with some.`}</p>`}<${Legend} counts=${counts} /></div>
      ${selected && (selected.kind === 'nodes' || selected.kind === 'pods') && html`<aside class="side panel" aria-label="selected"><button class="close" aria-label="close" onClick=${() => select(null)}>✕</button>${selected.kind === 'nodes' ? html`<${NodeCard} name=${selected.name} />` : html`<${PodCard} ns=${selected.ns} name=${selected.name} />`}</aside>`}
    </div>`;
}

export const page = {id: 'cluster', key: 'c', title: 'Cluster', icon: 'M4 4h6v6H4ZM14 4h6v6h-6ZM4 14h6v6H4ZM14 14h6v6h-6Z', Component: Cluster, commands: []};
