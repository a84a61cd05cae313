import {html, useLayoutEffect, useRef} from 'keplab/html.js';

/** A dialog that keeps the focus; Esc closes it, and nothing below it. A browser may close it without asking: that is heeded as well. */
export function Dialog({label, close, children, wide = false}) {
  const box = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement|null} */ (document.activeElement);
    box.current?.showModal();
    return () => before?.focus?.();
  }, []);
  const onKeyDown = (event) => { if (event.key === 'Escape') { event.preventDefault(); event.stopPropagation(); close(); } };
  return html`<dialog ref=${box} class=${wide ? 'wide' : ''} aria-label=${label} onKeyDown=${onKeyDown} onCancel=${(event) => { event.preventDefault(); close(); }} onClose=${() => close()} onClick=${(event) => { if (event.target === box.current) close(); }}>${children}</dialog>`;
}
