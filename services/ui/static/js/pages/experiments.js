// Launch a comparison, follow it, and read what came of it: measures with paired differences, pods by phase, and every run.
import {html, signal, useEffect, useMemo, useRef, useState} from 'keplab/html.js';
import {state, go, notify} from 'keplab/state.js';
import {source, showRun} from 'keplab/engine.js';
import {register} from 'keplab/commands.js';
import {useSummary} from 'keplab/answers.js';
import {VirtualTable} from 'keplab/table.js';
import {commandOf, directionOf, figure, judged, measuresOf, phasesOf, refusalOf, signed, spreadWords} from 'keplab/comparison.js';
import {Dots, PhasePlot} from 'keplab/plots.js';
import {count, span} from 'keplab/format.js';

/** What is filled in, and the job that is looked at; it stays while other pages are. */
const form = signal(/** @type {any} */ ({scenario: '', arms: [{name: 'a', switches: []}, {name: 'b', switches: []}], seeds: 20, processes: false, recording: true}));
const chosen = signal(''), jobs = signal(/** @type {any[]} */ ([]));
const fill = (more) => { form.value = {...form.peek(), ...more}; };
const fillArm = (at, more) => fill({arms: form.peek().arms.map((arm, index) => (index === at ? {...arm, ...more} : arm))});
const ENDED = new Set(['Succeeded', 'Failed', 'Cancelled']);

function copy(text) {
  navigator.clipboard?.writeText(text).then(() => notify('Copied the command.'), () => notify(text));
}

/** The register of switches: searched by words, a value is a button. */
function Picker({add, close}) {
  const [text, setText] = useState(''), all = state.meta.value.switches || [], words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((each) => words.every((word) => `${each.name} ${each.meaning} ${each.source} ${(each.values || []).join(' ')}`.toLowerCase().includes(word)));
  const [free, setFree] = useState(/** @type {Record<string, string>} */ ({})), field = useRef(/** @type {HTMLInputElement|null} */ (null));
  useEffect(() => field.current?.focus(), []);
  return html`<div class="picker panel" role="group" aria-label="switches"><div class="toolbar"><label class="grow">switch <input ref=${field} class="filter" type="text" placeholder="name, meaning or KEP" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => { if (event.key === 'Escape') { event.stopPropagation(); close(); } }} /></label><span class="soft">${count(found.length)} of ${count(all.length)}</span><button class="small" aria-label="close" onClick=${close}>✕</button></div>
    <ul class="switches">${found.slice(0, 60).map((each) => html`<li key=${each.name}><div class="toolbar"><code>${each.name}</code><span class="grow"></span>${(each.values || []).length ? each.values.map((value) => html`<button key=${value} class="small" onClick=${() => add(`${each.name}=${value}`)}>${String(value)}${String(value) === String(each.default) ? html` <span class="soft">default</span>` : ''}</button>`)
      : html`<input type="text" size="10" aria-label="value of ${each.name}" placeholder=${String(each.default)} value=${free[each.name] || ''} onInput=${(event) => setFree({...free, [each.name]: event.target.value})} onKeyDown=${(event) => { if (event.key === 'Enter' && event.target.value) add(`${each.name}=${event.target.value}`); }} /><button class="small" disabled=${!free[each.name]} onClick=${() => add(`${each.name}=${free[each.name]}`)}>set</button>`}</div><p class="soft wrap">${each.meaning}${each.source ? html` <span class="source">${each.source}</span>` : ''}</p></li>`)}</ul></div>`;
}

function Arm({arm, at, only}) {
  const [open, setOpen] = useState(false), known = new Map((state.meta.value.switches || []).map((each) => [each.name, each]));
  return html`<fieldset class="arm"><legend>arm ${at + 1}</legend><div class="toolbar"><input type="text" size="12" aria-label="name of arm ${at + 1}" value=${arm.name} spellcheck=${false} onInput=${(event) => fillArm(at, {name: event.target.value.trim()})} />
      ${arm.switches.map((text, index) => html`<span key=${text} class="chip" title=${known.get(text.split('=')[0])?.meaning}><code>${text}</code><button class="plain" aria-label="remove ${text}" onClick=${() => fillArm(at, {switches: arm.switches.filter((_, place) => place !== index)})}>✕</button></span>`)}
      <button class="small" aria-expanded=${open} onClick=${() => setOpen(!open)}>+ switch</button><span class="grow"></span><button class="small" onClick=${() => fill({arms: [...form.peek().arms, {name: `${arm.name}-2`, switches: [...arm.switches]}]})}>copy</button><button class="small" aria-label="remove arm ${arm.name}" disabled=${only} onClick=${() => fill({arms: form.peek().arms.filter((_, index) => index !== at)})}>✕</button></div>
    ${open && html`<${Picker} close=${() => setOpen(false)} add=${(text) => { const name = text.split('=')[0]; fillArm(at, {switches: [...form.peek().arms[at].switches.filter((each) => each.split('=')[0] !== name), text]}); setOpen(false); }} />`}</fieldset>`;
}

