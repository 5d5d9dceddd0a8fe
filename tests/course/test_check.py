"""`cutaway check`: running a learner's code in a sandbox, and the feedback for misbehaving code."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cutaway.course.exercise import Case, Exercise, Property
from cutaway.course.exercises import all_exercises, get_exercise
from cutaway.course.feedback import explain_solution, feedback, file_failure_lines
from cutaway.course.grader import grade_file
from cutaway.course.sandbox import run_file
from cutaway.system.resources import shipped_folder

SOLUTIONS = shipped_folder("exercises") / "solutions"
SOLUTION = (SOLUTIONS / "exercise_01_scaled_dot_product.py").read_text(encoding="utf-8")
NAME = "exercise_01_scaled_dot_product.py"


def check_text(text, tmp_path, number=1):
    path = tmp_path / get_exercise(number).file
    path.write_text(text, encoding="utf-8")
    return grade_file(get_exercise(number), path)


def feedback_text(grade, part):
    return "\n".join(feedback(next(m for m in grade.marks if m.part.name == part)))


def with_mask(body):
    """Return the solution with another body of causal_mask."""
    return SOLUTION.replace("    return np.tril(np.ones((n, n), dtype=bool))", body)


def mark_of(grade, part):
    return next(mark for mark in grade.marks if mark.part.name == part)


def states(grade):
    """Return the states of softmax, causal_mask and attention."""
    return [mark_of(grade, part).state for part in ("softmax", "causal_mask", "attention")]


def line_number(text, line):
    return next(i for i, other in enumerate(text.splitlines(), 1) if line in other)


# --- misbehaving code -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    while True:\n        n += 1", ["It did not finish in time.", "line "]),
        ("    return 1 / (n - n)", ["It stops with ZeroDivisionError", "return 1 / (n - n)"]),
        ("    np.ones((n, n + 1)) @ np.ones((n, n))", ["It stops with ValueError: matmul"]),
        ("    mask = np.ones((n, n))\n    other = mask[n]", ["IndexError", "there:  mask [3, 3]"]),
        ("    exit()", ["SystemExit", "does not end the program"]),
        ("    import os; os._exit(0)", ["It ended the Python process"]),
        ("    return input()", ["EOFError", "no keyboard"]),
        ("    return np.zeros(10**12)", ["MemoryError", "far too large"]),
        ("    return causal_mask(n)", ["RecursionError"]),
        ("    pass", ["The mask is None; expected is an array of shape [3, 3]. Is a return missing?"]),
        ("    return lambda: 1", ["something of type function"]),
        ("    return np.ones((n, n, n), bool)", ["shape [3, 3, 3]; expected is [3, 3]"]),
        ("    return np.full((n, n), np.nan)", ["9 of 9 numbers of the mask are not finite"]),
        ("    return np.random.rand(n, n)", ["another answer the second time"]),
        ("    return 'no'", ["a str"]),
        ("    return np.array([['a']])", ["something of type ndarray of <U1, shape [1, 1]"]),
        ("    return np.ones(n) * 1j", ["complex128"]),
        ("    return [[1], [1, 1], [1, 1, 1]]", ["a list of 3 rows of different lengths"]),
        ("    raise ValueError('x' * 10**6)", ["ValueError: xxx", "xxx ..."]),
        ("    return np.eye(n) > 2", ["6 of 9 entries differ"]),
        ("    return np.zeros((1000, 1000))", ["shape [1000, 1000]"]),
    ],
)
def test_feedback_for_misbehaving_code(body, expected, tmp_path):
    result = check_text(with_mask(body), tmp_path)
    assert mark_of(result, "causal_mask").state == "wrong"
    assert mark_of(result, "causal_mask").explanations == ()
    for text in expected:
        assert text in feedback_text(result, "causal_mask"), feedback_text(result, "causal_mask")
    assert states(result) == ["right", "wrong", "not tried" if "os._exit" in body else "right"]


def test_the_line_of_an_error_is_named(tmp_path):
    text = with_mask("    return 1 / (n - n)")
    shown = feedback_text(check_text(text, tmp_path), "causal_mask")
    assert f"line {line_number(text, '1 / (n - n)')}:  return 1 / (n - n)" in shown


def test_code_that_sleeps_is_stopped(tmp_path):
    path = tmp_path / NAME
    path.write_text(with_mask("    import time; time.sleep(1000)"))
    started = time.monotonic()
    outcomes = run_file(path, get_exercise(1).parts, seconds=2)
    assert time.monotonic() - started < 30
    assert outcomes.parts["softmax"][0].failure is None
    assert outcomes.parts["causal_mask"][0].failure.kind == "slow"
    assert outcomes.parts["attention"][0].failure.kind == "skipped"


def test_an_import_that_does_not_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("cutaway.course.sandbox.IMPORT_SECONDS", 1.5)
    result = check_text("import time\ntime.sleep(1000)", tmp_path)
    assert "did not finish in time" in "\n".join(file_failure_lines(result.failure))
    assert not result.is_right


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def softmax(x:\n    pass", ["SyntaxError", "line 1", "def softmax(x:"]),
        ("import numpy as np\nimport nompy", ["ModuleNotFoundError: No module named 'nompy'", "line 2"]),
        ("x = 1 / 0", ["ZeroDivisionError"]),
        ("def f():\n\treturn 1\n        return 2", ["TabError"]),
        ("x = '\0'", ["null bytes"]),
    ],
)
def test_a_file_that_cannot_be_imported(text, expected, tmp_path):
    result = check_text(text, tmp_path)
    shown = "\n".join(file_failure_lines(result.failure))
    for part in expected:
        assert part in shown
    assert not result.is_right


def test_missing_and_misspelt_functions_and_wrong_signatures(tmp_path):
    text = SOLUTION.replace("def causal_mask(n)", "def casual_mask(n)").replace(
        "def attention(q, k, v, mask=None)", "def attention(q, k)"
    )
    result = check_text(text, tmp_path)
    assert "There is no function causal_mask in the file. There is casual_mask" in feedback_text(result, "causal_mask")
    assert "called as attention(q, k, v, mask), but yours is attention(q, k)" in feedback_text(result, "attention")


def test_printed_output_is_returned_and_limited(tmp_path):
    result = check_text(SOLUTION + "\nprint('hello')\nfor i in range(10**5): print('x' * 100)", tmp_path)
    assert result.is_right
    assert result.printed.startswith("hello\nx")
    assert len(result.printed) < 3000


def test_a_changed_argument_is_reported(tmp_path):
    text = SOLUTION.replace("x = x - x.max", "x -= x.max")
    result = check_text(text, tmp_path)
    assert states(result) == ["wrong", "right", "right"]
    assert "It changes its argument x: the caller's array has other numbers" in feedback_text(result, "softmax")
    assert "Hint" not in feedback_text(result, "softmax"), "the hints are about wrong numbers"


def test_a_property_is_reported_if_no_known_mistake_fits(tmp_path):
    part = next(part for part in get_exercise(1).parts if part.name == "softmax")
    rows_sum_to_1 = Property(
        "rows sum to 1",
        (Case("one row", (np.array([0.0, 1.0]),)),),
        lambda weights: None if abs(weights.sum() - 1) < 1e-4 else f"The weights sum to {weights.sum():.2f}, not to 1.",
    )
    exercise = Exercise(1, "softmax", "", (replace(part, properties=(rows_sum_to_1,), thought="First the powers."),))
    path = tmp_path / NAME
    path.write_text(SOLUTION.replace("return powers /", "return 0.56 * powers * (powers < 9) /"), encoding="utf-8")
    [mark] = grade_file(exercise, path).marks
    assert mark.violation == "The weights sum to 0.56, not to 1."
    assert mark.violation in feedback(mark)
    assert "Line of thought: First the powers." in feedback(mark, 2)
    path.write_text(SOLUTION.replace("return powers /", "if x.ndim == 1: 1 / 0\n    return powers /"), encoding="utf-8")
    [mark] = grade_file(exercise, path).marks  # only the property's case fails
    assert mark.state == "wrong"
    assert mark.failed_case.description == "one row"


def test_a_solution_is_explained():
    source = "a = 1\n    # mistakes: no-scale, scale-d\n    b = 2\n"
    assert explain_solution(get_exercise(1), source) == (
        "a = 1\n    # Common mistakes here:\n    #   - The scores are not divided by sqrt(d_k).\n"
        "    #   - The scores are divided by d_k; the paper divides by its square root.\n    b = 2\n"
    )
    first, second = (
        explain_solution(get_exercise(1), f"def {part}(x):\n    # mistakes: mask-inverted\n    return x\n")
        for part in ("causal_mask", "attention")
    )
    assert "The mask says the opposite" in first
    assert "The mask is used the wrong way round" in second


@pytest.mark.parametrize("number", [exercise.number for exercise in all_exercises()])
def test_the_mistakes_in_the_comments_of_a_solution_exist(number):
    exercise = get_exercise(number)
    known = {mistake.name for part in exercise.parts for mistake in part.mistakes}
    paths = list(SOLUTIONS.glob(f"exercise_{number:02d}_*.py"))
    assert len(paths) == 2
    for path in paths:
        source = path.read_text(encoding="utf-8")
        named = [name.strip() for line in re.findall(r"# mistakes: (.+)", source) for name in line.split(",")]
        assert named, path.name
        assert set(named) <= known, (path.name, set(named) - known)
        assert "# mistakes:" not in explain_solution(exercise, source)


@pytest.mark.parametrize("number", [exercise.number for exercise in all_exercises()])
def test_every_part_has_hints_and_a_line_of_thought(number):
    for part in get_exercise(number).parts:
        assert part.hint, part.name
        assert part.strong_hint, part.name
        assert part.thought, part.name
        assert part.properties or number > 5, part.name


ANSWER = "This file imports attention from cutaway.course.given. Write it yourself: it is what this exercise asks for."
FROM_SOLUTIONS = "from exercises.solutions.exercise_01_scaled_dot_product import attention"


@pytest.mark.parametrize(
    ("imports", "says"),
    [
        ("from cutaway.course.given import attention", ANSWER),
        ("from cutaway.course.given import attention as f\n\n\ndef attention(q, k, v, mask=None):\n    return f(q, k, v, mask)", ANSWER),
        ("from cutaway.course import given\n\n\ndef attention(q, k, v, mask=None):\n    return given.attention(q, k, v, mask)", ANSWER),
        ("from cutaway.course import given\nattention = given.attention", ANSWER),
        ("from cutaway.course.exercises.scaled_dot_product import attention", ANSWER.replace("given", "exercises.scaled_dot_product")),
        (FROM_SOLUTIONS, ANSWER.replace("cutaway.course.given", "exercises.solutions.exercise_01_scaled_dot_product")),
        (
            "import cutaway.nn.attention\n\n\ndef attention(q, k, v, mask=None):\n    return helper(q, k, v)\n\n\n"
            "def helper(q, k, v):\n    return cutaway.nn.attention.dot_product_attention(q, k, v)",
            "This file imports cutaway.nn.attention. Write it yourself: it is what this exercise asks for.",
        ),
    ],
)  # fmt: skip
def test_an_imported_answer_is_not_right(imports, says, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SOLUTIONS.parents[1]))  # so that exercises.solutions can be imported
    result = check_text(SOLUTION.partition("def attention")[0] + imports + "\n", tmp_path)
    assert states(result) == ["right", "right", "wrong"]
    assert feedback(mark_of(result, "attention"), 2) == [says]


def test_imports_that_are_not_used_or_belong_to_the_exercise_are_fine(tmp_path):
    (tmp_path / NAME).write_text(SOLUTION)
    text = (SOLUTIONS / "exercise_02_multi_head_attention.py").read_text(encoding="utf-8")
    line = "from cutaway.course.given import attention"
    assert line in text
    for other in (
        "from cutaway.course.given import multi_head_attention\nfrom cutaway.course.given import attention",
        "from exercise_01_scaled_dot_product import attention",
        "from cutaway.course.given import attention as f\nattention = f",
    ):
        assert check_text(text.replace(line, other), tmp_path, 2).is_right, other


def test_single_precision_and_plain_lists_are_right(tmp_path):
    text = SOLUTION.replace("return powers /", "return powers.astype(np.float32) /")
    text = text.replace(
        "return np.tril(np.ones((n, n), dtype=bool))", "return [[j <= i for j in range(n)] for i in range(n)]"
    )
    assert check_text(text, tmp_path).is_right


def test_a_file_in_the_same_folder_can_be_imported(tmp_path):
    (tmp_path / "helpers_of_mine.py").write_text("import numpy\ntriangle = numpy.tril\n")
    (tmp_path / "json.py").write_text("not the one that Python has")
    text = SOLUTION.replace("import numpy as np", "import numpy as np\nfrom helpers_of_mine import triangle")
    assert check_text(text.replace("np.tril", "triangle"), tmp_path).is_right


def test_given_functions_accept_keywords_and_hide_their_switches(tmp_path):
    """Their signature is the one in the stubs: (q, k, v, mask=None)."""
    import inspect

    from cutaway.course import given

    assert list(inspect.signature(given.attention).parameters) == ["q", "k", "v", "mask"]
    text = (SOLUTIONS / "exercise_04_encoder_block.py").read_text(encoding="utf-8")
    assert check_text(text.replace("n_heads, mask)", "n_heads=n_heads, mask=mask)"), tmp_path, 4).is_right


def test_a_file_that_imports_both_libraries_belongs_to_the_one_it_uses(tmp_path):
    result = check_text("import torch\n" + SOLUTION, tmp_path)
    assert result.is_right
    assert result.library == "numpy"
    torch_text = (SOLUTIONS / "exercise_01_scaled_dot_product_torch.py").read_text(encoding="utf-8")
    assert check_text("import numpy as np\n" + torch_text, tmp_path).library == "torch"


def test_functions_before_a_failing_line_are_graded(tmp_path):
    result = check_text(SOLUTION + "\nassert softmax(np.zeros(2))[0] == 7\nattention = 1", tmp_path)
    assert states(result) == ["right"] * 3
    assert "AssertionError" in "\n".join(file_failure_lines(result.failure))


def test_a_function_name_that_is_reassigned(tmp_path):
    result = check_text(SOLUTION + "\nsoftmax = softmax(np.zeros(2))", tmp_path)
    assert "softmax is no function here but of type ndarray" in feedback_text(result, "softmax")


def test_an_imported_exercise_for_the_other_library_is_reported(tmp_path):
    (tmp_path / NAME).write_text(SOLUTION)
    text = (SOLUTIONS / "exercise_02_multi_head_attention_torch.py").read_text(encoding="utf-8")
    (tmp_path / get_exercise(2).file).write_text(text + "\nfrom exercise_01_scaled_dot_product import attention\n")
    shown = cutaway("check", "2", cwd=tmp_path).stdout
    assert f"{NAME} is written for NumPy arrays, but this file is tested with PyTorch tensors" in shown


@pytest.mark.parametrize(
    ("edit", "tip"),
    [
        (("x.max(axis=-1, keepdims=True)", "x.max(axis=-1)"), "keepdims=True keeps it"),
        (("if mask is not None:", "if mask:"), "neither true nor false"),
    ],
)
def test_common_crashes_get_a_tip(edit, tip, tmp_path):
    result = check_text(SOLUTION.replace(*edit), tmp_path)
    assert tip in "\n".join(feedback_text(result, m.part.name) for m in result.marks)


def test_an_imported_exercise_that_is_not_finished(tmp_path):
    (tmp_path / NAME).write_text((shipped_folder("exercises") / NAME).read_text(encoding="utf-8"))
    text = (SOLUTIONS / "exercise_02_multi_head_attention.py").read_text(encoding="utf-8")
    text = text.replace("from cutaway.course.given import", "from exercise_01_scaled_dot_product import")
    shown = feedback_text(check_text(text, tmp_path, 2), "multi_head_attention")
    assert f"NotImplementedError (in {NAME}, which is not finished)" in shown


def test_an_error_inside_a_given_function_names_it(tmp_path):
    text = (SOLUTIONS / "exercise_04_encoder_block.py").read_text(encoding="utf-8")
    shown = feedback_text(
        check_text(text.replace("n_heads, mask)", "n_heads, np.ones((7, 7), bool))", 1), tmp_path, 4), "encoder_block"
    )
    assert "(inside multi_head_attention)" in shown


def test_child_processes_are_killed(tmp_path):
    body = "    import subprocess; open('pid', 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); return None"
    check_text(with_mask(body), tmp_path)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "the child is still there"
        time.sleep(0.05)


def test_a_running_thread_does_not_delay_the_check(tmp_path):
    started = time.monotonic()
    assert check_text(
        SOLUTION + "\nimport threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()", tmp_path
    ).is_right
    assert time.monotonic() - started < 6


# --- several mistakes -------------------------------------------------------------------------------------------


def test_a_mistake_of_a_called_part_is_separated_from_a_new_one(tmp_path):
    text = SOLUTION.replace("axis=-1", "axis=-2").replace(" / np.sqrt(d_k)", "")
    result = check_text(text, tmp_path)
    assert [m.name for m in mark_of(result, "softmax").explanations[0]] == ["softmax-axis"]
    assert {m.name for m in mark_of(result, "attention").explanations[0]} == {"softmax-axis", "no-scale"}
    shown = feedback_text(result, "attention")
    assert "Two mistakes at once:" in shown
    assert "(As in softmax.)" in shown
    assert shown.count("Hint:") == 1, "softmax already has its own hint"


def test_a_right_block_is_not_blamed_for_its_feed_forward_network(tmp_path):
    text = (SOLUTIONS / "exercise_04_encoder_block.py").read_text(encoding="utf-8")
    result = check_text(text.replace("return hidden @", "return x + hidden @"), tmp_path, 4)
    for part in ("feed_forward", "encoder_block", "encoder"):
        assert [[m.name for m in e] for e in mark_of(result, part).explanations] == [["residual-inside"]], part
    for part in ("encoder_block", "encoder"):
        shown = feedback_text(result, part)
        assert "x is added to the result; that is not asked for here. (As in feed_forward.)" in shown
        assert "Correct feed_forward, and this will be right too." in shown


def test_a_part_that_is_wrong_only_because_of_a_called_part(tmp_path):
    result = check_text(SOLUTION.replace("axis=-1", "axis=-2"), tmp_path)
    assert "Correct softmax, and this will be right too." in feedback_text(result, "attention")
    result = check_text(SOLUTION.replace("np.exp(x)", "np.cosh(x)"), tmp_path)
    assert "It uses softmax, which is not right yet. Correct that first." in feedback_text(result, "attention")


def test_a_crash_in_one_case_does_not_hide_the_mistake_in_others(tmp_path):
    text = SOLUTION.replace("k.swapaxes(-1, -2) / np.sqrt(d_k)", "k.T")
    result = check_text(text, tmp_path)
    assert [m.name for m in mark_of(result, "attention").explanations[0]] == ["no-scale"]
    shown = feedback_text(result, "attention")
    assert "It stops with ValueError" in shown
    assert ".T turns all axes round" in shown


def test_feedback_has_the_smallest_case_and_a_hint(tmp_path):
    mark = mark_of(check_text(with_mask("    return np.triu(np.ones((n, n)))"), tmp_path), "causal_mask")
    weak, strong = "\n".join(feedback(mark)), "\n".join(feedback(mark, 1))
    assert "n = 3" in weak
    assert "your mask     = [[1., 1., 1.]," in weak
    assert "Hint: " + mark.explanations[0][0].hint in weak
    assert "Hint: " + mark.explanations[0][0].strong_hint in strong
    assert "np.tril" not in weak + strong


@pytest.mark.parametrize(
    ("page", "edit"),
    [("docs/course.md", (" / np.sqrt(d_k)", "")), ("docs/getting-started.md", ("np.sqrt(d_k)", "d_k"))],
)
def test_feedback_in_the_docs_is_real(page, edit, tmp_path):
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    block = text.partition("```\n  ✗ attention(q, k, v, mask)\n")[2].partition("```")[0]
    shown = feedback_text(check_text(SOLUTION.replace(*edit), tmp_path), "attention").splitlines()
    lines = [line.removeprefix("      ") for line in block.splitlines() if line.strip() != "..."]
    assert len(lines) >= 2
    assert set(lines) <= set(shown)


# --- the command -------------------------------------------------------------------------------------------------


def cutaway(*arguments, cwd, home=None):
    command = [sys.executable, "-m", "cutaway", *map(str, arguments)]
    env = {**os.environ, "CUTAWAY_HOME": str(home or cwd / "home")}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=cwd, env=env)


def test_start_then_check_then_solve(tmp_path):
    assert "Start with:" in cutaway("check", cwd=tmp_path).stderr
    started = cutaway("check", "--start", "mine", cwd=tmp_path)
    assert started.returncode == 0
    assert "check 1" in started.stderr
    assert len(list((tmp_path / "mine").glob("exercise_*.py"))) == len(all_exercises())
    first = cutaway("check", "1", cwd=tmp_path)
    assert first.returncode == 1
    assert "not begun" in first.stdout
    assert "Start with dot in mine/exercise_01" in first.stdout
    (tmp_path / "mine" / NAME).write_text(SOLUTION)
    solved = cutaway("check", "1", cwd=tmp_path / "mine", home=tmp_path / "home")
    assert solved.returncode == 0
    assert "All correct." in solved.stdout
    again = cutaway("check", "--start", "mine", cwd=tmp_path)
    assert f"Not overwritten: {NAME}" in again.stderr
    assert (tmp_path / "mine" / NAME).read_text() == SOLUTION
    everything = cutaway("check", cwd=tmp_path)
    assert "5 of 5" in everything.stdout
    assert everything.returncode == 1


def test_json_and_a_file_by_name(tmp_path):
    (tmp_path / "exercise_01_my_try.py").write_text(SOLUTION.replace(" / np.sqrt(d_k)", ""))
    result = cutaway("check", "exercise_01_my_try.py", "--json", cwd=tmp_path)
    (record,) = json.loads(result.stdout)
    assert record["parts"][-1]["mistakes"] == [["no-scale"]]
    assert record["right"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["99"], "unknown exercise 99. Choose one of: 1, 2, 3, 4, 5"),
        (["nothing.py"], "'nothing.py' is neither the number of an exercise (1 to 10) nor a file"),
        (["exercise_01.py"], "there is no file 'exercise_01.py'"),
        (["1"], "is neither in this folder nor in exercises/. Copy the exercises with:"),
        (["--watch"], "--watch needs an exercise"),
        (["--solution"], "--solution needs an exercise"),
    ],
)
def test_invalid_arguments_are_reported(arguments, message, tmp_path):
    result = cutaway("check", *arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert message in " ".join(result.stderr.split())


def test_solution_is_printed(tmp_path):
    assert "powers / powers.sum" in cutaway("check", "1", "--solution", cwd=tmp_path).stdout


def test_watch_checks_at_each_save(tmp_path):
    path = tmp_path / NAME
    path.write_text(SOLUTION.replace(" / np.sqrt(d_k)", ""))
    command = [sys.executable, "-m", "cutaway", "check", "1", "--watch"]
    env = {**os.environ, "CUTAWAY_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"}
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=out, stderr=out)
        try:
            wait_for(log, "not divided by sqrt(d_k)")
            path.write_text(SOLUTION)
            wait_for(log, "All correct.")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
            process.wait()
    assert "Stopped." in log.read_text()


def wait_for(log: Path, text, seconds=60):
    deadline = time.monotonic() + seconds
    while text not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


# --- all exercises, in the sandbox --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [exercise.number for exercise in all_exercises()])
@pytest.mark.parametrize("library", ["", "_torch"])
def test_a_check_takes_seconds(number, library, tmp_path):
    """Both for a right file and for one in which everything is wrong."""
    stem = Path(get_exercise(number).file).stem
    path = SOLUTIONS / f"{stem}{library}.py"
    started = time.monotonic()
    assert grade_file(get_exercise(number), path).is_right
    right = time.monotonic() - started
    broken = path.read_text().replace("return ", "return 1.5 * ")
    started = time.monotonic()
    check_text(broken, tmp_path, number)
    assert max(right, time.monotonic() - started) < 10
