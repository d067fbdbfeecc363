/* specdec.h - lossless speculative decoding of GGUF language models on CPUs, in one header. C99, C++11; MIT licence
   at the end.

   DO THIS

     In ONE C or C++ file, before other headers:

         #define SPECDEC_IMPLEMENTATION
         #include "specdec.h"

     and build it with  cc -O2 -pthread  (no other flags, no libraries). Everywhere else just include it.

         specdec_config config = {0};                    // zero means "the good default", everywhere
         config.target.path = "model.gguf";
         config.draft.path = "small-model.gguf";         // optional: same vocabulary
         specdec_memory_needed(&config, &bytes, &error);
         specdec_init(&engine, &config, malloc(bytes), bytes, &error);
         specdec_prompt(engine, "Once upon a time", SPECDEC_WHOLE_STRING);
         do {
             result = specdec_next(engine, &piece);      // the last one may bring bytes, too
             fwrite(piece.bytes, 1, piece.length, stdout);
         } while (result == SPECDEC_OK);
         specdec_deinit(engine);

   WHAT IT DOES

     Runs a model of the architectures llama, mistral3, qwen2, qwen3, qwen3moe, qwen2vl, qwen3vl and qwen3vlmoe (their
     text), gemma, gemma2, gemma3, phi3, smollm3, granite, granitemoe, ernie4_5, exaone, exaone4, glm4, internlm2,
     minicpm, olmo2, olmoe, apertus, arcee, bailingmoe2, cohere2, ernie4_5-moe, glm4moe, gpt-oss, hunyuan-dense,
     qwen2moe and seed_oss, dense or, where these have them, with experts (llama: Mixtral), from a GGUF
     file or from memory. A cheap drafter guesses several tokens as a tree; one pass over the model's weights verifies
     all of them; what the model itself would have written is kept. The text is the one that plain decoding writes, byte
     for byte, greedy or sampled. One pass serves many texts (specdec_open, specdec_fork), also some that fork by
     themselves.

   WHAT IT DOES NOT

     No training, no GPU, no downloads, no images.

   STEP BY STEP

     1. Fill a specdec_config. 2. specdec_memory_needed says how many bytes. 3. Get them anywhere: malloc, a static
     array, huge pages. 4. specdec_init. 5. specdec_prompt or specdec_chat. 6. specdec_next until it is not SPECDEC_OK;
     specdec_stopped says why. 7. Again from 5; specdec_rewind or specdec_set first, if wanted. 8. specdec_deinit; then
     the block is yours again. Lower doors: specdec_step (tokens), specdec_logits (logits), specdec_model_init (one
     model, many engines), and the plain functions on arrays (specdec_sample_..., specdec_tree_..., specdec_verify_...),
     which need no engine.

   MEMORY

     None is allocated, ever. The block holds everything: the engine, thread stacks, the KV cache (pages of 64 tokens),
     buffers for one step, and the weights once more, repacked (config.weights_in_place spares those). The GGUF stays
     mapped or yours. Windows and macOS take no stacks from others: each further thread has 256 KB outside the
     block. Of the caller's own stack, calls need at most 22 KB (optimised; 3 to 22 were measured, most when an engine
     is made, and 2.5 more at the first call of a program that is linked lazily). Of gcc's -O2, no frame is above 3 KB.
     Once the weights are repacked, the pages of a mapped file are given back to the system, which has them again when
     they are read. Whoever truncates a mapped file kills the process that reads it (SIGBUS): replace model files by
     renaming new ones over them. Where that cannot be ruled out, set config.target.copy, or catch the signal, as
     examples/specdec.c does.

   THREADS

     config.threads of them, the caller's included. An engine, with all its texts, is used by one thread at a time;
     specdec_cancel may come from any, and from signal handlers. A call that comes while another one is under way, from
     a second thread or from a hook, is refused with ERROR_ARGUMENT and changes nothing, not even the words of an error;
     calls that close, drop or end do nothing then. Those that only tell something (specdec_tokens, specdec_get_info and
     the like) are not checked. Engines are independent of each other. Models made by specdec_model_init are read-only:
     any number of threads may use one. Functions on arrays keep no state.

   WHAT MUST STAY VALID

     Until specdec_deinit: the block; models and data of the sources (target, draft, heads), not their paths; the
     cluster and what it points to; hooks.user_data; the biases of config.settings, for texts opened later. Until other
     settings replace them, or the text is closed: the biases of specdec_set. All else of a config, and what other calls
     are given, stop strings too, is read during that call alone. What the engine hands out stays as it is: a piece,
     tokens and log-probabilities until the next call on that text; error words until a call fails; names in
     specdec_info and a model's until specdec_deinit. After that, as long as the block lies there untouched, calls are
     refused with ERROR_ARGUMENT, and a second specdec_deinit does nothing.

   DETERMINISM

     The logits of a position are the same bits at every number of threads, step width, tree shape, drafter and
     instruction set. Every sum has one order (see >>kernel/kernel); exp, log, sin and cos are ours; noise is a function
     of (seed, position, token).

   ERRORS

     Every call that can fail returns a specdec_result: OK, DONE and PENDING are no errors, all others are. Words say
     which tensor, key or token (in a specdec_error, which may be NULL everywhere, or, once there is an engine, by
     specdec_error_text). Nothing aborts. Files are checked byte by byte before they are believed. A failed call leaves
     the engine as it was, and may be repeated. With a NULL, calls that return nothing do nothing (specdec_tokens: 0).

   CONTENTS (search for the marker, >>room/part)

     >>base/ base os pool lane op begin end
     >>quant/ types decode table fit wide encode tiles planes
     >>kernel/ kernel scalar weigh x86 sse41 avx2 avx2_multiply avx2_tiles avx512 avx512_grid avx512_tiles avx512_rows
         neon neon_unpack neon_facts neon_dotprod neon_i8mm neon_panels neon_nibbles neon32 rvv lines dispatch lanes
         lanes_rows
     >>model/ gguf mixing model parts facts tensors rope bind heads nextn open
     >>text/ vocabulary unicode json words stages lookup load merge tokenize decode stop answer splitter template
         template_write template_method template_filter template_token template_parse template_run chat conversation
     >>constraint/ automaton build expression finish gbnf strings numbers schema values objects tools compile trie
         mask
     >>cache/ state kv reserve bytes
     >>forward/ context screen multiply rows latent streams attention recurrent block experts step
     >>speculation/ heads sample samplers settle tree verify recycle ngram ngram_file retrieve constrained row
         draft short levels draft_model draft_heads draft_layer draft_assistant draft_block draft_ngram draft_forced
         draft_recall drafters tune
     >>engine/ stream engine layout sequences start prefill slide step api api_chat api_model api_functions
         api_constraint fields save enter
     >>schedule/ lane stop plan speculate ahead trees stage pipe work
     >>cluster/ wire config link orders rank draft_tokens meet ranks draft_remote draft_rank cluster */

