// The processes of the mesh, their links to the API server, and the faults that are in force. With --allow-break, faults as buttons.
import {html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState} from 'keplab/html.js';
import {state, view, copy, notify, originOf, runOf} from 'keplab/state.js';
import {source, seekTime} from 'keplab/engine.js';
import {register} from 'keplab/commands.js';
import {useAnswer, useSummary} from 'keplab/answers.js';
import {VirtualTable} from 'keplab/table.js';
import {Dialog} from 'keplab/dialog.js';
import {faultWords, lineWidth, meshRows, timeOf} from 'keplab/flow.js';
import {css} from 'keplab/colours.js';
import {count, memory, moment, span, counted} from 'keplab/format.js';
import uPlot from 'uplot';

/** Rates of the last ten minutes by process: {t, messages, p99, cpu}. Kept while the page is open, whatever page is shown. */
const KEPT_S = 600;
const past = /** @type {Map<string, {t: number[], messages: (number|null)[], p99: (number|null)[], cpu: (number|null)[]}>} */ (new Map());
let last = -1;
state.rates.subscribe((found) => {
  if (!found || !found.processes || found.at === last) return;
  last = found.at;
  const links = new Map((found.links || []).map((link) => [link.from, link])), names = new Set(found.processes.map((each) => each.name));
  for (const [name, kept] of past) if (!names.has(name) && found.at - kept.t[kept.t.length - 1] > KEPT_S) past.delete(name);
  for (const process of found.processes) {
    if (!past.has(process.name)) past.set(process.name, {t: [], messages: [], p99: [], cpu: []});
    const kept = /** @type {any} */ (past.get(process.name)), link = links.get(process.name);
    kept.t.push(found.at); kept.messages.push(link ? link.messages_s : null); kept.p99.push(link ? link.p99_ms ?? null : null); kept.cpu.push(process.cpu ?? null);
    while (kept.t.length && found.at - kept.t[0] > KEPT_S) for (const list of Object.values(kept)) list.shift();
  }
});

const chosen = signal(''), asking = signal(/** @type {any} */ (null));
const WHY = 'Break is off: start with keplab ui --allow-break.';

/** What may be done to a process, each with its words. */
const ACTIONS = {
  kill: {title: 'kill', ask: (name) => `Kill ${name}? It is restarted.`, more: {}},
  pause: {title: 'pause 10 s', ask: (name) => `Pause ${name} for 10 s (SIGSTOP)?`, more: {for_s: 10}},
  cut: {title: 'cut', ask: (name, more) => `Cut the link of ${name}${more.way === 'both' ? ' both ways' : `: ${more.way} are lost`}, until it is healed?`, more: {way: 'both'}},
  slow: {title: 'slow', ask: (name, more) => `Slow the link of ${name}: ${Math.round(more.slow_s * 1000)} ms more each way, until it is healed?`, more: {slow_s: 0.2}},
  heal: {title: 'heal', ask: (name) => (name ? `Heal all faults of ${name}?` : 'Heal all faults?'), more: {}},
};

/** Why nothing can be broken here, or ''. */
function refused() {
  if (source.kind !== 'live') return 'This is a recording.';
  if (!state.flags.value.break) return WHY;
  if (!(state.meta.value.runs || []).some((run) => run.id === state.run.value && run.kind === 'live') && state.run.value !== 'live') return 'This run is a recording.';
  return '';
}

function propose(action, target, more = ACTIONS[action].more) {
  const why = refused();
  if (why) { notify(why, 'bad'); return; }
  if (!target && action !== 'heal') { notify('Choose a process first.', 'bad'); return; }
  if (action === 'heal') perform({action, target, more}); else asking.value = {action, target, more};
}

async function perform({action, target, more}) {
  asking.value = null;
  try {
    const done = await source.breakIt(target, action, more);
    notify((done.done || []).join('; ') || `${action} ${target}`);
    mesh.value = {...(mesh.value || {}), faults: done.faults || []};
  } catch (error) {
    const command = error.status?.details?.command;
    if (command) asking.value = {command, text: error.message}; else notify(error.message, 'bad');
  }
}
const mesh = signal(/** @type {any} */ (null));

