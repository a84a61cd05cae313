// What every module that draws needs: markup by htm, hooks and signals. One place, so that pages import one name.
import {h, render, Fragment} from 'preact';
import {useEffect, useId, useLayoutEffect, useMemo, useRef, useState, useCallback} from 'preact/hooks';
import {signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect} from '@preact/signals';
import htm from 'htm';

/** Markup as a tagged template: html`<p class="a">${text}</p>`. Values become text nodes or attributes, never markup. */
export const html = htm.bind(h);
export {h, render, Fragment};
export {useEffect, useId, useLayoutEffect, useMemo, useRef, useState, useCallback};
export {signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect};
