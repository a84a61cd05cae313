// What came of a comparison, for the page of experiments and for a file. The figures are the document's words (`shown`); here they are
// drawn, searched and folded.
import {html, useMemo, useState} from 'keplab/html.js';
import {state, go, copy, notify} from 'keplab/state.js';
import {source, showRun} from 'keplab/engine.js';
import {measuresOf, parted, plotsByArm, plotsByPhase, scaled, scaleOfPlots, wordsOf} from 'keplab/comparison.js';
import {Dots, PhasePlot, PlotTable} from 'keplab/plots.js';
import {VirtualTable, Wide} from 'keplab/table.js';
import {count, span, counted} from 'keplab/format.js';

const GROUPS = 12, SEEDS = 200, FIRST = 6;

/** The recording of a run, by arm and seed, or null. */
async function recordedRun(made, arm, seed) {
  const fits = (run) => run.arm === arm && Number(run.seed) === Number(seed) && (!made.scenario || !run.scenario || run.scenario === made.scenario);
  let runs = state.meta.peek().runs || [];
  if (!runs.some(fits) && source.kind === 'live') { const meta = await source.meta(); state.meta.value = {...state.meta.peek(), ...meta}; runs = meta.runs || []; }
  return runs.filter(fits).pop() || null;
}

function missing(arm, seed) {
  notify(`A recording of ${arm}, seed ${seed}, ${source.kind === 'live' ? 'was not made; compare with --recording makes one of each run.' : 'is not in this file.'}`, 'bad');
}

async function show(made, arm, seed) {
  const run = await recordedRun(made, arm, seed);
  if (!run) { missing(arm, seed); return; }
  await showRun(run.id);
  go('cluster');
}

async function showDifference(made, one, other, seed) {
  const a = await recordedRun(made, one, seed), b = await recordedRun(made, other, seed);
  if (!a || !b) { missing(a ? other : one, seed); return; }
  go('difference', [a.id, b.id]);
}

const Key = ({at}) => html`<span class="arm-key arm-${at % 6}" aria-hidden="true"></span>`;
const Figure = ({text}) => { const [value, range] = parted(text); return html`<span>${value}${range && html` <span class="range soft">${range}</span>`}</span>`; };

/** Medians, differences and dots of the measures that differ; a measure opens into its seeds. */
function Measures({made}) {
  const [text, setText] = useState(''), [all, setAll] = useState(false), [open, setOpen] = useState('');
  const measures = measuresOf(made, {text, all}), differing = measuresOf(made).length, base = made.arms[0].name, several = made.seeds.length > 1, others = made.arms.slice(1);
  const wide = 1 + Number(several) + made.arms.length + 2 * others.length;
  return html`<section class="figures"><header class="toolbar"><h2>${others.length ? 'What differs' : 'Figures'}</h2>${others.length > 0 && html`<span class="soft">${count(differing)} of ${counted(made.measures.length, 'measure')}</span>`}<span class="grow"></span><input class="filter-field no-print" type="text" aria-label="filter measures" placeholder="name of a measure" value=${text} onInput=${(event) => setText(event.target.value)} />${others.length > 0 && html`<label class="check no-print"><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} /> also those that are equal</label>`}</header>
    <${Wide} label="measures"><table class="measures"><thead><tr><th scope="col">measure</th>${made.arms.map((arm, at) => html`<th key=${arm.name} scope="col" class="num"><${Key} at=${at} />${arm.name}</th>`)}${others.map((arm) => html`<th key=${arm.name} scope="col" class="num">${arm.name} − ${base}</th><th key=${`${arm.name}-seeds`} scope="col">in seeds</th>`)}${several && html`<th scope="col">each seed</th>`}</tr></thead><tbody>
    ${measures.map((measure) => { const words = wordsOf(made, measure.name); return html`<tr key=${measure.name} class=${measure.state} data-measure=${measure.name}><th scope="row">${several ? html`<button class="plain" aria-expanded=${open === measure.name} title=${measure.name} onClick=${() => setOpen(open === measure.name ? '' : measure.name)}>${measure.label}</button>` : html`<span title=${measure.name}>${measure.label}</span>`}</th>
      ${words.values.map((value, at) => html`<td key=${at} class="num" data-of=${made.arms[at].name}><${Figure} text=${value} /></td>`)}
      ${words.differences.map((found) => html`<td key=${found.arm} class="num ${found.is_clear ? 'has' : ''} ${found.text === '–' ? 'none' : ''}" data-of="${found.arm} − ${base}"><${Figure} text=${found.text} /></td><td key=${`${found.arm}-seeds`} class="by-seed" title=${found.p || undefined} data-of="in seeds"><span>${found.seeds}${found.judged && html`, <b class="tag ${found.judged}">${found.judged}</b>`}</span></td>`)}
      ${several && html`<td data-of="each seed"><${Dots} made=${made} measure=${measure} /></td>`}</tr>
      ${open === measure.name ? html`<tr key=${`${measure.name}-seeds`} class="runs"><td colspan=${wide}><${Seeds} made=${made} measures=${[measure]} /></td></tr>` : ''}`; })}
    </tbody></table><//>
    ${!measures.length && html`<p class="empty">${text ? 'No measure fits.' : 'No measure differs.'}</p>`}
    ${made.shown.note_of_seeds && html`<p class="soft small-print">${made.shown.note_of_seeds}</p>`}
    ${made.shown.folded.length > 0 && html`<details class="folded"><summary>What is left out of the table</summary>${made.shown.folded.map((line) => html`<p key=${line}>${line}</p>`)}</details>`}</section>`;
}

