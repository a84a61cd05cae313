// The cluster as an image: a node is a block of 11 × 10 pixels, each of them a pod. One pixel is written when one pod changes;
// panning and zooming only draw the image again, scaled without smoothing.
//
// Pods that are on no node stand in blocks of their own, in the group "not placed". A node with more than 110 pods has no place
// for each: its block shows the shares of phases instead.
import {theme, HEAT, mixed} from 'keplab/colours.js';
import {FLAG} from 'keplab/columns.js';
import {counted} from 'keplab/format.js';

export const COLUMNS = 11, ROWS = 10, SLOTS = COLUMNS * ROWS;
const CELL_W = COLUMNS + 1, CELL_H = ROWS + 1;
const HEADER_PX = 20, GROUP_GAP = 6;
const MOST_SCALE = 40;
const GOES = FLAG.terminating | FLAG.unbound;

const VIEW_SCALE = 4;

/** The share of a node's pods in a phase. @param {number} phase */
function inPhase(phase) {
  return (c, row) => {
    let all = 0;
    for (let k = 0; k < 5; k++) all += c.phases[row * 5 + k];
    return all ? c.phases[row * 5 + phase] / all : null;
  };
}

/** What a node's block shows, by mode: 'pods' are pixels of phases; others are one colour from 0 to 1, or null for none. */
export const MODES = {
  phase: {title: 'pods by phase', pods: true},
  cpu: {title: 'cpu requested', of: (c, row) => share(c.req_cpu_m[row], c.cpu_m[row])},
  memory: {title: 'memory requested', of: (c, row) => share(c.req_mem[row], c.mem[row])},
  count: {title: 'pods of allowed pods', of: (c, row) => share(c.req_pods[row], c.pods[row])},
  devices: {title: 'devices used', of: (c, row) => (c.devices[row] ? share(c.used_devices[row], c.devices[row]) : null)},
  numa: {title: 'NUMA fragmentation', of: fragmentation},
  view: {title: 'scheduler’s view − kubelet’s view', most: `≥ ${100 / VIEW_SCALE} %`, of: viewGap},
  failed: {title: 'share of failed pods', of: inPhase(3)},
  pending: {title: 'share of pending pods', of: inPhase(0)},
  age: {title: 'age of the node', most: 'most', of: (c, row, all) => (all.newest > all.oldest ? (all.newest - c.created[row]) / (all.newest - all.oldest) : 0)},
  taint: {title: 'tainted', most: 'yes', of: (c, row) => (c.taints[row] ? 1 : 0)},
};

/**
 * How far apart the scheduler's and the kubelet's sums of a node are: the larger of CPU and memory, as a share of what is allocatable,
 * made four times as large, because differences are small. @param {any} c @param {number} row
 */
export function viewGap(c, row) {
  if (!c.cpu_m[row]) return null;
  return Math.min(1, VIEW_SCALE * Math.max(Math.abs(c.req_cpu_m[row] - c.held_cpu_m[row]) / c.cpu_m[row], c.mem[row] ? Math.abs(c.req_mem[row] - c.held_mem[row]) / c.mem[row] : 0));
}

/** The block of a pod's slot, −1 for none. @param {number} slot */
export function blockOf(slot) { return slot >= 0 ? Math.floor(slot / SLOTS) : slot <= -2 ? -2 - slot : -1; }

function share(part, whole) { return whole ? part / whole : null; }

/**
 * How free cores of a node are torn between its NUMA nodes: 0 when all are on one, 1 when they are spread evenly. null without
 * NUMA figures. @param {any} c @param {number} row
 */
export function fragmentation(c, row) {
  let all = 0, most = 0, parts = 0;
  for (let k = 0; k < 8; k++) {
    const has = c.numa[row * 8 + k];
    if (!has) continue;
    parts += 1;
    const free = Math.max(0, has - c.numa_req[row * 8 + k]);
    all += free;
    if (free > most) most = free;
  }
  if (!parts) return null;
  if (parts === 1 || all < 1e-6) return 0;
  return (1 - most / all) / (1 - 1 / parts);
}

/** Groups: a name for each node row. */
export const GROUPS = {
  zone: {title: 'zone', of: (c, row, strings) => strings[c.zone[row]] || 'no zone'},
  ready: {title: 'readiness', of: (c, row) => (c.ready[row] === 1 ? (c.unschedulable[row] ? 'cordoned' : 'ready') : 'not ready')},
  taint: {title: 'taints', of: (c, row, strings) => strings[c.taints[row]] || 'no taint'},
  none: {title: 'nothing', of: () => 'nodes'},
};

