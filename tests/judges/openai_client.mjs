// openai-node against a server: one line per check, run with Node by test_clients.py.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, baseURL, model] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/`));
const OpenAI = require("openai");

const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0 });
const messages = [{ role: "user", content: "Hi" }];
const ask = { model, messages, max_tokens: 6, temperature: 0 };

function same(a, b) {
  if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(`${JSON.stringify(a)} is not ${JSON.stringify(b)}`);
}

async function fails(promise, status, code) {
  try {
    await promise;
  } catch (e) {
    same([e.status, e.code], [status, code]);
    if (e.message.includes("no body") || !e.error?.message) throw new Error(`no message: ${e.message}`);
    return;
  }
  throw new Error("it did not fail");
}

const tools = [
  {
    type: "function",
    function: {
      name: "add",
      parameters: {
        type: "object",
        properties: { a: { type: "integer", minimum: 0, maximum: 9 }, b: { type: "integer", minimum: 0, maximum: 9 } },
        required: ["a", "b"],
      },
    },
  },
];
const call = { ...ask, tools, max_tokens: 60, tool_choice: "required", parallel_tool_calls: false };

const checks = {
  async tool_calls() {
    const [choice] = (await client.chat.completions.create(call)).choices;
    same([choice.finish_reason, choice.message.content], ["tool_calls", null]);
    const { a, b } = JSON.parse(choice.message.tool_calls[0].function.arguments);
    same([Number.isInteger(a), Number.isInteger(b)], [true, true]);
    const final = await client.chat.completions.stream(call).finalChatCompletion();
    same(final.choices[0].message.tool_calls[0].function, choice.message.tool_calls[0].function);
    same(final.choices[0].finish_reason, "tool_calls");
  },
  async tool_runner() {
    const seen = [];
    const function_ = { ...tools[0].function, parse: JSON.parse, function: ({ a, b }) => (seen.push(a + b), a + b) };
    const named = { type: "function", function: { name: "add" } };
    const runner = client.chat.completions.runTools({ ...call, tool_choice: named, tools: [{ type: "function", function: function_ }] });
    same([(await runner.finalFunctionToolCall()).name, seen.length], ["add", 1]);
  },
  async whole() {
    const answer = await client.chat.completions.create(ask);
    same([answer.choices[0].finish_reason, answer.usage.completion_tokens], ["length", 6]);
  },
  async streamed() {
    let text = "";
    const ends = [];
    const usages = [];
    const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      if (chunk.choices[0]?.finish_reason) ends.push(chunk.choices[0].finish_reason);
      if (chunk.usage) usages.push(chunk.usage.completion_tokens);
    }
    const whole = await client.chat.completions.create(ask);
    same([text, ends, usages], [whole.choices[0].message.content, ["length"], [6]]);
  },
  async stream_helper() {
    const final = await client.chat.completions.stream(ask).finalChatCompletion();
    const whole = await client.chat.completions.create(ask);
    same(final.choices[0].message.content, whole.choices[0].message.content);
  },
  async logprobs() {
    const answer = await client.chat.completions.create({ ...ask, logprobs: true, top_logprobs: 2 });
    const content = answer.choices[0].logprobs.content;
    same([content.length, content[0].top_logprobs.length, Array.isArray(content[0].bytes)], [6, 2, true]);
  },
  async completions() {
    const answer = await client.completions.create({ model, prompt: ["a", "b"], max_tokens: 3, echo: true, logprobs: 1 });
    same(answer.choices.map((c) => c.index), [0, 1]);
    same(answer.choices[0].logprobs.token_logprobs[0], null);
  },
  async models() {
    const list = [];
    for await (const card of client.models.list()) list.push(card.id);
    same(list, [model]);
    same((await client.models.retrieve(model)).id, model);
  },
  async abort() {
    const stream = await client.chat.completions.create({ ...ask, max_tokens: 200, stream: true });
    for await (const _ of stream) break;
    same(stream.controller.signal.aborted, true);
  },
  async bad_value() {
    await fails(client.chat.completions.create({ ...ask, temperature: -1 }), 400, null);
  },
  async bad_value_streamed() {
    await fails(client.chat.completions.create({ ...ask, temperature: -1, stream: true }), 400, null);
  },
  async too_long() {
    const long = [{ role: "user", content: "x y ".repeat(5000) }];
    await fails(client.chat.completions.create({ ...ask, messages: long }), 400, "context_length_exceeded");
  },
  async unknown_model() {
    await fails(client.chat.completions.create({ ...ask, model: "nobody" }), 404, "model_not_found");
  },
  async unknown_route() {
    await fails(client.post("/nowhere", { body: {} }), 404, "not_found");
  },
};

for (const [name, check] of Object.entries(checks)) {
  let problem = null;
  try {
    await check();
  } catch (e) {
    problem = String(e.stack ?? e).slice(0, 400);
  }
  console.log("CHECK " + JSON.stringify([name, "openai-node", problem]));
}
