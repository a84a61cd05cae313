// Colours for canvases: the style sheet's variables as numbers, and cividis for figures between 0 and 1.
import {state} from 'keplab/state.js';

/** A variable of the style sheet, as text. @param {string} name */
export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The same as a pixel of ImageData: 0xAABBGGRR. @param {string} text six hex digits after a hash */
export function pixelOf(text) {
  const number = parseInt(text.slice(1, 7), 16);
  return (0xff000000 | ((number & 0xff) << 16) | (number & 0xff00) | (number >> 16)) >>> 0;
}

const clamp = (value) => Math.max(0, Math.min(255, Math.round(value)));

/**
 * cividis at t: one scale that readers of all kinds of sight read alike (Nuñez, Anderton, Renslow 2018), as d3-scale-chromatic's
 * polynomial approximates it.
 * @param {number} t @returns {[number, number, number]}
 */
export function cividis(t) {
  t = Math.max(0, Math.min(1, t));
  return [
    clamp(-4.54 - t * (35.34 - t * (2381.73 - t * (6402.7 - t * (7024.72 - t * 2710.57))))),
    clamp(32.49 + t * (170.73 + t * (52.82 - t * (131.46 - t * (176.58 - t * 67.37))))),
    clamp(81.24 + t * (442.36 - t * (2482.43 - t * (6167.24 - t * (6614.94 - t * 2475.67))))),
  ];
}

/** 256 entries of it, as pixels. */
export const HEAT = Uint32Array.from({length: 256}, (_, i) => {
  const [r, g, b] = cividis(i / 255);
  return (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;
});

let of = '', known = /** @type {any} */ (null);

/** The colours of the theme that is drawn: text by name, and pixels of phases. */
export function theme() {
  if (of !== state.theme.peek() || !known) {
    of = state.theme.peek();
    const text = {};
    for (const name of ['paper', 'panel', 'sunk', 'line', 'ink', 'soft', 'pending', 'running', 'failed', 'succeeded', 'unbound', 'unknown', 'accent', 'focus', 'empty', 'chosen', 'apiserver', 'scheduler', 'kubelet', 'controllers', 'claim-controller', 'other']) text[name] = css(name);
    known = {
      text,
      phases: Uint32Array.from([text.pending, text.running, text.succeeded, text.failed, text.unknown].map(pixelOf)),
      terminating: pixelOf(text.unbound), empty: pixelOf(text.empty), paper: pixelOf(text.paper), failed: pixelOf(text.failed), soft: pixelOf(text.soft), ink: pixelOf(text.ink),
    };
  }
  return known;
}

/** The colour of a component's process, as a variable: 'scheduler-0' is scheduler's. @param {string} process */
export function processColour(process) {
  const name = ['apiserver', 'scheduler', 'kubelet', 'controllers', 'claim-controller'].find((each) => String(process).startsWith(each)) || 'other';
  return theme().text[name];
}

/** Half way from one pixel to another: what a filter leaves out. @param {number} a @param {number} b @param {number} share of b */
export function mixed(a, b, share) {
  const part = (shift) => Math.round(((a >> shift) & 0xff) * (1 - share) + ((b >> shift) & 0xff) * share);
  return (0xff000000 | (part(16) << 16) | (part(8) << 8) | part(0)) >>> 0;
}
