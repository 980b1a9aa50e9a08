// Vercel's AI SDK against a server: one line per check, run with Node by test_clients.py.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, baseURL, model] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/`));
const { generateText, streamText, generateObject, tool, stepCountIs, hasToolCall } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { z } = require("zod");

const provider = createOpenAICompatible({
  name: "octavo",
  baseURL,
  apiKey: "any",
  supportsStructuredOutputs: true,
  includeUsage: true,
});
const executed = [];
const add = tool({
  description: "Adds two numbers.",
  inputSchema: z.object({ a: z.number().int().min(0).max(9), b: z.number().int().min(0).max(9) }),
  execute: async ({ a, b }) => {
    executed.push([a, b]);
    return a + b;
  },
});
const color = tool({
  description: "Sets a color.",
  inputSchema: z.object({ name: z.enum(["red", "green"]) }),
  execute: async ({ name }) => {
    executed.push([name]);
    return "done";
  },
});
const ask = {
  model: provider(model),
  prompt: "What is 2 + 3?",
  maxOutputTokens: 60,
  temperature: 0,
  maxRetries: 0,
};
const callAdd = { tools: { add, color }, toolChoice: { type: "tool", toolName: "add" } };

function same(a, b) {
  if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(`${JSON.stringify(a)} is not ${JSON.stringify(b)}`);
}

const checks = {
  async text() {
    const whole = await generateText(ask);
    const streamed = streamText(ask);
    same([await streamed.text, await streamed.finishReason], [whole.text, whole.finishReason]);
    same((await streamed.usage).outputTokens, whole.usage.outputTokens);
  },
  async named_call() {
    const whole = await generateText({ ...ask, ...callAdd, stopWhen: hasToolCall("add") });
    same([whole.finishReason, whole.toolCalls.length, whole.toolCalls[0].toolName], ["tool-calls", 1, "add"]);
    const { a, b } = whole.toolCalls[0].input;
    same(executed.at(-1), [a, b]);
    same(whole.toolResults[0].output, a + b);
  },
  async streamed_call() {
    const kinds = [];
    let argumentText = "";
    const stream = streamText({ ...ask, ...callAdd, stopWhen: hasToolCall("add") });
    for await (const part of stream.fullStream) {
      if (part.type === "error") throw part.error;
      if (part.type === "tool-input-delta") argumentText += part.delta;
      if (part.type.startsWith("tool-") && kinds.at(-1) !== part.type) kinds.push(part.type);
    }
    same(kinds, ["tool-input-start", "tool-input-delta", "tool-input-end", "tool-call", "tool-result"]);
    const [call] = await stream.toolCalls;
    same(JSON.parse(argumentText), call.input);
    same(await stream.finishReason, "tool-calls");
  },
  async loop_over_two_tools() {
    const order = ["add", "color"];
    const result = await generateText({
      ...ask,
      tools: { add, color },
      providerOptions: { octavo: { parallel_tool_calls: false } },
      stopWhen: stepCountIs(3),
      prepareStep: ({ stepNumber }) =>
        stepNumber < 2
          ? { toolChoice: stepNumber ? { type: "tool", toolName: order[stepNumber] } : "required", activeTools: [order[stepNumber]] }
          : { toolChoice: "none" },
    });
    same(result.steps.length, 3);
    same(result.steps.slice(0, 2).map((s) => s.toolCalls.at(-1).toolName), order);
  },
  async object() {
    const schema = z.object({ kind: z.enum(["cat", "dog"]), age: z.number().int().min(0).max(20) });
    const { object } = await generateObject({ ...ask, schema });
    schema.parse(object);
  },
};

for (const [name, check] of Object.entries(checks)) {
  let problem = null;
  try {
    await check();
  } catch (e) {
    problem = String(e.stack ?? e).slice(0, 600);
  }
  console.log("CHECK " + JSON.stringify([name, "ai-sdk", problem]));
}
