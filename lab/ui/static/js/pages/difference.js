// Two runs beside each other with one playhead: the first decision that differs, and all others after it.
import {html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState} from 'keplab/html.js';
import {state, select, notify, runName, runOf} from 'keplab/state.js';
import {source, openRun, seekTime} from 'keplab/engine.js';
import {register} from 'keplab/commands.js';
import {useWidth, useSummary} from 'keplab/answers.js';
import {VirtualTable} from 'keplab/table.js';
import {PHASES} from 'keplab/columns.js';
import {decisionOf, eventWords, fieldWords, marksOf, moments, nameOfRole, step, summary} from 'keplab/alignment.js';
import {count, counted} from 'keplab/format.js';

/** What stays while other pages are looked at. */
const kept = signal({a: '', b: '', times: false, by: /** @type {'time'|'decision'|'role'} */ ('time'), at: 0});
const change = (more) => { kept.value = {...kept.peek(), ...more}; };

const nameOf = (id) => { const run = runOf(id); return run ? runName(run) : id; };

/** Two runs to begin with: of one scenario and seed, in two arms. */
function guess(runs) {
  const recorded = runs.filter((run) => run.kind !== 'live');
  for (const a of recorded) for (const b of recorded) if (a !== b && a.title === b.title && a.seed === b.seed && a.arm !== b.arm) return [a.id, b.id];
  return recorded.length > 1 ? [recorded[0].id, recorded[1].id] : ['', ''];
}