function Launcher() {
  const [scenarios, setScenarios] = useState(/** @type {any[]} */ ([])), [error, setError] = useState(''), request = form.value;
  useEffect(() => { source.scenarios().then((answer) => setScenarios(answer.scenarios || []), (failure) => setError(failure.message)); }, []);
  const scenario = scenarios.find((each) => each.path === request.scenario), why = refusalOf(request, state.meta.value.switches || []), command = commandOf(request), total = request.arms.length * (request.seeds || 0);
  const start = async () => {
    if (why) { notify(why, 'bad'); return; }
    try {
      const job = await source.job({scenario: request.scenario, arms: request.arms, seeds: request.seeds, processes: request.processes, recording: request.recording});
      jobs.value = [...jobs.peek(), job];
      chosen.value = job.id;
      setError('');
    } catch (failure) { setError(failure.message); }
  };
  useEffect(() => register([{id: 'experiments.run', title: 'Run the comparison that is filled in', group: 'experiments', run: start}]), [request]);
  return html`<section class="panel launcher" aria-label="new comparison"><h2>New comparison</h2>
    <div class="toolbar"><label class="grow">scenario <input class="filter" type="text" list="scenarios" spellcheck=${false} value=${request.scenario} placeholder="experiments/runaway/runaway.txt" onInput=${(event) => fill({scenario: event.target.value.trim()})} /></label><datalist id="scenarios">${scenarios.map((each) => html`<option key=${each.path} value=${each.path}>${each.title}</option>`)}</datalist></div>
    ${scenario && html`<p class="soft about"><b>${scenario.title}</b> ${scenario.about}</p>`}
    ${request.arms.map((arm, at) => html`<${Arm} key=${at} arm=${arm} at=${at} only=${request.arms.length === 1} />`)}
    <div class="toolbar"><button class="small" onClick=${() => fill({arms: [...request.arms, {name: `arm-${request.arms.length + 1}`, switches: []}]})}>+ arm</button><label>seeds <input type="number" min="1" max="1000" value=${request.seeds} onInput=${(event) => fill({seeds: Number(event.target.value)})} /></label><label class="check"><input type="checkbox" checked=${request.processes} onChange=${() => fill({processes: !request.processes})} /> as processes</label><label class="check"><input type="checkbox" checked=${request.recording} onChange=${() => fill({recording: !request.recording})} /> recording</label><span class="soft">${count(total)} runs, one at a time</span><span class="grow"></span>
      <button class="primary" disabled=${Boolean(why)} title=${why || undefined} onClick=${start}>Run</button></div>
    <div class="command"><code>${command}</code><button class="small" onClick=${() => copy(command)}>copy</button></div>
    ${why && request.scenario ? html`<p class="soft">${why}</p>` : ''}${error && html`<p class="error" role="alert">${error}</p>`}</section>`;
}

function Progress({job}) {
  const running = !ENDED.has(job.state);
  const cancel = () => source.cancel(job.id).then((answer) => { jobs.value = jobs.peek().map((each) => (each.id === answer.id ? answer : each)); }, (error) => notify(error.message, 'bad'));
  return html`<div class="job" data-job=${job.id} data-state=${job.state}><div class="toolbar"><button class="small" aria-pressed=${chosen.value === job.id} onClick=${() => { chosen.value = job.id; }}>${job.id}</button><span class="wrap">${job.scenario} <span class="soft">${(job.arms || []).map((arm) => arm.name).join(', ')}</span></span><span class="grow"></span>
      <span class=${`state ${job.state === 'Failed' ? 'away' : job.state === 'Succeeded' ? 'fine' : ''}`}>${job.state}</span><progress max=${job.total || 1} value=${job.done} aria-label="runs that have ended"></progress><span class="num">${count(job.done)}/${count(job.total)}</span>${running && html`<button class="small" onClick=${cancel}>cancel</button>`}</div>
    ${chosen.value === job.id && html`<div class="command"><code>${job.command}</code><button class="small" onClick=${() => copy(job.command)}>copy</button>${job.report ? html`<a class="button" href=${job.report} target="_blank" rel="noreferrer">report</a>` : ''}</div>`}
    ${job.error && html`<p class="error wrap">${job.error}</p>`}</div>`;
}

