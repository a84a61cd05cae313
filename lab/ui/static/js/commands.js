// Commands: each has an id, a title and perhaps keys; all are in the palette, in the help, and under their keys.
//
// `keys` is one stroke ('x', '.', 'Ctrl+Shift+P') or two with a space between ('g m'). A command with `when` is only there
// while that is true. The newest registration of a stroke that is there wins, so a page's keys go before the shell's.
import {signal} from '@preact/signals';

/** @typedef {{id: string, title: string, keys?: string[], when?: () => boolean, run: (argument?: any) => void, group?: string, hidden?: boolean, inFields?: boolean}} Command */

/** @type {Map<string, Command>} */
const commands = new Map();
/** Grows with each registration, so that help and palette draw again. */
export const registered = signal(0);
/** The first of two strokes while the second is awaited. */
export const pending = signal('');

/** Makes commands known; returns a function that takes them out. @param {Command[]} list */
export function register(list) {
  for (const command of list) { commands.delete(command.id); commands.set(command.id, command); }
  registered.value += 1;
  return () => {
    for (const command of list) if (commands.get(command.id) === command) commands.delete(command.id);
    registered.value += 1;
  };
}

/** Commands that are there now, in order of registration. */
export function available() {
  return [...commands.values()].filter((command) => !command.when || command.when());
}

/** Runs a command by its id. @param {string} id @param {any} [argument] */
export function run(id, argument) {
  const command = commands.get(id);
  if (!command || (command.when && !command.when())) return false;
  command.run(argument);
  return true;
}

/** The stroke of a keyboard event: 'x', 'X', 'Ctrl+Shift+P', 'Esc'. @param {KeyboardEvent} event */
export function strokeOf(event) {
  const named = {Escape: 'Esc', ' ': 'Space', ArrowLeft: 'Left', ArrowRight: 'Right', ArrowUp: 'Up', ArrowDown: 'Down'}[event.key] || event.key;
  const control = (event.ctrlKey ? 'Ctrl+' : '') + (event.metaKey ? 'Meta+' : '') + (event.altKey ? 'Alt+' : '');
  if (control) return `${control}${event.shiftKey ? 'Shift+' : ''}${named.length === 1 ? named.toUpperCase() : named}`;
  return named.length > 1 && event.shiftKey && named !== 'Esc' ? `Shift+${named}` : named;
}

let timer = 0;

/** Runs what a stroke means; true when it meant something. @param {KeyboardEvent} event */
export function onKey(event) {
  if (event.isComposing || event.key === 'Shift' || event.key === 'Control' || event.key === 'Alt' || event.key === 'Meta') return false;
  const stroke = strokeOf(event);
  const target = /** @type {HTMLElement} */ (event.target);
  const typing = target && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
  const button = target && /^(BUTTON|A|SUMMARY)$/.test(target.tagName) && (stroke === 'Enter' || stroke === 'Space');
  if (button) return false;
  const list = available().reverse();
  const prefix = pending.peek();
  if (prefix) {
    clearTimeout(timer);
    pending.value = '';
    const both = list.find((command) => command.keys && command.keys.includes(`${prefix} ${stroke}`));
    if (both) { event.preventDefault(); both.run(); return true; }
    if (stroke === 'Esc') { event.preventDefault(); return true; }
  }
  const fits = (command) => command.keys && command.keys.includes(stroke) && (!typing || command.inFields);
  const one = list.find(fits);
  if (one) { event.preventDefault(); one.run(); return true; }
  if (!typing && list.some((command) => command.keys && command.keys.some((keys) => keys.startsWith(`${stroke} `)))) {
    event.preventDefault();
    pending.value = stroke;
    timer = window.setTimeout(() => { pending.value = ''; }, 1500);
    return true;
  }
  return false;
}
