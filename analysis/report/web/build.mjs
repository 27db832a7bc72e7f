// src/ -> dist/shell.html, the page without its data. Same sources, same bytes.
//   npm ci && npm run build            writes it
//   npm ci && npm run build -- FILE    writes FILE instead, to compare

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { build } from 'esbuild';

const here = new URL('.', import.meta.url).pathname;
const out = process.argv[2] ?? here + 'dist/shell.html';

async function bundle(entry, more) {
  const result = await build({
    entryPoints: [here + entry],
    bundle: true,
    minify: true,
    write: false,
    charset: 'utf8',
    legalComments: 'none', // The whole licence stands at the top of the page.
    ...more,
  });
  return result.outputFiles[0].text.trim();
}

const script = await bundle('src/main.js', { format: 'iife', target: ['chrome103', 'firefox113', 'safari16.4'] });
const style = await bundle('src/style.css', { loader: { '.css': 'css' } });
if (/<\/(script|style)|<!--/i.test(script + style)) throw new Error('the bundle would end its own element');

const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
const licence = readFileSync(here + 'node_modules/uplot/LICENSE', 'utf8').trim().replaceAll('--', '- -');
const fill = {
  '@LICENCE@': `This page contains uPlot, https://github.com/leeoniya/uPlot\n\n${licence}`,
  '@SCRIPT_HASH@': hash(script),
  '@STYLE_HASH@': hash(style),
  '@STYLE@': style,
  '@SCRIPT@': script,
};
let shell = readFileSync(here + 'src/shell.html', 'utf8');
for (const [place, text] of Object.entries(fill)) shell = shell.replace(place, () => text);
mkdirSync(dirname(out), { recursive: true });
writeFileSync(out, shell);
console.log(`${out}: ${shell.length} characters, script ${script.length}, style ${style.length}`);