#ifndef SPECDEC__ISA

#include "interface/begin.h"

#ifndef SPECDEC_H
#define SPECDEC_H

#include "interface/engine.h"
#include "interface/functions.h"
#include "interface/layout.h"

#endif /* SPECDEC_H */

#ifdef __clang__
#pragma clang diagnostic pop
#endif

#ifdef SPECDEC_IMPLEMENTATION
#ifndef SPECDEC_IMPLEMENTED
#define SPECDEC_IMPLEMENTED

#include "base/begin.h"
#include "base/base.h"
#include "base/os.h"
#include "base/pool.h"
#include "base/lane.h"
#include "quant/types.h"
#include "quant/decode.h"
#include "quant/table.h"
#include "quant/fit.h"
#include "quant/wide.h"
#include "quant/encode.h"
#include "quant/tiles.h"
#include "base/op.h"
#include "quant/planes.h"
#include "kernel/kernel.h"
#include "kernel/scalar.h"
#include "kernel/weigh.h"
#include "kernel/x86.h"
#include "kernel/sse41.h"
#include "kernel/avx2.h"
#include "kernel/avx2_multiply.h"
#include "kernel/avx2_tiles.h"
#include "kernel/avx512.h"
#include "kernel/avx512_grid.h"
#include "kernel/avx512_tiles.h"
#include "kernel/avx512_rows.h"
#include "kernel/neon.h"
#include "kernel/neon_unpack.h"
#include "kernel/neon_facts.h"
#include "kernel/neon_dotprod.h"
#include "kernel/neon_i8mm.h"
#include "kernel/neon_panels.h"
#include "kernel/neon_nibbles.h"
#include "kernel/neon32.h"
#include "kernel/rvv.h"
#include "kernel/lines.h"
#include "kernel/dispatch.h"
#include "model/gguf.h"
#include "text/vocabulary.h"
#include "text/unicode.h"
#include "text/json.h"
#include "text/words.h"
#include "text/stages.h"
#include "text/lookup.h"
#include "text/load.h"
#include "text/merge.h"
#include "text/tokenize.h"
#include "text/decode.h"
#include "text/stop.h"
#include "text/answer.h"
#include "text/splitter.h"
#include "text/template.h"
#include "text/template_write.h"
#include "text/template_method.h"
#include "text/template_filter.h"
#include "text/template_token.h"
#include "text/template_parse.h"
#include "text/template_run.h"
#include "text/chat.h"
#include "text/conversation.h"
#include "constraint/automaton.h"
#include "constraint/build.h"
#include "constraint/expression.h"
#include "constraint/finish.h"
#include "constraint/gbnf.h"
#include "constraint/strings.h"
#include "constraint/numbers.h"
#include "constraint/schema.h"
#include "constraint/values.h"
#include "constraint/objects.h"
#include "constraint/tools.h"
#include "constraint/compile.h"
#include "constraint/trie.h"
#include "constraint/mask.h"
#include "model/mixing.h"
#include "model/model.h"
#include "model/parts.h"
#include "model/facts.h"
#include "model/tensors.h"
#include "model/rope.h"
#include "model/bind.h"
#include "model/heads.h"
#include "model/nextn.h"
#include "model/open.h"
#include "cache/state.h"
#include "cache/kv.h"
#include "cache/reserve.h"
#include "cache/bytes.h"
#include "forward/context.h"
#include "forward/screen.h"
#include "forward/multiply.h"
#include "forward/rows.h"
#include "forward/latent.h"
#include "forward/streams.h"
#include "forward/attention.h"
#include "forward/recurrent.h"
#include "forward/block.h"
#include "forward/experts.h"
#include "forward/step.h"
#include "speculation/heads.h"
#include "speculation/sample.h"
#include "speculation/samplers.h"
#include "speculation/settle.h"
#include "speculation/tree.h"
#include "speculation/verify.h"
#include "speculation/recycle.h"
#include "speculation/ngram.h"
#include "speculation/ngram_file.h"
#include "speculation/retrieve.h"
#include "speculation/constrained.h"
#include "speculation/row.h"
#include "speculation/draft.h"
#include "speculation/short.h"
#include "speculation/levels.h"
#include "speculation/draft_model.h"
#include "speculation/draft_heads.h"
#include "speculation/draft_layer.h"
#include "speculation/draft_assistant.h"
#include "speculation/draft_block.h"
#include "speculation/draft_ngram.h"
#include "speculation/draft_forced.h"
#include "speculation/draft_recall.h"
#include "speculation/drafters.h"
#include "speculation/tune.h"
#include "engine/stream.h"
#include "schedule/lane.h"
#include "engine/engine.h"
#include "engine/layout.h"
#include "schedule/stop.h"
#include "engine/sequences.h"
#include "engine/start.h"
#include "engine/prefill.h"
#include "engine/slide.h"
#include "schedule/plan.h"
#include "schedule/speculate.h"
#include "schedule/ahead.h"
#include "schedule/trees.h"
#include "engine/step.h"
#include "schedule/stage.h"
#include "schedule/pipe.h"
#include "schedule/work.h"
#include "cluster/wire.h"
#include "cluster/config.h"
#include "cluster/link.h"
#include "cluster/orders.h"
#include "cluster/rank.h"
#include "cluster/draft_tokens.h"
#include "cluster/meet.h"
#include "cluster/ranks.h"
#include "cluster/draft_remote.h"
#include "cluster/draft_rank.h"
#include "cluster/cluster.h"
#include "engine/api.h"
#include "engine/api_chat.h"
#include "engine/api_model.h"
#include "engine/api_functions.h"
#include "engine/api_constraint.h"
#include "engine/fields.h"
#include "engine/save.h"
#include "engine/enter.h"
#include "base/end.h"
#endif /* SPECDEC_IMPLEMENTED */
#endif /* SPECDEC_IMPLEMENTATION */

#else /* SPECDEC__ISA: this file is including itself */

#include "kernel/lanes.h"
#include "kernel/lanes_rows.h"

#endif /* SPECDEC__ISA */

/* MIT License

   Copyright (c) 2026 The specdec.h founders

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
   documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
   rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
   permit persons to whom the Software is furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
   Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
   WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
   COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
   OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */
