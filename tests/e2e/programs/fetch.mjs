// node fetch.mjs URL: the status and the text of what is there, or the error's code.
try {
  const response = await fetch(process.argv[2]);
  console.log(`status ${response.status}`);
  console.log(await response.text());
} catch (error) {
  console.log(`failed ${error.cause?.code ?? error.message}`);
  process.exitCode = 1;
}