/** What measures were in each seed, an arm a column. */
function Seeds({made, measures}) {
  const shown = measures.map((measure) => ({measure, scale: wordsOf(made, measure.name).scale})), by = made.arms.map((arm) => new Map(arm.runs.map((run) => [run.seed, run])));
  const text = (run, measure, scale) => (!run || run.error ? '–' : scaled(run.measures[measure.name], scale));
  return html`<${Wide} label="values by seed"><table class="seeds"><thead><tr><th scope="col">seed</th>${shown.flatMap(({measure}) => made.arms.map((arm) => html`<th key=${`${measure.name}/${arm.name}`} scope="col" class="num">${measures.length > 1 ? `${measure.label}, ` : ''}${arm.name}</th>`))}</tr></thead><tbody>
    ${made.seeds.slice(0, SEEDS).map((seed) => html`<tr key=${seed}><th scope="row">${seed}</th>${shown.flatMap(({measure, scale}) => by.map((runs, at) => html`<td key=${`${measure.name}/${at}`} class="num">${text(runs.get(seed), measure, scale)}</td>`))}</tr>`)}</tbody></table><//>${made.seeds.length > SEEDS && html`<p class="soft">${counted(made.seeds.length - SEEDS, 'more seed is', 'more seeds are')} in the JSON document.</p>`}`;
}

/** Pods by phase: an arm or a phase a plot, all on one scale. */
export function Plots({made}) {
  const whole = useMemo(() => scaleOfPlots(made), [made]), [by, setBy] = useState('arm'), [part, setPart] = useState(/** @type {any} */ ({from: 0, to: whole.end, moment: null}));
  const plots = useMemo(() => (by === 'arm' ? plotsByArm(made) : plotsByPhase(made)), [made, by]), frame = {...whole, ...part, set: (more) => setPart((before) => ({...before, ...more}))};
  if (!plots.length) return null;
  const zoomed = part.from > 0 || part.to < whole.end, bands = made.seeds.length > 1 ? '; lines are medians over seeds, bands the quartiles and all seeds' : '';
  return html`<section><header class="toolbar"><h2>Pods by phase</h2><span class="grow"></span>${zoomed && html`<button class="small no-print" onClick=${() => frame.set({from: 0, to: whole.end})}>whole time</button>`}${made.arms.length > 1 && html`<label class="no-print">a plot for each <select value=${by} onChange=${(event) => setBy(event.target.value)}><option value="arm">arm</option><option value="phase">phase</option></select></label>`}</header>
    <div class="plots">${plots.map((drawn) => html`<${PhasePlot} key=${drawn.name} drawn=${drawn} frame=${frame} />`)}</div>
    <p class="soft small-print">${plots.length > 1 || bands ? `All on one scale${bands}. ` : ''}Pods that controllers created, where there are any.</p>
    <details class="no-print"><summary>the plots as a table</summary><${PlotTable} plots=${plots} frame=${frame} /></details></section>`;
}

