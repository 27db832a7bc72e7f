// The embedded data: JSON whose packed columns (analysis/report/html/packed.h) become Float64Arrays, NaN unknown.

// Browsers have it since 2024 or 2025.
const fromBase64 = Uint8Array.fromBase64 ?? ((digits) => {
  const text = atob(digits), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
});

async function inflate(packed) {
  // Not from a Blob: its bytes would come back from another process, which takes longer than to inflate them.
  const { readable, writable } = new DecompressionStream('deflate'), writer = writable.getWriter();
  // Bytes that cannot be inflated fail the reading, too.
  writer.write(fromBase64(packed)).catch(() => {});
  writer.close().catch(() => {});
  return new Uint8Array(await new Response(readable).arrayBuffer());
}

function numbers({ n, width, base, unit }, planes) {
  const values = new Float64Array(n), unknown = 2 ** (8 * width) - 1;
  // Plane by plane: byte by byte within a value takes longer.
  for (let plane = width - 1; plane > 0; --plane)
    for (let i = 0, at = plane * n; i < n; ++i, ++at) values[i] = 256 * (values[i] + planes[at]);
  for (let i = 0; i < n; ++i) {
    const raw = values[i] + planes[i];
    values[i] = raw === unknown ? NaN : base + unit * raw;
  }
  return values;
}

// The data with its columns still packed; unpack(part ..), which makes those of these parts readable, or all; and
// unpackBut(part, keys), those of a part but these.
export function load() {
  const data = JSON.parse(document.getElementById('data').textContent), packed = {};
  for (const part of Object.keys(data)) {
    const columns = (packed[part] = []);
    const find = (node, key) => {
      const value = node[key];
      if (value === null || typeof value !== 'object') return;
      if (typeof value.packed === 'string') columns.push([node, key, value]);
      else if (Array.isArray(value)) for (let i = 0; i < value.length; ++i) find(value, i);
      else for (const one of Object.keys(value)) find(value, one);
    };
    find(data, part);
  }
  const readable = (columns) => Promise.all(columns.map(async ([node, key, column]) => (node[key] = numbers(column, await inflate(column.packed)))));
  const unpack = (...parts) => readable((parts.length ? parts : Object.keys(packed)).flatMap((part) => packed[part].splice(0)));
  const unpackBut = (part, keys) => {
    const all = packed[part], left = all.filter(([, key]) => keys.includes(key));
    packed[part] = left;
    return readable(all.filter((column) => !left.includes(column)));
  };
  return { data, unpack, unpackBut };
}

// Bins of what has too many points are drawn by how many they hold.
export const maximum = (values) => {
  let most = -Infinity;
  for (const value of values) if (value > most) most = value;
  return most;
};
export function quantile(values, p) {
  // NaN sorts last.
  const sorted = values.slice().sort();
  let known = sorted.length;
  while (known && Number.isNaN(sorted[known - 1])) --known;
  return known ? sorted[Math.floor(p * (known - 1))] : 0;
}
