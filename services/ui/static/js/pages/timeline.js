import {html} from 'keplab/html.js';
import {state} from 'keplab/state.js';
import {count} from 'keplab/format.js';

function Component() {
  const {nodes, pods} = state.columns.value;
  return html`<h1>Time line</h1><p>${count(nodes.rows)} nodes, ${count(pods.rows)} pods</p>`;
}

export const page = {id: 'timeline', key: 'l', title: 'Time line', icon: 'M4 4h16v16H4Z', Component, commands: []};
