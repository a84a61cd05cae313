// The time line with all its tracks, and its marks as a table.
import {html, signal} from 'keplab/html.js';
import {state, originOf} from 'keplab/state.js';
import {TimeCanvas, Transport, goTo} from 'keplab/timeline.js';
import {VirtualTable} from 'keplab/table.js';
import {keyOf} from 'keplab/marks.js';
import {count, moment} from 'keplab/format.js';

const text = signal(''), before = signal('');

/** Marks that fit the search; with "preceded by", only those that have such a mark of the same object before them. */
function fitting(marks, wanted, earlier) {
  const has = (mark, words) => words.every((word) => `${mark.kind} ${mark.label} ${mark.process || ''} ${mark.ref?.ev || ''}`.toLowerCase().includes(word));
  const a = wanted.toLowerCase().split(/\s+/).filter(Boolean), b = earlier.toLowerCase().split(/\s+/).filter(Boolean);
  if (!b.length) return marks.filter((mark) => has(mark, a));
  const seen = new Set(), found = [];
  for (const mark of marks) {
    const key = mark.ref?.obj ? mark.ref.obj.uid || `${mark.ref.obj.ns}/${mark.ref.obj.name}` : '';
    if (has(mark, a) && seen.has(key)) found.push(mark);
    if (has(mark, b)) seen.add(key);
  }
  return found;
}

function TimeLine() {
  const marks = state.marks.value, found = fitting(marks, text.value, before.value), origin = originOf(state.run.value);
  const columns = [
    {id: 'time', title: 'Time', width: '120px', num: true, cell: (mark) => moment(mark.time, origin), sort: (mark) => mark.time},
    {id: 'rv', title: 'Version', width: '182px', num: true, cell: (mark) => (mark.rv ? count(mark.rv) : ''), sort: (mark) => mark.rv || 0},
    {id: 'kind', title: 'Kind', width: '100px', cell: (mark) => mark.kind},
    {id: 'process', title: 'Process', width: '150px', cell: (mark) => mark.process || ''},
    {id: 'label', title: 'What', width: 'minmax(240px, 1fr)', cell: (mark) => mark.label},
  ];
  return html`<div class="toolbar"><h1>Time line</h1><${Transport} /><span class="soft">drag to seek, wheel to zoom, <kbd>.</kbd> <kbd>,</kbd> marks, <kbd>P</kbd> pins</span></div>
    <section class="panel time-panel"><${TimeCanvas} full=${true} /></section>
    <div class="toolbar"><label>marks <input type="text" placeholder="reject web" value=${text.value} onInput=${(event) => { text.value = event.target.value; }} /></label>
      <label>preceded by <input type="text" placeholder="bind" value=${before.value} onInput=${(event) => { before.value = event.target.value; }} /></label><span class="soft">${count(found.length)} of ${count(marks.length)}</span></div>
    <${VirtualTable} label="marks" columns=${columns} rows=${found} keyOf=${keyOf} picked=${undefined} onPick=${goTo} empty=${marks.length ? 'No mark fits.' : 'Nothing has happened yet.'} />`;
}

export const page = {id: 'timeline', key: 'l', keys: ['t', 'g l'], title: 'Time line', icon: 'M3 12h18M7 8v8M12 5v14M17 9v6', Component: TimeLine, commands: []};
