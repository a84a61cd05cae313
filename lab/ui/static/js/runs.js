// The page of single runs in a file (lab/experiments/run_page.py): what each came to, its tables, and pods by phase.
import {html} from 'keplab/html.js';
import {Plots, Provenance} from 'keplab/result.js';
import {Wide} from 'keplab/table.js';
import {count} from 'keplab/format.js';

const SIGNS = {met: 'good', 'not met': 'bad'};

function Table({of}) {
  return html`<section><h2>${of.title}</h2><${Wide} label=${of.title.toLowerCase()}><table><thead><tr>${of.heading.map((name, at) => html`<th key=${at} scope="col">${name || html`<span class="sr-only">measure</span>`}</th>`)}</tr></thead><tbody>
    ${of.rows.map((row, number) => html`<tr key=${number}>${row.map((cell, at) => html`<td key=${at} class="wrap">${of.heading[at] === 'result' ? html`<span class=${SIGNS[cell]}>${cell}</span>` : cell}</td>`)}</tr>`)}</tbody></table><//>
    ${of.left > 0 && html`<p>${count(of.left)} more are in the JSON document.</p>`}</section>`;
}

function Run({run, Title}) {
  return html`<article class="comparison run-result"><header><div class="toolbar"><${Title} class="title">${run.title}<//><span class="grow"></span><button class="small no-print" onClick=${() => window.print()}>print</button></div><p class="result">${run.result}</p>${run.error && html`<p class="bad">${run.error}</p>`}
      ${run.about.length > 0 && html`<details class="about-part"><summary>About the scenario</summary>${run.about.map((text) => html`<p key=${text}>${text}</p>`)}</details>`}</header>
    ${run.checks.map((table) => html`<${Table} key=${table.title} of=${table} />`)}${run.arm && html`<${Plots} made=${{arms: [run.arm], seeds: []}} />`}${run.tables.map((table) => html`<${Table} key=${table.title} of=${table} />`)}
    ${run.zeros && html`<details><summary>What is 0</summary><p>${run.zeros}</p></details>`}
    <${Provenance} where=${run.where} command=${run.command} /></article>`;
}

/** One run below the other. */
export function Runs({made}) {
  return html`${made.runs.length > 1 && html`<h1>${made.title}</h1>`}${made.runs.map((run, at) => html`<${Run} key=${at} run=${run} Title=${made.runs.length > 1 ? 'h2' : 'h1'} />`)}`;
}