/** Pods whose fate differs, those that fared alike as one row; and where the runs of one seed are recorded, the way to them. */
function Pods({made}) {
  const [all, setAll] = useState(false), groups = made.difference_groups, base = made.arms[0].name, seed = made.recorded?.seed;
  if (made.arms.length < 2) return null;
  return html`<section><h2>Pod by pod</h2><p>${made.shown.pods}</p>
    ${groups.length > 0 && html`<${Wide} label="pods that fared differently"><table class="groups"><thead><tr><th scope="col" class="num">pods</th><th scope="col">${base}</th><th scope="col">other arm</th><th scope="col">arm</th><th scope="col" class="num">seeds</th><th scope="col">for example</th></tr></thead><tbody>${groups.slice(0, all ? groups.length : GROUPS).map((group) => html`<tr key=${`${group.arm}|${group.arm_a}|${group.arm_b}`}><td class="num">${count(group.pods)} ×</td><td class="wrap">${group.arm_a}</td><td class="wrap">→ ${group.arm_a === group.arm_b ? `${group.arm_b}, at another time` : group.arm_b}</td><td>${group.arm}</td><td class="num">${count(group.seeds)}</td><td class="wrap"><code>${group.example}</code></td></tr>`)}</tbody></table><//>`}
    ${groups.length > GROUPS && html`<p class="soft">${!all && `${counted(groups.slice(GROUPS).reduce((sum, group) => sum + group.pods, 0), 'more pod')} in ${counted(groups.length - GROUPS, 'group')}. `}<button class="small no-print" onClick=${() => setAll(!all)}>${all ? 'the largest' : 'all groups'}</button></p>`}
    ${made.recorded && html`<p class="recorded">${made.recorded.words}${seed !== null && html` <span class="no-print">${made.arms.map((arm) => html`<button key=${arm.name} class="small" onClick=${() => show(made, arm.name, seed)}>look at ${arm.name}</button> `)}${made.arms.slice(1).map((arm) => html`<button key=${arm.name} class="small" onClick=${() => showDifference(made, base, arm.name, seed)}>where ${base} and ${arm.name} part</button> `)}</span>`}</p>`}</section>`;
}

function Switches({made}) {
  const rows = made.switches.filter((row) => row.differs);
  if (!rows.length) return null;
  return html`<section><h2>Switches</h2><${Wide} label="switches"><table><thead><tr><th scope="col">switch</th><th scope="col">default</th>${made.arms.map((arm, at) => html`<th key=${arm.name} scope="col"><${Key} at=${at} />${arm.name}</th>`)}<th scope="col" class="no-print">meaning</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.name}><th scope="row"><code>${row.name}</code></th><td>${row.default || '""'}</td>${row.values.map((value, at) => html`<td key=${at}><b>${value || '""'}</b></td>`)}<td class="wrap soft no-print">${row.meaning}</td></tr>`)}</tbody></table><//></section>`;
}

