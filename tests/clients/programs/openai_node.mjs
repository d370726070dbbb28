// One task of OpenAI's library: `node openai_node.mjs TASK`; prints the outcome as JSON.
import { client } from "./openai-client.mjs";

const cities = [];
const weather = {
  type: "function",
  function: {
    name: "weather",
    description: "Look up the weather of a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
      additionalProperties: false,
    },
    parse: JSON.parse,
    function: ({ city }) => {
      cities.push(city);
      return `${city}: clear`;
    },
  },
};
const runner = client.chat.completions.runTools({
  model: process.env.GATEWAY_MODEL,
  messages: [{ role: "user", content: "How is the weather in Berlin?" }],
  tools: [weather],
  stream: process.argv[2] === "stream",
});
let streamed = "";
if (process.argv[2] === "stream") runner.on("content", (delta) => (streamed += delta));
const text = await runner.finalContent();
console.log(JSON.stringify({ text, streamed, messages: runner.messages.length, run: cities }));
