// The embedded data: JSON whose packed columns (analysis/report/html/packed.h) become Float64Arrays, NaN unknown.

async function inflate(packed) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function unpack({ packed, n, base, unit }) {
  const planes = await inflate(packed), values = new Float64Array(n);
  for (let i = 0; i < n; ++i) {
    const raw = (planes[i] | (planes[n + i] << 8) | (planes[2 * n + i] << 16) | (planes[3 * n + i] << 24)) >>> 0;
    values[i] = raw === 0xffffffff ? NaN : base + unit * raw;
  }
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
