// A chat of LibreChat's own library, which sends its requests: an answer with a tool, then a title.
// Run as `node librechat.mjs`; reads librechat.yaml, and prints the outcome as JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { parse } from "yaml";

const require = createRequire(import.meta.url); // its build for `import` names a missing export
const { GraphEvents, Providers, Run, TitleMethod, ToolEndHandler, ModelEndHandler } = require("@librechat/agents");
const { createContentAggregator } = require("@librechat/agents");
const { HumanMessage } = require("@langchain/core/messages");
const { tool } = require("@langchain/core/tools");

const [endpoint] = parse(readFileSync("librechat.yaml", "utf8")).endpoints.custom;
const client = {
  model: endpoint.models.default[0],
  apiKey: endpoint.apiKey,
  user: "65f0c0ffee",
  streaming: true,
  streamUsage: true,
  configuration: { baseURL: endpoint.baseURL },
};
const cities = [];
const weather = tool(
  ({ city }) => {
    cities.push(city);
    return `${city}: clear`;
  },
  {
    name: "weather",
    description: "Look up the weather of a city.",
    schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
);
const usage = [];
const { contentParts, aggregateContent } = createContentAggregator();
const collect = { handle: (event, data) => aggregateContent({ event, data }) };
const run = await Run.create({
  runId: "run-1",
  graphConfig: {
    type: "standard",
    llmConfig: { provider: Providers.OPENAI, ...client },
    instructions: "Be brief.",
    tools: [weather],
  },
  returnContent: true,
  customHandlers: {
    [GraphEvents.TOOL_END]: new ToolEndHandler(),
    [GraphEvents.CHAT_MODEL_END]: new ModelEndHandler(usage),
    [GraphEvents.ON_RUN_STEP]: collect,
    [GraphEvents.ON_RUN_STEP_DELTA]: collect,
    [GraphEvents.ON_RUN_STEP_COMPLETED]: collect,
    [GraphEvents.ON_MESSAGE_DELTA]: collect,
  },
});
const inputText = "How is the weather in Berlin?";
await run.processStream(
  { messages: [new HumanMessage(inputText)] },
  { configurable: { thread_id: "thread-1" }, streamMode: "values", version: "v2" },
);
const parts = contentParts.filter(Boolean);
const title = async (titleMethod) =>
  (
    await run.generateTitle({
      provider: Providers.OPENAI,
      inputText,
      contentParts: parts,
      titleMethod,
      clientOptions: { ...client, streaming: false },
    })
  ).title;
console.log(
  JSON.stringify({
    text: parts.map((part) => part.text ?? "").join(""),
    called: parts.filter((part) => part.type === "tool_call").map((part) => part.tool_call.output),
    run: cities,
    tokens: usage.map((each) => each.output_tokens),
    titles: [await title(TitleMethod.COMPLETION), await title(TitleMethod.STRUCTURED)],
  }),
);
