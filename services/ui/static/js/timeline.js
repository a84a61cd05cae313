// The time line: the strip below every page, and the same larger as a page.
import {html} from 'keplab/html.js';

export function Strip() {
  return html`<footer class="strip" aria-label="time line"></footer>`;
}
