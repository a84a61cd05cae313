import {html} from 'keplab/html.js';
import {state} from 'keplab/state.js';
import {count} from 'keplab/format.js';

function Component() {
  const {nodes, pods} = state.columns.value;
  return html`<h1>Objects</h1><p>${count(nodes.rows)} nodes, ${count(pods.rows)} pods</p>`;
}

export const page = {id: 'objects', key: 'o', title: 'Objects', icon: 'M4 4h16v16H4Z', Component, commands: []};
