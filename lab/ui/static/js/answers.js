// Answers of the source inside components: asked when something changes, and again while the page is shown.
import {useEffect, useRef, useState} from 'keplab/html.js';
import {state} from 'keplab/state.js';

/**
 * {value, error, loading, again}: what `load(rv)` answers; rv is undefined at the head of a live run. It is asked again when `keys`,
 * run or (with `past`) version change, and every `every` seconds while live, with `moved` if versions came. After an error the last
 * value stays. No answer is ever given for other keys or another run than those of this very call.
 * @param {(rv: number|undefined) => Promise<any>} load @param {any[]} keys @param {{every?: number, moved?: boolean, past?: boolean, when?: boolean}} how
 */
export function useAnswer(load, keys, {every = 0, moved = false, past = true, when = true} = {}) {
  const [answer, setAnswer] = useState(/** @type {any} */ ({})), number = useRef(0), latest = useRef(load), asked = useRef({of: '', at: /** @type {number|undefined} */ (undefined), rv: 0});
  latest.current = load;
  const live = state.live.value, rv = state.rv.value, run = state.run.value, of = JSON.stringify([run, keys]), at = live || !rv ? undefined : rv;
  const ask = () => {
    const mine = ++number.current;
    asked.current = {of, at, rv: state.rv.peek()};
    return latest.current(at).then((value) => { if (mine === number.current) setAnswer({of, value}); }, (error) => { if (mine === number.current) setAnswer((before) => ({of, value: before.of === of ? before.value : undefined, error})); });
  };
  useEffect(() => { if (!when) return undefined; setAnswer({of, loading: true}); ask(); return () => { number.current += 1; }; }, [of, when]);
  useEffect(() => {
    if (!when || !past || (asked.current.of === of && asked.current.at === at)) return undefined;
    const timer = setTimeout(ask, 120);
    return () => clearTimeout(timer);
  }, [at, of, when]);
  useEffect(() => {
    if (!when || !live || !every) return undefined;
    const timer = setInterval(() => { if (!document.hidden && !(moved && asked.current.rv === state.rv.peek())) ask(); }, every * 1000);
    return () => clearInterval(timer);
  }, [live, every, of, when]);
  return {...(answer.of === of ? answer : {loading: true}), again: ask};
}

/** The width of an element, as it changes. @returns {[import('preact').RefObject<any>, number]} */
export function useWidth(first = 900) {
  const box = useRef(/** @type {any} */ (null)), [width, setWidth] = useState(first);
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => setWidth(Math.max(240, Math.floor(entry.contentRect.width))));
    if (box.current) seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  return [box, width];
}

/** Says something to a screen reader at most every five seconds. @param {string} text */
export function useSummary(text) {
  const last = useRef(0);
  useEffect(() => {
    const wait = Math.max(0, 5000 - (Date.now() - last.current));
    const timer = setTimeout(() => { last.current = Date.now(); state.summary.value = text; }, wait);
    return () => clearTimeout(timer);
  }, [text]);
}
