from raypoly.core.values import Problem, TestSuite
from raypoly.recipes.cppo.gate_question import GateQuestion
from tests.raypoly.data.test_prompt_tokens import adding


def test_a_gates_question_begins_with_a_bos_once_and_its_answers_with_none() -> None:
    tokenizer = adding("<s> $A")
    bos = tokenizer.convert_tokens_to_ids("<s>")
    question = GateQuestion.of(tokenizer)
    asked = question.tokens(Problem("p", "Sum.", "f", TestSuite("calls", "[]")), "A: loop")
    assert (asked[0], asked.count(bos), bos in question.first_tokens) == (bos, 1, False)
