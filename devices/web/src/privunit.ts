/**
 * Number of draws of PrivUnit, as Python's `privunit_calibration` computes them.
 *
 * The score of a random direction u and a unit vector v is |<u, v>| = sin(angle); the angle's density is proportional to
 * cos(angle)^(d - 2). Integrals are Gauss-Legendre sums. Only accuracy depends on these floats, never the guarantee.
 */

const NODES = 16;
const REACH = 15;
const WORK = 2 ** 17;

interface Angles {
  angles: number[];
  weights: number[];
  above: number[];
}

/** Values of the Legendre polynomials of degrees 0 to 16 at x. */
function legendre(x: number): number[] {
  const values = [1, x];
  for (let n = 1; n < NODES; n++) values.push(((2 * n + 1) * x * values[n]! - n * values[n - 1]!) / (n + 1));
  return values;
}

function gauss(): [number[], number[]] {
  const nodes: number[] = [];
  const weights: number[] = [];
  for (let i = 0; i < NODES; i++) {
    let x = -Math.cos((Math.PI * (i + 0.75)) / (NODES + 0.5));
    let slope = 0;
    for (let step = 0; step < 8; step++) {
      const values = legendre(x);
      slope = (NODES * (x * values[NODES]! - values[NODES - 1]!)) / (x * x - 1);
      x -= values[NODES]! / slope;
    }
    nodes.push(x);
    weights.push(2 / ((1 - x * x) * slope * slope));
  }
  return [nodes, weights];
}

const made = new Map<number, Angles>();

function anglesOf(dimension: number): Angles {
  const known = made.get(dimension);
  if (known) return known;
  const [x, w] = gauss();
  const values = x.map(legendre);
  // Integrals, from -1 to each node, of the polynomials that are 1 at one node and 0 at the others.
  const partial = values.map((at, i) =>
    values.map((own, k) => {
      let sum = 0;
      for (let n = 0; n < NODES; n++) {
        const rising = n === 0 ? x[i]! + 1 : (at[n + 1]! - at[n - 1]!) / (2 * n + 1);
        sum += rising * own[n]! * (n + 0.5) * w[k]!;
      }
      return sum;
    }),
  );
  const end = Math.min(Math.PI / 2, REACH / Math.sqrt(Math.max(dimension - 2, 1)));
  const edges = new Set<number>();
  for (let i = 0; i < 48; i++) edges.add((end * i) / 47);
  for (let i = 6; i < 36; i++) edges.add(end * (1 - 0.5 ** i));
  const sorted = [...edges].sort((a, b) => a - b);
  const angles: number[] = [];
  const masses: number[] = [];
  const panels: number[] = [];
  const later: number[] = [];
  for (let panel = 0; panel + 1 < sorted.length; panel++) {
    const half = (sorted[panel + 1]! - sorted[panel]!) / 2;
    const density = x.map((node) => {
      const angle = sorted[panel]! + half * (1 + node);
      angles.push(angle);
      return Math.exp((dimension - 2) * Math.log(Math.cos(angle)));
    });
    let total = 0;
    density.forEach((value, k) => {
      masses.push(half * value * w[k]!);
      total += half * value * w[k]!;
    });
    panels.push(total);
    for (let i = 0; i < NODES; i++) {
      let before = 0;
      for (let k = 0; k < NODES; k++) before += half * density[k]! * partial[i]![k]!;
      later.push(total - before);
    }
  }
  const after = new Array<number>(panels.length + 1).fill(0);
  for (let panel = panels.length - 1; panel >= 0; panel--) after[panel] = after[panel + 1]! + panels[panel]!;
  const result = {
    angles,
    weights: masses.map((value) => value / after[0]!),
    above: later.map((value, i) => (after[Math.floor(i / NODES) + 1]! + value) / after[0]!),
  };
  made.set(dimension, result);
  return result;
}

const logs = [0];

