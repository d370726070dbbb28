"""llama.cpp's own server with a tiny model of random weights: `python llama_server.py FOLDER PORT`."""

import signal
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import xllamacpp

WIDTH, LAYERS, HEADS, FEED_FORWARD, WINDOW = 64, 2, 4, 128, 16384
END = 2  # the token that ends an answer
TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}<assistant>"


def write_model(path: Path) -> None:
    """Write a model that knows bytes and letters, and has learned nothing."""
    kinds = gguf.TokenType
    special = [(b"<unk>", kinds.UNKNOWN), (b"<s>", kinds.CONTROL), (b"</s>", kinds.CONTROL)]
    octets = [(f"<0x{number:02X}>".encode(), kinds.BYTE) for number in range(256)]
    letters = [(bytes([number]), kinds.NORMAL) for number in range(32, 127)]
    tokens = [*special, *octets, *letters]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(WINDOW)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    chance = np.random.default_rng(7)

    def add(name: str, *shape: int, factor: Any = 1) -> None:
        values = chance.standard_normal(shape) * 0.1 if len(shape) > 1 else np.ones(shape)
        writer.add_tensor(f"{name}.weight", (values * factor).astype(np.float32))

    add("token_embd", len(tokens), WIDTH)
    ends = np.ones((len(tokens), 1))
    ends[END] = 2.5  # without this an answer would hardly ever end by itself
    add("output", len(tokens), WIDTH, factor=ends)
    add("output_norm", WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for norm in ("attn_norm", "ffn_norm"):
            add(f"{block}.{norm}", WIDTH)
        for attention in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}.{attention}", WIDTH, WIDTH)
        for feed in ("ffn_gate", "ffn_up"):
            add(f"{block}.{feed}", FEED_FORWARD, WIDTH)
        add(f"{block}.ffn_down", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Serve until the process is killed."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir()
    path = folder / "tiny.gguf"
    write_model(path)
    options = xllamacpp.CommonParams()
    options.model.path = str(path)
    options.model_alias = {"tiny"}
    options.n_ctx = 2 * WINDOW
    options.n_parallel = 2
    options.n_predict = 400
    options.hostnames = ["127.0.0.1"]
    options.port = port
    options.use_jinja = True
    options.chat_template = TEMPLATE
    options.sampling.seed = 7
    options.warmup = False
    # One thread: several wait for each other, which takes long on a busy machine.
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(options)
    sys.stdout.write(f"ready at {server.listening_address}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
