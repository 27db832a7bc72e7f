// The colours of a heatmap: most of them for where most values lie, the rest for the few far above.

import { quantile } from './data.js';
import { duration } from './format.js';
import { colour, viridis } from './plot.js';

const kBody = 0.62; // Of the colours below the knee.
const kSample = 20_000;

function sampled(values) {
  if (values.length <= kSample) return values;
  // A stride without a factor in common with a row's length, most often: else it would see the same columns of each row.
  const stride = Math.floor(values.length / kSample) * 2 + 1, some = new Float64Array(Math.floor((values.length - 1) / stride) + 1);
  for (let i = 0; i < some.length; ++i) some[i] = values[i * stride];
  return some;
}

// {least, knee, most, of(value): 0 to 1}. One slow rank of eight is an eighth of all cells, one of 4,096 is none of their quantiles: the knee
// is six robust standard deviations above the median, or the 99 % quantile if that is less. Above it colours go by the logarithm up to the largest value.
export function scaleOf(values, fromZero) {
  let most = -Infinity;
  for (const value of values) if (value > most) most = value;
  if (!(most > 0)) return { least: 0, knee: 1, most: 1, of: () => 0 };
  const some = sampled(values), middle = quantile(some, 0.5), high = quantile(some, 0.99) * 1.02;
  const spread = 1.4826 * quantile(some.map((value) => Math.abs(value - middle)), 0.5);
  const least = fromZero ? 0 : Math.min(quantile(some, 0.01), 0.98 * most);
  let knee = spread > 0 ? Math.min(high, middle + 6 * spread) : high;
  if (!(knee > least) || knee > 0.8 * (most - least) + least) knee = most;
  const tail = Math.log((most - least) / (knee - least));
  const of = (value) => {
    const above = (value - least) / (knee - least);
    if (knee === most) return Math.max(0, Math.min(1, above));
    return above <= 1 ? kBody * Math.max(0, above) : Math.min(1, kBody + (1 - kBody) * Math.log(above) / tail);
  };
  return { least, knee, most, of };
}

// As a strip with the values at its ends and at its knee.
export function drawScale(g, left, top, width, scale, text = (value) => duration(Math.round(value))) {
  for (let i = 0; i < width; ++i) {
    g.fillStyle = `rgb(${viridis(i / width)})`;
    g.fillRect(left + i, top, 1.5, 8);
  }
  g.fillStyle = colour('fg2');
  g.textAlign = 'left';
  g.fillText(text(scale.least), left, top - 7);
  if (scale.knee !== scale.most) {
    const at = left + kBody * width;
    g.fillRect(at, top - 3, 1, 11);
    g.textAlign = 'center';
    g.fillText(text(scale.knee), at, top - 7);
  }
  g.textAlign = 'left';
  const most = text(scale.most), from = left + width + 8, room = g.canvas.width / (devicePixelRatio || 1) - from;
  const said = scale.knee === scale.most ? [most] : [`${most}: the few above the line, by the logarithm`, `${most}, by the logarithm`, most];
  g.fillText(said.find((words) => g.measureText(words).width <= room) ?? most, from, top + 4);
}

// A cell's colour is looked up: there are more cells than shades an eye tells apart. The last is that of unknown cells.
const kShades = 1024;
const shades = new Uint32Array(Uint8Array.from([...Array.from({ length: kShades }, (_, i) => [...viridis((i + 0.5) / kShades), 255]), [128, 128, 128, 40]].flat()).buffer);

// rows by columns of values as a picture of one pixel a cell, to be drawn scaled.
export function texels(values, rows, columns, scale) {
  const image = new ImageData(columns, rows), texel = new Uint32Array(image.data.buffer);
  for (let i = 0; i < values.length; ++i)
    texel[i] = shades[Number.isNaN(values[i]) ? kShades : Math.max(0, Math.min(kShades - 1, Math.floor(scale.of(values[i]) * kShades)))];
  const canvas = document.createElement('canvas');
  canvas.width = columns;
  canvas.height = rows;
  canvas.getContext('2d').putImageData(image, 0, 0);
  return canvas;
}
