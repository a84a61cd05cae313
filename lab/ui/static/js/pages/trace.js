// The trace of a pod: its spans as a waterfall, the critical path, and pieces that add up to its start-up latency.
import {html, useEffect, useLayoutEffect, useMemo, useRef, useState} from 'keplab/html.js';
import {state, view, select, copy, notify, originOf, rowOf, runName} from 'keplab/state.js';
import {sameRole} from 'keplab/alignment.js';
import {openRun, source} from 'keplab/engine.js';
import {register} from 'keplab/commands.js';
import {useAnswer, useWidth, useSummary} from 'keplab/answers.js';
import {compared, exactly, layout, ticks} from 'keplab/waterfall.js';
import {Provenance} from 'keplab/result.js';
import {processColour} from 'keplab/colours.js';
import {VirtualTable} from 'keplab/table.js';
import {count, moment, span, counted} from 'keplab/format.js';

const ROW = 20, NAMES = 320;
const axisWords = (us) => (us === 0 ? '0' : Math.abs(us) < 1000 ? `${us} µs` : Math.abs(us) < 1e6 ? `${us / 1000} ms` : `${us / 1e6} s`);

/** One pod's waterfall. `shown`: {from, to} in µs since its creation, one for both pods, so that they are aligned at creation. */
function Fall({laid, shown, setShown, title, second}) {
  const [box, width] = useWidth(), names = Math.min(NAMES, Math.round(width * 0.34)), wide = Math.max(80, width - names - 10), [at, setAt] = useState(-1), [only, setOnly] = useState(false);
  const rows = only ? laid.rows.filter((row) => row.critical) : laid.rows, part = (us) => (us - shown.from) / (shown.to - shown.from), x = (us) => `${(part(us) * 100).toFixed(4)}%`, whole = shown.last - shown.first;
  const drag = useRef(/** @type {any} */ (null)), picked = rows[at];
  const onWheel = (event) => {
    event.preventDefault();
    const own = event.currentTarget.getBoundingClientRect(), around = shown.from + Math.max(0, Math.min(1, (event.clientX - own.left - names) / wide)) * (shown.to - shown.from), factor = event.deltaY > 0 ? 1.25 : 0.8;
    zoomed(shown, setShown, factor, around);
  };
  const wheel = useRef(onWheel);
  wheel.current = onWheel;
  useEffect(() => { const element = box.current, call = (event) => { if (event.ctrlKey || event.altKey || event.target.closest('.minimap')) wheel.current(event); }; element?.addEventListener('wheel', call, {passive: false}); return () => element?.removeEventListener('wheel', call); }, []);
  const onKey = (event) => {
    const jump = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (jump) { event.preventDefault(); event.stopPropagation(); setAt(Math.max(0, Math.min(rows.length - 1, at + jump))); }
  };
  return html`<section class="panel fall" ref=${box} aria-label="trace of ${title}"><header class="toolbar"><h2 class="wrap">${title}</h2><span>${laid.phase || 'not ended'} after <b class="mono" data-total-us=${laid.total_us}>${exactly(laid.total_us)}</b></span><span class="soft">${counted(laid.rows.length, 'span')}${laid.later ? `, ${count(laid.later)} later ones left out` : ''}${laid.connected ? '' : ' · a cause was guessed: a span is lost or not written yet'}</span><span class="grow"></span><label class="check no-print"><input type="checkbox" checked=${only} onChange=${() => { setOnly(!only); setAt(-1); }} /> only the critical path</label></header>
    <svg class="minimap" viewBox="0 0 ${width} 34" preserveAspectRatio="none" role="img" aria-label="all of it; drag to choose a part" onPointerDown=${(event) => { const own = event.currentTarget.getBoundingClientRect(); drag.current = {from: (event.clientX - own.left) / width, own}; event.currentTarget.setPointerCapture(event.pointerId); }}
      onPointerMove=${(event) => { if (!drag.current) return; const to = (event.clientX - drag.current.own.left) / width, [a, b] = [drag.current.from, to].sort((p, q) => p - q); if (b - a > 0.005) setShown({...shown, from: shown.first + Math.max(0, a) * whole, to: shown.first + Math.min(1, b) * whole}); }} onPointerUp=${() => { drag.current = null; }} onDblClick=${() => setShown({...shown, from: shown.first, to: shown.last})}>
      <rect x="0" y="0" width=${width} height="34" class="ground" />${laid.rows.map((row, index) => html`<line key=${index} x1=${(row.from - shown.first) / whole * width} x2=${Math.max((row.from - shown.first) / whole * width + 1, (row.to - shown.first) / whole * width)} y1=${3 + index / laid.rows.length * 28} y2=${3 + index / laid.rows.length * 28} stroke=${processColour(row.span.service)} stroke-width=${row.critical ? 2 : 1} opacity=${row.critical ? 1 : 0.45} />`)}
      <rect x=${(shown.from - shown.first) / whole * width} width=${Math.max(2, (shown.to - shown.from) / whole * width)} y="0.5" height="33" class="part" /></svg>
    <div class="axis" aria-hidden="true" style=${{marginLeft: `${names + 10}px`}}>${ticks(shown.from, shown.to, Math.max(2, Math.floor(wide / 90))).map((us) => html`<span key=${us} style=${{left: x(us)}}>${axisWords(us)}</span>`)}</div>
    <div class="spans" role="listbox" tabindex="0" aria-label="spans of ${title}" aria-activedescendant=${picked ? `${second}-span-${at}` : undefined} onKeyDown=${onKey}>${rows.map((row, index) => html`<div key=${row.span.span_id + index} id="${second}-span-${index}" role="option" aria-selected=${index === at} aria-label=${spoken(row)} class="span ${row.critical ? 'critical' : 'dim'}" style=${{height: `${ROW}px`}} onClick=${() => setAt(index === at ? -1 : index)}>
      <span class="span-name" style=${{width: `${names}px`, paddingLeft: `${Math.min(12, row.depth) * 10}px`}} title=${`${row.span.service}: ${row.title}`}><b style=${{color: processColour(row.span.service)}} aria-hidden="true">▎</b>${row.span.service} <span class="soft">${row.title}</span></span>
      <span class="span-track"><span class="bar ${row.span.error ? 'failed' : ''}" style=${{left: x(row.from), width: `${((part(row.to) - part(row.from)) * 100).toFixed(4)}%`, background: processColour(row.span.service)}}></span><span class="took" style=${place(part(row.from), part(row.to), 74 / wide)}>${row.span.error ? '✕ ' : ''}${span((row.to - row.from) / 1e6)}</span></span></div>`)}</div>
    ${picked && html`<div class="span-detail"><h3>${picked.span.service}: ${picked.span.name}</h3><dl class="pairs"><dt>began</dt><dd>${exactly(Math.round(picked.from))}</dd><dt>took</dt><dd>${exactly(Math.round(picked.to - picked.from))}</dd>${picked.span.error && html`<dt>error</dt><dd>${picked.span.error}</dd>`}<dt>span</dt><dd class="mono">${picked.span.span_id}</dd>${Object.entries(picked.span.attributes || {}).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${String(value)}</dd>`)}</dl></div>`}
  </section>`;
}

/** A row in words. */
const spoken = (row) => `${row.span.service} ${row.title}, from ${exactly(Math.round(row.from))}, took ${exactly(Math.round(row.to - row.from))}${row.critical ? ', on the critical path' : ''}${row.span.error ? `, error: ${row.span.error}` : ''}`;

/** Where the time of a bar is written, as shares of the track: behind it, or before it where it would not fit, or in it where it is as long as the track. */
function place(from, to, wide) {
  const percent = (share) => `calc(${(share * 100).toFixed(4)}% + 5px)`;
  if (to + wide < 1) return {left: percent(Math.max(0, to))};
  return from > wide ? {right: percent(Math.max(0, 1 - from))} : {right: '4px', background: 'var(--paper)'};
}

function zoomed(shown, setShown, factor, around) {
  const all = shown.last - shown.first, wide = Math.min(all, Math.max(10, (shown.to - shown.from) * factor)), share = (around - shown.from) / (shown.to - shown.from), from = Math.max(shown.first, Math.min(shown.last - wide, around - share * wide));
  setShown({...shown, from, to: from + wide});
}

/** The pieces of the critical path; of two pods, where they differ. */
function Pieces({a, b}) {
  if (b) {
    return html`<section class="panel" aria-label="difference of the critical paths"><h2>Where they differ</h2><table class="pieces"><thead><tr><th>piece of the critical path</th><th class="num">first</th><th class="num">second</th><th class="num">difference</th></tr></thead><tbody>${compared(a.pieces, b.pieces).map((row) => html`<tr key=${row.what}><td class="wrap">${row.what}</td><td class="num">${row.a === null ? '–' : exactly(row.a)}</td><td class="num">${row.b === null ? '–' : exactly(row.b)}</td><td class="num">${row.difference > 0 ? '+' : ''}${exactly(row.difference)}</td></tr>`)}</tbody><tfoot><tr><th scope="row">total</th><td class="num">${exactly(a.total_us)}</td><td class="num">${exactly(b.total_us)}</td><td class="num">${b.total_us > a.total_us ? '+' : ''}${exactly(b.total_us - a.total_us)}</td></tr></tfoot></table></section>`;
  }
  return html`<section class="panel" aria-label="critical path"><h2>Critical path</h2><table class="pieces"><thead><tr><th>piece</th><th class="num">time</th><th class="num">share</th><th><span class="sr-only">share as a bar</span></th></tr></thead><tbody>${a.pieces.map((piece, at) => html`<tr key=${at} class=${piece.way ? 'way' : ''} data-us=${piece.us}><td class="wrap">${piece.what}</td><td class="num">${exactly(piece.us)}</td><td class="num">${a.total_us ? `${(piece.us / a.total_us * 100).toFixed(1)} %` : '–'}</td><td class="share"><span style=${{width: `${a.total_us ? piece.us / a.total_us * 100 : 0}%`}}></span></td></tr>`)}</tbody><tfoot><tr><th scope="row">total</th><td class="num"><b>${exactly(a.total_us)}</b></td><td class="num">100 %</td><td></td></tr></tfoot></table></section>`;
}

/** The pods that can be chosen: those of the file's traces, else of the run's columns. */
function names(kept) {
  if (kept?.pods) return kept.pods.map(({ns, name}) => `${ns}/${name}`);
  const {pods, strings} = state.columns.value, found = [];
  if (!pods.columns.name) return found;
  for (let row = 0; row < pods.rows && found.length < 500; row++) if (pods.columns.name[row]) found.push(`${strings[pods.columns.ns[row]]}/${strings[pods.columns.name[row]]}`);
  return found;
}

const podOf = (text) => { const [ns, ...rest] = text.split('/'); return rest.length ? {ns, name: rest.join('/')} : {ns: 'default', name: ns}; };

function Trace() {
  const chosen = state.selected.value, pod = chosen && chosen.kind === 'pods' ? chosen : null, runs = state.meta.value.runs || [];
  const [text, setText] = useState(''), [second, setSecond] = useState(/** @type {any} */ (null)), [other, setOther] = useState(''), [run, setRun] = useState('');
  useEffect(() => setText(pod ? `${pod.ns}/${pod.name}` : ''), [pod?.ns, pod?.name]);
  // A file may be written of traces alone: it opens with the first of them.
  const [kept, setKept] = useState(/** @type {any} */ (null)), isOfTraces = state.meta.value.opens === 'trace';
  useEffect(() => { if (isOfTraces) source.resultOf('').then((found) => { setKept(found); if (!state.selected.peek()) select({kind: 'pods', ...found.pods[0]}); }, (error) => setKept({error, pods: [], where: []})); }, []);
  const first = useAnswer(() => (pod ? source.trace(pod.ns, pod.name, state.run.peek()) : Promise.resolve(null)), [pod?.ns, pod?.name], {past: false, every: 3});
  const beside = useAnswer(() => (second ? source.trace(second.ns, second.name, second.run) : Promise.resolve(null)), [second?.ns, second?.name, second?.run], {past: false});
  const a = useMemo(() => (first.value ? layout(first.value) : null), [first.value]), b = useMemo(() => (second && beside.value ? layout(beside.value) : null), [beside.value, second]);
  const edge = [Math.min(a?.first ?? 0, b?.first ?? 0), Math.max(a?.last ?? 1, b?.last ?? 1)], [part, setPart] = useState(/** @type {any} */ (null));
  const shown = part && part.first === edge[0] && part.last === edge[1] ? part : {first: edge[0], last: edge[1], from: edge[0], to: edge[1]}, latest = useRef(shown);
  latest.current = shown;
  useSummary(a && pod ? `Trace of ${pod.name}: ${a.phase || 'not ended'} after ${span(a.total_us / 1e6)}, ${counted(a.rows.length, 'span')}.` : '');
  useLayoutEffect(() => register([
    {id: 'trace.fit', title: 'Show the whole trace', keys: ['f'], run: () => setPart(null)},
    {id: 'trace.in', title: 'Zoom into the trace', keys: ['w'], run: () => zoomed(latest.current, setPart, 0.7, (latest.current.from + latest.current.to) / 2)}, {id: 'trace.out', title: 'Zoom out of the trace', keys: ['s'], run: () => zoomed(latest.current, setPart, 1.4, (latest.current.from + latest.current.to) / 2)},
    {id: 'trace.left', title: 'Earlier part of the trace', keys: ['a'], run: () => shift(latest.current, setPart, -0.25)}, {id: 'trace.right', title: 'Later part of the trace', keys: ['d'], run: () => shift(latest.current, setPart, 0.25)},
  ].map((command) => ({group: 'trace', ...command}))), []);
  const jaeger = first.value?.otlp_endpoint, link = jaeger && first.value?.trace_id ? jaegerAddress(jaeger, first.value.trace_id) : '';
  // Of another run it is the pod with the same role: owner and order of creation are the same.
  const ofRun = async (id) => {
    setRun(id);
    const found = pod && id !== state.run.peek() ? sameRole(view.peek().columns.peek(), rowOf('pods', pod.ns, pod.name), (await openRun(id)).columns.peek()) : null;
    if (found) { setOther(`${found.ns}/${found.name}`); setSecond({...found, run: id}); } else if (second) setSecond({...second, run: id}); else if (pod && id !== state.run.peek()) notify(`${pod.ns}/${pod.name} has no pod of the same role there: name one.`);
  };
  const show = (value) => { if (value.trim()) select({kind: 'pods', ...podOf(value.trim())}); };
  return html`<div class="toolbar no-print"><h1>Trace</h1><label>pod <input type="text" list="trace-pods" size="30" spellcheck=${false} value=${text} placeholder="namespace/name" onInput=${(event) => setText(event.target.value)} onChange=${(event) => show(event.target.value)} /></label><datalist id="trace-pods">${names(kept).map((name) => html`<option key=${name} value=${name} />`)}</datalist>
      <label>compare with <input type="text" list="trace-pods" size="26" spellcheck=${false} value=${other} placeholder="a second pod" onInput=${(event) => setOther(event.target.value)} onChange=${(event) => setSecond(event.target.value.trim() ? {...podOf(event.target.value.trim()), run: run || state.run.peek()} : null)} /></label>
      ${runs.length > 1 && html`<label>of run <select value=${run || state.run.value} onChange=${(event) => ofRun(event.target.value)}>${runs.map((each) => html`<option key=${each.id} value=${each.id}>${runName(each)}</option>`)}</select></label>`}
      <span class="grow"></span>${link && html`<a class="button" href=${link} target="_blank" rel="noreferrer">open in Jaeger</a>`}${first.value?.trace_id && html`<button class="small" onClick=${() => copy(first.value.trace_id, 'the trace id')}>copy trace id</button>`}<button class="small" onClick=${() => window.print()}>print</button></div>
    ${kept?.error ? html`<p class="error" role="alert">${kept.error.message}</p>` : !pod ? html`<${None} kept=${kept} show=${show} />` : first.error && !a ? html`<p class="error" role="alert">${first.error.message}</p>` : !a ? html`<p class="empty">loading …</p>` : html`
      <${Fall} laid=${a} shown=${shown} setShown=${setPart} title="${pod.ns}/${pod.name}" second="a" />
      ${second && (beside.error ? html`<p class="error" role="alert">${beside.error.message}</p>` : b && html`<${Fall} laid=${b} shown=${shown} setShown=${setPart} title="${second.ns}/${second.name}${runs.length > 1 ? ` · ${runName(runs.find((each) => each.id === second.run))}` : ''}" second="b" />`)}
      <${Pieces} a=${a} b=${b} />`}
    ${kept && !kept.error && html`${kept.left && html`<p class="soft">${kept.left}</p>`}<${Provenance} where=${kept.where} command=${kept.command} />`}`;
}

const CHOICE = [
  {id: 'time', title: 'Time', width: '120px', num: true, cell: (mark) => moment(mark.time, originOf(state.run.value)), sort: (mark) => mark.time},
  {id: 'pod', title: 'Pod', width: 'minmax(200px, 1fr)', cell: (mark) => mark.pod},
  {id: 'label', title: 'Newest decision', width: 'minmax(240px, 2fr)', cell: (mark) => mark.label.slice(mark.pod.length + 1)},
];

/** What is there to choose where no pod is chosen: those of the file, else those that were decided about last. */
function None({kept, show}) {
  if (kept) return html`<p class="empty">Select a pod: ${kept.pods.map(({ns, name}) => html`<button key=${`${ns}/${name}`} class="small" onClick=${() => show(`${ns}/${name}`)}>${ns}/${name}</button> `)}</p>`;
  const decided = new Map();
  for (const mark of state.marks.value) {
    const obj = mark.track === 'decision' && mark.ref?.obj;
    if (!obj || obj.kind !== 'Pod') continue;
    const pod = `${obj.ns}/${obj.name}`;
    decided.delete(pod);
    decided.set(pod, {...mark, pod});
  }
  return html`<p class="empty">Select a pod: <kbd>/</kbd> searches names. A mesh of processes is traced; of a simulation, <code>keplab run FILE --traced --recording RUN.keprec</code> keeps the spans.</p>
    ${decided.size > 0 && html`<${VirtualTable} label="pods, the newest decision first" columns=${CHOICE} rows=${[...decided.values()].reverse()} keyOf=${(mark) => mark.pod} onPick=${(mark) => show(mark.pod)} />`}`;
}

function shift(shown, setShown, share) {
  const wide = shown.to - shown.from, from = Math.max(shown.first, Math.min(shown.last - wide, shown.from + share * wide));
  setShown({...shown, from, to: from + wide});
}

/** Jaeger's page of a trace: its UI's port where the endpoint is OTLP's. */
function jaegerAddress(endpoint, trace) {
  try {
    const url = new URL(endpoint);
    return /^https?:$/.test(url.protocol) ? `${url.protocol}//${url.hostname}:16686/trace/${encodeURIComponent(trace)}` : '';
  } catch { return ''; }
}

export const page = {id: 'trace', key: 't', keys: ['g t'], title: 'Trace', icon: 'M3 5h9M7 10h10M11 15h7M14 20h7', Component: Trace, commands: []};
