// What the page uses of others' modules: enough for `tsc --checkJs`; their own types are not vendored.
declare module 'preact' {
  export interface RefObject<T> {current: T | null}
  export const h: any;
  export const render: any;
  export const Fragment: any;
}
declare module 'preact/hooks' {
  export function useEffect(effect: () => void | (() => void), keys?: any[]): void;
  export function useId(): string;
  export function useLayoutEffect(effect: () => void | (() => void), keys?: any[]): void;
  export function useMemo<T>(make: () => T, keys: any[]): T;
  export function useRef<T>(value: T): {current: T};
  export function useState<T>(value: T | (() => T)): [T, (value: T | ((before: T) => T)) => void];
  export function useCallback<T>(callback: T, keys: any[]): T;
}
declare module '@preact/signals' {
  export interface ReadonlySignal<T> { readonly value: T; peek(): T; subscribe(listener: (value: T) => void): () => void; }
  export interface Signal<T> extends ReadonlySignal<T> { value: T; }
  export function signal<T>(value: T): Signal<T>;
  export function computed<T>(make: () => T): ReadonlySignal<T>;
  export function effect(run: () => void | (() => void)): () => void;
  export function batch<T>(run: () => T): T;
  export function untracked<T>(run: () => T): T;
  export function useSignal<T>(value: T): Signal<T>;
  export function useComputed<T>(make: () => T): ReadonlySignal<T>;
  export function useSignalEffect(run: () => void | (() => void)): void;
}
declare module 'htm' { const htm: {bind(h: any): (parts: TemplateStringsArray, ...values: any[]) => any}; export default htm; }
declare module 'uplot' { const uPlot: any; export default uPlot; }
