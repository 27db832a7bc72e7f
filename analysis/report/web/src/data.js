// The embedded data: JSON whose packed columns (analysis/report/html/packed.h) become Float64Arrays, NaN unknown.

async function inflate(packed) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpack({ packed, n, width, base, unit }) {
  const planes = await inflate(packed), values = new Float64Array(n), unknown = 2 ** (8 * width) - 1;
  for (let plane = width - 1; plane >= 0; --plane) for (let i = 0; i < n; ++i) values[i] = values[i] * 256 + planes[plane * n + i];
  for (let i = 0; i < n; ++i) values[i] = values[i] === unknown ? NaN : base + unit * values[i];
  return values;
}

export async function load() {
  const data = JSON.parse(document.getElementById('data').textContent);
  const jobs = [];
  const walk = (node) => {
    for (const key of Object.keys(node)) {
      const value = node[key];
      if (value === null || typeof value !== 'object') continue;
      if (typeof value.packed === 'string') jobs.push(unpack(value).then((column) => (node[key] = column)));
      else walk(value);
    }
  };
  walk(data);
  await Promise.all(jobs);
  return data;
}

// Bins of what has too many points are drawn by how many they hold.
export const maximum = (values) => {
  let most = -Infinity;
  for (const value of values) if (value > most) most = value;
  return most;
};
export function quantile(values, p) {
  const sorted = Float64Array.from(values).filter((v) => !Number.isNaN(v)).sort();
  return sorted.length ? sorted[Math.floor(p * (sorted.length - 1))] : 0;
}
