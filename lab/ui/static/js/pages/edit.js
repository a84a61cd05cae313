// Edit what is open: try it (dry run by the server), see what the server would change, apply. A conflict shows theirs and yours.
import {html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState} from 'keplab/html.js';
import {state, notify} from 'keplab/state.js';
import {source, toHead} from 'keplab/engine.js';
import {register} from 'keplab/commands.js';
import {Dialog} from 'keplab/dialog.js';
import {Difference} from 'keplab/pages/objects.js';
import {yaml, withoutManagers} from 'keplab/yaml.js';
import {diff, folded} from 'keplab/diff.js';
import {count} from 'keplab/format.js';

/** What is open on the page of objects, or selected. */
function target() {
  const {id, path} = state.route.peek();
  if (id === 'objects' && path.length >= 3) return {kind: path[0], ns: path[1] === '-' ? '' : path[1], name: path[2]};
  return state.selected.peek();
}

const open = signal(/** @type {any} */ (null));

/** Why nothing can be edited, or ''. */
function refused() {
  if (source.kind !== 'live') return 'This is a recording: nothing can be changed.';
  if (!state.flags.peek().write) return 'This page only reads: start it with keplab ui --allow-write to change objects.';
  if (state.run.peek() !== 'live') return 'This run is a recording: nothing can be changed.';
  return '';
}

function begin() {
  const why = refused(), what = target();
  if (why) { notify(why, 'bad'); return; }
  if (!what) { notify('Open an object first.', 'bad'); return; }
  if (!state.live.peek()) { toHead(); notify('Back to the newest version: the past cannot be edited.'); }
  open.value = what;
  state.overlay.value = 'edit';
}

/** A text with its line numbers; Tab moves on, as everywhere. */
function Editor({text, setText, label, readonly = false}) {
  const numbers = useRef(/** @type {HTMLElement|null} */ (null)), lines = text.split('\n').length;
  return html`<div class="editor"><pre ref=${numbers} aria-hidden="true">${Array.from({length: lines}, (_, at) => at + 1).join('\n')}</pre><textarea aria-label=${label} spellcheck=${false} autocapitalize="off" wrap="off" readOnly=${readonly} value=${text} onInput=${(event) => setText(event.target.value)} onScroll=${(event) => { if (numbers.current) numbers.current.scrollTop = event.target.scrollTop; }}></textarea></div>`;
}

/** Both sides of a conflict, each as it differs from what was opened. */
function Conflict({base, theirs, yours, keep, take}) {
  const rows = (document) => folded(diff(lines(base), lines(document)), 1).filter((row) => row.kind !== 'gap' && !/resourceVersion:|generation:/.test(row.text));
  const side = (title, list) => html`<section aria-label=${title}><h3>${title}</h3><div class="diff">${list.filter((row) => row.kind !== 'same').length ? list.map((row, at) => html`<div key=${at} class="diff-row ${row.kind}"><span class="sign">${{added: '+', removed: '−', same: ' '}[row.kind]}</span>${row.text}</div>`) : html`<p class="soft">nothing but the version</p>`}</div></section>`;
  return html`<div class="conflict" role="alert"><p class="error">It was changed meanwhile: rv ${base.metadata?.resourceVersion} is now rv ${theirs.metadata?.resourceVersion}.</p><div class="sides">${side('theirs', rows(theirs))}${side('yours', rows(yours))}</div>
    <div class="actions"><button onClick=${take}>begin anew from theirs</button><button onClick=${keep}>keep my text, on their version</button></div></div>`;
}
/** A document without what the server counts by itself: versions and managers. */
const spoken = (document) => { const {metadata = {}, ...rest} = document, {resourceVersion, generation, managedFields, ...kept} = metadata; void [resourceVersion, generation, managedFields]; return {...rest, metadata: kept}; };
const lines = (document) => yaml(withoutManagers(document).document).trimEnd().split('\n');

