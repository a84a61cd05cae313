// The document of a comparison (services/experiments/document.py) as rows and series. Pure.

/** A figure of a measure: thousands with commas, at most four digits after the point. @param {number|null|undefined} value */
export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  const size = Math.abs(value), digits = size >= 1000 || Number.isInteger(value) ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
  return `${value < 0 ? '−' : ''}${size.toLocaleString('en-US', {maximumFractionDigits: digits})}`;
}

/** A difference with its sign. @param {number|null|undefined} value */
export const signed = (value) => (value === null || value === undefined ? '–' : value > 0 ? `+${figure(value)}` : figure(value));

/** "median (q25 – q75)"; the quartiles only where there are some. @param {any} spread */
export function spreadWords(spread) {
  if (!spread || spread.median === null || spread.median === undefined) return '–';
  return spread.q25 !== null && spread.q25 !== undefined && (spread.q25 !== spread.q75) ? `${figure(spread.median)} (${figure(spread.q25)} – ${figure(spread.q75)})` : figure(spread.median);
}

/**
 * What a paired difference says, in a word: "lower in 6 of 6", and whether it has a direction (its interval leaves out zero; with
 * too few seeds for one, all have one sign).
 * @param {any} paired
 */
export function directionOf(paired) {
  if (!paired || paired.median === null || paired.median === undefined) return {words: '–', has: false, sign: 0};
  const sign = Math.sign(paired.median), most = Math.max(paired.higher, paired.lower);
  const has = paired.interval ? paired.interval[0] > 0 || paired.interval[1] < 0 : most === paired.seeds && paired.seeds > 0;
  const words = most === 0 ? `equal in all ${paired.seeds}` : `${paired.higher >= paired.lower ? 'higher' : 'lower'} in ${most} of ${paired.seeds}`;
  return {words, has, sign};
}

/** Whether a difference is for the better: 'better', 'worse' or ''. @param {any} measure @param {any} paired */
export function judged(measure, paired) {
  const {has, sign} = directionOf(paired);
  if (!has || !sign || !measure.better) return '';
  return (measure.better === 'lower') === (sign < 0) ? 'better' : 'worse';
}

/** Measures that fit a text and a choice, those that differ first. @param {any} made @param {{text?: string, all?: boolean}} how */
export function measuresOf(made, {text = '', all = false} = {}) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (measure) => words.every((word) => `${measure.name} ${measure.label}`.toLowerCase().includes(word));
  const order = {differs: 0, equal: 1, empty: 2};
  return made.measures.filter((measure) => fits(measure) && (all || words.length || measure.state === 'differs')).sort((a, b) => order[a.state] - order[b.state]);
}

/** The value of a measure in each run: [[seed, value]…] of an arm. */
export const valuesOf = (arm, name) => arm.runs.filter((run) => !run.error && run.measures[name] !== null && run.measures[name] !== undefined).map((run) => [run.seed, run.measures[name]]);

/** The phases of which any arm has a pod at any time. @param {any} made */
export function phasesOf(made) {
  const found = [];
  for (const arm of made.arms) for (const band of arm.bands.phases) if (!found.includes(band.phase) && band.high.some((value) => value > 0)) found.push(band.phase);
  return found;
}

/**
 * Series for uPlot of one phase in all arms: x, and for each arm low, q25, median, q75, high. Arms have times of their own, so that
 * each is read at the times of all: a step holds until the next.
 * @param {any} made @param {string} phase
 */
export function bandSeries(made, phase) {
  const times = [...new Set(made.arms.flatMap((arm) => arm.bands.at_s))].sort((a, b) => a - b), data = [times];
  for (const arm of made.arms) {
    const band = arm.bands.phases.find((each) => each.phase === phase), end = arm.bands.at_s[arm.bands.at_s.length - 1] ?? 0;
    for (const name of ['low', 'q25', 'median', 'q75', 'high']) {
      let at = -1;
      data.push(times.map((time) => {
        while (at + 1 < arm.bands.at_s.length && arm.bands.at_s[at + 1] <= time) at += 1;
        return at < 0 || time > end ? null : band ? band[name][at] : 0;
      }));
    }
  }
  return data;
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