/** Opens a run of a comparison: its recording, by arm and seed. */
async function openRecorded(made, arm, seed) {
  const fits = (run) => run.arm === arm && Number(run.seed) === Number(seed) && (!made.scenario || !run.scenario || run.scenario === made.scenario);
  let runs = state.meta.peek().runs || [];
  if (!runs.some(fits) && source.kind === 'live') { const meta = await source.meta(); state.meta.value = {...state.meta.peek(), ...meta}; runs = meta.runs || []; }
  return runs.filter(fits).pop() || null;
}

async function show(made, arm, seed) {
  const run = await openRecorded(made, arm, seed);
  if (!run) { notify(`The run ${arm} seed ${seed} was not recorded; compare with --recording keeps each.`, 'bad'); return; }
  await showRun(run.id);
  go('cluster');
}

async function showDifference(made, one, other, seed) {
  const [a, b] = [await openRecorded(made, one, seed), await openRecorded(made, other, seed)];
  if (!a || !b) { notify(`The runs of seed ${seed} were not recorded; compare with --recording keeps each.`, 'bad'); return; }
  go('difference', [a.id, b.id]);
}

/** The document of a comparison. */
export function Comparison({made}) {
  const [text, setText] = useState(''), [all, setAll] = useState(made.arms.length === 1), [open, setOpen] = useState(''), phases = useMemo(() => phasesOf(made), [made]);
  const measures = measuresOf(made, {text, all}), differing = made.measures.filter((measure) => measure.state === 'differs').length, base = made.arms[0]?.name, simulated = made.mode === 'simulated';
  const runs = made.arms.flatMap((arm) => arm.runs.map((run) => ({arm: arm.name, ...run})));
  const columns = [
    {id: 'arm', title: 'Arm', width: '110px', cell: (run) => run.arm}, {id: 'seed', title: 'Seed', num: true, width: '66px', cell: (run) => String(run.seed), sort: (run) => run.seed},
    {id: 'result', title: 'Result', width: '120px', cell: (run) => (run.error ? html`<span class="bad">${run.error}</span>` : run.violations ? html`<span class="bad">${run.violations} violations</span>` : run.passed ? html`<span class="good">passed</span>` : 'failed an expectation'), sort: (run) => (run.error ? 3 : run.violations ? 2 : run.passed ? 0 : 1)},
    {id: 'pods', title: 'Pods', num: true, width: '80px', cell: (run) => count(run.pods || 0), sort: (run) => run.pods}, {id: 'decisions', title: 'Decisions', num: true, width: '100px', cell: (run) => count(run.decisions || 0), sort: (run) => run.decisions},
    {id: 'simulated', title: simulated ? 'Simulated' : 'Took', num: true, width: '100px', cell: (run) => span(simulated ? run.virtual_s : run.wall_s), sort: (run) => run.virtual_s},
    {id: 'digest', title: 'Digest', width: 'minmax(110px, 1fr)', cell: (run) => html`<code>${(run.digest || '').slice(0, 12)}</code>`, sort: (run) => run.digest},
    {id: 'open', title: 'Open', width: '170px', cell: (run) => html`<button class="small" onClick=${(event) => { event.stopPropagation(); show(made, run.arm, run.seed); }}>open</button>${run.arm !== base ? html` <button class="small" onClick=${(event) => { event.stopPropagation(); showDifference(made, base, run.arm, run.seed); }}>difference</button>` : ''}`, sort: (run) => run.seed},
  ];
  return html`<article class="comparison"><header><h2>${made.title}</h2><p class="result">${made.result}</p>${made.is_interrupted && html`<p class="banner">Interrupted: ${made.runs_made} of ${made.runs_planned} runs.</p>`}
      <p class="soft">${made.about}</p></header>
    <section><h3>Arms</h3><table><thead><tr><th>Switch</th>${made.arms.map((arm, at) => html`<th key=${arm.name}><span class="arm-key arm-${at % 6}" aria-hidden="true"></span>${arm.name}</th>`)}<th>default</th><th>meaning</th></tr></thead><tbody>${made.switches.length ? made.switches.map((row) => html`<tr key=${row.name}><th scope="row"><code>${row.name}</code></th>${row.values.map((value, at) => html`<td key=${at} class=${row.differs ? 'differs' : ''}>${value}</td>`)}<td class="soft">${row.default}</td><td class="wrap soft">${row.meaning}</td></tr>`) : html`<tr><td colspan=${made.arms.length + 3} class="soft">All switches are at their defaults.</td></tr>`}</tbody></table></section>
    <section><header class="toolbar"><h3>Measures</h3><span class="soft">${count(differing)} of ${count(made.measures.length)} differ</span><input class="filter-field" type="text" aria-label="filter measures" placeholder="name" value=${text} onInput=${(event) => setText(event.target.value)} /><label class="check"><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} /> also those that are equal</label></header>
      <div class="scroll-x"><table class="measures"><thead><tr><th>Measure</th><th>Runs</th>${made.arms.map((arm, at) => html`<th key=${arm.name} class="num"><span class="arm-key arm-${at % 6}" aria-hidden="true"></span>${arm.name}<br /><span class="soft">median (quartiles)</span></th>`)}${made.arms.slice(1).map((arm) => html`<th key=${arm.name} class="num">${arm.name} − ${base}<br /><span class="soft">median [95 %]</span></th><th key=${`${arm.name}-way`}>by seed</th>`)}</tr></thead><tbody>
      ${measures.map((measure) => html`<tr key=${measure.name} class=${measure.state}><th scope="row"><button class="plain" aria-expanded=${open === measure.name} onClick=${() => setOpen(open === measure.name ? '' : measure.name)}>${measure.label}</button>${measure.unit ? html` <span class="soft">${measure.unit}</span>` : ''}<br /><code class="soft">${measure.name}</code>${measure.better ? html` <span class="soft">${measure.better} is better</span>` : ''}</th><td><${Dots} made=${made} measure=${measure} /></td>
        ${measure.arms.map((spread, at) => html`<td key=${at} class="num">${spreadWords(spread)}</td>`)}
        ${made.arms.slice(1).map((arm) => { const paired = measure.differences.find((each) => each.arm === arm.name), way = directionOf(paired), word = judged(measure, paired); return html`<td key=${arm.name} class="num ${way.has ? 'has' : 'soft'}">${signed(paired?.median)}${paired?.interval ? html`<br /><span class="soft">[${signed(paired.interval[0])}, ${signed(paired.interval[1])}]</span>` : ''}</td><td key=${`${arm.name}-way`} class="by-seed">${way.words}${word ? html` <span class="tag ${word}">${word === 'better' ? '✓ better' : '✕ worse'}</span>` : ''}${paired?.p !== null && paired?.p !== undefined ? html`<br /><span class="soft">p = ${paired.p < 0.001 ? '< 0.001' : paired.p.toFixed(3)}</span>` : ''}</td>`; })}</tr>
        ${open === measure.name ? html`<tr key=${`${measure.name}-runs`} class="runs"><td colspan=${2 + made.arms.length * 3 - 2}><table><thead><tr><th>seed</th>${made.arms.map((arm) => html`<th key=${arm.name} class="num">${arm.name}</th>`)}</tr></thead><tbody>${made.seeds.map((seed) => html`<tr key=${seed}><th scope="row">${seed}</th>${made.arms.map((arm) => { const run = arm.runs.find((each) => each.seed === seed); return html`<td key=${arm.name} class="num">${run ? (run.error ? run.error : figure(run.measures[measure.name])) : '–'}</td>`; })}</tr>`)}</tbody></table></td></tr>` : ''}`)}
      </tbody></table></div>${!measures.length && html`<p class="empty">${text ? 'No measure fits.' : 'No measure differs.'}</p>`}</section>
    ${phases.length > 0 && html`<section><h3>Pods by phase</h3><p class="soft small-print">Lines are medians over seeds, bands quartiles and ends. Drag to zoom, double click for all.</p><div class="plots">${phases.map((phase) => html`<${PhasePlot} key=${phase} made=${made} phase=${phase} cursorKey="phases" />`)}</div></section>`}
    ${made.difference_groups.length > 0 && html`<section><h3>Pods that fared differently</h3><p class="soft small-print">${count(made.difference_count)} pods over all seeds, matched by owner and order of creation.</p><table><thead><tr><th class="num">pods</th><th class="num">seeds</th><th>${base}</th><th>in arm</th><th>there</th><th>for example</th></tr></thead><tbody>${made.difference_groups.slice(0, 40).map((group, at) => html`<tr key=${at}><td class="num">${count(group.pods)}</td><td class="num">${group.seeds}</td><td class="wrap">${group.arm_a}</td><td>${group.arm}</td><td class="wrap">${group.arm_b}</td><td class="wrap"><code>${group.example}</code></td></tr>`)}</tbody></table></section>`}
    <section class="runs-part"><h3>Runs</h3><div class="runs-table"><${VirtualTable} label="runs" columns=${columns} rows=${runs} keyOf=${(run) => `${run.arm}/${run.seed}`} picked=${undefined} onOpen=${(run) => show(made, run.arm, run.seed)} /></div></section>
    <footer class="provenance"><h3>How it was made</h3><div class="command"><code>${made.provenance.command}</code><button class="small" onClick=${() => copy(made.provenance.command)}>copy</button></div><p class="soft">${[made.mode, `keplab ${made.provenance.version}`, made.provenance.revision ? `revision ${made.provenance.revision.slice(0, 12)}${made.provenance.is_dirty ? ' with changes' : ''}` : '', made.provenance.started, `${span(made.provenance.wall_s)} on ${made.provenance.cpus} CPUs`, `Python ${made.provenance.python}`, `scenario sha256 ${made.provenance.scenario_sha256.slice(0, 12)}`].filter(Boolean).join(' · ')}</p></footer></article>`;
}

