// The engine as modules of a page, with a module as its worker. The classic script cutaway.js has only api.js.

import {useWorkers} from "./worker.js";

useWorkers(() => new Worker(new URL("./worker_module.js", import.meta.url), {type: "module"}));

export * from "./api.js";
