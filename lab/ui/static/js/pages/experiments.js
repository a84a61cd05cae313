// Launch a comparison, follow it, and read what came of it. In a file it is the comparison, or the run, that the file was written of.
import {html, signal, useEffect, useLayoutEffect, useRef, useState} from 'keplab/html.js';
import {state, copy, notify} from 'keplab/state.js';
import {source} from 'keplab/engine.js';
import {register} from 'keplab/commands.js';
import {useSummary} from 'keplab/answers.js';
import {commandOf, refusalOf} from 'keplab/comparison.js';
import {Comparison} from 'keplab/result.js';
import {Runs} from 'keplab/runs.js';
import {VirtualTable} from 'keplab/table.js';
import {count, counted} from 'keplab/format.js';

/** What is filled in, and the job that is looked at; it stays while other pages are. */
const form = signal(/** @type {any} */ ({scenario: '', arms: [{name: 'a', switches: []}, {name: 'b', switches: []}], seeds: 20, processes: false, recording: true}));
/** The scenarios that may be run: {path, title, about, arms}. */
const scenarios = signal(/** @type {any[]} */ ([]));
const chosen = signal(''), jobs = signal(/** @type {any[]} */ ([]));
const fill = (more) => { form.value = {...form.peek(), ...more}; };
const fillArm = (at, more) => fill({arms: form.peek().arms.map((arm, index) => (index === at ? {...arm, ...more} : arm))});
const named = (path) => scenarios.value.find((each) => each.path === path);
/** Fill in a scenario, and its own arms where those that are there are not the user's. */
function choose(path) {
  const next = named(path)?.arms || [], {arms, scenario} = form.peek(), before = JSON.stringify(named(scenario)?.arms || []);
  fill({scenario: path, ...(next.length && (JSON.stringify(arms) === before || arms.every((arm) => !arm.switches.length)) ? {arms: next} : {})});
}
const ENDED = new Set(['Succeeded', 'Failed', 'Cancelled']);

const starting = signal(false);

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
  const [error, setError] = useState(''), request = form.value;
  useEffect(() => { source.scenarios().then((answer) => { scenarios.value = answer.scenarios || []; }, (failure) => setError(failure.message)); }, []);
  const scenario = named(request.scenario), why = refusalOf(request, state.meta.value.switches || []), command = commandOf(request), total = request.arms.length * (request.seeds || 0);
  const start = async () => {
    if (why) { notify(why, 'bad'); return; }
    if (starting.peek()) return;  // pressed twice
    starting.value = true;
    try {
      const job = await source.job({scenario: request.scenario, arms: request.arms, seeds: request.seeds, processes: request.processes, recording: request.recording});
      jobs.value = [...jobs.peek(), job];
      chosen.value = job.id;
      setError('');
    } catch (failure) { setError(failure.message); }
    starting.value = false;
  };
  useLayoutEffect(() => register([{id: 'experiments.run', title: 'Run the comparison that is filled in', group: 'experiments', run: start}]), [request]);
  return html`<section class="panel launcher" aria-label="new comparison"><h2>New comparison</h2>
    <div class="toolbar"><label class="grow">scenario <input class="filter" type="text" list="scenarios" spellcheck=${false} value=${request.scenario} placeholder="experiments/runaway/runaway.txt" onInput=${(event) => choose(event.target.value.trim())} /></label><datalist id="scenarios">${scenarios.value.map((each) => html`<option key=${each.path} value=${each.path}>${each.title}</option>`)}</datalist></div>
    ${scenario && html`<p class="soft about"><b>${scenario.title}</b> ${scenario.about}</p>`}
    ${request.arms.map((arm, at) => html`<${Arm} key=${at} arm=${arm} at=${at} only=${request.arms.length === 1} />`)}
    <div class="toolbar"><button class="small" onClick=${() => fill({arms: [...request.arms, {name: `arm-${request.arms.length + 1}`, switches: []}]})}>+ arm</button><label>seeds <input type="number" min="1" max="1000" value=${request.seeds} onInput=${(event) => fill({seeds: Number(event.target.value)})} /></label><label class="check"><input type="checkbox" checked=${request.processes} onChange=${() => fill({processes: !request.processes})} /> as processes</label><label class="check"><input type="checkbox" checked=${request.recording} onChange=${() => fill({recording: !request.recording})} /> recording</label><span class="soft">${counted(total, 'run')}, one at a time</span><span class="grow"></span>
      <button class="primary" disabled=${Boolean(why) || starting.value} title=${why || undefined} onClick=${start}>Run</button></div>
    <div class="command"><code>${command}</code><button class="small" onClick=${() => copy(command, 'the command')}>copy</button></div>
    ${why && request.scenario ? html`<p class="soft">${why}</p>` : ''}${error && html`<p class="error" role="alert">${error}</p>`}</section>`;
}

