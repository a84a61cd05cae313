// The scheduling queue: pools at fixed places, moves between them as bands, and every pod that waits in a table.
import {html, useEffect, useMemo, useRef, useState} from 'keplab/html.js';
import {state, view, select, go, runOf} from 'keplab/state.js';
import {source} from 'keplab/engine.js';
import {run as runCommand} from 'keplab/commands.js';
import {useAnswer, useWidth, useSummary} from 'keplab/answers.js';
import {VirtualTable} from 'keplab/table.js';
import {QUEUE_POOLS, curve, flows, lineWidth, movesOf, pointOf, timeOf} from 'keplab/flow.js';
import {theme} from 'keplab/colours.js';
import {POOL_IDS} from 'keplab/columns.js';
import {count, moment, span, counted} from 'keplab/format.js';

const SECONDS = 10, HEIGHT = 250, BOX = {w: 168, h: 62}, DOTS = 2000, FLIGHT_MS = 700;
const COLOUR = {gated: 'soft', active: 'running', in_flight: 'accent', backoff: 'pending', error_backoff: 'failed', unschedulable: 'pending', bound: 'running'};

/** Counts and pods as the columns have them: what is shown of a recording, and until the scheduler has answered. */
function fromColumns() {
  const {pods, strings} = state.columns.value, counts = {gated: 0, active: 0, in_flight: 0, backoff: 0, error_backoff: 0, unschedulable: 0}, list = [];
  const {name, ns, pool, node, priority, reason} = pods.columns;
  if (!name) return {counts, pods: list, bound: 0};
  let bound = 0;
  for (let row = 0; row < pods.rows; row++) {
    if (!name[row]) continue;
    if (node[row] >= 0) bound += 1;
    if (!pool[row]) continue;
    const id = POOL_IDS[pool[row]];
    counts[id] += 1;
    if (list.length < 20000) list.push({pod: `${strings[ns[row]]}/${strings[name[row]]}`, priority: priority[row], pool: id, message: strings[reason[row]] || ''});
  }
  return {counts, pods: list, bound};
}

/** Dots of moves as they are reported: at most 2,000 in flight, none when motion is not wanted. */
function useDots(canvas, width) {
  useEffect(() => {
    if (state.reducedMotion.value) return undefined;
    const dots = /** @type {any[]} */ ([]);
    let seen = view.peek().lines.peek().length + view.peek().dropped, frame = 0, whole = false;
    const draw = () => {
      frame = 0;
      const element = canvas.current;
      if (!element) return;
      const ratio = window.devicePixelRatio || 1, pen = element.getContext('2d'), now = performance.now(), colours = theme().text;
      if (element.width !== Math.round(width * ratio)) { element.width = Math.round(width * ratio); element.height = Math.round(HEIGHT * ratio); }
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, HEIGHT);
      let kept = 0;
      for (const dot of dots) {
        const t = (now - dot.begin) / FLIGHT_MS;
        if (t >= 1) continue;
        dots[kept++] = dot;
        if (t < 0) continue;
        const [x, y] = pointOf(dot.points, t);
        pen.fillStyle = colours[COLOUR[dot.to]] || colours.ink;
        pen.beginPath(); pen.arc(x, y, 2.6, 0, 7); pen.fill();
      }
      dots.length = kept;
      if (kept) frame = requestAnimationFrame(draw);
    };
    const stop = view.peek().lines.subscribe((lines) => {
      const total = lines.length + view.peek().dropped, fresh = lines.slice(Math.max(0, lines.length - (total - seen)));
      seen = total;
      if (!view.peek().live.peek()) return;
      whole = whole || fresh.some((line) => line.ev === 'sched.moved');
      const now = performance.now(), head = view.peek().head.peek().time;
      // Lines of the past come in a flood when the page opens: they do not fly.
      for (const line of fresh) if (head - timeOf(line) < 3) for (const move of movesOf(line, whole)) {
        const points = dots.length < DOTS && curve(move.from, move.to, width, HEIGHT, boxOf(width));
        if (points) dots.push({points, to: move.to, begin: now + (dots.length % 12) * 25});
      }
      if (dots.length && !frame) frame = requestAnimationFrame(draw);
    });
    return () => { stop(); cancelAnimationFrame(frame); };
  }, [state.run.value, state.reducedMotion.value, width]);
}

const boxOf = (width) => ({w: Math.min(BOX.w, width * 0.22), h: BOX.h});

