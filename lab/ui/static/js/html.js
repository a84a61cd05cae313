// What every module that draws needs: markup by htm, hooks and signals.
import {h, render} from 'preact';
import {useEffect, useId, useLayoutEffect, useMemo, useRef, useState} from 'preact/hooks';
import {signal, effect} from '@preact/signals';
import htm from 'htm';

/** Markup as a tagged template: html`<p class="a">${text}</p>`. Values become text nodes or attributes, never markup. */
export const html = htm.bind(h);
export {render};
export {useEffect, useId, useLayoutEffect, useMemo, useRef, useState};
export {signal, effect};