function logFactorial(n: number): number {
  while (logs.length <= n) logs.push(logs[logs.length - 1]! + Math.log(logs.length));
  return logs[n]!;
}

/** Mean and mean square of the scores of the `closest` of `draws` random directions. */
function moments(dimension: number, draws: number, closest: number): [number, number] {
  if (dimension === 1) return [1, 1];
  const { angles, weights, above } = anglesOf(dimension);
  let mean = 0;
  let square = 0;
  angles.forEach((angle, at) => {
    let among = 1;
    if (closest < draws) {
      const logAbove = Math.log(Math.max(above[at]!, 1e-300));
      const logBelow = Math.log1p(-Math.min(above[at]!, 1 - 1e-16));
      among = 0;
      for (let i = 0; i < closest; i++) {
        const choices = logFactorial(draws - 1) - logFactorial(i) - logFactorial(draws - i - 1);
        among += Math.exp(choices + i * logAbove + (draws - 1 - i) * logBelow);
      }
      among = Math.min(among, 1);
    }
    const chosen = weights[at]! * among * (draws / closest);
    mean += chosen * Math.sin(angle);
    square += chosen * Math.sin(angle) ** 2;
  });
  return [mean, square];
}

/** The chosen candidate's mean component along the vector, and the mean square of the scores of the closest ones. */
export function gain(dimension: number, draws: number, closest: number, share: number): [number, number] {
  const [mean, square] = moments(dimension, draws, closest);
  return [mean * (share - ((1 - share) * closest) / (2 * draws - closest)), square];
}

/** The cap's probability and the mean m of PrivUnit on the sphere itself. */
function limit(dimension: number, given: number): [number, number] {
  const epsilon = Math.min(given, 44);
  if (dimension === 1) return [0.5, Math.tanh(epsilon / 2)];
  const { angles, weights, above } = anglesOf(dimension);
  let mean = 0;
  angles.forEach((angle, at) => (mean += weights[at]! * Math.sin(angle)));
  let best = -1;
  let share = 0;
  for (let at = -1; at < angles.length; at++) {
    const q = at < 0 ? 0.5 : above[at]! / 2;
    const means = (mean / 2) * Math.exp((dimension - 1) * Math.log(Math.cos(at < 0 ? 0 : angles[at]!)));
    const m = (means * -Math.expm1(-epsilon)) / (Math.exp(-epsilon) * (1 - q) + q);
    if (m > best) [best, share] = [m, q];
  }
  return [share, best];
}

/** Round half to even, as Python does. */
function rounded(value: number): number {
  const down = Math.floor(value);
  const rest = value - down;
  return rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down;
}

function* choices(q: number, most: number): Generator<[number, number]> {
  let draws = 1;
  let closest = 1;
  for (; 2 * q * draws < 1 && draws <= most; draws *= 2) yield [draws, 1];
  for (draws = Math.max(1, rounded(1 / (2 * q))); draws <= most; draws = Math.max(closest, rounded(closest / (2 * q)))) {
    yield [draws, closest];
    closest *= 2;
  }
  yield [most, Math.max(1, Math.floor(closest / 2))];
}

/** The number of directions to draw, and the number of these that count as closest. */
export function fitted(dimension: number, epsilon: number): [number, number] {
  const gainOf = (draws: number, closest: number): number => {
    const others = (2 * draws - closest) * Math.exp(-epsilon);
    return gain(dimension, draws, closest, closest / (closest + others))[0];
  };
  const [q, best] = limit(dimension, epsilon);
  let chosen: [number, number] = [1, 1];
  let most = gainOf(1, 1);
  for (const [draws, closest] of choices(q, Math.max(1, Math.floor(WORK / dimension)))) {
    const gained = gainOf(draws, closest);
    // Python's max keeps the first of equal ones.
    if (gained > most) [chosen, most] = [[draws, closest], gained];
    if (most >= best / Math.sqrt(1.03)) break;
  }
  return chosen;
}