/** Whether runs came to their end without breaking an invariant, a digest to compare with, and every run. */
function Runs({made}) {
  const base = made.arms[0].name, simulated = made.mode === 'simulated', runs = made.arms.flatMap((arm) => arm.runs.map((run) => ({arm: arm.name, ...run})));
  const openable = source.kind === 'live' || (state.meta.value.runs || []).length > 0;
  const press = (call) => (event) => { event.stopPropagation(); call(); };
  const columns = [
    {id: 'arm', title: 'Arm', width: '110px', cell: (run) => run.arm}, {id: 'seed', title: 'Seed', num: true, width: '66px', cell: (run) => String(run.seed), sort: (run) => run.seed},
    {id: 'result', title: 'Result', width: 'minmax(120px, 1fr)', cell: (run) => (run.error ? html`<span class="bad">${run.error}</span>` : run.violations ? html`<span class="bad">${counted(run.violations, 'violation')}</span>` : run.passed ? html`<span class="good">passed</span>` : 'failed an expectation'), sort: (run) => (run.error ? 3 : run.violations ? 2 : run.passed ? 0 : 1)},
    {id: 'pods', title: 'Pods', num: true, width: '80px', cell: (run) => count(run.pods || 0), sort: (run) => run.pods}, {id: 'decisions', title: 'Decisions', num: true, width: '100px', cell: (run) => count(run.decisions || 0), sort: (run) => run.decisions},
    {id: 'simulated', title: simulated ? 'Simulated' : 'Took', num: true, width: '100px', cell: (run) => span(simulated ? run.virtual_s : run.wall_s), sort: (run) => (simulated ? run.virtual_s : run.wall_s)},
    {id: 'digest', title: 'Digest', width: '130px', cell: (run) => html`<code>${(run.digest || '').slice(0, 12)}</code>`, sort: (run) => run.digest},
    ...(openable ? [{id: 'open', title: 'Open', width: '170px', cell: (run) => html`<button class="small" onClick=${press(() => show(made, run.arm, run.seed))}>open</button>${run.arm !== base ? html` <button class="small" onClick=${press(() => showDifference(made, base, run.arm, run.seed))}>difference</button>` : ''}`, sort: (run) => run.seed}] : []),
  ];
  return html`<section><h2>Runs and invariants</h2><${Wide} label="runs and invariants"><table><thead><tr><th scope="col">arm</th><th scope="col">runs</th><th scope="col">invariants</th>${simulated && html`<th scope="col">digest of the event log</th>`}</tr></thead><tbody>${made.arms.map((arm, at) => {
      const broken = arm.runs.reduce((sum, run) => sum + run.violations, 0), failed = arm.runs.filter((run) => run.error).length, first = arm.runs.find((run) => run.digest);
      return html`<tr key=${arm.name}><th scope="row"><${Key} at=${at} />${arm.name}</th><td>${failed ? html`<span class="bad">${failed} of ${arm.runs.length} failed</span>` : arm.runs.length}</td><td>${broken ? html`<span class="bad">${counted(broken, 'violation')}</span>` : html`<span class="good">no violation</span>`}</td>${simulated && html`<td>${first && html`<code>${first.digest.slice(0, 16)}</code> (seed ${first.seed})`}</td>`}</tr>`; })}</tbody></table><//>
    ${made.shown.problems.map((line) => html`<p key=${line} class="bad problem">${line}</p>`)}${made.shown.problems_left > 0 && html`<p>${count(made.shown.problems_left)} more are in the JSON document.</p>`}
    ${runs.length > 0 && html`<details class="runs-part no-print" open=${source.kind === 'live'}><summary>every run</summary><div class="runs-table"><${VirtualTable} label="runs" columns=${columns} rows=${runs} keyOf=${(run) => `${run.arm}/${run.seed}`} picked=${undefined} onOpen=${openable ? (run) => show(made, run.arm, run.seed) : undefined} /></div></details>`}</section>`;
}

function EachSeed({made}) {
  const names = made.shown.first.slice(0, FIRST), measures = names.map((name) => made.measures.find((each) => each.name === name));
  if (made.seeds.length < 2 || !measures.length) return null;
  return html`<details class="no-print"><summary>Each seed</summary><${Seeds} made=${made} measures=${measures} /></details>`;
}

/** Where what a page shows comes from, and the command that makes it again. */
export function Provenance({where, command}) {
  return html`<footer class="provenance"><h2>Where this comes from</h2><dl class="where">${where.map(([name, text]) => html`<div key=${name}><dt>${name}</dt><dd>${text}</dd></div>`)}</dl>${command && html`<div class="command"><code>${command}</code><button class="small no-print" onClick=${() => copy(command, 'the command')}>copy</button></div>`}</footer>`;
}

/** A comparison. `Title`: the element of its title, as the page around it has or has not one. */
export function Comparison({made, Title = 'h2'}) {
  return html`<article class="comparison"><header><div class="toolbar"><${Title} class="title">${made.title || made.scenario}<//><span class="grow"></span><button class="small no-print" onClick=${() => window.print()}>print</button></div><p class="result">${made.result}</p>
      <p class="soft note">${made.shown.note}</p>${made.shown.about.length > 0 && html`<details class="about-part"><summary>About the scenario</summary>${made.shown.about.map((text) => html`<p key=${text}>${text}</p>`)}</details>`}</header>
    <${Plots} made=${made} />${(made.shown.first.length > 0 || made.measures.length > 0) && html`<${Measures} made=${made} />`}
    <${Pods} made=${made} /><${Switches} made=${made} /><${Runs} made=${made} /><${EachSeed} made=${made} />
    <${Provenance} where=${made.shown.where} command=${made.provenance.command} /></article>`;
}