function Ask() {
  const what = asking.value, first = useRef(/** @type {HTMLButtonElement|null} */ (null));
  useLayoutEffect(() => { first.current?.focus(); }, [what]);
  if (!what) return null;
  const close = () => { asking.value = null; };
  if (what.command) return html`<${Dialog} label="command to run" close=${close}><h2>This has to be done outside</h2><p>${what.text}</p><pre class="wrap">${what.command}</pre><div class="actions"><button ref=${first} class="primary" onClick=${() => { copy(what.command, 'the command'); close(); }}>copy</button><button onClick=${close}>close</button></div><//>`;
  return html`<${Dialog} label="confirm" close=${close}><h2>${ACTIONS[what.action].ask(what.target, what.more)}</h2><p class="soft">It is written into the event log and marked on the time line.</p>
    <div class="actions"><button ref=${first} class="primary" onClick=${() => perform(what)}>${ACTIONS[what.action].title} <kbd>Enter</kbd></button><button onClick=${close}>no <kbd>Esc</kbd></button></div><//>`;
}

const Sign = ({process}) => {
  const fine = process.ready && process.state !== 'Stopped' && process.state !== 'Gone', words = process.fault ? faultWords(process.fault) : process.state === 'Recorded' ? 'recorded' : fine ? 'ready' : String(process.state || 'not ready').toLowerCase();
  return html`<span class="state ${process.fault ? 'broken' : fine ? 'fine' : 'away'}">${words}${!fine && process.next_try_in_s ? `, again in ${span(process.next_try_in_s)}` : ''}</span>`;
};

/** The line between a process and the API server; its words say what the line shows. */
function Link({link, process}) {
  const fault = link?.fault, rate = link ? link.messages_s || 0 : 0, wide = Math.max(1, lineWidth(rate, 9)), calm = state.reducedMotion.value, away = !process.ready || process.fault;
  const kind = fault?.action === 'cut' ? 'cut' : fault?.action === 'slow' ? 'slow' : away ? 'away' : '';
  const speed = rate > 0 ? Math.max(0.25, 2.4 - Math.log10(1 + rate) * 0.6) : 0;
  return html`<svg class="link ${kind}" width="100%" height="22" preserveAspectRatio="none" aria-hidden="true"><line x1="2" x2="100%" y1="11" y2="11" stroke-width=${wide} class="track" />
    ${link && !away && kind !== 'cut' && rate > 0 && !calm && html`<line x1="2" x2="100%" y1="11" y2="11" stroke-width=${Math.max(1, wide * 0.5)} class="flow" style=${{animationDuration: `${speed}s`}} />`}
    ${kind === 'cut' && html`<rect x="38%" y="2" width="24%" height="18" class="gap" /><text x="50%" y="16" text-anchor="middle">✂</text>`}${kind === 'slow' && html`<text x="50%" y="8" text-anchor="middle">~</text>`}
    ${calm && rate > 0 && kind !== 'cut' && html`<path d="M2 11 9 6V16Z" class="arrow" />`}</svg>`;
}

