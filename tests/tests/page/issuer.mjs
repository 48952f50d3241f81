// A certified OpenID provider (npm's oidc-provider) for a test: the last argument is its folder.
// It says its port, is told the hub's address by a line, and lets in whoever writes a name.
import { createServer } from "node:https";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [key, cert, folder] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(`${folder}/lib/index.js`));

let answer = (_, response) => response.writeHead(503).end();
const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (...asked) => answer(...asked));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));

createInterface({ input: process.stdin })
  .on("line", (hub) => {
    const provider = new Provider(`https://127.0.0.1:${server.address().port}`, {
      clients: [{
        client_id: "hub",
        client_secret: "a secret: with + and %",
        redirect_uris: [`https://${hub}/ui/login/done`],
      }],
      claims: { openid: ["sub"], email: ["email", "email_verified"] },
      // As most providers do: what was asked for by scopes is in the ID token.
      conformIdTokenClaims: false,
      cookies: { keys: ["of a test"] },
      findAccount: (_, id) => ({
        accountId: id,
        claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: id !== "mallory" }),
      }),
    });
    answer = provider.callback();
    console.log("ready");
  })
  .on("close", () => process.exit(0));