const CHOICE = [
  {id: 'path', title: 'Scenario', width: 'minmax(180px, 2fr)', cell: (each) => each.path, sort: (each) => each.path},
  {id: 'title', title: 'What it shows', width: 'minmax(240px, 4fr)', cell: (each) => each.title},
  {id: 'arms', title: 'Arms', width: 'minmax(120px, 2fr)', cell: (each) => (each.arms.length > 1 ? each.arms.map((arm) => arm.name).join(', ') : ''), sort: (each) => -each.arms.length},
];

/** The scenarios that fit what is typed, until one is chosen. */
function Scenarios() {
  const words = form.value.scenario.toLowerCase().split(/\s+/).filter(Boolean), found = scenarios.value.filter((each) => words.every((word) => `${each.path} ${each.title}`.toLowerCase().includes(word)));
  return html`<${VirtualTable} label="scenarios" columns=${CHOICE} rows=${found} keyOf=${(each) => each.path} onPick=${(each) => choose(each.path)} empty="No scenario fits." />`;
}

function Progress({job}) {
  const running = !ENDED.has(job.state);
  const cancel = () => source.cancel(job.id).then((answer) => { jobs.value = jobs.peek().map((each) => (each.id === answer.id ? answer : each)); }, (error) => notify(error.message, 'bad'));
  return html`<div class="job" data-job=${job.id} data-state=${job.state}><div class="toolbar"><button class="small" aria-pressed=${chosen.value === job.id} onClick=${() => { chosen.value = job.id; }}>${job.id}</button><span class="wrap">${job.scenario} <span class="soft">${(job.arms || []).map((arm) => arm.name).join(', ')}</span></span><span class="grow"></span>
      <span class=${`state ${job.state === 'Failed' ? 'away' : job.state === 'Succeeded' ? 'fine' : ''}`}>${job.state}</span><progress max=${job.total || 1} value=${job.done} aria-label="runs that have ended"></progress><span class="num">${count(job.done)}/${count(job.total)}</span>${running && html`<button class="small" onClick=${cancel}>cancel</button>`}</div>
    ${chosen.value === job.id && html`<div class="command"><code>${job.command}</code><button class="small" onClick=${() => copy(job.command, 'the command')}>copy</button>${job.report ? html`<a class="button" href=${job.report} download title="the comparison and recordings of one seed in one file">page</a>` : ''}</div>`}
    ${job.error && html`<p class="error wrap">${job.error}</p>`}</div>`;
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
  useSummary(job ? `${job.id}: ${job.state}, ${job.done} of ${counted(job.total, 'run')}.` : '');
  if (replay) return kept?.schema === 'keplab.runs' ? html`<${Runs} made=${kept} />` : kept?.schema ? html`<${Comparison} made=${kept} Title="h1" />` : html`<h1 class="sr-only">Comparison</h1><p class="empty">${kept?.error ? kept.error.message : 'loading …'}</p>`;
  return html`<div class="toolbar no-print"><h1>Experiments</h1><span class="soft">a comparison is a scenario in several arms, with the same seeds</span><span class="grow"></span>${job && ENDED.has(job.state) && html`<button class="small" onClick=${() => window.print()}>print</button>`}</div>
    <div class="no-print"><${Launcher} /></div>
    ${!named(form.value.scenario) && (!list.length || form.value.scenario) && html`<${Scenarios} />`}
    ${list.length > 0 && html`<section class="panel jobs no-print" aria-label="comparisons"><h2>Comparisons</h2>${[...list].reverse().map((each) => html`<${Progress} key=${each.id} job=${each} />`)}</section>`}
    ${job && ENDED.has(job.state) && job.state !== 'Cancelled' && html`<${Result} job=${job} />`}`;
}

export const page = {id: 'experiments', key: 'e', title: 'Experiments', icon: 'M9 3h6M10 3v6l-5 9a2 2 0 0 0 1.8 3h10.4A2 2 0 0 0 19 18l-5-9V3M7.5 14h9', Component: Experiments, commands: []};
