// What the server counts of each model, and what happened between two looks.

import { json } from "./api.js";

const MS = 1e-6; // of nanoseconds

export async function statistics(given) {
  const { model_stats: all } = await json("/v2/models/stats", { patient: false, ...given });
  return new Map(all.map((one) => [`${one.name}/${one.version}`, counted(one)]));
}

function counted({ name, version, inference_stats: of, batch_stats: sizes, ...counts }) {
  const { inference_count: rows, execution_count: runs } = counts;
  const compute = of.compute_input.ns + of.compute_infer.ns + of.compute_output.ns;
  const batches = new Map((sizes ?? []).map((one) => [one.batch_size, one.compute_infer.count]));
  const requests = of.success.count;
  return {
    name, version, rows, runs, batches, requests, failures: of.fail.count,
    tookMs: of.success.ns * MS, queueMs: of.queue.ns * MS, computeMs: compute * MS,
  };
}

/** The differences, in the order of their models; `requests` are those that were answered. */
export function since(before, after) {
  const zero = { rows: 0, runs: 0, requests: 0, failures: 0, tookMs: 0, queueMs: 0, computeMs: 0 };
  return [...after].map(([key, now]) => {
    // a model that was loaded anew counts from 0
    const then = (before.get(key)?.runs ?? 0) <= now.runs ? before.get(key) ?? zero : zero;
    const grown = Object.fromEntries(Object.keys(zero).map((name) => [name, Math.max(0, now[name] - then[name])]));
    return { ...now, ...grown };
  });
}
