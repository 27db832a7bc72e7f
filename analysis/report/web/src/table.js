// Tables that sort, go by pages and can be saved; any number of rows.

import { h, name, save } from './dom.js';
import { count } from './format.js';

const kPage = 50;

// A text cell that a spreadsheet would take for a formula gets an apostrophe.
function csvCell(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return '';
  if (typeof value === 'number') return String(value);
  let text = String(value);
  if (/^[=+\-@\t\r]/.test(text)) text = "'" + text;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// columns: {key: heading in CSV, title, value(row): number|text|null, text(row): as shown, numeric}
export function csv(columns, rows) {
  const lines = [columns.map((column) => csvCell(column.key)).join(',')];
  for (let row = 0; row < rows; ++row) lines.push(columns.map((column) => csvCell(column.value(row))).join(','));
  return lines.join('\r\n') + '\r\n';
}

export function csvButton(fileName, columns, rows) {
  return h('button', { class: 'small', type: 'button', 'data-csv': fileName,
    onclick: () => save(fileName + '.csv', csv(columns, rows), 'text/csv') }, 'CSV');
}

// What is wider than its place scrolls, by keyboard, too; its edge shows that there is more.
export const scrolling = (label, ...children) => h('div', { class: 'table', tabindex: 0, role: 'group', 'aria-label': label }, ...children);

export function table(columns, rows, { caption, sortBy, descending = true, label } = {}) {
  const order = Array.from({ length: rows }, (_, i) => i);
  let page = 0, sorted = null, down = true;
  const body = h('tbody'), foot = h('div', { class: 'pages' });
  const heads = columns.map((column, c) => h('th', { scope: 'col', class: column.numeric ? 'n' : '' },
    h('button', { class: 'head', type: 'button', title: 'sort', onclick: () => sort(c, sorted === c ? !down : column.numeric) },
      column.title)));
  function sort(c, descend) {
    sorted = c;
    down = descend;
    const value = columns[c].value;
    const rank = (row) => {
      const v = value(row);
      return v === null || v === undefined || Number.isNaN(v) ? null : v;
    };
    order.sort((a, b) => {
      const x = rank(a), y = rank(b);
      if (x === null || y === null) return (x === null) - (y === null) || a - b;
      const order = x < y ? -1 : x > y ? 1 : 0;
      return (descend ? -order : order) || a - b;
    });
    heads.forEach((head, i) => (i === c ? head.setAttribute('aria-sort', descend ? 'descending' : 'ascending') : head.removeAttribute('aria-sort')));
    page = 0;
    show();
  }
  function show() {
    body.replaceChildren(...order.slice(page * kPage, (page + 1) * kPage).map((row) => h('tr', {},
      columns.map((column) => h('td', { class: column.numeric ? 'n' : '' }, column.numeric ? column.text(row) : name(column.text(row)))))));
    const pages = Math.ceil(rows / kPage);
    if (pages < 2) return;
    const turn = (by, text) => h('button', { class: 'small', type: 'button', disabled: page + by < 0 || page + by >= pages,
      onclick: () => { page += by; show(); } }, text);
    foot.replaceChildren(turn(-1, 'previous'), ` rows ${count(page * kPage + 1)} to ${count(Math.min(rows, (page + 1) * kPage))} of ${count(rows)} `, turn(1, 'next'));
  }
  if (sortBy !== undefined) sort(columns.findIndex((column) => column.key === sortBy), descending);
  else show();
  return h('div', {}, scrolling(label ?? caption ?? 'table', h('table', {}, caption ? h('caption', {}, caption) : null,
    h('thead', {}, h('tr', {}, heads)), body)), foot);
}

// The table behind a plot, made when it is opened, and the plot's data to save.
export function behind(fileName, columns, rows, options) {
  const details = h('details', { class: 'behind', ontoggle: () => {
    if (details.open && details.children.length === 1) details.append(table(columns, rows, { label: fileName, ...options }));
  } }, h('summary', {}, 'as a table'));
  return h('div', { class: 'behind-row' }, csvButton(fileName, columns, rows), details);
}
