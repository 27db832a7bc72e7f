// Finds what the page names: ranks, hosts, findings, operations, kernels, operators, ranges.

import { h, name } from './dom.js';
import { bytes } from './format.js';

const kMost = 12;

// Every name with the section that it is in.
function* everything(data) {
  const { ranks, inside, lanes } = data;
  for (const [i, finding] of data.analysis.findings.entries()) yield [finding.headline, 'findings', 'finding', { finding: i }];
  for (let r = 0; r < ranks.rank.length; ++r) yield [`rank ${ranks.rank[r]}`, 'ranks', ranks.nodes[ranks.node[r]], { rank: r }];
  for (const node of ranks.nodes) yield [node, 'ranks', 'host', { rank: [...ranks.node].findIndex((n) => ranks.nodes[n] === node) }];
  for (const one of inside?.tables ?? []) {
    const key = one.columns.findIndex((column) => column.kind === 'text');
    for (const text of new Set(one.rows.map((row) => row[key]))) if (text) yield [text, `inside-${one.name}`, one.name];
  }
  for (const row of data.collectives.rows) yield [`${row.op} ${bytes(row.bytes)}`, 'collectives', `ranks ${row.group}`];
  for (const text of lanes?.names ?? []) yield [text, 'timeline', 'range'];
  for (const loss of data.losses) yield [loss.sentence, 'trust', 'loss'];
  for (const part of data.analysis.critical_path) if (part.what) yield [part.what, 'stragglers', 'critical path'];
}

// go(section, where): shows it there.
export function search(data, go) {
  let all = null;
  const list = h('ul', { class: 'found', id: 'found', hidden: true });
  const box = h('input', { type: 'search', id: 'search', placeholder: 'find a rank, kernel, range ..', 'aria-label': 'find on this page', 'aria-controls': 'found', autocomplete: 'off', oninput: () => show(),
    onkeydown: (event) => {
      if (event.key === 'Escape') hide();
      if (event.key === 'Enter') list.querySelector('button')?.click();
      if (event.key === 'ArrowDown') {
        event.preventDefault();
        list.querySelector('button')?.focus();
      }
    } });
  const hide = () => (list.hidden = true);
  function show() {
    const wanted = box.value.trim().toLowerCase();
    list.hidden = !wanted;
    if (!wanted) return;
    all ??= [...everything(data)];
    // What begins with it first; of "rank 3" and "rank 33" the shorter one.
    const found = all.filter(([text]) => text.toLowerCase().includes(wanted)).sort((a, b) => (b[0].toLowerCase().startsWith(wanted)) - (a[0].toLowerCase().startsWith(wanted)) || a[0].length - b[0].length);
    const seen = new Set(), rows = [];
    for (const [text, section, what, where] of found) {
      if (seen.has(text + section)) continue;
      seen.add(text + section);
      if (rows.length < kMost) rows.push(h('li', {}, h('button', { type: 'button', onclick: () => { hide(); go(section, where); } }, name(text), ' ', h('span', { class: 'dim' }, name(what ?? '')))));
    }
    list.replaceChildren(...(rows.length ? rows : [h('li', { class: 'dim' }, 'nothing on this page; lockstep analyze --table has all rows')]),
      ...(seen.size > rows.length ? [h('li', { class: 'dim' }, `and ${seen.size - rows.length} more`)] : []));
  }
  list.addEventListener('keydown', (event) => {
    const buttons = [...list.querySelectorAll('button')], at = buttons.indexOf(document.activeElement);
    if (event.key === 'Escape') hide(), box.focus();
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    event.preventDefault();
    (buttons[at + (event.key === 'ArrowDown' ? 1 : -1)] ?? box).focus();
  });
  const whole = h('div', { class: 'search', role: 'search' }, box, list);
  whole.addEventListener('focusout', (event) => { if (!whole.contains(event.relatedTarget)) hide(); });
  return whole;
}
