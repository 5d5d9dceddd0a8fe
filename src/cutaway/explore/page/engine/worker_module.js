// The worker of a page that imports index.js.

import {answerCalls} from "./worker.js";

answerCalls();
