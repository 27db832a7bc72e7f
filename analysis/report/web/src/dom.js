// Elements without markup: a text from the run is only ever a text node.

export function h(tag, options, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(options ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'class') element.className = value;
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A name that came from a program: its direction stays its own.
export const name = (text) => h('bdi', {}, text);
export const code = (text) => h('code', { dir: 'ltr' }, text);

export function select(label, options, onchange) {
  const list = h('select', { onchange: () => onchange(list.value) },
    options.map(([value, text]) => h('option', { value }, text)));
  return [h('label', { class: 'control' }, label + ' ', list), list];
}

// Why there is nothing to see.
export const absent = (...why) => h('p', { class: 'absent' }, ...why);

export function save(fileName, text, type) {
  const link = h('a', { href: URL.createObjectURL(new Blob([text], { type })), download: fileName });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