const ms = (value) => (value === null || value === undefined ? '–' : value >= 100 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`);
const perSecond = (value) => (value === null || value === undefined ? '–' : value >= 10 ? count(value) : value.toFixed(1));
const role = (process) => (process.leads === true ? html`<span class="leads">★ leads</span>` : process.leads === false ? html`<span class="soft">standby</span>` : '');

/** The nodes of a kubelet's process: "1,667 nodes", or how many of them are ready where not all are. */
const nodesOf = (process) => (process.nodes === null || process.nodes === undefined ? '' : process.nodes_ready < process.nodes ? `${count(process.nodes_ready)} of ${counted(process.nodes, 'node')}` : counted(process.nodes, 'node'));

function Spark({name}) {
  const box = useRef(/** @type {HTMLElement|null} */ (null)), plot = useRef(/** @type {any} */ (null)), theme = state.theme.value;
  const data = () => { const kept = past.get(name); return kept ? [kept.t.slice(), kept.messages.slice(), kept.p99.slice()] : [[], [], []]; };
  useEffect(() => {
    const place = /** @type {HTMLElement} */ (box.current), axis = {stroke: css('soft'), grid: {stroke: css('line'), width: 0.5}, ticks: {show: false}, font: '11px system-ui'};
    const own = plot.current = new uPlot({width: place.clientWidth || 320, height: 132, legend: {show: false}, cursor: {drag: {x: false, y: false}}, scales: {x: {time: false, range: (_, low, high) => [Math.min(low ?? 0, (high ?? 60) - 60), high ?? 60]}, ms: {range: (_, low, high) => [0, Math.max(1, high || 1)]}, y: {range: (_, low, high) => [0, Math.max(1, high || 1)]}},
      axes: [{...axis, space: 76, values: (_, list) => list.map((value) => moment(value, originOf('live')).slice(0, 8))}, {...axis, size: 46, values: (_, list) => list.map((value) => count(value))}, {...axis, scale: 'ms', side: 1, size: 46, grid: {show: false}, values: (_, list) => list.map((value) => `${value} ms`)}],
      series: [{}, {label: 'messages/s', stroke: css('running'), width: 1.5}, {label: 'p99', scale: 'ms', stroke: css('pending'), width: 1.5, dash: [4, 3]}]}, data(), place);
    const seen = new ResizeObserver(() => own.setSize({width: place.clientWidth, height: 132}));
    seen.observe(place);
    return () => { seen.disconnect(); own.destroy(); };
  }, [name, theme]);
  useEffect(() => { plot.current?.setData(data()); });
  return html`<div class="spark" ref=${box} role="img" aria-label="messages a second and p99 of ${name}, the last ten minutes"></div><p class="soft small-print"><span class="key-line solid"></span>messages/s <span class="key-line dashed"></span>p99, the last ten minutes, as far as this page was open</p>`;
}

/** One process, its buttons and its newest lines. */
function Card({row, store, faults}) {
  const process = row ? row.process : store, why = refused(), link = row?.link;
  const fact = (name, value) => value !== null && value !== undefined && value !== '' && value !== '–' && html`<dt>${name}</dt><dd>${value}</dd>`;
  const live = source.kind === 'live', disabled = Boolean(why), gone = {disabled, title: why || undefined, 'aria-describedby': why ? 'why-not' : undefined};
  const own = (faults || []).filter((fault) => fault.target === process.name);
  return html`<aside class="side panel card" aria-label=${process.name}><h2>${process.name} ${role(process)}</h2><button class="close" aria-label="close" onClick=${() => { chosen.value = ''; }}>✕</button>
    <p><${Sign} process=${process} />${process.answers === false ? html` <span class="bad">does not answer</span>` : ''}</p>
    <dl class="pairs">${fact('pid', process.pid || null)}${fact('nodes', nodesOf(process) && `${count(process.nodes_ready)} of ${count(process.nodes)} ready`)}${fact('up', process.uptime_s ? span(process.uptime_s) : null)}${fact('restarts', process.restarts ?? 0)}${fact('cpu', process.cpu === null || process.cpu === undefined ? null : `${Math.round(process.cpu * 100)} %`)}${fact('rss', process.rss_bytes ? memory(process.rss_bytes) : null)}${fact('ports', process.ports ? Object.entries(process.ports).map(([name, port]) => `${name} ${port}`).join(', ') : process.port)}${fact('last error', process.last_error)}
      ${link && html`${fact('sent, received', `${perSecond(link.sent_s)}, ${perSecond(link.received_s)} a second`)}${fact('bytes', `${memory(link.bytes_s || 0)}/s`)}${fact('p50, p99', `${ms(link.p50_ms)}, ${ms(link.p99_ms)}`)}${fact('errors', link.errors_s ? `${perSecond(link.errors_s)}/s` : null)}${fact('link', link.fault ? faultWords(link.fault) : null)}`}</dl>
    ${live && html`<div class="actions break" role="group" aria-label="break ${process.name}">
      <button class="small" ...${gone} onClick=${() => propose('kill', process.name)}>kill</button><button class="small" ...${gone} onClick=${() => propose('pause', process.name)}>pause 10 s</button>
      ${row && html`<select class="small" ...${gone} aria-label="cut the link of ${process.name}" value="" onChange=${(event) => { const way = event.target.value; event.target.value = ''; if (way) propose('cut', process.name, {way}); }}><option value="">cut …</option><option value="both">both ways</option><option value="requests">requests</option><option value="replies">replies</option></select>
      <select class="small" ...${gone} aria-label="slow the link of ${process.name}" value="" onChange=${(event) => { const slow = Number(event.target.value); event.target.value = ''; if (slow) propose('slow', process.name, {slow_s: slow}); }}><option value="">slow …</option><option value="0.05">+50 ms</option><option value="0.2">+200 ms</option><option value="1">+1 s</option><option value="5">+5 s</option></select>`}
      <button class="small" ...${gone} onClick=${() => propose('heal', process.name)}>heal</button></div>${why && html`<p id="why-not" class="soft small-print">${why}</p>`}`}
    ${own.length > 0 && html`<p>${own.map((fault) => html`<span class="state broken">${faultWords(fault)}</span> `)}</p>`}
    ${row && live && html`<${Spark} name=${process.name} />`}
  </aside>`;
}

/** Faults that were caused here: who noticed, when all was well again, what was lost. */
function Counter({found}) {
  const now = found.at ?? state.head.value.time, known = new Map();
  for (const fault of (found.alarms?.faults || [])) known.set(`${fault.target}|${fault.action}|${fault.at}`, fault);
  for (const alarm of state.alarms.value) if (alarm.alarm === 'fault') known.set(`${alarm.target}|${alarm.action}|${alarm.at}`, alarm);
  const faults = [...known.values()].sort((a, b) => b.at - a.at), violations = state.alarms.value.filter((alarm) => alarm.alarm === 'violation'), total = found.alarms?.violations ?? violations.filter((each) => !each.by_hand).length;
  const since = (value, fault) => (value === null || value === undefined ? html`<span class="soft">not yet (${span(Math.max(0, now - fault.at))})</span>` : span(value));
  if (!faults.length && !found.alarms) return null;
  return html`<section class="panel counter" aria-label="alarms"><header class="toolbar"><h2>Alarms</h2><span class=${total ? 'bad' : 'good'}>${counted(total, 'violation')} of invariants</span>${found.alarms && !found.alarms.judged && html`<span class="soft">not judged: ${found.alarms.why_not}</span>`}</header>
    ${violations.slice(-5).map((each, at) => html`<p key=${at} class=${each.by_hand ? 'soft wrap' : 'bad wrap'}>${each.by_hand ? 'by hand: ' : ''}${each.invariant} ${each.detail || each.message || ''} ${each.trace_id ? html`<code>${each.trace_id.slice(0, 8)}</code>` : ''}</p>`)}
    ${faults.length > 0 && html`<table><thead><tr><th>Fault</th><th class="num">at</th><th>noticed after</th><th>healed after</th><th class="num">writes lost</th></tr></thead><tbody>${faults.slice(0, 12).map((fault) => html`<tr key=${`${fault.target}${fault.at}`}><th scope="row">${fault.action} ${fault.target}</th><td class="num"><button class="plain link" onClick=${() => seekTime(fault.at)}>${moment(fault.at, originOf(state.run.value))}</button></td><td>${since(fault.noticed_s, fault)}</td><td>${since(fault.healed_s, fault)}</td><td class="num">${count(fault.writes_lost || 0)}</td></tr>`)}</tbody></table>`}</section>`;
}

/** What only programs read of a line. */
const UNREAD = new Set(['content_sha256', 'group_end', 'prev_rv']);

/** The newest lines of the event log, of one process where one is chosen. */
function Newest() {
  const lines = state.lines.value, name = chosen.value, [text, setText] = useState(''), run = runOf(state.run.value), origin = run?.wall_s || 0, then = !state.live.value, now = state.time.value;
  const rows = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), found = [];
    for (let i = lines.length - 1; i >= 0 && found.length < 500; i--) {
      const line = lines[i];
      if ((name && line.comp !== name) || (then && timeOf(line) > now + 1e-6)) continue;
      if (words.length && !words.every((word) => `${line.comp} ${line.ev} ${aboutOf(line)} ${JSON.stringify(line.data || {})}`.toLowerCase().includes(word))) continue;
      found.push(line);
    }
    return found;
  }, [lines, name, text, then && now]);
  const columns = [
    {id: 'time', title: 'Time', num: true, width: '104px', cell: (line) => moment(timeOf(line), origin)}, {id: 'process', title: 'Process', width: '130px', cell: (line) => line.comp}, {id: 'event', title: 'Event', width: '160px', cell: (line) => line.ev},
    {id: 'object', title: 'Object', width: 'minmax(140px, 1fr)', cell: aboutOf}, {id: 'data', title: 'Data', width: 'minmax(160px, 2.4fr)', cell: (line) => Object.entries({...(line.node ? {node: line.node} : {}), ...(line.data || {})}).filter(([key, value]) => value !== '' && value !== null && !UNREAD.has(key)).map(([key, value]) => `${key}=${typeof value === 'object' ? JSON.stringify(value) : value}`).join(' ')},
  ];
  return html`<section class="newest" aria-label="event log"><div class="toolbar"><h2>Event log${name ? html` <span class="soft">of ${name}</span>` : ''}</h2><input class="filter-field" type="text" aria-label="filter lines" placeholder="event, object or data" value=${text} onInput=${(event) => setText(event.target.value)} /><span class="soft">${rows.length === 500 ? 'the newest 500' : count(rows.length)}</span></div>
    <${VirtualTable} label="newest lines of the event log" columns=${columns} rows=${rows} keyOf=${(line) => `${line.comp}/${line.inc}/${line.seq}`} picked=${undefined} onOpen=${(line) => seekTime(timeOf(line))} empty="No line fits." /></section>`;
}
const aboutOf = (line) => (line.obj ? `${line.obj.kind || ''} ${line.obj.ns ? `${line.obj.ns}/` : ''}${line.obj.name}`.trim() : '');

function Mesh() {
  const answer = useAnswer(() => source.mesh(state.run.peek()), [], {every: 1, past: false});
  useEffect(() => { if (answer.value) mesh.value = answer.value; }, [answer.value]);
  useEffect(() => () => { mesh.value = null; asking.value = null; }, []);
  const rates = /** @type {any} */ (view.value.rates.value), found = mesh.value && mesh.value.processes ? {...mesh.value, ...(rates && rates.at > (mesh.value.at || 0) ? rates : {})} : null;
  const laid = useMemo(() => (found ? meshRows(found) : {stores: [], rows: []}), [found]);
  const away = found ? found.processes.filter((process) => !process.ready).length : 0, total = (found?.links || []).reduce((sum, link) => sum + (link.messages_s || 0), 0), worst = Math.max(0, ...(found?.links || []).map((link) => link.p99_ms || 0));
  useSummary(found ? `${counted(found.processes.length, 'process', 'processes')}, ${away ? `${away} not ready` : 'all ready'}, ${counted((found.faults || []).length, 'fault')} in force.` : '');
  useLayoutEffect(() => register([
    {id: 'mesh.kill', title: 'Kill the process that is chosen', run: () => propose('kill', chosen.peek())}, {id: 'mesh.pause', title: 'Pause the process that is chosen for 10 s', run: () => propose('pause', chosen.peek())},
    {id: 'mesh.cut', title: 'Cut the link of the process that is chosen', run: () => propose('cut', chosen.peek())}, {id: 'mesh.slow', title: 'Slow the link of the process that is chosen', run: () => propose('slow', chosen.peek())}, {id: 'mesh.heal', title: 'Heal all faults', run: () => propose('heal', '')},
  ].map((command) => ({group: 'mesh', ...command}))), []);
  const pick = (name) => { chosen.value = chosen.value === name ? '' : name; };
  if (answer.error && !found) return html`<h1>Mesh</h1><p class="error" role="alert">${answer.error.message}</p>`;
  if (!found) return html`<h1>Mesh</h1><p class="empty">loading …</p>`;
  const row = laid.rows.find((each) => each.process.name === chosen.value), store = laid.stores.find((each) => each.name === chosen.value), linked = found.links?.length > 0;
  const onKey = (event, name) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); event.stopPropagation(); pick(name); } if (event.key === 'ArrowDown' || event.key === 'ArrowUp') { event.preventDefault(); const all = [...event.currentTarget.closest('.mesh').querySelectorAll('[data-process]')]; all[Math.max(0, Math.min(all.length - 1, all.indexOf(event.currentTarget) + (event.key === 'ArrowDown' ? 1 : -1)))].focus(); } };
  return html`<div class="toolbar"><h1>Mesh</h1><span class="soft">${counted(found.processes.length, 'process', 'processes')}${away ? `, ${away} not ready` : ''}${linked ? ` · ${perSecond(total)} msg/s · worst p99 ${ms(worst)}` : ''}</span>${found.error && html`<span class="error">${found.error}</span>`}<span class="grow"></span>
      ${(found.faults || []).length > 0 && html`<span class="state broken">${counted(found.faults.length, 'fault')} in force</span><button class="small" disabled=${Boolean(refused())} title=${refused() || undefined} onClick=${() => propose('heal', '')}>heal all</button>`}</div>
    ${(found.conditions || []).map((each) => html`<p key=${each.type || each} class="banner">${typeof each === 'string' ? each : `${each.type || ''} ${each.message || each.reason || ''}`}</p>`)}
    <div class="split"><div class="main-part scroll"><div class="mesh ${linked ? '' : 'unlinked'}">
      <div class="stores">${laid.stores.map((process) => html`<button key=${process.name} class="store" data-process=${process.name} aria-pressed=${chosen.value === process.name} onClick=${() => pick(process.name)} onKeyDown=${(event) => onKey(event, process.name)}>
        <b>${process.name}</b>${role(process)}<${Sign} process=${process} />${found.rv !== undefined && process.name.startsWith('apiserver') && html`<span class="mono">rv ${count(found.rv)}</span>`}<span class="soft">${process.cpu === null || process.cpu === undefined ? '' : `${Math.round(process.cpu * 100)} % cpu`}${process.rss_bytes ? ` · ${memory(process.rss_bytes)}` : ''}</span>${process.restarts ? html`<span>${process.restarts} restarts</span>` : ''}</button>`)}</div>
      <table class="processes"><thead><tr>${linked && html`<th class="link-cell"><span class="sr-only">link</span></th>`}<th>Process</th><th>State</th><th><span class="sr-only">role</span></th>${linked && html`<th class="num">msg/s</th><th class="num more">bytes/s</th><th class="num more">p50</th><th class="num">p99</th><th class="num">err/s</th><th class="num">cpu</th><th class="num most">rss</th>`}<th class="num">restarts</th></tr></thead><tbody>
        ${laid.rows.map(({process, link, fault}) => html`<tr key=${process.name} tabindex="0" data-process=${process.name} data-state=${process.state} aria-selected=${chosen.value === process.name} onClick=${() => pick(process.name)} onKeyDown=${(event) => onKey(event, process.name)}>
          ${linked && html`<td class="link-cell"><${Link} link=${link} process=${process} /></td>`}<th scope="row">${process.name}${nodesOf(process) && html` <span class="soft nodes">${nodesOf(process)}</span>`}</th><td><${Sign} process=${process} />${fault ? html` <span class="state broken">${faultWords(fault)}</span>` : ''}</td><td>${role(process)}</td>
          ${linked && html`<td class="num">${link ? perSecond(link.messages_s) : '–'}</td><td class="num more">${link ? memory(link.bytes_s || 0) : '–'}</td><td class="num more">${link ? ms(link.p50_ms) : '–'}</td><td class="num">${link ? ms(link.p99_ms) : '–'}</td><td class=${`num ${link?.errors_s ? 'loud' : ''}`}>${link ? perSecond(link.errors_s || 0) : '–'}</td><td class="num">${process.cpu === null || process.cpu === undefined ? '–' : `${Math.round(process.cpu * 100)} %`}</td><td class="num most">${process.rss_bytes ? memory(process.rss_bytes) : '–'}</td>`}<td class="num">${count(process.restarts || 0)}</td></tr>`)}
      </tbody></table></div>
      <${Counter} found=${found} />
      <${Newest} />
    </div>${(row || store) && html`<${Card} key=${chosen.value} row=${row} store=${store} faults=${found.faults} />`}</div><${Ask} />`;
}

export const page = {id: 'mesh', key: 'm', title: 'Mesh', icon: 'M12 9.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5ZM5 3.5v4M19 3.5v4M5 16.5v4M19 16.5v4M5 7.5l4.8 3.2M19 7.5l-4.8 3.2M5 16.5l4.8-3.2M19 16.5l-4.8-3.2', Component: Mesh, commands: []};
