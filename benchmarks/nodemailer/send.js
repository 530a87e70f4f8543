// Hand emails over to a relay as nodemailer does it: pooled connections, each email signed by DKIM.
//
// argv: port, connections, file with one {to, subject, text, html} a line, private key, how many emails.
// It says "ready" once all is loaded, waits for a line, and then tells what it took.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import nodemailer from "nodemailer";

const [port, connections, file, key, count] = process.argv.slice(2);
const mails = readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const transport = nodemailer.createTransport({
  host: "127.0.0.1",
  port: Number(port),
  ignoreTLS: true,
  pool: true,
  maxConnections: Number(connections),
  maxMessages: Infinity,
  dkim: { domainName: "paperboy.example", keySelector: "bench", privateKey: readFileSync(key, "utf8") },
});

function letter(number) {
  const { to, subject, text, html } = mails[number % mails.length];
  return {
    from: "Paperboy <digest@paperboy.example>",
    to,
    subject,
    text,
    html,
    envelope: { from: `bounce+${number}@paperboy.example`, to },
    headers: { "List-Unsubscribe-Post": "List-Unsubscribe=One-Click" },
    list: { unsubscribe: { url: `https://paperboy.example/unsubscribe/${number}` } },
  };
}

console.log("ready");
await new Promise((go) => createInterface({ input: process.stdin }).once("line", go));
const before = process.cpuUsage();
const numbers = Array.from({ length: Number(count) }, (_, number) => number);
const answers = await Promise.all(numbers.map((number) => transport.sendMail(letter(number))));
const { user, system } = process.cpuUsage(before);
const sent = answers.filter((answer) => answer.accepted.length === 1).length;
transport.close();
console.log(JSON.stringify({ sent, cpu: (user + system) / 1e6 }));
process.exit();
