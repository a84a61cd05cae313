// Round numbers for axes: counts, and moments from microseconds to days; the same as lab/experiments/axis.py. Pure.

const STEPS_S = [];
for (let power = -6; power < 0; power++) for (const number of [1, 2, 5]) STEPS_S.push(Number(`${number}e${power}`));
STEPS_S.push(1, 2, 5, 10, 20, 30, ...[1, 2, 5, 10, 20, 30].map((minutes) => 60 * minutes), ...[1, 2, 4, 6, 12, 24, 48, 96, 168].map((hours) => 3600 * hours));
const UNITS = /** @type {Array<[number, string]>} */ ([[3600, 'h'], [60, 'min'], [1, 's'], [1e-3, 'ms'], [0, 'µs']]);
const TICKS_MAX = 6;

/** Two to five round numbers from 0 up to `top`; steps are whole. @param {number} top */
export function ticks(top) {
  let step = 10 ** Math.max(0, String(Math.floor(top)).length - 1);
  while (top / step > 5) step *= 2;
  while (top / step < 2 && step > 1) step = Math.floor(step / 2);
  return Array.from({length: Math.floor(top / step) + 1}, (_, number) => number * step);
}

/**
 * Moments of a span and their names, at most seven, all of one unit. @param {number} from @param {number} to in seconds
 * @returns {Array<[number, string]>}
 */
export function timeTicks(from, to) {
  const step = STEPS_S.find((each) => (to - from) / each <= TICKS_MAX) || STEPS_S[STEPS_S.length - 1];
  const [size, unit] = /** @type {[number, string]} */ (UNITS.find(([least]) => step >= least)), divisor = size || 1e-6;
  const found = /** @type {Array<[number, string]>} */ ([]);
  for (let number = Math.ceil(from / step - 1e-9); number * step <= to + step * 1e-9; number++) {
    found.push([number * step, number ? `${Number((number * step / divisor).toPrecision(9))} ${unit}` : '0']);
  }
  return found;
}

/** A moment as it is read beside such an axis: "1.250 s", "90.5 min". @param {number} time @param {number} span of the axis */
export function momentOn(time, span) {
  const step = STEPS_S.find((each) => span / each <= TICKS_MAX) || STEPS_S[STEPS_S.length - 1];
  const [size, unit] = /** @type {[number, string]} */ (UNITS.find(([least]) => step >= least)), divisor = size || 1e-6;
  const digits = Math.max(0, Math.ceil(-Math.log10(step / divisor / 100)));
  return `${(time / divisor).toFixed(Math.min(6, digits))} ${unit}`;
}
