// A small Medusa engine for Node.js, without dependencies: trees, proposals and selections.
//
//   medusa-oracles check -- node conformance/examples/tree_engine.mjs
//
// It speaks the line protocol of spec/line-protocol.md: a JSON request a line on standard input, a
// JSON reply a line on standard output. Rules are named as in spec/tree.md, proposal.md and
// posterior.md. What it has no stage for, such as a model, is not exercised.

import { createInterface } from "node:readline";

class Refused extends Error {}
class Unsupported extends Error {}

// Arrays: {dtype, shape, data}, the data flat and row by row.

const array = (dtype, shape, data) => ({ dtype, shape, data });
const vector = (data) => array("int64", [data.length], data);

// NaN and the infinities come as strings of that name.
const numbers = ({ data }) => data.map(Number);

// A matrix as a list of rows; an array of more dimensions as a list of its last ones.
function rowsOf(value) {
  const flat = numbers(value);
  const width = value.shape.at(-1);
  const count = value.shape.slice(0, -1).reduce((product, size) => product * size, 1);
  return Array.from({ length: count }, (_, row) => flat.slice(row * width, (row + 1) * width));
}

const argmax = (values) => values.reduce((best, v, i) => (v > values[best] ? i : best), 0);

// Tree (T1 to T7, T10).

function compareNumbers(a, b) {
  const differs = a.findIndex((rank, depth) => rank !== b[depth]);
  return differs < 0 ? 0 : a[differs] - b[differs];
}

const isPrefix = (head, path) => head.every((rank, depth) => rank === path[depth]);

function compile_tree({ paths, topk, retrieval_order, sentinel }) {
  const sorted = [...paths].sort((a, b) => a.length - b.length || compareNumbers(a, b));
  const rows = [[], ...sorted]; // T1
  const rowAt = new Map(rows.map((path, row) => [path.join(), row]));
  const slot = (path) => (path.length ? 1 + (path.length - 1) * topk + path.at(-1) : 0); // T2
  const parents = new Set(sorted.map((path) => path.slice(0, -1).join()));
  const leaves = rows.filter((path) => !parents.has(path.join())); // T5
  if (retrieval_order === "pinned") leaves.reverse();
  const width = rows.at(-1).length + 1;
  const retrieval = leaves.map((leaf) =>
    Array.from({ length: width }, (_, depth) =>
      depth <= leaf.length ? rowAt.get(leaf.slice(0, depth).join()) : sentinel, // T6, T7
    ),
  );
  return {
    paths: rows,
    slots: vector(rows.map(slot)),
    mask: array(
      "bool",
      [rows.length, rows.length],
      rows.flatMap((row) => rows.map((key) => isPrefix(key, row))), // T3
    ),
    depths: vector(rows.map((path) => path.length)), // T4
    retrieval: array("int64", [leaves.length, width], retrieval.flat()),
  };
}

function node_count({ branching }) {
  let [width, total] = [1, 0];
  for (const children of branching) {
    width *= children;
    total += width;
  }
  return total; // T10
}

// Proposal (Q1 to Q4).

function ranked(logits, topk) {
  const ids = logits.map((_, id) => id);
  return ids.sort((a, b) => logits[b] - logits[a] || a - b).slice(0, topk);
}

function propose({ tree, frontier, topk, sentinel }) {
  const root = argmax(numbers(frontier.target)); // Q1
  const table = [root, ...rowsOf(frontier.heads).flatMap((logits) => ranked(logits, topk))]; // Q2
  const packed = numbers(tree.slots).map((slot) => table[slot]); // Q3
  const tokens = numbers(tree.retrieval).map((row) => (row < 0 ? sentinel : packed[row])); // Q4
  return {
    table: vector(table),
    packed: vector(packed),
    candidates: array("int64", tree.retrieval.shape, tokens),
  };
}

// Posterior (P2 to P13). An edge is a token and the logits of the entry before it.

function greedyEdge(token, logits) {
  return { passes: token === argmax(logits) }; // P2
}

function typicalEdge(token, logits, policy) {
  const tempered = logits.map((logit) => logit / policy.temperature); // P9
  const greatest = tempered[argmax(tempered)];
  const weights = tempered.map((logit) => Math.exp(logit - greatest));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  const law = weights.map((weight) => weight / sum);
  const entropy = -law.reduce(
    (total, p) => (p > 0 ? total + p * Math.log(p + policy.entropy_guard) : total), // P8
    0,
  );
  const threshold = Math.min(policy.epsilon, policy.alpha * Math.exp(-entropy)); // P6
  const probability = law[token];
  return { passes: probability > threshold, probability, entropy, threshold }; // P7
}

const NO_EDGE = { passes: false, probability: 0, entropy: 0, threshold: 0 }; // P11

function select({ candidates, path_logits, policy }) {
  const judge = { greedy: greedyEdge, "fast-typical": typicalEdge }[policy.mode];
  if (!judge) throw new Unsupported(`no policy ${policy.mode}`);
  const tokens = rowsOf(candidates);
  const [paths, width] = candidates.shape;
  const logits = rowsOf(path_logits);
  const entry = (path, place) => logits[path * width + place];
  tokens.forEach((row, path) =>
    row.forEach((token, place) => {
      if (token >= 0 && !entry(path, place).every(Number.isFinite)) {
        throw new Refused(`logits of path ${path}, entry ${place} are not finite`); // P12
      }
    }),
  );
  const edges = tokens.map((row, path) =>
    row.slice(1).map((token, place) =>
      token < 0 ? NO_EDGE : judge(token, entry(path, place), policy),
    ),
  );
  const lengths = edges.map((row) => {
    const failure = row.findIndex((edge) => !edge.passes);
    return failure < 0 ? row.length : failure; // P3
  });
  const accepted = Math.max(...lengths); // P13
  const shape = [paths, width - 1];
  const perEdge = (dtype, name) => array(dtype, shape, edges.flat().map((edge) => edge[name]));
  const chosen = { accepted, passes: perEdge("bool", "passes"), lengths: vector(lengths) };
  if (policy.mode === "greedy") return { path: lengths.indexOf(accepted), ...chosen }; // P4, P5
  const likelihoods = edges.map((row, path) =>
    lengths[path] < accepted
      ? -Infinity
      : row.slice(0, accepted).reduce((sum, edge) => sum + Math.log(edge.probability), 0),
  );
  return {
    path: argmax(likelihoods), // P10, and P5: where nothing is accepted all sums are empty
    ...chosen,
    probability: perEdge("float64", "probability"),
    entropy: perEdge("float64", "entropy"),
    threshold: perEdge("float64", "threshold"),
  };
}

// The line protocol. These stages are functions of their arguments, so a session holds nothing.

const stages = { compile_tree, node_count, propose, select };

const commands = {
  capabilities: () => ({
    protocol: 1,
    name: "tree_engine",
    version: "1.0",
    language: "JavaScript",
    stages: Object.keys(stages),
    dialect: {},
    arrays: "list",
  }),
  start: () => ({}),
  stage: (request) => stages[request.stage](request.arguments),
  stop: () => ({}),
};

function reply(request) {
  const { id } = request;
  try {
    return { id, answer: commands[request.command](request) };
  } catch (error) {
    if (error instanceof Refused) return { id, refused: error.message };
    if (error instanceof Unsupported) return { id, unsupported: error.message };
    return { id, error: `${error.name}: ${error.message}` };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  process.stdout.write(JSON.stringify(reply(request)) + "\n");
  if (request.command === "stop" && request.session === undefined) process.exit();
}
