// The document of a comparison (lab/experiments/document.py) as rows, and its bands as lines. Pure. What is said of figures stands in the
// document's `shown` (lab/experiments/page_document.py), so that the page, a terminal and a pull request say the same.

/** A value as its measure is written; the words around it are the document's. @param {number|null|undefined} value @param {{factor: number, unit: string, digits: number}} scale */
export function scaled(value, {factor, unit, digits}) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  const ending = !unit ? '' : unit.startsWith('/') ? unit : ` ${unit}`;
  if (value === 0) return `0${ending}`;
  const size = rounded(Math.abs(value) * factor, digits), text = size.toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits});
  return `${value < 0 && /[1-9]/.test(text) ? '−' : ''}${text}${ending}`;
}

/** What lies halfway goes to the even neighbour, as it does in the other views; only what is exactly halfway does. */
function rounded(size, digits) {
  const near = size * 10 ** digits, below = Math.floor(near);
  return Number.isInteger(size * 2 ** (digits + 1)) && near - below === 0.5 ? (below + (below % 2)) / 10 ** digits : size;
}

/** What is said of a measure. @param {any} made @param {string} name */
export const wordsOf = (made, name) => made.shown.rows.find((each) => each.name === name);

/** A figure and its range apart: "570.5 [570.2 … 570.8]" is ['570.5', '[570.2 … 570.8]']. @param {string} text */
export function parted(text) {
  const at = text.indexOf(' [');
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

/** Measures that fit a text and a choice, those that differ first. @param {any} made @param {{text?: string, all?: boolean}} how */
export function measuresOf(made, {text = '', all = false} = {}) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (measure) => words.every((word) => `${measure.name} ${measure.label}`.toLowerCase().includes(word));
  const place = (measure) => (measure.is_stated ? -1 : ['differs', 'small', 'equal', 'empty'].indexOf(measure.state)), isShown = (measure) => measure.state === 'differs' || (measure.state !== 'empty' && (measure.is_stated || made.arms.length === 1));
  return made.measures.filter((measure) => fits(measure) && (all || words.length || isShown(measure))).sort((a, b) => place(a) - place(b));
}

/** The value of a measure in each run: [[seed, value]…] of an arm. */
export const valuesOf = (arm, name) => arm.runs.filter((run) => !run.error && run.measures[name] !== null && run.measures[name] !== undefined).map((run) => [run.seed, run.measures[name]]);

/**
 * The runs of an arm as dots of a row: those that would lie on each other are one. `x`: where a value lies.
 * @param {any} arm @param {string} name @param {(value: number) => number} x @returns {Array<{at: number, seeds: number[], value: number}>}
 */
export function dotsOf(arm, name, x) {
  const found = new Map();
  for (const [seed, value] of valuesOf(arm, name)) {
    const at = Math.round(x(value) * 2) / 2, dot = found.get(at);
    if (dot) dot.seeds.push(seed); else found.set(at, {at, seeds: [seed], value});
  }
  return [...found.values()];
}

/** Phases, with the sign and the dash that say the same as their colours. */
export const SIGNS = {pending: '○', running: '●', failed: '✕', succeeded: '✓'};
export const DASHES = {pending: '2 3', running: '', failed: '7 3', succeeded: '1 4'};
export const ARM_SIGNS = ['●', '■', '▲', '◆', '▼', '✚'], ARM_DASHES = ['', '7 3', '2 3', '9 3 2 3', '1 4', '12 4'];

/** @typedef {{name: string, sign: string, dash: string, colour: string, at_s: number[], band: any}} Line a line of a plot with its bands */
/** @typedef {{name: string, about: string, lines: Line[]}} Drawn one plot */

/** The phases of which any arm has a pod at any time, and those that are always drawn. @param {any} made @returns {string[]} */
export function phasesOf(made) {
  const found = [];
  for (const arm of made.arms) for (const band of arm.bands.phases) if (!found.includes(band.phase)) found.push(band.phase);
  return found;
}

/** A plot for each arm with a line for each phase. @param {any} made @returns {Drawn[]} */
export const plotsByArm = (made) => made.arms.filter((arm) => arm.bands.phases.length).map((arm) => ({name: arm.name, about: arm.switches.join(', '), lines: arm.bands.phases.map((band) => ({name: band.phase, sign: SIGNS[band.phase], dash: DASHES[band.phase], colour: band.phase, at_s: arm.bands.at_s, band}))}));

/** A plot for each phase with a line for each arm. @param {any} made @returns {Drawn[]} */
export const plotsByPhase = (made) => phasesOf(made).map((phase) => ({name: phase, about: '', lines: made.arms.flatMap((arm, at) => arm.bands.phases.filter((band) => band.phase === phase).map((band) => ({name: arm.name, sign: ARM_SIGNS[at % 6], dash: ARM_DASHES[at % 6], colour: `arm-${at % 6}`, at_s: arm.bands.at_s, band})))}));

