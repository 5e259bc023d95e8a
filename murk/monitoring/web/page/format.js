// Formats numbers (12,345.6, with a real minus sign) and times.

export const NONE = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const hours = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const fixed = new Map();

const minus = (text) => text.replace("-", "−");
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return isNumber(value) ? minus(whole.format(value)) : NONE;
}

export function decimals(value, digits) {
  if (!isNumber(value)) return NONE;
  const places = Math.min(Math.max(digits, 0), 12);
  if (!fixed.has(places)) {
    fixed.set(places, new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places }));
  }
  const text = fixed.get(places).format(value);
  return /[1-9]/.test(text) ? minus(text) : text.replace("-", "");
}

// Decimals that show a number of significant digits: 0.0123, 1.23, 123.
export function placesFor(value, digits) {
  if (!isNumber(value) || value === 0) return digits - 1;
  return Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
}

export function significant(value, digits = 3) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return scientific(value, digits);
  return decimals(value, placesFor(value, digits));
}

function scientific(value, digits) {
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  const raised = [...String(Number(exponent))].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("");
  return `${minus(mantissa)}×10${raised}`;
}

// Decimals of an estimate, limited by its half-width.
export function estimatePlaces(value, half) {
  return isNumber(half) && half > 0 ? Math.min(placesFor(half, 2), 8) : Math.min(placesFor(value, 3), 6);
}

export function plusMinus(value, half) {
  const places = estimatePlaces(value, half);
  return isNumber(half) ? `${decimals(value, places)} ± ${decimals(half, places)}` : decimals(value, places);
}

export function rate(value) {
  if (!isNumber(value)) return NONE;
  if (value > 0 && value < 0.1) return significant(value, 1);
  return value >= 100 || value === 0 ? count(value) : decimals(value, 1);
}

export function share(part, whole) {
  if (!(whole > 0)) return NONE;
  const percent = (100 * part) / whole;
  if (part > 0 && percent < 0.1) return "< 0.1%";
  return part < whole && percent > 99.9 ? "> 99.9%" : `${decimals(percent, 1)}%`;
}

// For the ticks of an axis: 1, 200, 5k, 1M.
export function tick(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return minus(`${Number((value / unit).toPrecision(4))}${letter}`);
  }
  if (size > 0 && size < 1e-4) return scientific(value, 1);
  return minus(String(Number(value.toPrecision(6))));
}

export const timeOf = (seconds) => (isNumber(seconds) ? clock.format(seconds * 1000) : NONE);

export function timeTick(seconds, step) {
  const date = seconds * 1000;
  if (step >= 86400) return day.format(date);
  return (step >= 60 ? hours : clock).format(date);
}

export const dayOf = (seconds) => (isNumber(seconds) ? `${day.format(seconds * 1000)}, ${timeOf(seconds)}` : NONE);
