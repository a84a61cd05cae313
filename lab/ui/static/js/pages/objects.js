// Objects as kubectl lists them; a document as YAML, its summary, its versions and what differs between two of them.
import {html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState} from 'keplab/html.js';
import {state, go, select, copy, notify, wallOf, originOf} from 'keplab/state.js';
import {source, seek} from 'keplab/engine.js';
import {register, run, available} from 'keplab/commands.js';
import {VirtualTable} from 'keplab/table.js';
import {useAnswer} from 'keplab/answers.js';
import {Tabs} from 'keplab/tabs.js';
import {yaml, withoutManagers} from 'keplab/yaml.js';
import {diff, folded, split} from 'keplab/diff.js';
import {count, age, moment, counted} from 'keplab/format.js';

const KINDS = ['pods', 'nodes', 'deployments', 'replicasets', 'jobs', 'events', 'namespaces', 'podgroups', 'resourceclaims', 'leases', 'configmaps', 'secrets'];
const LIMIT = 500;

/** What the address says: kind, namespace filter, text, the object that is open and its tab. */
function where() {
  const {path, query} = state.route.value;
  return {kind: path[0] || 'pods', open: path.length >= 3 ? {ns: path[1] === '-' ? '' : path[1], name: path[2]} : null, ns: query.ns || '', q: query.q || '', tab: query.tab || 'yaml', a: Number(query.a) || 0, b: Number(query.b) || 0};
}

function move(changes) {
  const now = {...where(), ...changes}, query = /** @type {Record<string, string>} */ ({});
  for (const key of ['ns', 'q', 'tab', 'a', 'b']) if (now[key] && !(key === 'tab' && now.tab === 'yaml')) query[key] = String(now[key]);
  go('objects', now.open ? [now.kind, now.open.ns || '-', now.open.name] : [now.kind], query);
}

/** Whether there is an object to look at: the one that is open, or the first of the list. */
const isAny = () => Boolean(where().open || first.peek());
/** Shows what is open, or the first of the list, as `tab`. @param {string} tab */
const view = (tab) => move({open: where().open || first.peek(), tab});

/** Answers about objects are asked again at most once a second as versions go on. */
const FOLLOW = {every: 1, moved: true};

const wide = signal(false);
/** The first object of the list: what keys for an object mean while none is open. */
const first = signal(/** @type {{ns: string, name: string}|null} */ (null));

function List({at}) {
  const [more, setMore] = useState(/** @type {any[]} */ ([])), [rest, setRest] = useState('');
  const answer = useAnswer((rv) => source.objects(at.kind, {run: state.run.peek(), ns: at.ns, q: at.q, rv, limit: LIMIT}).then((value) => { setMore([]); setRest(value.continue || ''); return value; }), [at.kind, at.ns, at.q], FOLLOW);
  const found = answer.value;
  const rows = useMemo(() => (found ? [...found.rows, ...more] : []), [found, more]);
  useEffect(() => { if (found?.kind && typeof found.kind === 'string' && /^[a-z]/.test(found.kind) && found.kind !== at.kind && !at.open) go('objects', [found.kind], state.route.peek().query); }, [found]);
  const next = () => source.objects(at.kind, {run: state.run.peek(), ns: at.ns, q: at.q, rv: state.live.peek() ? undefined : state.rv.peek(), limit: LIMIT, continue: rest}).then((value) => { setMore([...more, ...value.rows]); setRest(value.continue || ''); }, (error) => notify(error.message, 'bad'));
  if (answer.error) return html`<p class="error" role="alert">${answer.error.message}</p>`;
  if (!found) return html`<p class="empty">loading ${at.kind} …</p>`;
  const names = found.columns.map((column) => (typeof column === 'string' ? column : column.name)), shownAt = names.map((_, index) => index).filter((index) => wide.value || !found.columns[index].priority), namespaced = rows.some((row) => row.ns);
  const columns = [
    ...(namespaced && !at.ns ? [{id: 'ns', title: 'Namespace', cell: (row) => row.ns}] : []),
    ...shownAt.map((index) => [names[index], index]).map(([title, index]) => ({
      id: title, title, width: {NAME: 'minmax(150px, 2fr)', STATUS: 'minmax(90px, 1.6fr)', MESSAGE: 'minmax(160px, 3fr)', REASON: 'minmax(90px, 1.4fr)', READY: '64px', RESTARTS: '80px', AGE: '64px'}[title.toUpperCase()],
      cell: (row) => text(row.cells[index], title), sort: (row) => sortable(row.cells[index], title),
    })),
  ];
  const key = (row) => `${row.ns}/${row.name}`;
  return html`<${VirtualTable} label=${at.kind} columns=${columns} rows=${rows} keyOf=${key} picked=${at.open ? `${at.open.ns}/${at.open.name}` : null}
      onPick=${(row) => { move({open: {ns: row.ns || '', name: row.name}, a: 0, b: 0}); if (found.kind === 'pods' || at.kind === 'pods' || at.kind === 'po') select({kind: 'pods', ns: row.ns, name: row.name}); else if (at.kind === 'nodes' || at.kind === 'no') select({kind: 'nodes', ns: '', name: row.name}); }}
      onFirst=${(row) => { first.value = row ? {ns: row.ns || '', name: row.name} : null; }}
      empty=${at.q || at.ns ? `No ${at.kind} fit.` : `There are no ${at.kind} at this version.`} />
    <p class="soft small-print">${count(rows.length)}${found.total ? ` of ${count(found.total)}` : ''} ${at.kind}${rest ? html` <button class="small" onClick=${next}>${LIMIT} more</button>` : ''}${found.columns.some((column) => column.priority) ? html` <button class="small" aria-pressed=${wide.value} onClick=${() => { wide.value = !wide.value; }}>wide</button>` : ''}</p>`;
}

/** A cell as text. A creation time (an age that is not computed yet) is counted to the moment that is shown. */
function text(cell, title) {
  if (cell === null || cell === undefined) return '';
  if (/^age$/i.test(title) && /^\d{4}-\d\d-\d\dT/.test(String(cell))) return age(now() - Date.parse(cell) / 1000);
  return String(cell);
}

function sortable(cell, title) {
  if (typeof cell === 'number') return cell;
  const words = String(cell ?? '');
  if (/^age$/i.test(title)) {
    if (/^\d{4}-/.test(words)) return -Date.parse(words);
    const units = {y: 31536000, d: 86400, h: 3600, m: 60, s: 1};
    return [...words.matchAll(/(\d+)([ydhms])/g)].reduce((sum, [, number, unit]) => sum + Number(number) * units[unit], 0);
  }
  const number = /^-?\d+(\.\d+)?/.exec(words);
  return number ? number[0].padStart(24, '0') + words : words;
}

function now() {
  return state.time.peek() + wallOf(state.run.peek());
}

function Yaml({document, managed}) {
  const [open, setOpen] = useState(false), short = withoutManagers(document);
  const shown = yaml(open ? document : short.document);
  return html`<div class="toolbar">${short.managers > 0 && html`<button class="small" aria-pressed=${open} onClick=${() => setOpen(!open)}>managedFields of ${short.managers}</button>`}
      <button class="small" onClick=${() => copy(shown, 'the document')}>copy</button>${managed}</div>
    <pre class="yaml" tabindex="0" aria-label="YAML">${shown.split('\n').map((line, at) => html`<${Line} key=${at} line=${line} />`)}</pre>`;
}

/** A line with its key set apart. */
function Line({line}) {
  const found = /^(\s*(?:- )*)("[^"]*"|[^\s"#][^:]*?)(:)(\s.*|)$/.exec(line);
  return found ? html`${found[1]}<span class="key">${found[2]}</span>:${`${found[4]}\n`}` : `${line}\n`;
}

/** What kubectl describe would say first, for any kind; conditions; events about it. */
function Describe({document}) {
  const meta = document.metadata || {}, status = document.status || {}, spec = document.spec || {};
  const events = useAnswer((rv) => source.objects('events', {run: state.run.peek(), ns: meta.namespace, q: '', rv, limit: 2000}).catch(() => ({columns: [], rows: []})), [meta.uid], FOLLOW);
  const names = (events.value?.columns || []).map((column) => String(typeof column === 'string' ? column : column.name).toLowerCase()), place = names.indexOf('object');
  const about = `${String(document.kind || '').toLowerCase()}/${meta.name}`;
  const own = place < 0 ? [] : events.value.rows.filter((row) => String(row.cells[place]).toLowerCase() === about);
  const pairs = (of) => Object.entries(of || {}).map(([key, value]) => html`<div key=${key} class="wrap"><code>${key}=${value}</code></div>`);
  const scalars = (of) => Object.entries(of).filter(([, value]) => ['string', 'number', 'boolean'].includes(typeof value));
  return html`<dl class="pairs">
      <dt>Name</dt><dd>${meta.name}</dd>${meta.namespace && html`<dt>Namespace</dt><dd>${meta.namespace}</dd>`}
      <dt>Created</dt><dd>${meta.creationTimestamp || '–'} ${meta.creationTimestamp ? `(${age(now() - Date.parse(meta.creationTimestamp) / 1000)})` : ''}</dd>
      ${meta.deletionTimestamp && html`<dt>Deleted</dt><dd>${meta.deletionTimestamp}, grace ${meta.deletionGracePeriodSeconds ?? '–'} s</dd>`}
      <dt>Labels</dt><dd>${meta.labels ? pairs(meta.labels) : 'none'}</dd><dt>Annotations</dt><dd>${meta.annotations ? pairs(meta.annotations) : 'none'}</dd>
      ${meta.ownerReferences && html`<dt>Owners</dt><dd>${meta.ownerReferences.map((each) => `${each.kind}/${each.name}`).join(', ')}</dd>`}
      ${meta.finalizers && html`<dt>Finalizers</dt><dd>${meta.finalizers.join(', ')}</dd>`}
      ${scalars(spec).map(([key, value]) => html`<dt key=${key}>${key}</dt><dd>${String(value)}</dd>`)}
      ${scalars(status).map(([key, value]) => html`<dt key=${`s-${key}`}>status ${key}</dt><dd>${String(value)}</dd>`)}
    </dl>
    ${(spec.containers || []).length > 0 && html`<h3>Containers</h3><table><thead><tr><th>Name</th><th>Image</th><th>Requests</th><th>Limits</th><th>State</th></tr></thead><tbody>${[...(spec.initContainers || []), ...spec.containers].map((each) => {
      const one = (status.containerStatuses || []).find((container) => container.name === each.name);
      const words = (of) => Object.entries(of || {}).map(([key, value]) => `${key} ${value}`).join(', ') || '–';
      return html`<tr key=${each.name}><td>${each.name}</td><td>${each.image}</td><td>${words(each.resources?.requests)}</td><td>${words(each.resources?.limits)}</td><td>${one ? `${Object.keys(one.state || {})[0] || '–'}${one.restartCount ? `, ${one.restartCount} restarts` : ''}` : '–'}</td></tr>`;
    })}</tbody></table>`}
    ${(status.conditions || []).length > 0 && html`<h3>Conditions</h3><table><thead><tr><th>Type</th><th>Status</th><th>Reason</th><th>Message</th></tr></thead><tbody>${status.conditions.map((each) => html`<tr key=${each.type}><td>${each.type}</td><td>${each.status}</td><td>${each.reason || ''}</td><td class="wrap">${each.message || ''}</td></tr>`)}</tbody></table>`}
    <h3>Events</h3>${own.length ? html`<table><thead><tr>${events.value.columns.map((column) => html`<th key=${column}>${typeof column === 'string' ? column : column.name}</th>`)}</tr></thead><tbody>${own.map((row) => html`<tr key=${row.name}>${row.cells.map((cell, index) => html`<td key=${index} class="wrap">${text(cell, names[index] === 'last seen' ? 'age' : names[index])}</td>`)}</tr>`)}</tbody></table>` : html`<p class="soft">${events.loading ? 'loading …' : 'none'}</p>`}`;
}

/** The first fields that changed. @param {string[]} changed */
function shortly(changed) {
  return changed.length > 2 ? `${changed.slice(0, 2).join(', ')} and ${changed.length - 2} more` : changed.join(', ');
}

/** The versions of an object; two of them beside each other. */
function Versions({at}) {
  const answer = useAnswer(() => source.versions(at.kind, at.open.ns, at.open.name, state.run.peek()), [at.kind, at.open.ns, at.open.name], FOLLOW);
  const [sides, setSides] = useState(false), [whole, setWhole] = useState(false), [managers, setManagers] = useState(false), [pair, setPair] = useState(/** @type {any} */ (null));
  const list = answer.value ? [...answer.value.versions].sort((a, b) => b.rv - a.rv) : [];
  const known = list.filter((each) => each.recorded !== false && each.type !== 'DELETED');
  const b = at.b || known[0]?.rv || 0, a = at.a || known.find((each) => each.rv < b)?.rv || b;
  useEffect(() => {
    let current = true;
    if (!b) return undefined;
    Promise.all([a, b].map((rv) => source.object(at.kind, at.open.ns, at.open.name, rv, state.run.peek()).then((found) => found.document))).then((both) => { if (current) setPair({a, b, both}); }, (error) => { if (current) setPair({a, b, error}); });
    return () => { current = false; };
  }, [a, b, at.kind, at.open.ns, at.open.name]);
  if (answer.error) return html`<p class="error">${answer.error.message}</p>`;
  if (!answer.value) return html`<p class="empty">loading versions …</p>`;
  const origin = originOf(state.run.value);
  const time = (each) => (typeof each.t === 'number' && !origin ? moment(each.t) : typeof each.time === 'number' ? moment(each.time, origin) : each.time ? moment(Date.parse(each.time) / 1000 - 1, 1) : '');
  return html`<table class="versions"><thead><tr><th>old</th><th>new</th><th>Version</th><th>Time</th><th>Type</th><th>Writer</th><th>What</th><th>Trace</th></tr></thead><tbody>
      ${list.map((each) => html`<tr key=${each.rv} class=${each.recorded === false ? 'unrecorded' : ''}>
        <td><input type="radio" name="a" aria-label="old rv ${each.rv}" disabled=${each.recorded === false || each.type === 'DELETED'} checked=${each.rv === a} onChange=${() => move({a: each.rv, b})} /></td>
        <td><input type="radio" name="b" aria-label="new rv ${each.rv}" disabled=${each.recorded === false || each.type === 'DELETED'} checked=${each.rv === b} onChange=${() => move({a, b: each.rv})} /></td>
        <td><button class="plain link" title="show this moment" onClick=${() => seek(each.rv)}>${count(each.rv)}</button></td><td>${time(each)}</td><td>${each.type}</td><td>${each.writer || each.identity || '–'}${each.request_id ? html` <code class="soft">${each.request_id.slice(0, 8)}</code>` : ''}</td>
        <td class="what" title=${(each.changed || []).join('\n')}>${each.recorded === false ? 'body not recorded' : shortly(each.changed || [])}</td><td>${each.trace_id ? html`<code>${each.trace_id.slice(0, 8)}</code>` : ''}</td></tr>`)}
    </tbody></table>
    ${list.length === 0 && html`<p class="empty">No version is known.</p>`}
    ${answer.value.window_start ? html`<p class="soft">What is older than rv ${count(answer.value.window_start)} is not in the window.</p>` : ''}
    <div class="toolbar"><button class="small" aria-pressed=${!sides} onClick=${() => setSides(false)}>unified</button><button class="small" aria-pressed=${sides} onClick=${() => setSides(true)}>side by side</button>
      <button class="small" aria-pressed=${whole} onClick=${() => setWhole(!whole)}>whole document</button><button class="small" aria-pressed=${managers} onClick=${() => setManagers(!managers)}>managedFields</button></div>
    ${pair?.error ? html`<p class="error">${pair.error.message}</p>` : pair && html`<${Difference} before=${pair.both[0]} after=${pair.both[1]} a=${pair.a} b=${pair.b} sides=${sides} whole=${whole} managers=${managers} />`}`;
}

/** Two documents, as lines that were added and removed. */
export function Difference({before, after, a, b, sides = false, whole = false, managers = false}) {
  const rows = useMemo(() => {
    const lines = (document) => yaml(managers ? document : withoutManagers(document).document).trimEnd().split('\n');
    const all = diff(lines(before), lines(after));
    return whole ? all : folded(all);
  }, [before, after, whole, managers]);
  const changed = rows.filter((row) => row.kind === 'added' || row.kind === 'removed').length;
  const sign = {same: ' ', added: '+', removed: '−'};
  const gap = (row, at) => html`<div key=${at} class="diff-row gap">⋯ ${counted(row.count, 'line')} the same</div>`;
  if (!changed) return html`<p class="soft">rv ${count(a)} and rv ${count(b)} do not differ${managers ? '' : ' (managedFields are left out)'}.</p>`;
  return html`<div class="diff ${sides ? 'sides' : ''}" tabindex="0" role="region" aria-label="difference of rv ${a} and rv ${b}: ${counted(changed, 'line')}" data-changed=${changed}>
    ${sides ? split(rows).map(([left, right], at) => (left?.kind === 'gap' ? gap(left, at) : html`<div key=${at} class="diff-pair"><div class="diff-row ${left && left.kind !== 'same' ? 'removed' : left ? '' : 'none'}"><span class="at">${left ? left.a : ''}</span><span class="sign">${left && left.kind !== 'same' ? '−' : ' '}</span>${left?.text ?? ''}</div><div class="diff-row ${right && right.kind !== 'same' ? 'added' : right ? '' : 'none'}"><span class="at">${right ? right.b : ''}</span><span class="sign">${right && right.kind !== 'same' ? '+' : ' '}</span>${right?.text ?? ''}</div></div>`))
      : rows.map((row, at) => (row.kind === 'gap' ? gap(row, at) : html`<div key=${at} class="diff-row ${row.kind}"><span class="at">${row.a || ''}</span><span class="at">${row.b || ''}</span><span class="sign">${sign[row.kind]}</span>${row.text}</div>`))}
  </div>`;
}