export class Picture {
  /** @param {HTMLCanvasElement} canvas @param {any} view */
  constructor(canvas, view) {
    this.canvas = canvas;
    this.pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', {alpha: false}));
    this.view = view;
    this.mode = 'phase'; this.group = 'zone';
    this.filter = null;
    /** Screen pixels (CSS) a picture's pixel, and where the picture's corner is. */
    this.scale = 1; this.x = 0; this.y = 0; this.fitted = true;
    this.width = 0; this.height = 0; this.ratio = 1;
    this.world = {w: 1, h: 1, groups: /** @type {any[]} */ ([])};
    this.image = document.createElement('canvas');
    this.imagePen = /** @type {CanvasRenderingContext2D} */ (this.image.getContext('2d'));
    this.pixels = new Uint32Array(0);
    this.data = /** @type {ImageData|null} */ (null);
    this.dirty = /** @type {number[]|null} */ (null); this.asked = 0;
    this.nodeRows = 0; this.looseBlocks = 0; this.blocks = 0; this.nextLoose = 0;
    /** Of each slot its pod's row, −1 for none; of each pod its slot, −1 for none, −2 − node when its node is full. */
    this.podAt = new Int32Array(0); this.slotOf = new Int32Array(0);
    /** Of each block: pods without a slot, the corner in the picture, readiness as it is drawn. */
    this.crowded = new Uint16Array(0); this.cornerX = new Int32Array(0); this.cornerY = new Int32Array(0); this.stateOf = new Uint8Array(0);
    this.colours = theme(); this.matches = /** @type {any} */ (null); this.oldest = 0; this.newest = 0;
    this.selectedNode = -1; this.selectedPod = -1; this.hover = null;
    this.draws = 0; this.written = 0;
    this.onDraw = /** @type {(() => void)|null} */ (null);
    this.shape = ''; this.names = /** @type {any} */ ([]); this.order = /** @type {number[]} */ ([]); this.groupKey = /** @type {string[]} */ ([]);
    this.stop = () => { cancelAnimationFrame(this.asked); view.watchers.delete(this.watcher); };
    this.watcher = (change) => this.changed(change);
    view.watchers.add(this.watcher);
    this.rebuild();
  }

  /** Everything anew: which block is where, which pod is in which slot, all pixels. */
  rebuild() {
    this.place();
    this.layout();
    this.paintAll();
    this.ask();
  }

  /** Gives each pod a slot. Blocks 0 … nodes − 1 are nodes, those behind are for pods on no node. */
  place() {
    const {nodes, pods} = this.view.columns.peek(), c = pods.columns;
    this.nodeRows = nodes.rows;
    let loose = 0;
    for (let row = 0; row < pods.rows; row++) if (c.name[row] && c.node[row] < 0) loose += 1;
    this.looseBlocks = loose ? 2 ** Math.ceil(Math.log2(loose * 1.1 / SLOTS + 1)) : 0;  // seldom another number
    this.blocks = this.nodeRows + this.looseBlocks;
    this.podAt = new Int32Array(this.blocks * SLOTS).fill(-1);
    this.slotOf = new Int32Array(Math.max(16, pods.rows)).fill(-1);
    this.crowded = new Uint16Array(this.blocks);
    this.nextLoose = 0;
    for (let row = 0; row < pods.rows; row++) if (c.name[row]) this.take(row, c.node[row]);
  }

  /** Twice as many blocks for pods on no node; every pod keeps its slot. */
  extend() {
    this.looseBlocks = Math.max(1, this.looseBlocks * 2);
    this.blocks = this.nodeRows + this.looseBlocks;
    const podAt = new Int32Array(this.blocks * SLOTS).fill(-1), crowded = new Uint16Array(this.blocks);
    podAt.set(this.podAt); crowded.set(this.crowded);
    this.podAt = podAt; this.crowded = crowded;
    this.layout();
    this.paintAll();
  }

  /** Puts a pod into the first free slot of its block; false when pods on no node need more blocks. */
  take(row, node) {
    let from = node * SLOTS, end = from + SLOTS;
    if (node < 0) { from = this.nodeRows * SLOTS + this.nextLoose; end = this.podAt.length; }
    for (let slot = from; slot < end; slot++) {
      if (this.podAt[slot] === -1) {
        this.podAt[slot] = row;
        this.slotOf[row] = slot;
        if (node < 0) this.nextLoose = slot - this.nodeRows * SLOTS + 1;
        return true;
      }
    }
    if (node < 0) return false;
    this.slotOf[row] = -2 - node;  // on the node, without a slot of its own
    this.crowded[node] += 1;
    return true;
  }

  free(row) {
    const slot = this.slotOf[row];
    if (slot >= 0) {
      this.podAt[slot] = -1;
      const loose = slot - this.nodeRows * SLOTS;
      if (loose >= 0 && loose < this.nextLoose) this.nextLoose = loose;
    } else if (slot <= -2) this.crowded[-2 - slot] -= 1;
    this.slotOf[row] = -1;
  }

