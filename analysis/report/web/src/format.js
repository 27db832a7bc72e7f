// Numbers as people read them: as analysis/core/format.cc writes them, which tests compare.

function threeDigits(value) {
  const size = Math.abs(value);
  let text = value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  if (text.includes('.')) text = text.replace(/\.?0+$/, '');
  return text === '-0' ? '0' : text;
}

const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export function duration(ns) {
  if (!known(ns)) return 'unknown';
  const size = Math.abs(ns);
  if (ns === 0) return '0';
  if (size < 999.5) return `${Math.round(ns)} ns`;
  if (size < 999.5e3) return threeDigits(ns / 1e3) + ' us';
  if (size < 9999.5e6) return threeDigits(ns / 1e6) + ' ms';
  if (size < 600e9) return threeDigits(ns / 1e9) + ' s';
  return threeDigits(ns / 60e9) + ' min';
}

// A mark of an axis whose marks are `step` apart: with as many digits as tell it from the next one.
export function mark(ns, step) {
  const size = Math.abs(ns);
  if (Math.round(ns) === 0) return '0';
  const [unit, name] = size < 999.5 ? [1, 'ns'] : size < 999.5e3 ? [1e3, 'us'] : size < 9999.5e6 ? [1e6, 'ms'] : size < 600e9 ? [1e9, 's'] : [60e9, 'min'];
  const digits = unit === 1 || Math.round(step) % unit === 0 ? 0 : Math.max(1, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return `${(ns / unit).toFixed(digits)} ${name}`;
}

export function percent(fraction) {
  if (!known(fraction)) return 'unknown';
  const value = 100 * fraction, size = Math.abs(value);
  if (value === 0) return '0 %';
  if (size < 0.1) return '< 0.1 %';
  return size < 9.95 ? value.toFixed(1) + ' %' : value.toFixed(0) + ' %';
}

// More or less than something else by this part of it, with its sign.
export function change(fraction) {
  if (!known(fraction)) return 'unknown';
  if (fraction !== 0 && 100 * Math.abs(fraction) < 0.1) return '≈ 0 %';
  return (fraction > 0 ? '+' : fraction < 0 ? '−' : '') + percent(Math.abs(fraction));
}

export const share = (part, whole) => (whole > 0 ? percent(part / whole) : '-');

export function bytes(n) {
  if (!known(n)) return 'unknown';
  if (n < 1000) return `${n} B`;
  if (n < 999.5e3) return threeDigits(n / 1e3) + ' kB';
  if (n < 999.5e6) return threeDigits(n / 1e6) + ' MB';
  if (n < 999.5e9) return threeDigits(n / 1e9) + ' GB';
  return threeDigits(n / 1e12) + ' TB';
}

export function bandwidth(bytesPerSecond) {
  if (!known(bytesPerSecond)) return 'unknown';
  if (bytesPerSecond >= 999.5e6) return threeDigits(bytesPerSecond / 1e9) + ' GB/s';
  if (bytesPerSecond >= 999.5e3) return threeDigits(bytesPerSecond / 1e6) + ' MB/s';
  return threeDigits(bytesPerSecond / 1e3) + ' kB/s';
}

export function count(n) {
  if (!known(n)) return 'unknown';
  return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
export const number = (value, digits = 4) => (known(value) ? String(Number(value.toPrecision(digits))) : 'unknown');
export const milliseconds = (ns) => (known(ns) ? (ns === 0 ? '0' : (ns / 1e6).toFixed(Math.abs(ns) >= 99.95e6 ? 0 : Math.abs(ns) >= 9.995e6 ? 1 : 2)) : '-');

// A 95 % interval in words. Of too few values, and of values that are all alike, there is none.
export function interval(low, high, show = duration) {
  if (!known(low) || !known(high) || low === high) return 'no interval';
  const [from, to] = [show(low), show(high)];
  return from === to ? `95 %: all at ${from}` : `95 %: ${from} to ${to}`;
}
