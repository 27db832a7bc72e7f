// What a late rank does beside what a healthy one does: sampled stacks, callers above what they call.

import { h, select } from './dom.js';
import { count, percent, plural } from './format.js';
import { canvasPlot, colour } from './plot.js';
import { behind } from './table.js';

const kRow = 18, kMostRows = 30;

// The tree as nodes: {title, file, at: its place, parent, children, value, late, share, other: share in the other tree}.
function treeOf(tree) {
  const nodes = tree.function.map((f, i) => ({ ...tree.functions[f], line: tree.line[i], samples: tree.samples_in[i], late: tree.late_in[i], children: [], depth: 0 }));
  const root = { name: `rank ${tree.rank}`, samples: tree.samples, late: tree.late, children: [], depth: -1, root: true };
  nodes.forEach((node, i) => {
    node.parent = tree.parent[i] < 0 ? root : nodes[tree.parent[i]];
    node.parent.children.push(node);
  });
  if (tree.inside) {
    const inside = { name: '(inside communication)', file: '', samples: tree.inside, late: 0, children: [], parent: root, inside: true };
    root.children.push(inside);
    nodes.push(inside);
  }
  return { tree, root, nodes };
}

const key = (node) => `${node.file}\n${node.name}`;

// The share of its rank's samples that the same function, called in the same way, has in the other tree.
function compare(one, other) {
  const visit = (node, there) => {
    for (const child of node.children) {
      const twin = there?.children.find((each) => key(each) === key(child));
      child.other = twin ? twin.samples / other.tree.samples : 0;
      visit(child, twin);
    }
  };
  visit(one.root, other.root);
}

// How much more of its samples that is than chance explains; 0: no more.
function excess(node, all, others) {
  const mine = node.samples / all, more = mine - node.other;
  const spread = (p, of) => ((p * of + 1) / (of + 2)) * (1 - (p * of + 1) / (of + 2)) / of;
  return more > 3 * Math.sqrt(spread(mine, all) + spread(node.other, others)) ? more : 0;
}

const place = (node) => node.name + (node.file ? `, ${node.file}` : '') + (node.line > 0 ? `:${node.line}` : '');

// `other`: the tree that it is compared with; null: none.
function flame({ tree, root, nodes }, other, label) {
  const all = tree.samples, others = other?.samples;
  let weight = 'samples', top, cursor = null, boxes = [], width = 0, rows = 1;
  // What the system and the interpreter call before the program begins holds everything and tells nothing.
  const trunk = () => {
    let at = root;
    for (;;) {
      const calls = at.children.filter((child) => !child.inside);
      if (calls.length !== 1 || !calls[0].library || calls[0].children.length === 0) return at;
      at = calls[0];
    }
  };
  const start = trunk();
  const childrenOf = (node) => (node === start ? start.children.concat(start === root ? [] : root.children.filter((child) => child.inside)) : node.children)
    .filter((child) => child[weight] > 0).sort((a, b) => Boolean(a.inside) - Boolean(b.inside) || b[weight] - a[weight]);
  const wholeOf = (node) => (node === start ? (weight === 'late' ? root.late : all) : node[weight]);
  function lay() {
    boxes = [];
    const put = (node, x, w, row) => {
      boxes.push({ node, x, w, row });
      if (row + 1 >= kMostRows) return;
      let at = x;
      for (const child of childrenOf(node)) {
        const wide = w * child[weight] / Math.max(1, wholeOf(node));
        put(child, at, wide, row + 1);
        at += wide;
      }
    };
    put(top, 0, 1, 0);
    rows = Math.max(...boxes.map((box) => box.row)) + 1;
  }
  const most = other ? Math.max(0.05, ...nodes.map((node) => excess(node, all, others))) : 0;
  function fillOf(node) {
    if (node.root || node === start) return ['card', 0];
    if (node.inside) return ['idle', 0];
    return other ? ['range', excess(node, all, others) / most] : ['compute', 0];
  }
  const title = (node) => (node === start ? `rank ${tree.rank}` : node.name);
  const tell = (box) => box && {
    lines: [box.node === start ? `rank ${tree.rank}: ${plural(all, 'sample')}` : place(box.node),
      box.node === start ? `${count(tree.late)} while others waited for it` : `${percent(box.node.samples / all)} of ${plural(all, 'sample')}` + (tree.late ? `, ${count(box.node.late)} of ${count(tree.late)} while others waited` : ''),
      ...(other && box.node !== start ? [`rank ${other.rank}: ${percent(box.node.other)}`] : [])],
    x: (box.x + box.w / 2) * width, y: box.row * kRow + kRow / 2 };
  const boxOf = (node) => boxes.find((box) => box.node === node);
  function go(node) {
    top = node;
    lay();
    plot.redraw();
  }
  top = start;
  lay();
  const plot = canvasPlot({
    label,
    height: () => rows * kRow + 2,
    draw: (g, w) => {
      width = w;
      g.textAlign = 'left';
      for (const box of boxes) {
        const x = box.x * w, wide = box.w * w, y = box.row * kRow;
        if (wide < 0.5) continue;
        const [base, hot] = fillOf(box.node);
        g.fillStyle = colour(base);
        g.fillRect(x, y, Math.max(0.5, wide - 1), kRow - 1);
        if (hot > 0) {
          g.globalAlpha = 0.15 + 0.55 * hot;
          g.fillStyle = colour('wait');
          g.fillRect(x, y, Math.max(0.5, wide - 1), kRow - 1);
          g.globalAlpha = 1;
        }
        if (box.node === cursor) {
          g.strokeStyle = colour('fg');
          g.lineWidth = 2;
          g.strokeRect(x + 1, y + 1, Math.max(1, wide - 3), kRow - 3);
        }
        if (wide < 26) continue;
        g.save();
        g.beginPath();
        g.rect(x, y, wide - 2, kRow);
        g.clip();
        g.fillStyle = colour('fg');
        g.fillText(`${title(box.node)}${box.node === start ? '' : ` ${percent(box.node[weight] / Math.max(1, wholeOf(start)))}`}`, x + 4, y + kRow / 2);
        g.restore();
      }
    },
    at: (x, y) => tell(boxes.find((box) => box.row === Math.floor(y / kRow) && x >= box.x * width && x < (box.x + box.w) * width)),
    pressed: (x, y) => {
      const box = boxes.find((each) => each.row === Math.floor(y / kRow) && x >= each.x * width && x < (each.x + each.w) * width);
      if (box) go(box.node === top && top !== start ? start : box.node);
    },
    keys: (pressed) => {
      const at = boxOf(cursor) ? cursor : top, box = boxOf(at);
      const beside = boxes.filter((each) => each.row === box.row), i = beside.indexOf(box);
      const next = { ArrowDown: () => childrenOf(at)[0], ArrowUp: () => boxes.find((each) => each.row === box.row - 1 && each.x <= box.x + 1e-9 && each.x + each.w >= box.x + box.w - 1e-9)?.node,
        ArrowLeft: () => beside[i - 1]?.node, ArrowRight: () => beside[i + 1]?.node }[pressed];
      if (next) {
        cursor = next() ?? at;
        if (!boxOf(cursor)) cursor = at;
        plot.redraw();
        return tell(boxOf(cursor));
      }
      if (pressed === 'Enter') {
        cursor = at;
        go(at);
        return tell(boxOf(at));
      }
      if (pressed === '0') {
        go(start);
        return true;
      }
      return false;
    },
  });
  plot.canvas.dataset.plot = `flame-${tree.rank}`;
  plot.canvas.addEventListener('blur', () => { cursor = null; plot.redraw(); });
  return { plot, show: (what) => { weight = what; go(start); } };
}

