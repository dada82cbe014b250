"""What is known of the rows that are off by more than 1 %."""

_TUPLES = (
    "transformers 4.38 makes the whole cache anew with every token, so two stand at once; a third stands here, where generate()"
    " is handed a filled one that its caller keeps"
)
_RESIDENT = "the page's counter holds no transient: one layer's keys, copied to take the last token, are 64 MiB"
_RECORDED = (
    "torch of March 2024: NCCL marks what its collectives touch as used on its own stream, so blocks freed in Python come back"
    " when the card has caught up, which no order of events tells"
)
_LOGITS = "its script is not published: the eager loss of torch 2.13 holds some 1.6 bytes per logit more; Liger's rows agree"
_LATE = (
    "not proven: a layer gathered by FSDP1 comes back to the allocator when the card has read it, and the host runs ahead, by how"
    " much no order of events tells"
)
_FULL = "the card is full: which segments are given back, and how the rest is cut, hangs on its last MiB"
_OVER = "the trace finds no room on the card: the figure is that of one without an end"
_HOLE = "the second batch's logits take a segment of their own from 470 tokens on: -0.2 % there"
_COMPILED = "compiled: what is fused, and in which order buffers are made, is a rule's here and Inductor's there: an upper bound"
EXPLAINED: dict[str, str] = {
    "hf-qwen1.5-0.5b-chat-01": _TUPLES,
    "hf-qwen1.5-1.8b-chat-01": _TUPLES,
    "hf-qwen2-0.5b-instruct-01": _TUPLES,
    "hf-qwen3-0.6b-02": _RESIDENT,
    "tune-3.2-3b-packed": "traced in torchtune 0.6.1; the report is of November 2024's code, which no package holds",
    "titan-83c879f18-fsdp2-noac-compile-bs8": _COMPILED,
    "titan-83c879f18-fsdp2-sac-compile": _COMPILED,
    "titan-83c879f18-fsdp2-sac-compile-bs16": _COMPILED + "; unused segments were given back at the card's end",
    "titan-83c879f18-fsdp2-ac": _RECORDED,
    "titan-83c879f18-fsdp2-sac": _RECORDED,
    "litgpt-hub-tiny-llama-full": "its longest batch is the first, before gradients and states exist; later ones are shorter",
    "liger-pr1424-dsv3mini-s4096-hf": _LOGITS,
    "liger-pr1424-dsv3mini-s8192-hf": _LOGITS,
    "fsdpqlora-7b-qlora-bs1-s512": _LATE,
    "fsdpqlora-7b-lora-bs1-s512": _LATE,
    "fsdpqlora-70b-qlora-bs2-s2048-offload": _LATE,
    "fsdpqlora-7b-qlora-bs10-s2048": _FULL,
    "fsdpqlora-7b-qlora-bs12-s2048-offload": _OVER,
    "peft-metamath-prefixtuning-lr_0.001": _HOLE,
}
