import assert from "node:assert/strict";
import { test } from "node:test";
import { loaded } from "./loaded.mjs";

const { swap } = loaded(["page.js", "attention.js", "sentence_view.js", "swap_view.js"], ["swap"]);
const of = {
  grids: [
    { stack: "decoder", kind: "self", columns: ["0", "1"], rows: [{ layer: 0, effects: [0.1, null], metrics: [1, null] }, { layer: 1, effects: [-0.6, 0.4], metrics: [-2, 3] }] },
    { stack: "encoder", kind: "", columns: ["feed-forward"], rows: [{ layer: 0, effects: [0.2], metrics: [4] }] },
  ],
};

test("a square has an address, there and back", () => {
  assert.equal(swap.addressOf(of.grids[0], 1, "1"), "decoder.self.1.1");
  const { layer, column, effect, metric } = swap.cellAt(of, "decoder.self.1.1");
  assert.deepEqual([layer, column, effect, metric], [1, "1", 0.4, 3]);
  assert.equal(swap.cellAt(of, "encoder.0.feed-forward").effect, 0.2);
  assert.equal(swap.cellAt(of, "decoder.self.7.1"), null);
});

test("the strongest part is the one that moves the prediction most, in either direction", () => {
  assert.equal(swap.strongest(of), "decoder.self.1.0");
  assert.equal(swap.strongest({ grids: [] }), "");
});