  /** What changed: rows of a table, or null for everything. */
  changed(change) {
    const {nodes, pods} = this.view.columns.peek();
    if (!change || nodes.rows !== this.nodeRows || !this.data) { this.rebuild(); return; }
    if (change.table === 'nodes') {
      const heat = !MODES[this.mode].pods;
      let moved = false;
      for (let i = 0; i < change.rows.length && !moved; i++) { const row = change.rows[i]; moved = this.groupKey[row] !== this.keyOf(row); }
      if (moved) { this.rebuild(); return; }
      for (let i = 0; i < change.rows.length; i++) if (heat || this.stateOf[change.rows[i]] !== this.stateKey(change.rows[i])) this.paintBlock(change.rows[i]);
      this.ask();
      return;
    }
    // Where nodes have one colour, pods are drawn only where they are on no node.
    const c = pods.columns, drawn = MODES[this.mode].pods ? 0 : this.nodeRows;
    const paint = (slot, block) => { if (block >= drawn) { if (slot >= 0 && !this.crowded[block]) this.paintSlot(slot); else this.paintBlock(block); } };
    if (this.slotOf.length < pods.rows) { const more = new Int32Array(pods.rows * 2).fill(-1); more.set(this.slotOf); this.slotOf = more; }
    for (let i = 0; i < change.rows.length; i++) {
      const row = change.rows[i], node = c.name[row] ? c.node[row] : -2, slot = this.slotOf[row];
      const before = blockOf(slot);
      const same = before >= 0 && (node >= 0 ? before === node : node === -1 && before >= this.nodeRows);
      if (!same) {
        this.free(row);
        if (node >= this.nodeRows) { this.rebuild(); return; }
        if (node !== -2 && !this.take(row, node)) { this.extend(); this.take(row, node); }
        if (before >= 0) paint(slot, before);
      }
      const now = this.slotOf[row];
      if (now !== -1) paint(now, blockOf(now));
    }
    this.ask();
  }

  keyOf(row) {
    const {nodes, strings} = this.view.columns.peek();
    return nodes.columns.name[row] ? GROUPS[this.group].of(nodes.columns, row, strings) : '';
  }

  stateKey(row) {
    const c = this.view.columns.peek().nodes.columns;
    return c.ready[row] | (c.unschedulable[row] << 2);
  }

