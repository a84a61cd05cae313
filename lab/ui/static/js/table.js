// A table of any length: only the rows that are seen are in the document. Sorted by its headers; moved through by keys.
import {html, useEffect, useId, useLayoutEffect, useRef, useState} from 'keplab/html.js';

const ROW = 24;

/** A place for a table that may be wider than the page: scrolled by keys as well. */
export const Wide = ({label, children}) => html`<div class="scroll-x" role="region" aria-label=${label} tabindex="0">${children}</div>`;

/**
 * columns: [{id, title, num?, width?, cell: (row) => text or markup, sort?: (row) => value}]. rows: any list; keyOf(row): its identity.
 * `picked`: the key of the row that is chosen, by arrows as well; without it arrows only move. onPick(row): a click, or Enter.
 * onOpen(row): Enter in its place, or two clicks. onFirst(row): the first row as it is sorted, or undefined.
 * `sorted`: [column id, 1 or -1] to begin with; null keeps the order given.
 */
export function VirtualTable({columns, rows, keyOf, picked, onPick, onOpen, onFirst, label, sorted = null, empty = 'Nothing here.'}) {
  const box = useRef(/** @type {HTMLElement|null} */ (null));
  const [top, setTop] = useState(0), [height, setHeight] = useState(400), [order, setOrder] = useState(/** @type {any} */ (sorted)), [reached, setReached] = useState(/** @type {any} */ (undefined)), id = useId();
  useEffect(() => {
    const seen = new ResizeObserver(() => setHeight(box.current?.clientHeight || 400));
    if (box.current) seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  let list = rows;
  const by = order && columns.find((column) => column.id === order[0]);
  if (by) {
    const value = by.sort || by.cell, decorated = rows.map((row) => [value(row), row]);
    decorated.sort((a, b) => (a[0] < b[0] ? -order[1] : a[0] > b[0] ? order[1] : 0));
    list = decorated.map((pair) => pair[1]);
  }
  const first = Math.max(0, Math.floor(top / ROW) - 4), last = Math.min(list.length, Math.ceil((top + height) / ROW) + 4);
  const current = picked === undefined ? reached : picked, head = list.length ? keyOf(list[0]) : undefined;
  useLayoutEffect(() => { onFirst?.(list[0]); return () => onFirst?.(undefined); }, [head]);
  const move = (next) => {
    const to = Math.max(0, Math.min(list.length - 1, next)), place = box.current;
    if (!list.length) return;
    setReached(keyOf(list[to]));
    if (picked !== undefined) onPick?.(list[to]);
    if (place) { if (to * ROW < place.scrollTop) place.scrollTop = to * ROW; else if ((to + 2) * ROW > place.scrollTop + place.clientHeight) place.scrollTop = (to + 2) * ROW - place.clientHeight; }
  };
  const onKeyDown = (event) => {
    const jump = {ArrowDown: 1, ArrowUp: -1, PageDown: Math.floor(height / ROW) - 1, PageUp: 1 - Math.floor(height / ROW), j: 1, k: -1}[event.key];
    const place = list.findIndex((row) => keyOf(row) === current);
    if (jump && !event.ctrlKey && !event.metaKey) { event.preventDefault(); event.stopPropagation(); move(place + jump); } else if (event.key === 'Enter' && event.target === box.current && list.length) { event.preventDefault(); event.stopPropagation(); (onOpen || onPick)?.(list[Math.max(0, place)]); }
  };
  const grid = {gridTemplateColumns: columns.map((column) => column.width || (column.num ? 'minmax(64px, .8fr)' : 'minmax(78px, 1fr)')).join(' ')};
  const sort = (column) => setOrder(order && order[0] === column.id ? (order[1] === 1 ? [column.id, -1] : null) : [column.id, 1]);
  return html`<div class="vtable" role="grid" aria-label=${label} aria-rowcount=${list.length + 1} aria-activedescendant=${list.slice(first, last).some((row) => keyOf(row) === current) ? id : undefined} tabindex="0" ref=${box} onScroll=${(event) => setTop(event.currentTarget.scrollTop)} onKeyDown=${onKeyDown}>
    <div class="vhead" role="row" style=${grid} aria-rowindex="1">
      ${columns.map((column) => html`<div key=${column.id} role="columnheader" class=${column.num ? 'num' : ''} aria-sort=${by === column ? (order[1] === 1 ? 'ascending' : 'descending') : 'none'}><button onClick=${() => sort(column)}>${column.title}${by === column ? (order[1] === 1 ? ' ▲' : ' ▼') : ''}</button></div>`)}
    </div>
    <div class="vbody" role="rowgroup" style=${{height: `${list.length * ROW}px`}}>
      ${list.slice(first, last).map((row, index) => {
        const key = keyOf(row);
        return html`<div key=${key} role="row" class="vrow" id=${key === current ? id : undefined} aria-rowindex=${first + index + 2} aria-selected=${key === current} style=${{...grid, top: `${(first + index) * ROW}px`}} onClick=${() => { setReached(key); onPick?.(row); }} onDblClick=${() => onOpen?.(row)}>
          ${columns.map((column) => { const cell = column.cell(row); return html`<div key=${column.id} role="gridcell" class=${column.num ? 'num' : ''} title=${typeof cell === 'string' ? cell : undefined}>${cell}</div>`; })}
        </div>`;
      })}
    </div>
    ${list.length === 0 && html`<p class="empty">${empty}</p>`}
  </div>`;
}
