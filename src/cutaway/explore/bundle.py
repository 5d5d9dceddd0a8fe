"""One classic script of all modules of the JavaScript engine, for pages that are opened from files.

Browsers refuse modules from file paths. So each module becomes a function that returns its exports, in the order in
which they need each other:

    import {add, map as each} from "./tensor.js";      const {add, map: each} = modules["engine/tensor.js"];
    export function softmax(x) { ... }                 function softmax(x) { ... } ... return {softmax};
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent.resolve() / "page"
ENGINE = PAGE / "engine"
IMPORT = re.compile(r'^import \{([^}]+)\}\s*from "(\.\.?/[\w/-]+\.js)";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|class|const|let) (\w+))", re.MULTILINE)
EXPORT_LIST = re.compile(r"^export \{([^}]+)\};$", re.MULTILINE)


def bundle(first: str = "engine/api.js", name: str = "Cutaway", answer: str = "answerCalls") -> str:
    """A script that sets globalThis[name] to what the module `first` of the page exports.

    In a page, it also gives its own text to the engine, which starts a worker from it. The worker calls `answer`.
    """
    functions = "\n\n".join(
        f'modules["{module}"] = (() => {{\n{as_function_body(module)}\n}})();' for module in in_order(first)
    )
    return f"""// Cutaway: the Transformer in JavaScript, as one script. The modules are named above their code.
(function start() {{
"use strict";
const modules = {{}};

{functions}

const engine = modules["{first}"];
globalThis.{name} = engine;
if (globalThis.document) engine.useScript(`(${{start}})();\n{name}.{answer}();`);
}})();
"""


def in_order(first: str) -> list[str]:
    """The modules that a module needs, each after those that it imports itself."""
    done: list[str] = []
    open_modules: list[str] = []

    def visit(module: str) -> None:
        if module in done:
            return
        assert module not in open_modules, f"modules import each other: {' -> '.join([*open_modules, module])}"
        open_modules.append(module)
        for _, needed in IMPORT.findall(read_module(module)):
            visit(resolve(needed, module))
        open_modules.remove(module)
        done.append(module)

    visit(first)
    return done


def as_function_body(module: str) -> str:
    """The code of a module with its imports and exports replaced."""
    code = read_module(module)
    names = [name for _, name in EXPORT.findall(code)]
    for listed in EXPORT_LIST.findall(code):
        for own, _, other in (part.strip().partition(" as ") for part in listed.split(",")):
            names.append(f"{other}: {own}" if other else own)
    code = IMPORT.sub(
        lambda found: f'const {{{found[1].replace(" as ", ": ")}}} = modules["{resolve(found[2], module)}"];', code
    )
    code = EXPORT_LIST.sub("", EXPORT.sub(r"\1", code))
    assert not re.search(r"^(import|export)\b", code, re.MULTILINE), f"{module} has an import or export of another form"
    return f"{code.rstrip()}\nreturn {{{', '.join(names)}}};"


def resolve(path: str, module: str) -> str:
    """The module that an import in another one names."""
    return (PAGE / module).parent.joinpath(path).resolve().relative_to(PAGE).as_posix()


def read_module(module: str) -> str:
    return (PAGE / module).read_text(encoding="utf-8")