  /** Where each block's corner is in the picture, by group. */
  layout() {
    const {nodes} = this.view.columns.peek(), groups = new Map(), keys = new Array(nodes.rows);
    for (let row = 0; row < nodes.rows; row++) keys[row] = this.keyOf(row);
    this.readAges(nodes);
    // A seek brings everything anew, but seldom other nodes: the blocks stay where they are.
    const names = nodes.columns.name, shape = `${this.group} ${this.looseBlocks} ${this.width} ${this.height} ${this.nodeRows}`;
    const same = shape === this.shape && keys.every((key, row) => key === this.groupKey[row] && names[row] === this.names[row]);
    this.groupKey = keys;
    if (same) { if (this.fitted) this.fit(); return; }
    this.shape = shape;
    if (!this.order.length || this.names.length !== nodes.rows || this.names.some((name, row) => name !== names[row])) this.order = this.inOrder(nodes.rows);
    this.names = names ? names.slice(0, nodes.rows) : [];
    for (const row of this.order) {
      const key = keys[row];
      if (!key) continue;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    const list = [...groups].sort((a, b) => (a[0] < b[0] ? -1 : 1)).map(([name, blocks]) => ({name, blocks, loose: false}));
    if (this.looseBlocks) list.push({name: 'not placed', blocks: Array.from({length: this.looseBlocks}, (_, i) => this.nodeRows + i), loose: true});
    this.cornerX = new Int32Array(this.blocks); this.cornerY = new Int32Array(this.blocks);
    const aspect = this.width && this.height ? this.width / this.height : 2;
    this.world = arrange(list, aspect, this.width || 1000, this.cornerX, this.cornerY);
    if (this.image.width !== this.world.w || this.image.height !== this.world.h || !this.data) {
      this.image.width = this.world.w; this.image.height = this.world.h;
      this.data = this.imagePen.createImageData(this.world.w, this.world.h);
      this.pixels = new Uint32Array(this.data.data.buffer);
    }
    if (this.fitted) this.fit();
  }

  readAges(nodes) {
    this.oldest = Infinity; this.newest = -Infinity;
    const created = nodes.columns.created;
    for (let row = 0; row < nodes.rows; row++) if (nodes.columns.name[row]) { this.oldest = Math.min(this.oldest, created[row]); this.newest = Math.max(this.newest, created[row]); }
  }

  /** Rows of nodes by name, n-2 before n-10. */
  inOrder(count) {
    const {nodes, strings} = this.view.columns.peek(), rows = Array.from({length: count}, (_, row) => row);
    const parts = rows.map((row) => { const name = strings[nodes.columns.name[row]] || '', found = /** @type {RegExpExecArray} */ (/^([^]*?)(\d*)$/.exec(name)); return {text: found[1], number: Number(found[2] || -1), row}; });
    parts.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : a.number - b.number || a.row - b.row));
    return parts.map((part) => part.row);
  }

  /** Chooses what is shown: mode, group, filter (compiled by filter.js, or null). */
  configure({mode = this.mode, group = this.group, filter = this.filter}) {
    const regroup = group !== this.group;
    this.mode = mode; this.group = group; this.filter = filter;
    if (regroup) this.layout();
    this.paintAll();
    this.ask();
  }

  paintAll() {
    const colours = theme();
    this.colours = colours;
    this.matches = this.filter ? this.filter.compile(this.view.columns.peek()) : null;
    this.pixels.fill(colours.paper);
    this.stateOf = new Uint8Array(this.nodeRows);
    for (const group of this.world.groups) for (const block of group.blocks) this.paintBlock(block, true);
    this.dirty = [0, 0, this.world.w, this.world.h];
  }

  /** The colour of a pod. @param {number} row */
  podPixel(row) {
    const c = this.view.columns.peek().pods.columns;
    const pixel = c.flags[row] & GOES ? this.colours.terminating : this.colours.phases[c.phase[row]] || this.colours.phases[4];
    return this.matches && !this.matches.pods(row) ? mixed(pixel, this.colours.empty, 0.85) : pixel;
  }

  paintSlot(slot) {
    const block = Math.floor(slot / SLOTS), in_ = slot - block * SLOTS, row = this.podAt[slot];
    const x = this.cornerX[block] + in_ % COLUMNS, y = this.cornerY[block] + Math.floor(in_ / COLUMNS);
    this.pixels[y * this.world.w + x] = row >= 0 ? this.podPixel(row) : this.groundOf(block, in_ % COLUMNS, Math.floor(in_ / COLUMNS));
    this.written += 1;
    this.mark(x, y, x + 1, y + 1);
  }

  /** What an empty slot shows: hatched on a node that is not ready, dotted on one that is cordoned. */
  groundOf(block, x, y) {
    if (block >= this.nodeRows) return this.colours.paper;
    const state = this.stateOf[block];
    if ((state & 3) !== 1) return (x + y) % 3 === 0 ? this.colours.failed : this.colours.empty;
    if (state & 4) return x % 3 === 1 && y % 3 === 1 ? this.colours.soft : this.colours.empty;
    return this.colours.empty;
  }

  paintBlock(block, all = false) {
    const x0 = this.cornerX[block], y0 = this.cornerY[block], w = this.world.w, {nodes} = this.view.columns.peek();
    const mode = MODES[this.mode];
    if (block < this.nodeRows) this.stateOf[block] = this.stateKey(block);
    let heat = 0;
    if (block < this.nodeRows && !mode.pods) {
      const value = mode.of(nodes.columns, block, this);
      heat = value === null ? this.colours.empty : HEAT[Math.max(0, Math.min(255, Math.round(value * 255)))];
      if (this.matches && !this.matches.nodes(block)) heat = mixed(heat, this.colours.paper, 0.8);
    }
    if (heat) {
      const state = this.stateOf[block], off = (state & 3) !== 1, cordoned = state & 4;
      for (let y = 0; y < ROWS; y++) for (let x = 0; x < COLUMNS; x++) {
        const sign = off ? (x + y) % 3 === 0 : cordoned ? x % 3 === 1 && y % 3 === 1 : false;
        this.pixels[(y0 + y) * w + x0 + x] = sign ? (off ? this.colours.failed : this.colours.soft) : heat;
      }
    } else if (this.crowded[block]) this.paintShares(block);
    else {
      // Nearly all time of a picture is spent here: nothing is looked up twice.
      const {podAt, pixels} = this, {phase, flags} = this.view.columns.peek().pods.columns, {phases, terminating, empty} = this.colours;
      const plain = !this.matches, even = block < this.nodeRows && (this.stateOf[block] & 7) === 1;
      let slot = block * SLOTS;
      for (let y = 0; y < ROWS; y++) {
        let at = (y0 + y) * w + x0;
        for (let x = 0; x < COLUMNS; x++, at++, slot++) {
          const row = podAt[slot];
          if (row < 0) pixels[at] = even ? empty : this.groundOf(block, x, y);
          else if (plain) pixels[at] = flags[row] & GOES ? terminating : phases[phase[row]];
          else pixels[at] = this.podPixel(row);
        }
      }
    }
    this.written += SLOTS;
    if (!all) this.mark(x0, y0, x0 + COLUMNS, y0 + ROWS);
  }

  /** Shares of phases, in order, for a node that has more pods than slots. */
  paintShares(node) {
    const {nodes} = this.view.columns.peek(), at = node * 5, of = nodes.columns.phases;
    let all = 0;
    for (let k = 0; k < 5; k++) all += of[at + k];
    // Each phase that there is has a place at least; the largest gives it.
    const places = [0, 1, 2, 3, 4].map((k) => (of[at + k] ? Math.max(1, Math.round(of[at + k] / all * SLOTS)) : 0));
    places[places.indexOf(Math.max(...places))] += SLOTS - places.reduce((sum, each) => sum + each, 0);
    let phase = 0, until = places[0];
    for (let i = 0; i < SLOTS; i++) {
      while (phase < 4 && i >= until) { phase += 1; until += places[phase]; }
      this.pixels[(this.cornerY[node] + Math.floor(i / COLUMNS)) * this.world.w + this.cornerX[node] + i % COLUMNS] = this.colours.phases[phase];
    }
  }

  mark(x0, y0, x1, y1) {
    const d = this.dirty;
    if (!d) { this.dirty = [x0, y0, x1, y1]; return; }
    if (x0 < d[0]) d[0] = x0;
    if (y0 < d[1]) d[1] = y0;
    if (x1 > d[2]) d[2] = x1;
    if (y1 > d[3]) d[3] = y1;
  }

  /** Draws at the next frame, once. */
  ask() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => { this.asked = 0; this.draw(); });
  }

  resize(width, height, ratio) {
    if (!width || !height || (width === this.width && height === this.height && ratio === this.ratio)) return;
    this.width = width; this.height = height; this.ratio = ratio;
    this.canvas.width = Math.round(width * ratio); this.canvas.height = Math.round(height * ratio);
    if (this.fitted) { this.layout(); this.paintAll(); }
    this.ask();
  }

  fit() {
    this.fitted = true;
    if (!this.width) return;
    this.scale = Math.min(MOST_SCALE / 2, this.width / this.world.w, this.height / this.world.h);
    // Whole multiples keep every pod the same size.
    if (this.scale > 1) this.scale = Math.floor(this.scale * this.ratio * 2) / this.ratio / 2;
    this.x = 0; this.y = 0;
  }

  /** @param {number} factor @param {number} cx @param {number} cy */
  zoom(factor, cx = this.width / 2, cy = this.height / 2) {
    const least = Math.min(1, this.width / this.world.w, this.height / this.world.h) * 0.8;
    const next = Math.max(least, Math.min(MOST_SCALE, this.scale * factor)), by = next / this.scale;
    this.x = cx - (cx - this.x) * by; this.y = cy - (cy - this.y) * by;
    this.scale = next; this.fitted = false;
    this.keepInView();
    this.ask();
  }

  pan(dx, dy) {
    this.x += dx; this.y += dy; this.fitted = false;
    this.keepInView();
    this.ask();
  }

  keepInView() {
    const w = this.world.w * this.scale, h = this.world.h * this.scale, edge = 60;
    this.x = Math.max(edge - w, Math.min(this.width - edge, this.x));
    this.y = Math.max(edge - h, Math.min(this.height - edge, this.y));
  }

  /** Shows a node in the middle, large enough to see its pods. */
  zoomTo(block, scale = Math.max(this.scale, 14)) {
    if (block < 0 || block >= this.blocks) return;
    this.scale = scale; this.fitted = false;
    this.x = this.width / 2 - (this.cornerX[block] + COLUMNS / 2) * scale;
    this.y = this.height / 2 - (this.cornerY[block] + ROWS / 2) * scale;
    this.ask();
  }

  draw() {
    if (!this.data || !this.width) return;
    this.draws += 1;
    const {pen, ratio, scale} = this, colours = theme().text;
    if (this.dirty) {
      const [x0, y0, x1, y1] = this.dirty;
      this.imagePen.putImageData(this.data, 0, 0, x0, y0, x1 - x0, y1 - y0);
      this.dirty = null;
    }
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    pen.imageSmoothingEnabled = scale * ratio < 1;
    const left = Math.max(0, Math.floor(-this.x / scale)), top = Math.max(0, Math.floor(-this.y / scale));
    const right = Math.min(this.world.w, Math.ceil((this.width - this.x) / scale)), bottom = Math.min(this.world.h, Math.ceil((this.height - this.y) / scale));
    if (right > left && bottom > top) pen.drawImage(this.image, left, top, right - left, bottom - top, (this.x + left * scale) * ratio, (this.y + top * scale) * ratio, (right - left) * scale * ratio, (bottom - top) * scale * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (scale >= 5) this.drawCells(colours, left, top, right, bottom);
    this.drawGroups(colours);
    this.outline(this.selectedNode, colours.accent, 2);
    const slot = this.selectedPod >= 0 ? this.slotOf[this.selectedPod] : -1;
    if (slot >= 0 && !this.crowded[Math.floor(slot / SLOTS)]) {
      const block = Math.floor(slot / SLOTS), in_ = slot - block * SLOTS, size = Math.max(scale, 7);
      const x = this.x + (this.cornerX[block] + in_ % COLUMNS + 0.5) * scale, y = this.y + (this.cornerY[block] + Math.floor(in_ / COLUMNS) + 0.5) * scale;
      pen.lineWidth = 2; pen.strokeStyle = colours.ink;
      pen.strokeRect(x - size / 2 - 1.5, y - size / 2 - 1.5, size + 3, size + 3);
      pen.strokeStyle = colours.paper; pen.lineWidth = 1;
      pen.strokeRect(x - size / 2 - 3, y - size / 2 - 3, size + 6, size + 6);
    }
    if (this.hover) this.outline(this.hover.block, colours.soft, 1);
    if (this.nodeRows && !performance.getEntriesByName('keplab-picture').length) performance.mark('keplab-picture');
    this.onDraw?.();
  }

  drawGroups(colours) {
    const {pen, scale} = this;
    pen.font = '600 12px system-ui, sans-serif';
    pen.textBaseline = 'middle';
    for (const group of this.world.groups) {
      const x = this.x + group.x * scale, y = this.y + group.y * scale, w = group.w * scale, h = group.h * scale;
      if (x > this.width || x + w < 0 || y > this.height || y + h < 0) continue;
      pen.strokeStyle = colours.line; pen.lineWidth = 1;
      pen.strokeRect(Math.round(x) + 0.5, Math.round(y) + 0.5, Math.round(w) - 1, Math.round(h) - 1);
      const number = group.loose ? counted(this.looseCount(), 'pod') : group.blocks.length.toLocaleString('en-US');
      const free = Math.min(w, this.width - Math.max(0, x)) - 8;
      if (free < 24) continue;
      pen.save();
      pen.beginPath(); pen.rect(Math.max(0, x), y, Math.min(w, this.width), h); pen.clip();
      const top = Math.max(2, y + 2), base = top + HEADER_PX / 2;
      if (y < 0) { pen.fillStyle = colours.panel; pen.fillRect(Math.max(0, x), 0, Math.min(w, this.width), HEADER_PX + 2); }
      pen.fillStyle = colours.ink;
      const at = Math.max(6, x + 6);
      pen.fillText(group.name, at, base);
      const wide = pen.measureText(group.name).width;
      pen.fillStyle = colours.soft;
      if (free > wide + pen.measureText(number).width + 12) pen.fillText(number, at + wide + 8, base);
      pen.restore();
    }
  }

  looseCount() {
    let number = 0;
    for (let slot = this.nodeRows * SLOTS; slot < this.podAt.length; slot++) if (this.podAt[slot] >= 0) number += 1;
    return number;
  }

  /** From 5 screen pixels a pod on: lines between pods, then signs, names of nodes. */
  drawCells(colours, left, top, right, bottom) {
    const {pen, scale} = this, {nodes, pods, strings} = this.view.columns.peek(), heat = !MODES[this.mode].pods;
    const seen = [];
    for (const group of this.world.groups) for (const block of group.blocks) {
      const x = this.cornerX[block], y = this.cornerY[block];
      if (x + CELL_W >= left && x <= right && y + CELL_H >= top && y <= bottom) seen.push(block);
    }
    if (seen.length > 1500) return;
    pen.textBaseline = 'middle';
    for (const block of seen) {
      const x = this.x + this.cornerX[block] * scale, y = this.y + this.cornerY[block] * scale, isNode = block < this.nodeRows;
      if (isNode && !heat && !this.crowded[block] && (this.stateOf[block] & 7) !== 1) this.ground(block, x, y, colours);
      if (!heat || !isNode) {
        pen.strokeStyle = colours.paper; pen.lineWidth = scale >= 10 ? 1.5 : 1;
        pen.beginPath();
        for (let i = 0; i <= COLUMNS; i++) { pen.moveTo(x + i * scale, y); pen.lineTo(x + i * scale, y + ROWS * scale); }
        for (let i = 0; i <= ROWS; i++) { pen.moveTo(x, y + i * scale); pen.lineTo(x + COLUMNS * scale, y + i * scale); }
        pen.stroke();
        if (scale >= 9 && !this.crowded[block]) for (let i = 0; i < SLOTS; i++) {
          const row = this.podAt[block * SLOTS + i];
          if (row >= 0) this.sign(pods.columns, row, x + (i % COLUMNS + 0.5) * scale, y + (Math.floor(i / COLUMNS) + 0.5) * scale, scale, colours);
        }
      }
      if (!isNode) continue;
      const off = nodes.columns.ready[block] !== 1, cordoned = nodes.columns.unschedulable[block];
      pen.strokeStyle = off ? colours.failed : colours.line; pen.lineWidth = off ? 2 : 1;
      if (cordoned) pen.setLineDash([4, 3]);
      pen.strokeRect(x - 0.5, y - 0.5, COLUMNS * scale + 1, ROWS * scale + 1);
      pen.setLineDash([]);
      const name = strings[nodes.columns.name[block]];
      const size = Math.min(12, Math.max(8, scale)), wide = COLUMNS * scale;
      pen.font = `${size}px system-ui, sans-serif`;
      let text = `${off ? '◌ ' : ''}${cordoned ? '⌧ ' : ''}${name}${this.crowded[block] ? `: ${(this.crowded[block] + SLOTS).toLocaleString('en-US')} pods in shares` : ''}`;
      if (pen.measureText(text).width > wide - 4) text = `${text.slice(0, Math.max(2, Math.floor((wide - 12) / (size * 0.56))))}…`;
      const high = size + 3;
      pen.fillStyle = colours.panel;
      pen.globalAlpha = 0.86;
      pen.fillRect(x, y + ROWS * scale - high, Math.min(wide, pen.measureText(text).width + 6), high);
      pen.globalAlpha = 1;
      pen.fillStyle = colours.ink;
      pen.fillText(text, x + 3, y + ROWS * scale - high / 2 + 0.5);
    }
  }

  /** What is behind the pods of a node that is not ready or cordoned, when it is large: the pixels' pattern would look like pods. */
  ground(block, x, y, colours) {
    const {pen, scale} = this;
    pen.fillStyle = colours.empty;
    for (let i = 0; i < SLOTS; i++) if (this.podAt[block * SLOTS + i] < 0) pen.fillRect(x + (i % COLUMNS) * scale, y + Math.floor(i / COLUMNS) * scale, scale, scale);
    if ((this.stateOf[block] & 3) === 1) return;
    pen.save();
    pen.beginPath(); pen.rect(x, y, COLUMNS * scale, ROWS * scale); pen.clip();
    pen.strokeStyle = colours.failed; pen.lineWidth = 1; pen.globalAlpha = 0.55;
    pen.beginPath();
    for (let at = -ROWS; at < COLUMNS; at += 1) { pen.moveTo(x + at * scale, y + ROWS * scale); pen.lineTo(x + (at + ROWS) * scale, y); }
    pen.stroke();
    pen.restore();
  }

  /** A pod's sign: hollow when pending, a tick when succeeded, a cross when failed, a stripe when it goes. */
  sign(c, row, x, y, scale, colours) {
    const {pen} = this, r = scale * 0.22;
    const goes = c.flags[row] & GOES, phase = c.phase[row];
    if (!goes && phase === 1) return;
    pen.strokeStyle = colours.paper; pen.fillStyle = colours.paper; pen.lineWidth = Math.max(1.2, scale / 9);
    pen.beginPath();
    if (goes) { pen.moveTo(x - r, y + r); pen.lineTo(x + r, y - r); } else if (phase === 0) { pen.fillRect(x - r, y - r, 2 * r, 2 * r); } else if (phase === 2) { pen.moveTo(x - r, y); pen.lineTo(x - r / 4, y + r); pen.lineTo(x + r, y - r); } else if (phase === 3) { pen.moveTo(x - r, y - r); pen.lineTo(x + r, y + r); pen.moveTo(x + r, y - r); pen.lineTo(x - r, y + r); } else { pen.arc(x, y, r / 2, 0, 7); }
    pen.stroke();
  }

  outline(block, colour, width) {
    if (block < 0 || block === undefined || block >= this.blocks) return;
    const {pen, scale} = this;
    pen.strokeStyle = colour; pen.lineWidth = width;
    pen.strokeRect(this.x + this.cornerX[block] * scale - width, this.y + this.cornerY[block] * scale - width, COLUMNS * scale + 2 * width, ROWS * scale + 2 * width);
  }

  /** What lies below a point: {block, node, pod} with rows of tables, −1 for none; null outside of every block. */
  at(px, py) {
    const wx = (px - this.x) / this.scale, wy = (py - this.y) / this.scale;
    for (const group of this.world.groups) {
      if (wx < group.x || wx >= group.x + group.w || wy < group.y || wy >= group.y + group.h) continue;
      const column = Math.floor((wx - group.bx) / CELL_W), line = Math.floor((wy - group.by) / CELL_H);
      const index = line * group.columns + column;
      if (column < 0 || line < 0 || column >= group.columns || index >= group.blocks.length) return null;
      const block = group.blocks[index], x = Math.floor(wx - this.cornerX[block]), y = Math.floor(wy - this.cornerY[block]);
      const inside = x >= 0 && x < COLUMNS && y >= 0 && y < ROWS;
      return {block, node: block < this.nodeRows ? block : -1, pod: inside && !this.crowded[block] ? this.podAt[block * SLOTS + y * COLUMNS + x] : -1};
    }
    return null;
  }

  /** The block beside another one, for arrow keys. */
  neighbour(block, dx, dy) {
    for (const group of this.world.groups) {
      const at = group.blocks.indexOf(block);
      if (at < 0) continue;
      const next = at + dx + dy * group.columns;
      return next >= 0 && next < group.blocks.length ? group.blocks[next] : block;
    }
    return this.world.groups.length ? this.world.groups[0].blocks[0] : -1;
  }

  /** The colour that is drawn for a pod's row, as a hash and six digits; '' when it has no pixel of its own. For tests. */
  pixel(row) {
    const slot = this.slotOf[row];
    if (slot < 0 || this.crowded[Math.floor(slot / SLOTS)]) return '';
    const block = Math.floor(slot / SLOTS), in_ = slot - block * SLOTS;
    const one = document.createElement('canvas');
    one.width = one.height = 1;
    const pen = /** @type {CanvasRenderingContext2D} */ (one.getContext('2d', {willReadFrequently: true}));
    pen.drawImage(this.image, this.cornerX[block] + in_ % COLUMNS, this.cornerY[block] + Math.floor(in_ / COLUMNS), 1, 1, 0, 0, 1, 1);
    const [r, g, b] = pen.getImageData(0, 0, 1, 1).data;
    return `#${[r, g, b].map((value) => value.toString(16).padStart(2, '0')).join('')}`;
  }
}