function Edit({close}) {
  const what = open.value || target(), [base, setBase] = useState(/** @type {any} */ (null)), [text, setText] = useState(''), [error, setError] = useState(/** @type {any} */ (null)), [tried, setTried] = useState(/** @type {any} */ (null)), [busy, setBusy] = useState(''), [conflict, setConflict] = useState(/** @type {any} */ (null)), [asks, setAsks] = useState(false);
  const why = refused(), shown = useMemo(() => (base ? yaml(withoutManagers(base).document) : ''), [base]);
  const load = () => { setError(null); setTried(null); setConflict(null); return source.object(what.kind, what.ns, what.name, undefined, 'live').then(({document}) => { setBase(document); setText(yaml(withoutManagers(document).document)); }, setError); };
  useEffect(() => { if (what && !why) load(); return () => { open.value = null; }; }, [what?.kind, what?.ns, what?.name]);
  const dirty = base && text !== shown, latest = useRef(/** @type {any} */ (null));
  const leave = () => { if (dirty && !asks) setAsks(true); else close(); };
  const send = async (dryRun) => {
    if (busy || !base) return;
    setBusy(dryRun ? 'dry run' : 'apply'); setError(null); setConflict(null);
    try {
      const document = await source.put(what.kind, what.ns, what.name, text, {dryRun});
      if (dryRun) setTried({document, text});
      else { notify(`Applied ${what.kind} ${what.name}: rv ${document.metadata?.resourceVersion}.`); setBase(document); setText(yaml(withoutManagers(document).document)); setTried(null); close(); }
    } catch (failure) {
      const details = failure.status?.details || {};
      if (failure.code === 409 && details.theirs) setConflict({theirs: details.theirs, yours: details.yours || base}); else setError(failure);
      setTried(null);
    }
    setBusy('');
  };
  latest.current = {send, tried, text, leave};
  useLayoutEffect(() => register([
    {id: 'edit.try', title: 'Dry run of the edit', keys: ['Ctrl+Enter', 'Meta+Enter'], inFields: true, group: 'edit', run: () => { const {tried: done, text: now} = latest.current; latest.current.send(!(done && done.text === now)); }},
    {id: 'edit.leave', title: 'Leave the editor', keys: ['Esc'], inFields: true, group: 'edit', run: () => latest.current.leave()},
  ]), []);
  if (why) return html`<header class="toolbar"><h2>Edit</h2><span class="grow"></span><button class="small" aria-label="close" onClick=${close}>✕</button></header><p class="soft">${why}</p>`;
  if (!what) return html`<header class="toolbar"><h2>Edit</h2><span class="grow"></span><button class="small" aria-label="close" onClick=${close}>✕</button></header><p class="soft">Open an object first.</p>`;
  const ready = tried && tried.text === text;
  return html`<header class="toolbar"><h2 class="wrap">Edit ${what.kind} ${what.ns ? `${what.ns}/` : ''}${what.name}</h2><span class="soft">${base ? `rv ${count(Number(base.metadata?.resourceVersion || 0))}` : ''}</span><span class="grow"></span><button class="small" aria-label="close" onClick=${leave}>✕</button></header>
    ${!base ? (error ? html`<p class="error" role="alert">${error.message}</p>` : html`<p class="empty">loading …</p>`) : html`
      <${Editor} text=${text} setText=${(value) => setText(value)} label="YAML of ${what.name}" />
      <div class="toolbar"><button class=${ready ? '' : 'primary'} disabled=${!dirty || Boolean(busy)} onClick=${() => send(true)}>dry run ${ready ? '' : html`<kbd>Ctrl+Enter</kbd>`}</button><button class=${ready ? 'primary' : ''} disabled=${!ready || Boolean(busy)} title=${ready ? undefined : 'A dry run shows first what the server would change.'} onClick=${() => send(false)}>apply ${ready ? html`<kbd>Ctrl+Enter</kbd>` : ''}</button><button disabled=${!dirty} onClick=${() => { setText(shown); setTried(null); setConflict(null); }}>undo</button><span class="soft" role="status">${busy ? `${busy} …` : ready ? 'The server would take it.' : dirty ? 'changed' : 'unchanged'}</span></div>
      ${error && html`<p class="error wrap" role="alert">${error.message}</p>${(error.status?.details?.causes || []).map((cause) => html`<p key=${cause.field} class="wrap"><code>${cause.field}</code>: ${cause.message}</p>`)}`}
      ${conflict && html`<${Conflict} base=${base} ...${conflict} take=${load} keep=${() => { setBase(conflict.theirs); setText(text.replace(/^( *resourceVersion: ).*$/m, `$1${JSON.stringify(String(conflict.theirs.metadata.resourceVersion))}`)); setConflict(null); }} />`}
      ${ready && html`<h3>What the server would change</h3><${Difference} before=${spoken(base)} after=${spoken(tried.document)} a=${Number(base.metadata?.resourceVersion || 0)} b=${Number(base.metadata?.resourceVersion || 0)} />`}`}
    ${asks && html`<${Dialog} label="unsaved" close=${() => setAsks(false)}><h2>Leave without applying?</h2><div class="actions"><button class="primary" onClick=${() => { setAsks(false); close(); }}>leave</button><button autofocus onClick=${() => setAsks(false)}>stay</button></div><//>`}`;
}

// The key `e` is of lists and their objects; the overlay itself is opened by the command, which says why it does not open.
register([{id: 'edit.open', title: 'Edit what is open or selected', keys: ['e'], group: 'objects', run: begin}]);

export const page = {id: 'edit', key: '', title: 'Edit', icon: 'M4 20h4L19 9l-4-4L4 16Z', overlay: true, Component: Edit, commands: []};
