// The worker of a page that comes from a server.

import {answerExplorerCalls} from "./index.js";

answerExplorerCalls();
