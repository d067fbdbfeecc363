# make            the programs, into build/
# make help       everything else
CC = cc
CFLAGS = -O2
SPECDEC_CFLAGS = -std=c99 -pthread -I.
COMPILE = $(CC) $(SPECDEC_CFLAGS) $(CPPFLAGS) $(CFLAGS)

PROGRAMS = specdec hello specdec-logits specdec-tokens specdec-info specdec-quantize embedded
HEADERS = specdec.h tools/program.h tests/check.h
TESTS = $(patsubst tests/%.c,build/%,$(sort $(wildcard tests/test_*.c)))
FUZZERS = $(patsubst tests/%.c,build/%,$(sort $(wildcard tests/fuzz_*.c)))
PAIR = -m examples/models/tiny-stories-target-q8_0.gguf -md examples/models/tiny-stories-draft-q8_0.gguf

all: $(PROGRAMS:%=build/%)

help:
	@echo 'make           build/: $(PROGRAMS)'
	@echo 'make demo      a story from the model pair in examples/models, with speculation and without'
	@echo 'make test      all tests; needs nothing but a C compiler and make'
	@echo 'make model     fetches TinyLlama-1.1B-Chat into models/ (320 MB; needs npm) and writes its Q4_0, Q8_0, Q4_K_M'
	@echo 'make bench     measures this machine'
	@echo 'make fuzz      every fuzzer for SECONDS=60; needs clang'
	@echo 'make arm       tests built for aarch64, run under qemu; needs aarch64-linux-gnu-gcc and qemu-user'
	@echo 'make clean     removes build/'
	@echo 'CC=clang, CFLAGS="-O2 -g" and the like may be given.'

# --- programs ---------------------------------------------------------------------------------------------------------

build:
	@mkdir -p build

build/%: examples/%.c $(HEADERS) | build
	$(COMPILE) -o $@ $< $(LDFLAGS)

build/%: tools/%.c $(HEADERS) | build
	$(COMPILE) -o $@ $< $(LDFLAGS)

build/%: tests/%.c $(HEADERS) | build
	$(COMPILE) -o $@ $< $(LDFLAGS)

# The model that embedded carries in itself, and the memory that it declares for it.
EMBEDDED_MODEL = examples/models/tiny-stories-draft-q8_0.gguf
EMBEDDED_CONTEXT = 256

build/embedded: examples/embedded.c $(EMBEDDED_MODEL) specdec.h build/specdec-info
	$(COMPILE) -DMODEL_FILE='"$(EMBEDDED_MODEL)"' -DCONTEXT=$(EMBEDDED_CONTEXT) \
	    -DMEMORY_BYTES="$$(build/specdec-info -m $(EMBEDDED_MODEL) -c $(EMBEDDED_CONTEXT) -t 1 --in-place --memory)" -o $@ $< $(LDFLAGS)

# --- tests ------------------------------------------------------------------------------------------------------------

test: all $(TESTS)
	@sh tests/run.sh $(TESTS) tests/test_programs.sh

.PHONY: all help test demo model bench fuzz arm clean
