// Figures as people read them. Pure.

/** Thousands with commas: 48112 is "48,112". @param {number} value */
export function count(value) {
  return Math.round(value).toLocaleString('en-US');
}

/** A number with what is counted: "1 pod", "1,200 pods". @param {number} value @param {string} one @param {string} many for more or less than one */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Milli-cores: 27500 is "27.5", 250 is "250m". @param {number} milli */
export function cpu(milli) {
  if (!milli) return '0';
  return milli < 1000 ? `${Math.round(milli)}m` : String(Math.round(milli / 10) / 100);
}

/** @param {number} bytes */
export function memory(bytes) {
  const units = ['B', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi'];
  let at = 0;
  while (Math.abs(bytes) >= 1024 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return `${bytes >= 100 || Number.isInteger(bytes) ? Math.round(bytes) : bytes.toFixed(1)}${at ? units[at] : ''}`;
}

/** An age as kubectl prints it: "42s", "5m3s", "3h12m", "2d4h". @param {number} seconds */
export function age(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 10) return s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (m < 180) return `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 8) return m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  if (h < 48) return `${h}h`;
  const d = Math.floor(h / 24);
  if (d < 8) return h % 24 ? `${d}d${h % 24}h` : `${d}d`;
  return d < 730 ? `${d}d` : `${Math.floor(d / 365)}y${d % 365 ? `${d % 365}d` : ''}`;
}

/** A span: "1.2 ms", "4.3 s", "6:02". @param {number} seconds */
export function span(seconds) {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toPrecision(3)} ms`;
  if (seconds < 90) return `${seconds.toPrecision(3)} s`;
  const minutes = Math.floor(seconds / 60);
  return `${minutes}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;
}

/** A moment: of a simulation "12.004 s", of a live run the clock's "12:04:31.220". @param {number} time @param {number} wall seconds between the run's clock and 1970, or 0 */
export function moment(time, wall = 0) {
  if (!wall) return `${time.toFixed(3)} s`;
  const date = new Date((time + wall) * 1000);
  const two = (n) => String(n).padStart(2, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, '0')}`;
}

/** @param {number} part @param {number} whole */
export function percent(part, whole) {
  return whole ? `${Math.round(part / whole * 100)} %` : '–';
}
