// Which CPUs containers have to themselves: the API does not say it, the kubelet's line of the pod's admission does. Pure.

/** Numbers of a CPU set as the kernel writes it: "0-3,8" is 0, 1, 2, 3, 8. @param {string} text */
export function cpuNumbers(text) {
  const found = [];
  for (const part of String(text).split(',')) {
    const [from, to = from] = part.split('-').map(Number);
    if (part.trim() && Number.isInteger(from) && Number.isInteger(to)) for (let cpu = from; cpu <= to; cpu++) found.push(cpu);
  }
  return found;
}

/**
 * What the newest admission of each pod of a node gave it alone, by namespace/name: {cpus: {container: set}, numas: NUMA nodes of its memory}.
 * @param {any[]} lines event lines, oldest first @param {string} node @param {number} until a time; later lines do not count
 */
export function allocations(lines, node, until) {
  const found = new Map(), seen = new Set();
  for (let i = lines.length - 1; i >= 0; i--) {
    const line = lines[i];
    if (line.ev !== 'kubelet.admit' || line.node !== node || !line.obj || line.t > until) continue;
    const key = `${line.obj.ns}/${line.obj.name}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const {cpus, memory_numas: numas} = line.data || {};
    if (cpus || numas) found.set(key, {cpus: cpus || {}, numas: numas || []});
  }
  return found;
}