function Result({job}) {
  const [found, setFound] = useState(/** @type {any} */ (null)), [error, setError] = useState('');
  useEffect(() => {
    let current = true;
    setFound(null); setError('');
    source.resultOf(job.id).then((answer) => { if (current) setFound(answer); }, (failure) => { if (current) setError(failure.message); });
    return () => { current = false; };
  }, [job.id, job.state]);
  if (error) return html`<p class="error" role="alert">${error}</p>`;
  return found ? html`<${Comparison} key=${job.id} made=${found} />` : html`<p class="empty">loading the result …</p>`;
}

function Experiments() {
  const pushed = state.jobs.value, [kept, setKept] = useState(/** @type {any} */ (null)), replay = source.kind !== 'live';
  useEffect(() => { if (replay) source.resultOf('').then(setKept, (error) => setKept({error})); else source.jobs().then((answer) => { jobs.value = answer.jobs || []; if (!chosen.peek() && jobs.peek().length) chosen.value = jobs.peek()[jobs.peek().length - 1].id; }, (error) => notify(error.message, 'bad')); }, []);
  const list = jobs.value.map((job) => (pushed[job.id] && (!ENDED.has(job.state) || ENDED.has(pushed[job.id].state)) ? pushed[job.id] : job)), job = list.find((each) => each.id === chosen.value), running = list.some((each) => !ENDED.has(each.state));
  // Without a mesh there is no socket that reports progress: it is asked for while something runs.
  useEffect(() => {
    if (!running || replay) return undefined;
    const timer = setInterval(() => source.jobs().then((answer) => { jobs.value = answer.jobs || []; }, () => {}), 1000);
    return () => clearInterval(timer);
  }, [running]);
  useSummary(job ? `${job.id}: ${job.state}, ${job.done} of ${job.total} runs.` : '');
  if (replay) return html`<h1 class="sr-only">Experiments</h1>${kept?.schema ? html`<${Comparison} made=${kept} />` : kept?.error ? html`<p class="empty">${kept.error.message}</p>` : html`<p class="empty">loading …</p>`}`;
  return html`<div class="toolbar no-print"><h1>Experiments</h1><span class="soft">a comparison is a scenario in several arms, with the same seeds</span><span class="grow"></span>${job && ENDED.has(job.state) && html`<button class="small" onClick=${() => window.print()}>print</button>`}</div>
    <div class="no-print"><${Launcher} /></div>
    ${list.length > 0 && html`<section class="panel jobs no-print" aria-label="comparisons"><h2>Comparisons</h2>${[...list].reverse().map((each) => html`<${Progress} key=${each.id} job=${each} />`)}</section>`}
    ${job && ENDED.has(job.state) && job.state !== 'Cancelled' && html`<${Result} job=${job} />`}`;
}

export const page = {id: 'experiments', key: 'e', title: 'Experiments', icon: 'M9 3h6M10 3v6l-5 9a2 2 0 0 0 1.8 3h10.4A2 2 0 0 0 19 18l-5-9V3M7.5 14h9', Component: Experiments, commands: []};
