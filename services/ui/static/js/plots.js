// Plots of a comparison by uPlot: pods by phase with their bands, and the runs of a measure as dots. Sizes follow their place.
import {html, useEffect, useRef} from 'keplab/html.js';
import {state} from 'keplab/state.js';
import {css} from 'keplab/colours.js';
import {bandSeries, figure, valuesOf} from 'keplab/comparison.js';
import {count} from 'keplab/format.js';
import uPlot from 'uplot';

/** Arms are told apart by dash and by name as well as by colour. */
const ARM_COLOURS = ['apiserver', 'claim-controller', 'kubelet', 'controllers', 'scheduler', 'other'], DASHES = [[], [6, 4], [2, 3], [9, 3, 2, 3], [1, 2], [12, 4]];
export const armColour = (at) => css(ARM_COLOURS[at % ARM_COLOURS.length]);
export const armDash = (at) => DASHES[at % DASHES.length];

/** A uPlot that is made anew when its theme or data change, and wide as its place. */
function Plot({options, data, height, label}) {
  const box = useRef(/** @type {HTMLElement|null} */ (null)), theme = state.theme.value;
  useEffect(() => {
    const place = /** @type {HTMLElement} */ (box.current), plot = new uPlot({...options(), width: place.clientWidth || 400, height}, data, place);
    const seen = new ResizeObserver(() => { if (place.clientWidth) plot.setSize({width: place.clientWidth, height}); });
    seen.observe(place);
    return () => { seen.disconnect(); plot.destroy(); };
  }, [data, theme, height]);
  return html`<div class="plot" ref=${box} role="img" aria-label=${label}></div>`;
}

const axis = () => ({stroke: css('soft'), grid: {stroke: css('line'), width: 0.5}, ticks: {stroke: css('line'), width: 0.5}, font: '11px system-ui', gap: 3});

/** Pods in one phase over time: a line for the median of each arm, a band from quartile to quartile, a fainter one from end to end. */
export function PhasePlot({made, phase, cursorKey}) {
  const data = useRef(/** @type {any} */ (null)), of = useRef(/** @type {any} */ (null));
  if (of.current !== made) { of.current = made; data.current = bandSeries(made, phase); }
  const options = () => ({
    cursor: {sync: {key: cursorKey}, drag: {x: true, y: false}}, legend: {show: true, live: true}, scales: {x: {time: false}, y: {range: (_, low, high) => [0, Math.max(1, high * 1.05)]}},
    axes: [{...axis(), values: (_, list) => list.map((value) => `${value} s`)}, {...axis(), size: 52, values: (_, list) => list.map((value) => count(value))}],
    series: [{label: 's', value: (_, value) => (value === null ? '–' : `${value.toFixed(2)} s`)}, ...made.arms.flatMap((arm, at) => ['low', 'q25', 'median', 'q75', 'high'].map((name) => ({
      label: name === 'median' ? arm.name : `${arm.name} ${name}`, stroke: name === 'median' ? armColour(at) : 'transparent', width: name === 'median' ? 1.8 : 0, dash: name === 'median' ? armDash(at) : undefined, points: {show: false}, class: name === 'median' ? 'median' : 'edge', paths: uPlot.paths.stepped ? uPlot.paths.stepped({align: 1}) : undefined, value: (_, value) => (value === null || value === undefined ? '–' : figure(value)),
    })))],
    bands: made.arms.flatMap((_, at) => [{series: [at * 5 + 5, at * 5 + 1], fill: `${armColour(at)}1c`}, {series: [at * 5 + 4, at * 5 + 2], fill: `${armColour(at)}3c`}]),
  });
  return html`<figure class="phase-plot"><figcaption><span class="phase phase-${phase[0].toUpperCase() + phase.slice(1)}">pods ${phase}</span></figcaption><${Plot} options=${options} data=${data.current} height=${190} label=${`pods ${phase} over time, by arm`} /></figure>`;
}

/** The runs of a measure: a dot a seed, an arm a row, the median as a bar. */
export function Dots({made, measure, width = 190}) {
  const all = made.arms.flatMap((arm) => valuesOf(arm, measure.name).map((pair) => pair[1])), low = Math.min(...all), high = Math.max(...all), height = 12 * made.arms.length + 2;
  if (!all.length) return null;
  const x = (value) => 5 + (high > low ? (value - low) / (high - low) : 0.5) * (width - 10);
  return html`<svg class="dots" width=${width} height=${height} role="img" aria-label=${`${measure.label} by arm: ${made.arms.map((arm, at) => `${arm.name} ${figure(measure.arms[at]?.median)}`).join(', ')}`}>
    ${made.arms.map((arm, at) => html`<g key=${arm.name} class="arm-${at % ARM_COLOURS.length}"><line x1="0" x2=${width} y1=${7 + at * 12} y2=${7 + at * 12} class="rail-line" />${valuesOf(arm, measure.name).map(([seed, value]) => html`<circle key=${seed} cx=${x(value)} cy=${7 + at * 12} r="2.6"><title>${`${arm.name} seed ${seed}: ${figure(value)}`}</title></circle>`)}${measure.arms[at]?.median !== null && measure.arms[at]?.median !== undefined ? html`<line x1=${x(measure.arms[at].median)} x2=${x(measure.arms[at].median)} y1=${2 + at * 12} y2=${12 + at * 12} class="median-line" />` : ''}</g>`)}</svg>`;
}