function Picture({counts, bound, moves, pool, setPool, flow, setFlow}) {
  const [box, width] = useWidth(), canvas = useRef(/** @type {HTMLCanvasElement|null} */ (null)), shape = boxOf(width), most = Math.max(1, ...Object.values(counts).map(Number));
  useDots(canvas, width);
  return html`<div class="queue-picture" ref=${box} style=${{height: `${HEIGHT}px`}}>
    <svg width=${width} height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} role="group" aria-label="moves between pools in the last ${SECONDS} s">
      <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8Z" class="arrow" /></marker></defs>
      ${moves.flows.map((each) => {
        const points = curve(each.from, each.to, width, HEIGHT, shape);
        if (!points) return null;
        const d = `M${points[0]} C${points[1]} ${points[2]} ${points[3]}`, [x, middle] = pointOf(points, 0.5), id = `${each.from}>${each.to}`, words = `${each.rate >= 10 ? Math.round(each.rate) : each.rate.toFixed(1)}/s`, label = `${words} ${(each.by[0] ? each.by[0][0] : '').slice(0, 26)}`;
        const y = points[0][1] === points[3][1] ? Math.min(middle, topOf(each.from)) : middle;  // between two boxes there may be no place for words
        return html`<g key=${id} class="band ${flow === id ? 'on' : ''}" role="button" tabindex="0" aria-pressed=${flow === id} aria-label=${`${title(each.from)} to ${title(each.to)}: ${counted(each.count, 'pod')}, ${each.by[0] ? each.by[0][0] : ''}`} onClick=${() => setFlow(flow === id ? '' : id)} onKeyDown=${(event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); event.stopPropagation(); setFlow(flow === id ? '' : id); } }}>
          <path d=${d} class="hit" /><path d=${d} class="line" stroke-width=${lineWidth(each.rate, 12)} marker-end="url(#tip)" /><text x=${x} y=${y - 5} text-anchor="middle">${label}</text></g>`;
      })}
    </svg><canvas ref=${canvas} aria-hidden="true" style=${{width: `${width}px`, height: `${HEIGHT}px`}}></canvas>
    ${QUEUE_POOLS.map((each) => {
      const number = each.id === 'bound' ? bound : counts[each.id] ?? 0;
      return html`<button key=${each.id} class="pool pool-${each.id}" aria-pressed=${pool === each.id} disabled=${each.id === 'bound'} title=${each.about} style=${{left: `${each.x * width}px`, top: `${each.y * HEIGHT}px`, width: `${shape.w}px`, height: `${shape.h}px`}} onClick=${() => setPool(pool === each.id ? '' : each.id)}>
        <span class="pool-name">${each.title}</span><b class="num" data-pool=${each.id}>${count(number)}</b>${each.id !== 'bound' && html`<span class="pool-bar" aria-hidden="true"><span style=${{width: `${number / most * 100}%`}}></span></span>`}</button>`;
    })}
  </div>`;
}

const placeOf = (id) => QUEUE_POOLS.find((pool) => pool.id === id) || {title: id || 'outside', y: 0};
const topOf = (id) => placeOf(id).y * HEIGHT, title = (id) => placeOf(id).title;

/** Who moved along a band, why, and which hint said so. */
function Moves({flow, close}) {
  const origin = runOf(state.run.value)?.wall_s || 0;
  return html`<section class="panel" aria-label="moves"><header class="toolbar"><h2>${title(flow.from)} → ${title(flow.to)}</h2><span class="soft">${count(flow.count)} in ${SECONDS} s${flow.by.slice(0, 4).map(([by, number]) => ` · ${by || 'no event'} ${count(number)}`).join('')}</span><span class="grow"></span><button class="small" aria-label="close" onClick=${close}>✕</button></header>
    <div class="moves"><table><thead><tr><th>Time</th><th>Pod</th><th>By</th><th>Hint</th></tr></thead><tbody>${flow.lines.slice(0, 100).map((move, at) => html`<tr key=${at}><td class="mono">${moment(move.at, origin)}</td><td><button class="plain link" onClick=${() => { const [ns, name] = move.pod.split('/'); select({kind: 'pods', ns, name}); }}>${move.pod}</button></td><td>${move.by || '–'}</td><td class="wrap">${move.hint || '–'}</td></tr>`)}</tbody></table></div></section>`;
}

