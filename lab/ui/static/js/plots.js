// Plots of a comparison as SVG: pods by phase with their bands, on one scale, and the runs of a measure as dots. They take their colours from
// the style sheet, so that the other theme and paper need no drawing anew. All plots share one moment and one span of time.
import {html, useId, useRef} from 'keplab/html.js';
import {momentOn, ticks, timeTicks} from 'keplab/axis.js';
import {areaPath, dotsOf, heights, indexAt, readout, scaled, stepPath, wordsOf} from 'keplab/comparison.js';
import {count} from 'keplab/format.js';
import {Wide} from 'keplab/table.js';

const WIDTH = 560, HEIGHT = 210, LEFT = 46, RIGHT = 112, TOP = 10, BOTTOM = 24, LABEL = 13;
const RIGHT_EDGE = WIDTH - RIGHT, BASE = HEIGHT - BOTTOM;

/** What all plots of a comparison share. @typedef {{end: number, top: number, from: number, to: number, moment: number|null, set: (more: {from?: number, to?: number, moment?: number|null}) => void}} Frame */

/** One plot. @param {{drawn: import('keplab/comparison.js').Drawn, frame: Frame}} of */
export function PhasePlot({drawn, frame}) {
  const {end, top, from, to, moment, set} = frame, begun = useRef(/** @type {number|null} */ (null)), own = useRef(/** @type {any} */ (null)), id = useId();
  const x = (time) => LEFT + (RIGHT_EDGE - LEFT) * (time - from) / (to - from), y = (number) => BASE - (BASE - TOP) * number / top;
  const timeAt = (event) => { const box = own.current.getBoundingClientRect(), px = (event.clientX - box.left) / box.width * WIDTH; return from + Math.max(0, Math.min(1, (px - LEFT) / (RIGHT_EDGE - LEFT))) * (to - from); };
  const lines = drawn.lines.map((line) => { const at = indexAt(line.at_s, Math.min(to, line.at_s[line.at_s.length - 1])); return {...line, last: at < 0 ? 0 : line.band.median[at]}; });
  const places = heights(lines.map((line) => y(line.last)), BASE, LABEL), about = lines.map((line) => `${line.name} ${count(line.last)}`).join(', ') || 'none';
  const said = moment === null ? '' : drawn.lines.map((line) => readout(line, moment)).join('; ');
  const step = (to - from) / 100, shown = moment === null ? from : moment;
  const zoom = (by) => { const span = Math.min(end, Math.max(end / 1e4, (to - from) * by)), begin = Math.max(0, Math.min(end - span, shown - (shown - from) / (to - from) * span)); set({from: begin, to: begin + span}); };
  const keys = {ArrowRight: () => set({moment: Math.min(to, shown + step)}), ArrowLeft: () => set({moment: Math.max(from, shown - step)}), Home: () => set({moment: from}), End: () => set({moment: to}), Escape: () => set({moment: null}), '+': () => zoom(0.5), '-': () => zoom(2), 0: () => set({from: 0, to: end})};
  const onKeyDown = (event) => { const key = keys[event.key]; if (key && !event.ctrlKey && !event.metaKey) { key(); event.preventDefault(); event.stopPropagation(); } };
  const onPointerUp = (event) => { const one = begun.current, other = timeAt(event); begun.current = null; if (one !== null && Math.abs(x(one) - x(other)) > 6) set({from: Math.min(one, other), to: Math.max(one, other)}); };
  return html`<figure class="phase-plot"><figcaption><b>${drawn.name}</b> <small class="soft">${drawn.about}</small></figcaption>
    <svg ref=${own} viewBox="0 0 ${WIDTH} ${HEIGHT}" role="slider" tabindex="0" aria-label=${`pods by phase over time, ${drawn.name}; at the end ${about}`} aria-valuemin=${from} aria-valuemax=${to} aria-valuenow=${shown} aria-valuetext=${said ? `${momentOn(shown, to - from)}: ${said}` : 'no moment chosen'}
      onKeyDown=${onKeyDown} onPointerMove=${(event) => set({moment: timeAt(event)})} onPointerLeave=${() => set({moment: null})} onPointerDown=${(event) => { begun.current = timeAt(event); own.current.setPointerCapture(event.pointerId); }} onPointerUp=${onPointerUp} onDblClick=${() => set({from: 0, to: end})}>
      ${ticks(top).map((number) => html`<g key=${`y${number}`}><line class="rule" x1=${LEFT} x2=${RIGHT_EDGE} y1=${y(number)} y2=${y(number)} /><text class="tick" x=${LEFT - 6} y=${y(number) + 4} text-anchor="end">${count(number)}</text></g>`)}
      ${timeTicks(from, to).map(([time, name]) => html`<g key=${`x${time}`}><line class="rule" x1=${x(time)} x2=${x(time)} y1=${BASE} y2=${BASE + 4} /><text class="tick" x=${x(time)} y=${HEIGHT - 6} text-anchor="middle">${name}</text></g>`)}
      <clipPath id=${id}><rect x=${LEFT} y="0" width=${RIGHT_EDGE - LEFT} height=${HEIGHT} /></clipPath>
      <g clip-path=${`url(#${id})`}>${lines.map(({name, colour, dash, at_s, band: {low, q25, median, q75, high}}) => html`<g key=${name} data-line=${name}>
        ${[[low, high, 0.15], [q25, q75, 0.25]].map(([least, most, strength]) => (least.some((value, at) => value !== most[at]) ? html`<path key=${strength} class="band-area" d=${areaPath(at_s, most, least, x, y)} fill=${`var(--${colour})`} opacity=${strength} />` : ''))}
        <path class="median" d=${stepPath(at_s, median, x, y)} fill="none" stroke=${`var(--${colour})`} stroke-width="2" stroke-dasharray=${dash || undefined} /></g>`)}</g>
      ${lines.map((line, at) => html`<text key=${line.name} class="end" x=${RIGHT_EDGE + 6} y=${places[at] + 4}><tspan fill=${`var(--${line.colour})`}>${line.sign}</tspan> ${line.name} ${count(line.last)}</text>`)}
      ${moment !== null && moment >= from && moment <= to ? html`<line class="moment-line" x1=${x(moment)} x2=${x(moment)} y1=${TOP} y2=${BASE} />` : ''}
    </svg><p class="readout no-print">${said ? html`<b>${momentOn(shown, to - from)}</b> ${said}` : html`<span class="soft">point at a moment, or press ← and → in the plot; drag or + to zoom</span>`}</p></figure>`;
}

/** The figures of the plots at the times of their axis: what is drawn, to be read. @param {{plots: import('keplab/comparison.js').Drawn[], frame: Frame}} of */
export function PlotTable({plots, frame}) {
  const times = timeTicks(frame.from, frame.to), cells = plots.flatMap((drawn) => drawn.lines.map((line) => ({of: drawn.name, line})));
  return html`<${Wide} label="the plots as a table"><table class="twin"><thead><tr><th scope="col">time</th>${cells.map(({of, line}) => html`<th key=${`${of}/${line.name}`} scope="col" class="num">${of}, ${line.name}</th>`)}</tr></thead><tbody>
    ${times.map(([time, name]) => html`<tr key=${time}><th scope="row">${name}</th>${cells.map(({of, line}) => html`<td key=${`${of}/${line.name}`} class="num">${readout(line, time).slice(line.name.length + 1)}</td>`)}</tr>`)}</tbody></table><//>`;
}

/** The runs of a measure: a dot a seed, a row an arm, a stroke at the median. */
export function Dots({made, measure, width = 130}) {
  const there = measure.arms.filter((own) => own.low !== null), low = Math.min(...there.map((own) => own.low)), high = Math.max(...there.map((own) => own.high)), height = 12 * made.arms.length + 2;
  if (!there.length) return null;
  const {scale, values} = wordsOf(made, measure.name), x = (value) => 5 + (high > low ? (value - low) / (high - low) : 0.5) * (width - 10);
  return html`<svg class="dots" width=${width} height=${height} role="img" aria-label=${`${measure.label} by arm: ${made.arms.map((arm, at) => `${arm.name} ${values[at]}`).join(', ')}`}>
    ${made.arms.map((arm, at) => html`<g key=${arm.name} class="arm-${at % 6}"><line x1="0" x2=${width} y1=${7 + at * 12} y2=${7 + at * 12} class="rail-line" />${dotsOf(arm, measure.name, x).map((dot) => html`<circle key=${dot.at} cx=${dot.at} cy=${7 + at * 12} r="2.6"><title>${`${arm.name}, ${dot.seeds.length > 1 ? `${dot.seeds.length} seeds` : `seed ${dot.seeds[0]}`}: ${scaled(dot.value, scale)}`}</title></circle>`)}${measure.arms[at].median !== null ? html`<line x1=${x(measure.arms[at].median)} x2=${x(measure.arms[at].median)} y1=${2 + at * 12} y2=${12 + at * 12} class="median-line" />` : ''}</g>`)}</svg>`;
}
