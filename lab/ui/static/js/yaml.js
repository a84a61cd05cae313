// A document as YAML: keys sorted as kubectl prints them, strings quoted when a reader of YAML 1.1 would take them for something else. Pure.

const PLAIN = /^[A-Za-z0-9_./<(=$^~][^\u0000-\u001f\u007f-\u00a0\u2028\u2029\ufeff]*$/;
const OTHER = /^(?:~|null|true|false|yes|no|on|off|y|n|\.nan|[-+]?\.inf|=|<<)$/i;
const NUMBER = /^[-+]?(?:0b[01_]+|0x[0-9a-f_]+|0o?[0-7_]+|[0-9][0-9_]*(?:\.[0-9_]*)?(?:e[-+]?[0-9]+)?|\.[0-9_]+(?:e[-+]?[0-9]+)?|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$/i;
const DATE = /^\d{4}-\d\d?-\d\d?(?:[Tt \t].*)?$/;

/** The text of a string: plain, or in quotes. @param {string} text */
export function scalar(text) {
  const odd = !PLAIN.test(text) || /: |:$| #|\s$/.test(text) || /[\u202a-\u202e\u2066-\u2069\u200e\u200f]/.test(text);
  return odd || OTHER.test(text) || NUMBER.test(text) || DATE.test(text) ? quoted(text) : text;
}

/** In double quotes; what cannot be seen is written as an escape, so that it cannot mislead. */
function quoted(text) {
  return JSON.stringify(text).replace(/[\u007f-\u009f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** The lines of a value. @param {any} value @param {number} indent @returns {string[]} */
export function lines(value, indent = 0) {
  const pad = ' '.repeat(indent);
  if (Array.isArray(value)) {
    if (!value.length) return [`${pad}[]`];
    return value.flatMap((each) => {
      if (!isNested(each)) return [`${pad}- ${short(each, indent + 2)}`];
      const [first, ...rest] = lines(each, indent + 2);
      return [`${pad}- ${first.slice(indent + 2)}`, ...rest];
    });
  }
  if (value !== null && typeof value === 'object') {
    const keys = Object.keys(value).filter((key) => value[key] !== undefined).sort();
    if (!keys.length) return [`${pad}{}`];
    return keys.flatMap((key) => {
      const inner = value[key];
      if (!isNested(inner)) return `${pad}${scalar(key)}: ${short(inner, indent + 2)}`.split('\n');
      return [`${pad}${scalar(key)}:`, ...lines(inner, Array.isArray(inner) ? indent : indent + 2)];
    });
  }
  return `${pad}${short(value, indent)}`.split('\n');
}

function isNested(value) {
  return value !== null && typeof value === 'object' && (Array.isArray(value) ? value.length > 0 : Object.keys(value).length > 0);
}

function short(value, indent) {
  if (value === null || value === undefined) return 'null';
  if (typeof value === 'string') {
    const block = value.includes('\n') && !/[^\n\x20-\x7e\u00a1-\u1fff\u2030-\u205f\u2070-\ud7ff]/.test(value) && !/^[ \n]|[ \t]\n/.test(value);
    if (!block) return value === '' ? '""' : scalar(value);
    const end = value.endsWith('\n\n') ? '+' : value.endsWith('\n') ? '' : '-', body = value.endsWith('\n') ? value.slice(0, -1) : value;
    return [`|${end}`, ...body.split('\n').map((line) => (line ? ' '.repeat(indent) + line : ''))].join('\n');
  }
  if (typeof value === 'object') return Array.isArray(value) ? '[]' : '{}';
  return String(value);
}

/** A whole document. @param {any} document */
export function yaml(document) {
  return `${lines(document).join('\n')}\n`;
}

/** Without metadata.managedFields; how many managers were left out. @param {any} document @returns {{document: any, managers: number}} */
export function withoutManagers(document) {
  const fields = document?.metadata?.managedFields;
  if (!fields) return {document, managers: 0};
  const {managedFields, ...metadata} = document.metadata;
  return {document: {...document, metadata}, managers: managedFields.length};
}