/** One run at its moment: pods by phase, what it decided, and the pod that it was about. */
function Pane({view, side, difference, all, letter, id}) {
  const columns = view ? view.columns.value : null, rv = view ? view.rv.value : 0, time = view ? view.time.value : 0;
  const phases = useMemo(() => {
    const sums = [0, 0, 0, 0, 0];
    if (columns?.pods.columns.name) for (let row = 0; row < columns.pods.rows; row++) if (columns.pods.columns.name[row]) sums[columns.pods.columns.phase[row]] += 1;
    return sums;
  }, [columns]);
  const decision = difference ? difference[side] : null;
  // Where the run has no such decision, the pod of that role by what it decided of it elsewhere.
  const called = decision?.name || (difference && nameOfRole(all, difference, side)) || '';
  const pod = useMemo(() => {
    if (!called || !columns?.pods.columns.name) return null;
    const [ns, ...rest] = called.split('/'), name = rest.join('/'), {pods, nodes, strings} = columns, wanted = strings.indexOf(name), place = strings.indexOf(ns);
    for (let row = 0; row < pods.rows; row++) if (wanted > 0 && pods.columns.name[row] === wanted && pods.columns.ns[row] === place) return {ns, name, phase: PHASES[pods.columns.phase[row]], node: pods.columns.node[row] >= 0 ? strings[nodes.columns.name[pods.columns.node[row]]] : '', reason: strings[pods.columns.reason[row]]};
    return {ns, name, phase: '', node: '', reason: ''};
  }, [called, columns]);
  const marked = (field) => difference && (difference.fields || []).includes(field);
  return html`<section class="panel pane" aria-label="run ${letter}: ${nameOf(id)}" data-side=${side} data-time=${time}><header class="toolbar"><h2><span class="letter">${letter}</span> ${nameOf(id)}</h2><span class="soft">${(runOf(id)?.switches || []).join(', ')}</span><span class="grow"></span><span class="mono">${time.toFixed(3)} s</span><span class="mono soft">rv ${count(rv)}</span></header>
    <p class="facts">${PHASES.map((phase, at) => (phases[at] ? html`<span key=${phase} class="phase phase-${phase}">${count(phases[at])} ${phase}</span>` : ''))}${phases.every((number) => !number) ? html`<span class="soft">no pods at this moment</span>` : ''}</p>
    ${difference && html`<dl class="pairs decision">
      <dt>role</dt><dd>${difference.role}</dd>
      ${!decision ? html`<dt>event</dt><dd class="differs"><span class="none">no such decision</span> <span class="tag">differs</span></dd>` : ['event', 'outcome', 'node'].map((field) => html`<dt key=${field}>${field}</dt><dd class=${marked(field) ? 'differs' : ''}>${decision[field] || html`<span class="soft">none</span>`}${marked(field) ? html` <span class="tag">differs</span>` : ''}</dd>`)}
      <dt>time</dt><dd>${decision ? `${decision.at_s.toFixed(6)} s` : html`<span class="soft">–</span>`}</dd>
      ${decision && html`<dt>by</dt><dd>${decision.component || '–'}</dd>`}
      ${pod && html`<dt>pod</dt><dd><button class="plain link" onClick=${() => select({kind: 'pods', ns: pod.ns, name: pod.name})}>${pod.ns}/${pod.name}</button> ${pod.phase ? html`<span class="phase phase-${pod.phase}">${pod.phase}</span>${pod.node ? ` on ${pod.node}` : ''}` : html`<span class="soft">not there at this moment</span>`}</dd>`}
      ${decision && Object.entries(decision.why || {}).filter(([name, value]) => !['outcome'].includes(name) && value !== '' && value !== null).slice(0, 6).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${typeof value === 'object' ? JSON.stringify(value) : String(value)}</dd>`)}
    </dl>`}</section>`;
}

/** Both runs over time: all decisions faint, differing ones marked, a line at what is shown through both. */
function Lanes({views, found, at, names, goTime}) {
  const [box, width] = useWidth(), label = Math.min(150, Math.round(width * 0.2)), wide = Math.max(60, width - label - 8), HEIGHT = 96;
  const lines = views.map((view) => (view ? view.lines.value : [])), differences = found.differences;
  const decided = useMemo(() => lines.map((list) => list.map(decisionOf).filter(Boolean).map((each) => each.at)), [lines[0], lines[1]]);
  const ends = [found.a, found.b].map((run) => run?.t1 ?? 0), to = Math.max(...ends, differences.length ? differences[differences.length - 1].at_s : 0, ...views.map((view) => (view ? view.head.value.time : 0)), 0.001), from = Math.min(0, ...[found.a, found.b].map((run) => run?.t0 ?? 0));
  const [part, setPart] = useState(/** @type {any} */ (null)), range = part || {from, to}, x = (time) => (time - range.from) / (range.to - range.from) * wide;
  const drag = useRef(false), element = useRef(/** @type {any} */ (null));
  const timeAt = (event) => { const own = element.current.getBoundingClientRect(); return range.from + Math.max(0, Math.min(1, (event.clientX - own.left) / wide)) * (range.to - range.from); };
  useEffect(() => {
    const place = element.current, call = (event) => { event.preventDefault(); const around = timeAt(event), span = Math.min(to - from, Math.max(0.0005, (range.to - range.from) * (event.deltaY > 0 ? 1.3 : 0.75))), share = (around - range.from) / (range.to - range.from), begin = Math.max(from, Math.min(to - span, around - share * span)); setPart(span >= to - from ? null : {from: begin, to: begin + span}); };
    place?.addEventListener('wheel', call, {passive: false});
    return () => place?.removeEventListener('wheel', call);
  });
  const now = differences[at], line = now ? x(now.at_s) : -1, place = views.map((view) => (view ? view.time.value : 0));
  const ticks = (list) => { const seen = new Set(); let d = ''; for (const time of list) { const px = Math.round(x(time)); if (px < 0 || px > wide || seen.has(px)) continue; seen.add(px); d += `M${px} 0v8`; } return d; };
  const outside = now && (now.at_s < range.from || now.at_s > range.to);
  useEffect(() => { if (outside && part) { const half = (part.to - part.from) / 2; setPart({from: Math.max(from, now.at_s - half), to: Math.max(from, now.at_s - half) + half * 2}); } }, [at]);
  return html`<div class="lanes panel" ref=${box} role="group" aria-label="both runs over time"><div class="lane-names" style=${{width: `${label}px`}}><span><b class="letter">A</b> ${names[0]}</span><span><b class="letter">B</b> ${names[1]}</span></div>
    <svg ref=${element} width=${wide} height=${HEIGHT} role="img" aria-label=${now ? `difference ${at + 1} at ${now.at_s.toFixed(3)} s` : 'no difference'} onPointerDown=${(event) => { drag.current = true; event.currentTarget.setPointerCapture(event.pointerId); goTime(timeAt(event)); }} onPointerMove=${(event) => { if (drag.current) goTime(timeAt(event)); }} onPointerUp=${() => { drag.current = false; }}>
      ${[0, 1].map((index) => html`<g key=${index} transform=${`translate(0 ${8 + index * 34})`}><line x1="0" x2=${wide} y1="12" y2="12" class="lane" /><path d=${ticks(decided[index])} class="decided" transform="translate(0 8)" />
        ${marksOf(differences, index ? 'b' : 'a', range.from, range.to, wide).map((mark) => html`<path key=${mark.x} class=${`mark ${differences[mark.at].role === now?.role && mark.at === at ? 'on' : ''}`} d=${`M${mark.x} 4l4 8-4 8-4-8Z`}><title>${summary(differences[mark.at])}${mark.n > 1 ? ` and ${mark.n - 1} more` : ''}</title></path>`)}
        <line x1=${x(place[index])} x2=${x(place[index])} y1="-4" y2="28" class="playhead" /></g>`)}
      ${now && !outside && html`<line x1=${line} x2=${line} y1="0" y2="78" class="first" /><text x=${Math.min(wide - 4, Math.max(4, line + 5))} y="90" text-anchor=${line > wide * 0.6 ? 'end' : 'start'} class="words">▲ ${at === 0 ? 'first difference' : `difference ${at + 1}`}  t = ${now.at_s.toFixed(3)} s</text>`}
    </svg></div>`;
}

function Pair() {
  const runs = state.meta.value.runs || [], {a, b, times, by, at} = kept.value, route = state.route.value;
  const [found, setFound] = useState(/** @type {any} */ (null)), [error, setError] = useState(/** @type {any} */ (null)), [views, setViews] = useState(/** @type {any[]} */ ([null, null])), [text, setText] = useState('');
  useEffect(() => { if (route.path.length === 2) change({a: route.path[0], b: route.path[1], at: 0}); else if (!a && !b && runs.length) { const [one, two] = guess(runs); if (one) change({a: one, b: two, at: 0}); } }, [runs.length, route.path.join('|')]);
  useEffect(() => {
    let current = true;
    setFound(null); setError(null); setViews([null, null]);
    if (!a || !b) return undefined;
    source.diff(a, b, {times: times || undefined}).then((answer) => { if (current) setFound(answer); }, (failure) => { if (current) setError(failure); });
    Promise.all([openRun(a), openRun(b)]).then((opened) => { if (current) setViews(opened); }, (failure) => notify(failure.message, 'bad'));
    return () => { current = false; };
  }, [a, b, times]);
  const differences = found?.differences || [], difference = differences[at], latest = useRef({differences, at, views, by});
  latest.current = {differences, at, views, by};
  const goTo = (next) => { const {differences: list} = latest.current; if (list.length) change({at: Math.max(0, Math.min(list.length - 1, next))}); };
  const goTime = (time) => { for (const view of latest.current.views) if (view) seekTime(time + 1e-6, view.id); };
  useEffect(() => {
    if (!difference || !views[0] || !views[1]) return;
    // A recording orders by time: a moment is shown with what was written in the same instant.
    moments(difference, by, differences).forEach((time, index) => seekTime(time + 1e-6, views[index].id));
  }, [at, by, found, views]);
  useLayoutEffect(() => register([
    {id: 'difference.next', title: 'Next differing decision', keys: [']'], run: () => goTo(step(latest.current.at, 1, latest.current.differences.length))},
    {id: 'difference.previous', title: 'Differing decision before', keys: ['['], run: () => goTo(step(latest.current.at, -1, latest.current.differences.length))},
    {id: 'difference.first', title: 'First differing decision', keys: ['{'], run: () => goTo(0)},
    {id: 'difference.last', title: 'Last differing decision', keys: ['}'], run: () => goTo(latest.current.differences.length - 1)},
  ].map((command) => ({group: 'difference', ...command}))), []);
  const names = /** @type {[string, string]} */ ([nameOf(a), nameOf(b)]), words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = useMemo(() => differences.map((each, index) => ({...each, index})).filter((each) => words.every((word) => summary(each, names).toLowerCase().includes(word))), [differences, text]);
  useSummary(!found ? '' : difference ? `Difference ${at + 1} of ${found.difference_count}: ${summary(difference, names)}` : found.text || 'No difference.');
  const choose = (letter, value, side) => html`<label><b class="letter">${letter}</b><select class="run-choice" aria-label="run ${letter}" value=${value} onChange=${(event) => change({[side]: event.target.value, at: 0})}><option value="">choose a run</option>${runs.map((run) => html`<option key=${run.id} value=${run.id}>${nameOf(run.id)}</option>`)}</select></label>`;
  const columns = [
    {id: 'number', title: '#', num: true, width: '62px', cell: (each) => count(each.index + 1), sort: (each) => each.index},
    {id: 'time', title: 'Time', num: true, width: '100px', cell: (each) => `${each.at_s.toFixed(3)} s`, sort: (each) => each.at_s},
    {id: 'role', title: 'Role', width: 'minmax(150px, 1fr)', cell: (each) => each.role},
    {id: 'a', title: `A · ${names[0]}`, width: 'minmax(180px, 1.3fr)', cell: (each) => eventWords(each.a)},
    {id: 'b', title: `B · ${names[1]}`, width: 'minmax(180px, 1.3fr)', cell: (each) => eventWords(each.b)},
    {id: 'fields', title: 'Differs in', width: '150px', cell: (each) => (!each.a || !each.b ? `only in ${each.a ? 'A' : 'B'}` : (each.fields || []).join(', ') || 'time')},
  ];
  return html`<div class="toolbar"><h1>Difference</h1>${choose('A', a, 'a')}${choose('B', b, 'b')}<button class="small" onClick=${() => change({a: b, b: a, at: 0})} aria-label="exchange A and B">⇄</button>
      <label>together by <select value=${by} onChange=${(event) => change({by: event.target.value})}><option value="time">time</option><option value="decision">decision</option><option value="role">role</option></select></label>
      <label class="check" title="the same decision at another time differs as well"><input type="checkbox" checked=${times} onChange=${() => change({times: !times, at: 0})} /> and when</label><span class="grow"></span>
      ${differences.length > 0 && html`<button class="small" aria-label="differing decision before" disabled=${at <= 0} onClick=${() => goTo(at - 1)}><kbd>[</kbd></button><span class="num" data-difference=${at + 1}>${count(at + 1)} of ${count(found.difference_count)}</span><button class="small" aria-label="next differing decision" disabled=${at >= differences.length - 1} onClick=${() => goTo(at + 1)}><kbd>]</kbd></button>`}</div>
    ${!a || !b ? html`<p class="empty">${runs.length < 2 ? html`Two runs are needed: <code>keplab compare FILE --recording DIR</code>, then <code>keplab ui --run DIR</code>.` : 'Choose two runs.'}</p>`
      : error ? html`<p class="error" role="alert">${error.message}</p>` : !found ? html`<p class="empty">comparing …</p>` : html`
      <p class="result" data-differences=${found.difference_count}>${differences.length ? html`<b>${counted(found.difference_count, 'difference')}</b> in ${count(found.counts.a)} and ${counted(found.counts.b, 'decision')}, ${count(found.same)} the same${found.difference_count > differences.length ? `; the first ${count(differences.length)} are here` : ''}.${difference ? html` <span class="soft">${difference.a && difference.b ? (difference.fields || []).map((field) => fieldWords(difference, field)).join('; ') : summary(difference, names)}</span>` : ''}` : html`<b>${found.text || 'no difference'}</b>${found.reordered ? ' · some attempts were made in another order' : ''}`}</p>
      <${Lanes} views=${views} found=${found} at=${at} names=${names} goTime=${goTime} />
      <div class="panes"><${Pane} view=${views[0]} side="a" letter="A" id=${a} difference=${difference} all=${differences} /><${Pane} view=${views[1]} side="b" letter="B" id=${b} difference=${difference} all=${differences} /></div>
      ${differences.length > 0 && html`<div class="toolbar"><label class="grow">differences <input class="filter" type="text" placeholder="role, event, node" value=${text} onInput=${(event) => setText(event.target.value)} /></label><span class="soft">${count(rows.length)}</span></div>
      <${VirtualTable} label="differences" columns=${columns} rows=${rows} keyOf=${(each) => each.index} picked=${at} onPick=${(each) => goTo(each.index)} empty="No difference fits." />`}`}`;
}

export const page = {id: 'difference', key: 'd', title: 'Difference', icon: 'M4 5h7v14H4zM13 5h7v14h-7zM7.5 9v0M7.5 12v0M16.5 9v6', Component: Pair, commands: []};
