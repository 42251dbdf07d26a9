// What the users of npm's clients do first; prints what came of it as one object of JSON.
// Usage: node clients.mjs URL TOOLS_URL QUESTION MAX_TOKENS
import OpenAI from "openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, streamText, tool } from "ai";
import { z } from "zod";

const [url, toolsUrl, prompt, maxTokens] = process.argv.slice(2);
const told = {};

const official = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: prompt }];
const chat = { model: "goodspeed", messages, max_tokens: Number(maxTokens), seed: 7 };
told.openai = (await official.chat.completions.create(chat)).choices[0].message.content;
told.openaiStream = "";
const usage = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await official.chat.completions.create({ ...chat, ...usage })) {
  told.openaiStream += chunk.choices[0]?.delta.content ?? "";
  told.openaiUsage = chunk.usage?.completion_tokens;
}
told.openaiHelper = (await official.chat.completions.stream(chat).finalChatCompletion()).choices[0].message.content;

const served = (baseURL) =>
  createOpenAICompatible({ name: "goodspeed", baseURL, includeUsage: true, supportsStructuredOutputs: true })("goodspeed");
const plain = { model: served(url), prompt, seed: 7, maxRetries: 0 };
told.ai = (await generateText({ ...plain, maxOutputTokens: Number(maxTokens) })).text;
const streamed = streamText({ ...plain, maxOutputTokens: Number(maxTokens) });
told.aiStream = "";
for await (const text of streamed.textStream) told.aiStream += text;
told.aiUsage = (await streamed.usage).outputTokens;

const City = z.object({ name: z.enum(["Rome", "Oslo"]), number: z.number().int().min(0).max(9) });
const output = Output.object({ schema: City });
told.object = (await generateText({ ...plain, output })).output;
told.objectStream = await streamText({ ...plain, output }).output;

// A target that writes at random would think, and call, without end.
const providerOptions = { goodspeed: { reasoningEffort: "none", parallel_tool_calls: false } };
const weather = tool({ inputSchema: City, execute: ({ name, number }) => `${number} degrees in ${name}` });
told.calls = [];
for (const toolChoice of ["required", { type: "tool", toolName: "weather" }]) {
  const asked = { ...plain, model: served(toolsUrl), tools: { weather }, toolChoice, providerOptions };
  for (const answer of [await generateText(asked), streamText(asked)]) {
    const [call] = await answer.toolCalls;
    const [result] = await answer.toolResults;
    told.calls.push({ id: call.toolCallId, input: call.input, result: result.output, why: await answer.finishReason });
  }
}
console.log(JSON.stringify(told));