function Queue() {
  const answer = useAnswer((rv) => source.queue(state.run.peek(), rv), [], {every: 1}), columns = fromColumns();
  const [pool, setPool] = useState(''), [chosenFlow, setFlow] = useState(''), [text, setText] = useState('');
  const found = answer.value, past = !state.live.value, exact = found && !past && found.pods && Object.keys(found.counts || {}).length;
  const counts = exact ? found.counts : past ? columns.counts : {...columns.counts, ...(state.pools.value?.counts || {})}, pods = exact ? found.pods : columns.pods;
  const lines = state.lines.value, now = state.time.value, moves = useMemo(() => flows(lines, now, SECONDS), [lines, now]);
  const flow = moves.flows.find((each) => `${each.from}>${each.to}` === chosenFlow);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean), rows = pods.filter((pod) => (!pool || pod.pool === pool) && words.every((word) => `${pod.pod} ${(pod.rejected_by || []).join(' ')} ${pod.gated_by || ''} ${pod.message || ''} ${pod.moved_by || ''}`.toLowerCase().includes(word)));
  const plugins = Object.entries(found?.rejected_by_plugin || {}).sort((a, b) => b[1] - a[1]), largest = Math.max(1, ...plugins.map(([, number]) => number));
  useSummary(`Queue: ${Object.entries(counts).map(([id, number]) => `${title(id)} ${number}`).join(', ')}.`);
  const table = [
    {id: 'pod', title: 'Pod', width: 'minmax(140px, 2fr)', cell: (pod) => pod.pod},
    {id: 'pool', title: 'Pool', width: '120px', cell: (pod) => title(pod.pool)},
    {id: 'priority', title: 'Priority', num: true, width: '68px', cell: (pod) => count(pod.priority || 0), sort: (pod) => pod.priority || 0},
    ...(exact ? [
      {id: 'since', title: 'In pool', num: true, width: '70px', cell: (pod) => seconds(pod.pool_since_s), sort: (pod) => pod.pool_since_s ?? -1},
      {id: 'attempts', title: 'Attempts', num: true, width: '84px', cell: (pod) => count(pod.attempts || 0), sort: (pod) => pod.attempts || 0},
      {id: 'next', title: 'By time in', num: true, width: '86px', cell: (pod) => seconds(pod.next_attempt_in_s), sort: (pod) => pod.next_attempt_in_s ?? 1e12},
      {id: 'moved', title: 'Moved by', width: 'minmax(96px, 1fr)', cell: (pod) => pod.moved_by || '–'},
      {id: 'rejected', title: 'Waits for', width: 'minmax(150px, 1.6fr)', cell: (pod) => (pod.gated_by ? `gate: ${pod.gated_by}` : (pod.rejected_by || []).join(', ') || '–')},
      ...(pods.some((pod) => pod.nominated_node) ? [{id: 'nominated', title: 'Nominated', width: '92px', cell: (pod) => pod.nominated_node || '–'}] : []),
    ] : [{id: 'why', title: 'Reason', width: 'minmax(160px, 2fr)', cell: (pod) => pod.message || '–'}]),
  ];
  const chosen = state.selected.value, key = chosen && chosen.kind === 'pods' ? `${chosen.ns}/${chosen.name}` : null;
  const pick = (pod) => { const [ns, ...name] = pod.pod.split('/'); select({kind: 'pods', ns, name: name.join('/')}); };
  return html`<div class="toolbar"><h1>Queue</h1><span class="soft">${exact ? found.scheduler || 'scheduler' : past ? 'as recorded' : 'as the columns have it'}${moves.sampled ? ' · moves sampled: --set telemetry.queue_moves=on says every one' : ''}</span><span class="grow"></span>
      <span class=${moves.rescued ? 'rescued' : 'soft'} title="pods that only the periodic flush woke: an event was missed, so it should be 0">flush rescued <b>${count(moves.rescued)}</b></span></div>
    ${answer.error && !past && html`<p class="error" role="alert">${answer.error.message}</p>`}
    <${Picture} counts=${counts} bound=${columns.bound} moves=${moves} pool=${pool} setPool=${setPool} flow=${chosenFlow} setFlow=${setFlow} />
    ${exact && found.quorums?.length > 0 && html`<p class="facts" aria-label="gangs at the gate">${found.quorums.slice(0, 12).map((each) => html`<span key=${each.group} data-quorum=${each.group}>PodGroup <button class="plain link" onClick=${() => go('objects', ['podgroups', ...each.group.split('/')])}>${each.group}</button> quorum <b class="num">${count(each.members)}/${count(each.min_count)}</b></span>`)}${found.quorums.length > 12 ? html`<span class="soft">and ${count(found.quorums.length - 12)} more</span>` : ''}</p>`}
    ${flow && html`<${Moves} flow=${flow} close=${() => setFlow('')} />`}
    <div class="split"><div class="main-part">
      <div class="toolbar"><label class="grow">pods <input class="filter" type="text" placeholder="name, plugin or event" value=${text} onInput=${(event) => setText(event.target.value)} /></label>${pool && html`<button class="small" onClick=${() => setPool('')}>${title(pool)} ✕</button>`}<span class="soft">${count(rows.length)} of ${count(pods.length)}</span></div>
      <${VirtualTable} label="pods in the queue" columns=${table} rows=${rows} keyOf=${(pod) => pod.pod} picked=${key} onPick=${pick} onOpen=${(pod) => { pick(pod); runCommand('explain.toggle'); }} empty=${pods.length ? 'No pod fits.' : 'No pod waits.'} />
    </div>${plugins.length > 0 && html`<aside class="side panel" aria-label="rejected by plugin"><h2>Rejected by</h2>${plugins.map(([plugin, number]) => html`<button key=${plugin} class="plain bar-row" onClick=${() => setText(plugin)}><span class="wrap">${plugin}</span><span class="num">${count(number)}</span><span class="pool-bar" aria-hidden="true"><span style=${{width: `${number / largest * 100}%`}}></span></span></button>`)}
      <p class="soft small-print">${counted(found.in_flight_events || 0, 'event')} kept for pods in flight.</p></aside>`}</div>`;
}

const seconds = (value) => (value === null || value === undefined ? '–' : span(value));

export const page = {id: 'queue', key: 'q', title: 'Queue', icon: 'M4 6h5v5H4zM15 6h5v5h-5zM15 15h5v5h-5zM9 8.5h6M17.5 11v4', Component: Queue, commands: []};