/** The scale that all plots share: until when, and up to how many pods. @param {any} made */
export function scaleOfPlots(made) {
  let end = 0, top = 0;
  for (const arm of made.arms) for (const band of arm.bands.phases) { end = Math.max(end, arm.bands.at_s[arm.bands.at_s.length - 1] ?? 0); top = Math.max(top, ...band.high); }
  return {end: end || 1, top: top || 1};
}

/** Where the moment stands that holds at a time; -1 before the first and after the last. @param {number[]} at_s @param {number} time */
export function indexAt(at_s, time) {
  if (!at_s.length || time < at_s[0] || time > at_s[at_s.length - 1]) return -1;
  let low = 0, high = at_s.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (at_s[middle] <= time) low = middle; else high = middle - 1; }
  return low;
}

/** Corners of a line of steps: each count holds until the next. @param {number[]} at_s @param {number[]} counts @param {(time: number) => number} x @param {(count: number) => number} y */
export function corners(at_s, counts, x, y) {
  const points = [[x(at_s[0]), y(counts[0])]];
  for (let at = 1; at < at_s.length; at++) {
    const last = points[points.length - 1][1], now = y(counts[at]);
    if (now !== last) points.push([x(at_s[at]), last], [x(at_s[at]), now]);
  }
  points.push([x(at_s[at_s.length - 1]), points[points.length - 1][1]]);
  return points;
}

const joined = (points) => points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join('L');
/** A line of steps as the `d` of a path. */
export const stepPath = (at_s, counts, x, y) => `M${joined(corners(at_s, counts, x, y))}`;
/** The area between two lines of steps. */
export const areaPath = (at_s, high, low, x, y) => `M${joined(corners(at_s, high, x, y))}L${joined(corners(at_s, low, x, y).reverse())}Z`;

/** How many pods, of one line at a time: its median, and the quartiles and ends where seeds differ. @param {Line} line @param {number} time */
export function readout(line, time) {
  const at = indexAt(line.at_s, time);
  if (at < 0) return `${line.name} –`;
  const {low, q25, median, q75, high} = line.band, number = (value) => Number(value.toFixed(1)).toLocaleString('en-US');
  const spread = low[at] === high[at] ? '' : ` [${number(q25[at])} … ${number(q75[at])}], ${number(low[at])} to ${number(high[at])}`;
  return `${line.name} ${number(median[at])}${spread}`;
}

/** Heights of names at the ends of lines, none on another, none below the plot. @param {number[]} wanted from the top, of each @param {number} bottom @param {number} apart */
export function heights(wanted, bottom, apart) {
  const order = wanted.map((_, at) => at).sort((a, b) => wanted[b] - wanted[a]), found = [...wanted];
  let free = bottom;
  for (const at of order) { found[at] = Math.min(wanted[at], free); free = found[at] - apart; }
  return found;
}

/** An arm as `--arm` takes it. @param {{name: string, switches: string[]}} arm */
export const armWords = (arm) => (arm.switches.length ? `${arm.name}:${arm.switches.join(',')}` : arm.name);

/** A word as a shell reads it. @param {string} word */
export const quoted = (word) => (/^[A-Za-z0-9_./:=,@%+-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`);

/** The command that does the same by hand. @param {{scenario: string, arms: Array<{name: string, switches: string[]}>, seeds: number, processes: boolean, recording: boolean}} request */
export function commandOf(request) {
  const words = ['keplab', 'compare', request.scenario || 'SCENARIO'];
  for (const arm of request.arms) words.push('--arm', armWords(arm));
  words.push('--seeds', String(request.seeds));
  if (request.processes) words.push('--processes');
  return words.map(quoted).join(' ');
}

/** What keeps a request from being run, or ''. @param {any} request @param {any[]} switches the register */
export function refusalOf(request, switches) {
  if (!request.scenario) return 'Choose a scenario.';
  if (!request.arms.length) return 'Add an arm.';
  const names = new Set(), known = new Map(switches.map((each) => [each.name, each]));
  for (const arm of request.arms) {
    if (!/^[A-Za-z0-9_.][A-Za-z0-9_.-]*$/.test(arm.name)) return `Arm "${arm.name}": a name of letters, digits, "_", "." and "-".`;
    if (names.has(arm.name)) return `Two arms are called "${arm.name}".`;
    names.add(arm.name);
    for (const text of arm.switches) {
      const [name, ...rest] = text.split('='), one = known.get(name), value = rest.join('=');
      if (known.size && !one) return `Arm "${arm.name}": there is no switch "${name}".`;
      if (one && one.values?.length && !one.values.map(String).includes(value)) return `Arm "${arm.name}": ${name} is one of ${one.values.join(', ')}, not "${value}".`;
    }
  }
  if (!Number.isInteger(request.seeds) || request.seeds < 1 || request.seeds > 1000) return `Seeds: 1 to 1000, not ${request.seeds}.`;
  return '';
}
