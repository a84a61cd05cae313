// Tabs: one of them is shown; arrow keys, Home and End move between them, and Tab goes on to what is shown.
import {html, useRef} from 'keplab/html.js';

/** `tabs`: id, title, and the key that shows it, if there is one. @param {{label: string, tabs: Array<[string, string, string?]>, shown: string, choose: (id: string) => void}} how */
export function Tabs({label, tabs, shown, choose}) {
  const list = useRef(/** @type {any} */ (null)), here = Math.max(0, tabs.findIndex(([id]) => id === shown));
  const onKeyDown = (event) => {
    const to = {ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: tabs.length - 1}[event.key];
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const at = (to + tabs.length) % tabs.length;
    choose(tabs[at][0]);
    list.current.children[at].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} ref=${list} onKeyDown=${onKeyDown}>${tabs.map(([id, title, stroke], at) => html`<button key=${id} role="tab" aria-selected=${at === here} tabindex=${at === here ? 0 : -1} onClick=${() => choose(id)}>${title}${stroke && html` <kbd>${stroke}</kbd>`}</button>`)}</div>`;
}