/**
 * Lays groups out in shelves whose shape is near the canvas'. Writes each block's corner; returns {w, h, groups with x, y, w, h,
 * columns, bx, by}. @param {any[]} list @param {number} aspect @param {number} screen @param {Int32Array} cornerX @param {Int32Array} cornerY
 */
export function arrange(list, aspect, screen, cornerX, cornerY) {
  const total = list.reduce((sum, group) => sum + group.blocks.length, 0);
  if (!total) return {w: 1, h: 1, groups: []};
  let best = /** @type {any} */ (null);
  // Try every number of lines that could fill the canvas; take the one whose picture comes out largest.
  const most = Math.max(1, Math.ceil(Math.sqrt(total) * 3));
  const tries = [];
  for (let lines = 1; lines <= most; lines = Math.max(lines + 1, Math.floor(lines * 1.08))) tries.push(lines);
  for (const lines of tries) for (const shelves of list.length > 3 ? [1, 2, 3, 4, 6, 8, 12] : [1, 2]) {
    const made = shelved(list, lines, shelves, 0);
    const scale = Math.min(screen / made.w, screen / aspect / made.h);
    if (!best || scale > best.scale) best = {scale, lines, shelves};
  }
  // Headings have a height on the screen, so it is known only when the scale is.
  const header = Math.max(2, Math.round((HEADER_PX + 4) / Math.max(0.2, Math.min(MOST_SCALE / 2, best.scale * 0.94))));
  const made = shelved(list, best.lines, best.shelves, header);
  for (const group of made.groups) group.blocks.forEach((block, index) => {
    cornerX[block] = group.bx + (index % group.columns) * CELL_W;
    cornerY[block] = group.by + Math.floor(index / group.columns) * CELL_H;
  });
  return made;
}

function shelved(list, lines, shelves, header) {
  const sized = list.map((group) => ({...group, columns: Math.max(1, group.loose ? Math.min(group.blocks.length, 8) : 1, Math.ceil(group.blocks.length / lines))}));
  const all = sized.reduce((sum, group) => sum + group.columns * CELL_W + GROUP_GAP, 0), limit = all / shelves;
  let x = 0, y = 0, high = 0, wide = 0;
  for (const group of sized) {
    const used = Math.ceil(group.blocks.length / group.columns), w = group.columns * CELL_W + 3, h = used * CELL_H + header + 3;
    if (x > 0 && x + w > limit * 1.02 && shelves > 1) { x = 0; y += high + GROUP_GAP; high = 0; }
    Object.assign(group, {x, y, w, h, bx: x + 2, by: y + header + 1});
    x += w + GROUP_GAP;
    high = Math.max(high, h); wide = Math.max(wide, x - GROUP_GAP);
  }
  return {w: Math.max(1, wide), h: Math.max(1, y + high), groups: sized};
}
