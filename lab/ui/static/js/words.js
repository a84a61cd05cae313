// What is typed after a colon. Pure.

/** The words after `:` as kubectl would read them: `po -n shop web`, `pods -A`. @param {string} text */
export function kindWords(text) {
  const words = text.trim().split(/\s+/).filter(Boolean), query = /** @type {Record<string, string>} */ ({});
  if (!words.length) return null;
  const kind = words.shift() || '', rest = /** @type {string[]} */ ([]);
  while (words.length) {
    const word = words.shift() || '';
    if (word === '-n' || word === '--namespace') query.ns = words.shift() || '';
    else if (word.startsWith('-n') && word.length > 2 && !word.startsWith('--')) query.ns = word.slice(2);
    else if (word.startsWith('--namespace=')) query.ns = word.slice(12);
    else if (word !== '-A' && word !== '--all-namespaces') rest.push(word);
  }
  if (rest.length) query.q = rest.join(' ');
  return {kind, query};
}
