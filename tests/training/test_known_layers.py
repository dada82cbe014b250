"""What the answer says of the layers that run: unread classes, traced errors, and classes that nobody traced."""

from vramcast.models.classes import Traced, model_class
from vramcast.models.reading import read_model
from vramcast.training.activations.choice import SHOWN, usual_error
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.workload import Training


def _answer(name: str, **asked: object) -> TrainingForecast:
    return forecast_training(Training(model=name, seq=512, **asked), model=read_model(name))  # type: ignore[arg-type]


def _said(answer: TrainingForecast) -> str:
    return " | ".join(one.what for one in answer.unmodelled)


def test_a_class_whose_modelling_file_nobody_read_is_named_and_novel() -> None:
    answer = _answer("THUDM/chatglm2-6b")
    assert "how chatglm writes its layers was not read" in _said(answer)
    assert answer.novel


def test_a_class_that_nobody_traced_takes_the_error_of_nine_in_ten() -> None:
    answer = _answer("internlm/internlm2-1_8b")
    note = next(one for one in answer.unmodelled if "no layer of internlm2 was traced" in one.what)
    assert note.bound_bytes
    assert 0.02 < usual_error().saved < 0.3


def test_a_traced_error_is_an_assumption_while_small_and_a_note_when_not() -> None:
    llama = _answer("meta-llama/Llama-3.1-8B")
    assert "traced_error" in {taken.name for taken in llama.assumed}
    falcon = model_class("falcon").traced
    assert falcon is not None
    assert falcon.forward > SHOWN
    assert "traced falcon layers were off by" in _said(_answer("tiiuae/falcon-11B"))


def test_a_frameworks_own_layers_have_no_class() -> None:
    answer = _answer("meta-llama/Llama-3.1-8B", framework="megatron")
    assert "traced_error" not in {taken.name for taken in answer.assumed}
    assert "traced" not in _said(answer)


def test_a_wrapper_trains_as_its_decoder() -> None:
    """Llama 4 under its wrapper's name and under its text's: the same bytes (809.5 against 900.1 GiB before)."""
    model = read_model("meta-llama/Llama-4-Scout-17B-16E-Instruct")
    text = type(model)(**{f: getattr(model, f) for f in model.__struct_fields__} | {"family": "llama4_text", "wraps": ""})
    asked = Training(model=model.id, seq=4096)
    both = [forecast_training(asked, model=m).worst.needed_bytes for m in (model, text)]
    assert both[0] == both[1] > 850 * 2**30


def test_traced_errors_are_shares() -> None:
    assert all(0 <= getattr(usual_error(), f) < 1 for f in Traced.__struct_fields__)