function columnsOf(nodes, all, otherRank) {
  return [
    { key: 'function', title: 'function', value: (i) => nodes[i].name, text: (i) => nodes[i].name },
    { key: 'file', title: 'file', value: (i) => nodes[i].file, text: (i) => nodes[i].file || '-' },
    { key: 'line', title: 'line', numeric: true, value: (i) => (nodes[i].line > 0 ? nodes[i].line : null), text: (i) => (nodes[i].line > 0 ? String(nodes[i].line) : '-') },
    { key: 'caller', title: 'called by', value: (i) => (nodes[i].parent.root ? null : nodes[i].parent.name), text: (i) => (nodes[i].parent.root ? '-' : nodes[i].parent.name) },
    { key: 'samples', title: 'samples', numeric: true, value: (i) => nodes[i].samples, text: (i) => count(nodes[i].samples) },
    { key: 'share', title: 'share', numeric: true, value: (i) => nodes[i].samples / all, text: (i) => percent(nodes[i].samples / all) },
    { key: 'late_samples', title: 'while others waited', numeric: true, value: (i) => nodes[i].late, text: (i) => count(nodes[i].late) },
    ...(otherRank === null ? [] : [{ key: 'other_share', title: `on rank ${otherRank}`, numeric: true, value: (i) => nodes[i].other, text: (i) => percent(nodes[i].other) }]),
  ];
}

function pair({ rank, healthy, trees }) {
  const made = trees.map(treeOf);
  if (made.length === 2) {
    compare(made[0], made[1]);
    compare(made[1], made[0]);
  }
  let choice = null;
  const half = (one, i) => {
    const { tree } = one, other = made[1 - i]?.tree ?? null;
    // In words: where the rank is most, of the program's own functions.
    const own = one.nodes.filter((node) => !node.library && !node.inside && node.children.every((child) => child.samples < 0.6 * node.samples))
      .sort((a, b) => b.samples - a.samples).slice(0, 3).map((node) => `${place(node)} ${percent(node.samples / tree.samples)}`);
    const { plot, show } = flame(one, other, `Flame graph of rank ${tree.rank}, ${plural(tree.samples, 'sample')}: ${own.join('; ') || 'no function of the program'}. Arrows move between functions, Enter enlarges one, 0 shows all.`);
    if (i === 0 && tree.late > 0 && tree.late < tree.samples) {
      choice = select(`Rank ${rank}`, [['samples', 'all samples'], ['late', 'those taken while others waited']], show)[0];
    }
    return h('div', { class: 'flame' },
      h('p', { class: 'sub' }, i === 0 ? `Rank ${tree.rank}, which others wait for: ` : `Rank ${tree.rank}, for comparison: `, plural(tree.samples, 'sample'),
        tree.inside ? `, ${percent(tree.inside / tree.samples)} inside communication` : '', i === 0 && tree.late ? `, ${count(tree.late)} while others waited` : ''),
      plot.box,
      tree.left_out ? h('p', { class: 'note' }, `${plural(tree.left_out, 'function')} with few samples left out: analyze --table stacks and export --format speedscope have all.`) : null,
      behind(`flame-rank-${tree.rank}`, columnsOf(one.nodes, tree.samples, other?.rank ?? null), one.nodes.length, { sortBy: 'samples' }));
  };
  const halves = made.map(half);
  return [h('h3', {}, `What rank ${rank} does`, healthy === null ? '' : ` beside rank ${healthy}`),
    h('p', { class: 'note' }, 'Each box is a function below its caller, as wide as its share of the samples of the stack.',
      healthy === null ? '' : ' Red is what takes more of the rank\'s time than of the other\'s, by more than chance explains.'),
    h('div', { class: 'controls' }, choice), h('div', { class: 'two' }, halves)];
}

export const flames = (data) => data.flames.map(pair);
