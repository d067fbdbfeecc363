# make            the programs, into build/
# make help       everything else
CC = cc
CFLAGS = -O2
SPECDEC_CFLAGS = -std=c99 -pthread -I.
COMPILE = $(CC) $(SPECDEC_CFLAGS) $(CPPFLAGS) $(CFLAGS)

PROGRAMS = $(patsubst %.c,%,$(notdir $(sort $(wildcard examples/*.c tools/*.c))))
HEADERS = specdec.h tools/program.h $(wildcard tests/*.h)
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

# Cross-built for aarch64 and run in an emulator; the slow parts are left out.
ARM_CC = aarch64-linux-gnu-gcc
ARM_RUN = qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu
ARM_TESTS = $(TESTS:build/%=build/arm/%)

build/arm/%: tests/%.c $(HEADERS)
	@mkdir -p build/arm
	$(ARM_CC) $(SPECDEC_CFLAGS) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(LDFLAGS)

arm:
	@command -v $(ARM_CC) > /dev/null || { echo 'make arm: $(ARM_CC) is missing (Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)'; exit 1; }
	@command -v $(firstword $(ARM_RUN)) > /dev/null || { echo 'make arm: $(firstword $(ARM_RUN)) is missing (Debian: apt-get install qemu-user)'; exit 1; }
	@$(MAKE) $(ARM_TESTS)
	@TEST_WRAPPER="$(ARM_RUN)" SPECDEC_QUICK=1 sh tests/run.sh $(ARM_TESTS)

# Every fuzzer, SECONDS each, on what it has found so far in build/corpus.
FUZZ_CC = clang
SECONDS = 60

build/fuzz_%: tests/fuzz_%.c $(HEADERS) | build
	$(FUZZ_CC) -std=c99 -pthread -I. -g -O1 -fsanitize=fuzzer,address,undefined -o $@ $<

fuzz:
	@command -v $(FUZZ_CC) > /dev/null || { echo 'make fuzz: $(FUZZ_CC) is missing: libFuzzer comes with it'; exit 1; }
	@$(MAKE) $(FUZZERS)
	@for fuzzer in $(FUZZERS); do \
	    mkdir -p build/corpus/$${fuzzer#build/} && \
	    $$fuzzer -max_total_time=$(SECONDS) -max_len=65536 -timeout=10 build/corpus/$${fuzzer#build/} || exit 1; \
	done

# --- runs -------------------------------------------------------------------------------------------------------------

# One thread: with so small a model, two would mostly wait for each other.
demo: build/specdec
	@sh tools/demo.sh build/specdec $(PAIR) -p 'Once upon a time' -n 200 -t 1

model: build/specdec-quantize
	@sh tools/make-model.sh

BENCH = $(patsubst tools/%.c,build/%,$(wildcard tools/specdec-bench.c))

bench: $(BENCH)
	@test -n "$(BENCH)" || { echo 'make bench: tools/specdec-bench.c is not written yet; build/specdec --stats FILE.json measures one run'; exit 1; }
	@$(BENCH) $(PAIR)

clean:
	rm -rf build

.PHONY: all help test demo model bench fuzz arm clean
.SUFFIXES:
.DELETE_ON_ERROR:
