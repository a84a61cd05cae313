// The shell: top bar, rail, page, time line, palette, help and keys.
import {html, render, useEffect, useLayoutEffect, useRef, useState, useMemo, effect, signal} from 'keplab/html.js';
import {state, view, go, routeOf, copy, notify, select, momentOf, originOf, runOf, rowOf, runName} from 'keplab/state.js';
import {start, openRun, showRun, seek, play, toHead, search, counters, workerState, source} from 'keplab/engine.js';
import {register, registered, available, onKey, pending, run as runCommand} from 'keplab/commands.js';
import {kindWords} from 'keplab/words.js';
import {Dialog} from 'keplab/dialog.js';
import {Strip} from 'keplab/timeline.js';
import {count, moment, counted} from 'keplab/format.js';
import {pages} from 'keplab/pages/index.js';

const byId = new Map(pages.map((page) => [page.id, page]));
/** A file may have a comparison alone, without a run to look at. */
const hasRuns = () => !state.meta.value.replay || (state.meta.value.runs || []).length > 0;
/** Whether a page has anything to show: a file says which of them have. */
const isThere = (page) => (state.meta.value.replay ? (page.overlay || page.rail === false ? hasRuns() : (state.meta.value.pages || []).includes(page.id)) : true);
const titleOf = (page) => (page.id === state.meta.value.opens && state.meta.value.result) || page.title;

function readAddress() {
  const found = routeOf(location.hash), page = byId.get(found.id);
  if (found.id && !page && !found.id.startsWith('t=')) notify(`There is no page "${found.id}".`, 'bad');
  const next = page && !page.overlay ? found : {id: state.meta.peek().opens || 'cluster', path: [], query: {}};
  if (JSON.stringify(next) !== JSON.stringify(state.route.peek())) state.route.value = next;
}

function Icon({path}) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${path} /></svg>`;
}

/** Seconds since the connection was lost, drawn once a second. */
function Connection() {
  const [, again] = useState(0);
  const {kind, since, text} = state.connection.value;
  useEffect(() => {
    if (kind !== 'stale') return undefined;
    const timer = setInterval(() => again((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [kind]);
  const playing = state.playing.value;
  if (kind === 'stale') return html`<span class="dot stale" role="status">stale for ${Math.round((Date.now() - since) / 1000)} s</span>`;
  if (kind === 'starting') return html`<span class="dot waiting" role="status">connecting</span>`;
  if (kind === 'refused') return html`<span class="dot stale" role="status">not signed in ${text}</span>`;
  const isRecording = (state.meta.value.runs || []).some((each) => each.id === state.run.value && each.kind === 'recording');
  if (kind === 'replay' || isRecording) return html`<span class="dot past" role="status">${playing ? `playing ${playing}×` : 'recording'}</span>`;
  return state.live.value ? html`<span class="dot live" role="status">live</span>`
    : html`<span class="dot past" role="status">${playing ? `playing ${playing}×` : 'past'}</span> <button class="small" onClick=${() => toHead()}>go live</button>`;
}

function Top() {
  const meta = state.meta.value, runs = meta.runs || [], id = state.run.value, origin = originOf(id), about = runs.find((each) => each.id === id), title = about && about.kind !== 'live' && about.title !== runName(about) ? about.title : '';
  const first = hasRuns() ? 'cluster' : meta.opens;
  return html`<header class="top">
    <a class="brand" href="#/${first}" aria-label="keplab, to the ${first === 'cluster' ? 'cluster' : 'result'}">keplab</a>
    ${hasRuns() && html`<label class="run" title=${title}><span class="word">run</span>
      <select value=${id} onChange=${(event) => showRun(event.target.value)} aria-label="run">
        ${(runs.length ? runs : [{id: 'live', title: 'live'}]).map((each) => html`<option key=${each.id} value=${each.id}>${runName(each)}</option>`)}
      </select>${title && html`<span class="soft title">${title}</span>`}</label>
    <${Connection} />
    <span class="moment" title="version and time that are shown"><b class="rv">rv ${count(state.rv.value)}</b><span class="time">${moment(state.time.value, origin)}</span></span>
    <${Search} />`}${!hasRuns() && html`<span class="grow"></span>`}
    <button class="icon-button" aria-label="colours: ${state.themeChoice.value}" title="colours: ${state.themeChoice.value}" onClick=${() => runCommand('shell.theme')}>
      <${Icon} path=${state.theme.value === 'dark' ? 'M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5Z' : 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4'} /></button>
    <button class="icon-button" aria-label="help" title="keys (?)" onClick=${() => runCommand('shell.help')}>?</button>
  </header>`;
}

/** `/` searches names, `:` jumps to a kind: `:pods -n shop`. */
function Search() {
  const field = useRef(/** @type {HTMLInputElement|null} */ (null));
  const [text, setText] = useState(''), [found, setFound] = useState(/** @type {{of: string, list: any[]}} */ ({of: '', list: []})), [at, setAt] = useState(0), [open, setOpen] = useState(false);
  useLayoutEffect(() => register([
    {id: 'shell.search', title: 'Search names of pods and nodes', keys: ['/'], run: () => { field.current?.focus(); field.current?.select(); }},
    {id: 'shell.kind', title: 'Jump to a kind, as in :pods -n shop', keys: [':'], run: () => { if (field.current) field.current.value = ':'; setText(':'); field.current?.focus(); }},
  ]), []);
  const query = text.startsWith(':') ? '' : text.replace(/^\//, '').trim(), hits = query ? found.list : [], isCurrent = found.of === query;
  useEffect(() => {
    if (!open || !query) return undefined;
    let current = true;
    const timer = setTimeout(() => search(query, 12).then((list) => { if (current) { setFound({of: query, list}); setAt(0); } }), 80);
    return () => { current = false; clearTimeout(timer); };
  }, [query, open]);
  const leave = () => { setOpen(false); setText(''); field.current?.blur(); /** @type {HTMLElement|null} */ (document.querySelector('main'))?.focus(); };
  const take = (hit) => { select({kind: hit.kind, ns: hit.ns, name: hit.name}); leave(); };
  const onKeyDown = (event) => {
    if (event.key === 'Escape') { leave(); event.stopPropagation(); } else if (event.key === 'ArrowDown') { setAt(Math.min(hits.length - 1, at + 1)); event.preventDefault(); } else if (event.key === 'ArrowUp') { setAt(Math.max(0, at - 1)); event.preventDefault(); } else if (event.key === 'Enter') {
      if (text.startsWith(':')) { const to = kindWords(text.slice(1)); if (to) { go('objects', [to.kind], to.query); leave(); } } else if (isCurrent && hits[at]) take(hits[at]); else if (query) search(query, 1).then(([hit]) => { if (hit) take(hit); else notify(`No pod and no node has "${query}" in its name.`); });
    }
  };
  return html`<div class="search" role="search">
    <input ref=${field} type="text" role="combobox" aria-expanded=${hits.length > 0} aria-controls="hits" aria-autocomplete="list" aria-label="search, or : and a kind" placeholder="/ search or :kind" value=${text} autocomplete="off" spellcheck=${false}
      aria-activedescendant=${hits[at] ? `hit-${at}` : undefined}
      onFocus=${() => setOpen(true)} onBlur=${() => setTimeout(() => setOpen(false), 150)} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKeyDown} />
    ${open && hits.length > 0 && html`<ul id="hits" class="hits" role="listbox" aria-label="found">
      ${hits.map((hit, index) => html`<li key=${hit.kind + hit.row} id="hit-${index}" role="option" aria-selected=${index === at} onMouseDown=${() => take(hit)}><span class="kind">${hit.kind === 'pods' ? 'pod' : 'node'}</span> ${hit.ns ? `${hit.ns}/` : ''}${hit.name}</li>`)}
    </ul>`}</div>`;
}

function Rail() {
  const here = state.route.value.id;
  return html`<nav class="rail" aria-label="pages">
    ${pages.filter((page) => !page.overlay && page.rail !== false && isThere(page)).map((page) => html`<a key=${page.id} href="#/${page.id}" aria-current=${page.id === here ? 'page' : undefined} title="${titleOf(page)} (g ${page.key})">
      <${Icon} path=${page.icon} /><span class="name">${titleOf(page)}</span></a>`)}
  </nav>`;
}

function Notice() {
  const {text, kind, at} = state.notice.value;
  useEffect(() => {
    if (!text) return undefined;
    const timer = setTimeout(() => { if (state.notice.peek().at === at) state.notice.value = {text: '', kind: '', at}; }, kind === 'bad' ? 12000 : 4000);
    return () => clearTimeout(timer);
  }, [at]);
  return html`<div class="notice ${kind} ${text ? 'shown' : ''}" role="status">${text}</div>`;
}

function Banner() {
  const {kind} = state.connection.value, gap = state.gap.value;
  if (kind === 'refused') return html`<p class="banner bad">This page is not signed in. Start it anew with the address that <code>keplab ui</code> printed.</p>`;
  if (gap && gap.lines) return html`<p class="banner">${counted(gap.lines, 'event line')} not here, nor their marks. <button class="small" onClick=${() => { view.peek().gap.value = null; }}>dismiss</button></p>`;
  if (gap) return html`<p class="banner">Versions ${gap.from} to ${gap.to} were not sent, because this page was too slow; the state was fetched again. <button class="small" onClick=${() => { view.peek().gap.value = null; }}>dismiss</button></p>`;
  const about = runOf(state.run.value);
  if (about?.recording_error && about.recording_error !== 'it was not asked for' && !dismissed.value) return html`<p class="banner">The past of this mesh cannot be shown, because it is not recorded: ${about.recording_error}. <button class="small" onClick=${() => { dismissed.value = true; }}>dismiss</button></p>`;
  return null;
}
const dismissed = signal(false);

function Help({close}) {
  void registered.value;
  const groups = new Map();
  for (const command of available()) {
    if (!command.keys || !command.keys.length || command.hidden) continue;
    const name = command.group || command.id.split('.')[0];
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(command);
  }
  return html`<${Dialog} label="keys" close=${close} wide=${true}>
    <h2>Keys</h2>
    <div class="keys">${[...groups].map(([name, list]) => html`<section key=${name}><h3>${name}</h3><dl>${list.map((command) => html`<div key=${command.id}><dt>${command.keys.map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${command.title}</dd></div>`)}</dl></section>`)}</div>
    <p class="soft">Every command has an id and is in the palette: <kbd>Ctrl+Shift+P</kbd>.</p>
    <button onClick=${close}>close</button>
  <//>`;
}

function Palette({close}) {
  const [text, setText] = useState(''), [at, setAt] = useState(0);
  const list = useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return available().filter((command) => !command.hidden && words.every((word) => `${command.title} ${command.id}`.toLowerCase().includes(word)));
  }, [text, registered.value]);
  const go_ = (command) => { close(); command.run(); };
  return html`<${Dialog} label="commands" close=${close}>
    <input class="palette-field" autofocus type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-label="command" placeholder="command" value=${text} onInput=${(event) => { setText(event.target.value); setAt(0); }}
      aria-activedescendant=${list[at] ? `command-${at}` : undefined}
      onKeyDown=${(event) => {
        if (event.key === 'ArrowDown') { setAt(Math.min(list.length - 1, at + 1)); event.preventDefault(); }
        if (event.key === 'ArrowUp') { setAt(Math.max(0, at - 1)); event.preventDefault(); }
        if (event.key === 'Enter' && list[at]) { event.preventDefault(); go_(list[at]); }
      }} />
    <ul id="palette-list" class="palette" role="listbox" aria-label="commands">${list.map((command, index) => html`<li key=${command.id} id="command-${index}" role="option" aria-selected=${index === at} onClick=${() => go_(command)}>
      <span>${command.title}</span><code>${command.id}</code>${(command.keys || []).map((key) => html`<kbd>${key}</kbd>`)}</li>`)}</ul>
    ${list.length === 0 && html`<p class="soft">No command has these words.</p>`}
  <//>`;
}

function App() {
  const route = state.route.value, page = byId.get(route.id) || pages[0], overlay = byId.get(state.overlay.value);
  const main = useRef(/** @type {HTMLElement|null} */ (null));
  useLayoutEffect(() => register((page.commands || []).map((/** @type {any} */ command) => ({group: page.title.toLowerCase(), ...command}))), [page.id]);
  useLayoutEffect(() => (overlay ? register((overlay.commands || []).map((/** @type {any} */ command) => ({group: overlay.title.toLowerCase(), ...command}))) : undefined), [state.overlay.value]);
  useEffect(() => { document.title = `${titleOf(page)} · ${state.meta.value.title || 'keplab'}`; }, [page.id]);
  const close = () => { state.overlay.value = ''; main.current?.focus(); };
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current?.focus(); }}>to the page</a>
    <${Top} />${hasRuns() && html`<${Rail} />`}
    <main id="main" ref=${main} tabindex="-1" class=${`page-${page.id} ${overlay ? 'with-overlay' : ''}`}>
      <${Banner} />
      <${page.Component} key=${page.id} />
    </main>
    ${overlay && html`<aside class="overlay" aria-label=${overlay.title}><${overlay.Component} close=${close} /></aside>`}
    ${hasRuns() && html`<${Strip} />`}
    <${Notice} />
    <div class="sr-only" aria-live="polite">${state.summary.value}</div>
    ${pending.value && html`<div class="pending" aria-hidden="true"><kbd>${pending.value}</kbd> …</div>`}
    ${state.overlay.value === 'help' && html`<${Help} close=${close} />`}
    ${state.overlay.value === 'palette' && html`<${Palette} close=${close} />`}`;
}

/** light or dark, from the choice and what the system prefers. */
function theme() {
  const dark = matchMedia('(prefers-color-scheme: dark)'), calm = matchMedia('(prefers-reduced-motion: reduce)');
  const storage = () => { try { return localStorage.getItem('keplab.theme') || 'auto'; } catch { return 'auto'; } };
  state.themeChoice.value = storage();
  const apply = () => {
    const choice = state.themeChoice.value;
    state.theme.value = choice === 'auto' ? (dark.matches ? 'dark' : 'light') : choice;
    state.reducedMotion.value = calm.matches;
    document.documentElement.dataset.theme = state.theme.value;
  };
  effect(apply);
  dark.addEventListener('change', apply);
  calm.addEventListener('change', apply);
}

function shellCommands() {
  const own = pages.filter((page) => page.key).flatMap((page) => (page.overlay
    ? [{id: `${page.id}.toggle`, title: page.title, keys: [page.key], group: 'pages', when: () => isThere(page), run: () => { state.overlay.value = state.overlay.peek() === page.id ? '' : page.id; }}]
    : [{id: `go.${page.id}`, title: `Go to ${page.title}`, keys: page.keys || [`g ${page.key}`], group: 'pages', when: () => isThere(page), run: () => go(page.id)}]));
  register([
    ...own,
    {id: 'shell.palette', title: 'All commands', keys: ['Ctrl+Shift+P', 'Meta+Shift+P'], inFields: true, run: () => { state.overlay.value = 'palette'; }},
    {id: 'shell.help', title: 'Keys', keys: ['?'], run: () => { state.overlay.value = 'help'; }},
    {id: 'shell.back', title: 'Close what lies over the page, or unselect', keys: ['Esc'], run: back},
    {id: 'shell.list', title: 'Into the list of this page', keys: ['Down', 'j'], when: () => Boolean(listOf()) && [document.body, document.querySelector('main')].some((each) => each === document.activeElement), run: () => {
      const list = listOf();
      list?.focus();
      list?.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}));
    }},
    {id: 'shell.theme', title: 'Colours: as the system, light, dark', run: () => {
      const next = {auto: 'light', light: 'dark', dark: 'auto'}[state.themeChoice.peek()] || 'auto';
      state.themeChoice.value = next;
      try { localStorage.setItem('keplab.theme', next); } catch { /* a file:// page may not keep it */ }
    }},
    {id: 'shell.copy-moment', title: 'Copy the moment, run/arm/seed@rv', keys: ['c'], when: hasRuns, run: () => copy(momentOf())},
    {id: 'time.play', title: 'Play or stop', keys: ['Space'], group: 'time', when: hasRuns, run: () => play(state.playing.peek() || state.live.peek() ? 0 : 1)},
    {id: 'time.faster', title: 'Play ten times as fast', keys: ['>'], group: 'time', when: hasRuns, run: () => play((state.playing.peek() || 1) * 10)},
    {id: 'time.slower', title: 'Play ten times slower', keys: ['<'], group: 'time', when: hasRuns, run: () => play((state.playing.peek() || 1) / 10)},
    {id: 'time.head', title: 'To what is newest', keys: ['End'], group: 'time', when: hasRuns, run: () => { toHead(); }},
    {id: 'time.start', title: 'To the beginning', keys: ['Home'], group: 'time', when: hasRuns, run: () => { seek(view.peek().history.peek().rv[0] || 0); }},
  ]);
}

/** The first list of the page that is shown. @returns {HTMLElement|null} */
function listOf() {
  return document.querySelector('main .vtable');
}

/** After a choice with the pointer keys are the page's again: in a list they choose. */
function leaveLists() {
  let isPointed = false;
  window.addEventListener('pointerdown', () => { isPointed = true; }, true);
  window.addEventListener('keydown', () => { isPointed = false; }, true);
  window.addEventListener('change', ({target}) => {
    if (isPointed && target instanceof HTMLSelectElement && target.closest('.top, .strip, main > .toolbar, .overlay .toolbar')) /** @type {HTMLElement|null} */ (document.querySelector('main'))?.focus();
  });
}

function back() {
  if (state.overlay.peek()) state.overlay.value = '';
  else if (state.selected.peek()) select(null);
}

async function main() {
  theme();
  shellCommands();
  leaveLists();
  window.addEventListener('keydown', (event) => { if (!document.querySelector('dialog[open]') || event.key === 'Escape') onKey(event); });
  /** @type {any} */ (window).__keplab = {state, view, seek, play, toHead, search, go, select, workerState, rowOf, counters, openRun, pixel: null, draws: counters, source: () => source, run: runCommand};
  const root = /** @type {HTMLElement} */ (document.getElementById('app'));
  try {
    const meta = await start();
    const first = meta.first || (meta.runs && meta.runs[0] && meta.runs[0].id) || 'live';
    if (source.kind === 'replay') state.connection.value = {kind: 'replay', since: 0, text: ''};
    const opening = hasRuns() ? showRun(first) : undefined;
    if (source.kind === 'replay') await opening;
  } catch (error) {
    state.connection.value = {kind: error.code === 401 ? 'refused' : 'stale', since: Date.now(), text: ''};
    notify(String(error.message || error), 'bad');
  }
  window.addEventListener('hashchange', readAddress);
  readAddress();
  root.textContent = '';
  root.classList.toggle('alone', !hasRuns());
  render(html`<${App} />`, root);
  performance.mark('keplab-interactive');
}

main();
