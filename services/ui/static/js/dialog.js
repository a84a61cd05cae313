import {html, useEffect, useRef} from 'keplab/html.js';

/** A dialog that keeps the focus; Esc closes it. */
export function Dialog({label, close, children, wide = false}) {
  const box = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useEffect(() => {
    const before = /** @type {HTMLElement|null} */ (document.activeElement);
    box.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${box} class=${wide ? 'wide' : ''} aria-label=${label} onCancel=${(event) => { event.preventDefault(); close(); }} onClick=${(event) => { if (event.target === box.current) close(); }}>${children}</dialog>`;
}