function Detail({at}) {
  const answer = useAnswer((rv) => source.object(at.kind, at.open.ns, at.open.name, rv, state.run.peek()), [at.kind, at.open.ns, at.open.name], FOLLOW), found = answer.value;
  const tabs = [['yaml', 'YAML', 'y'], ['describe', 'describe', 'd'], ['versions', 'versions', 'v']];
  const editor = available().find((command) => command.id === 'edit.open');
  return html`<section class="detail panel" aria-label="${at.kind} ${at.open.name}">
    <header class="toolbar"><h2 class="wrap">${at.open.ns ? `${at.open.ns}/` : ''}${at.open.name}</h2><span class="soft">${found?.rv ? `rv ${count(found.rv)}` : ''}</span><span class="grow"></span>
      ${editor && html`<button class="small" onClick=${() => run('edit.open')}>edit <kbd>e</kbd></button>`}<button class="small" aria-label="close" onClick=${() => move({open: null, a: 0, b: 0, tab: 'yaml'})}>✕</button></header>
    <${Tabs} label="views of the object" tabs=${tabs} shown=${at.tab} choose=${(id) => move({tab: id})} />
    <div class="tab" role="tabpanel" aria-label=${at.tab}>
      ${at.tab === 'versions' ? html`<${Versions} at=${at} />`
        : answer.error ? html`<p class="error" role="alert">${answer.error.message}</p>${found && html`<p class="soft">Its last known document:</p><${Yaml} document=${found.document} />`}`
          : !found ? html`<p class="empty">loading …</p>` : at.tab === 'describe' ? html`<${Describe} document=${found.document} />` : html`<${Yaml} document=${found.document} />`}
    </div></section>`;
}

function Objects() {
  const at = where(), field = useRef(/** @type {HTMLInputElement|null} */ (null));
  useLayoutEffect(() => register([
    {id: 'objects.yaml', title: 'YAML of what is open', keys: ['y'], when: isAny, run: () => view('yaml')},
    {id: 'objects.describe', title: 'Describe what is open, with its events', keys: ['d'], when: () => isAny() && document.activeElement?.getAttribute('role') !== 'slider', run: () => view('describe')},
    {id: 'objects.versions', title: 'Versions of what is open, and what differs', keys: ['v'], when: isAny, run: () => view('versions')},
    {id: 'objects.close', title: 'Close what is open', keys: ['Esc'], when: () => Boolean(where().open) && !state.overlay.peek(), run: () => move({open: null, a: 0, b: 0, tab: 'yaml'})},
    {id: 'objects.filter', title: 'Filter by name', keys: ['F'], run: () => field.current?.focus()},
  ].map((command) => ({group: 'objects', ...command}))), []);
  // What is selected elsewhere is opened here.
  useEffect(() => { const chosen = state.selected.peek(); if (chosen && !at.open && !state.route.peek().path.length) move({kind: chosen.kind, open: {ns: chosen.ns, name: chosen.name}}); }, []);
  const [kind, setKind] = useState(at.kind);
  useEffect(() => setKind(at.kind), [at.kind]);
  return html`<h1 class="sr-only">Objects</h1>
    <div class="toolbar">
      <label>kind <input type="text" list="kinds" value=${kind} spellcheck=${false} size="16" onInput=${(event) => setKind(event.target.value)} onChange=${(event) => { const to = event.target.value.trim(); if (to) move({kind: to, open: null, a: 0, b: 0}); }} /></label>
      <datalist id="kinds">${(state.meta.value.kinds || KINDS).map((each) => html`<option key=${each} value=${each} />`)}</datalist>
      <label>namespace <input type="text" value=${at.ns} placeholder="all" size="12" spellcheck=${false} onChange=${(event) => move({ns: event.target.value.trim()})} /></label>
      <label class="grow">name <input ref=${field} type="text" value=${at.q} placeholder="part of a name" spellcheck=${false} onInput=${(event) => move({q: event.target.value.trim()})} /></label>
      <span class="quick">${KINDS.slice(0, 6).map((each) => html`<button key=${each} class="small" aria-pressed=${at.kind === each} onClick=${() => move({kind: each, open: null, q: '', a: 0, b: 0})}>${each}</button>`)}</span>
    </div>
    <div class="split"><div class="main-part"><${List} at=${at} /></div>${at.open && html`<${Detail} key=${`${at.kind}/${at.open.ns}/${at.open.name}`} at=${at} />`}</div>`;
}

export const page = {id: 'objects', key: 'o', title: 'Objects', icon: 'M5 5h14M5 10h14M5 15h9M5 20h9', Component: Objects, commands: []};
